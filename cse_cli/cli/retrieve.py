"""`cse retrieve`: nearest sentences, an index of them, and how well partners are found."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cse_cli.cli.groups import grouped
from cse_cli.cli.options import (
    DataDir,
    Json,
    Loading,
    Models,
    Output,
)
from cse_cli.cli.probes import Labels
from cse_cli.cli.report import check_output
from cse_cli.cli.retrieve_check import check
from cse_cli.cli.retrieve_options import (
    STSB,
    Candidates,
    CorpusFile,
    Count,
    Eval,
    ExcludeQuery,
    Extend,
    FileEncoding,
    Groups,
    HitFormat,
    IndexFolder,
    IndexType,
    Match,
    NoVerify,
    Query,
    TextColumn,
)

if TYPE_CHECKING:
    from cse_cli.data.partners import Partners

    Given = dict[str, Any]


@grouped
def retrieve(
    models: Models,
    corpus: CorpusFile = None,
    query: Query = None,
    k: Count = None,
    match: Match = "text",
    exclude_query: ExcludeQuery = False,
    text_column: TextColumn = None,
    encoding: FileEncoding = "utf-8",
    index: IndexFolder = None,
    index_type: IndexType = None,
    extend: Extend = False,
    candidates: Candidates = None,
    no_verify: NoVerify = False,
    eval: Eval = None,
    groups: Groups = None,
    data_dir: DataDir = None,
    labels: Labels = None,
    format: HitFormat = None,
    json: Json = False,
    output: Output = None,
    *,
    loading: Loading,
    context: typer.Context,
) -> None:
    """Find the sentences nearest to a query, or measure how well partners find each other.

    Example: cse retrieve runs/simcse runs/sscl --corpus captions.txt --query "two dogs play" -k 3

    Example: cse retrieve runs/sscl --corpus captions.txt --index captions.index --index-type hnsw

    Example: cse retrieve runs/sscl --index captions.index --query queries.txt > hits.jsonl

    Example: cse retrieve runs/simcse runs/sscl --eval stsb
    """
    given = dict(locals())
    del given["context"]
    given |= asdict(given.pop("loading"))
    check_output(output)
    check(given, [name for name in given if _is_typed(context, name)])
    if eval is not None:
        _evaluate(given, loading)
    else:
        _search(given, loading)


def _search(given: "Given", loading: Loading) -> None:
    """Build what is asked for and answer the queries with every checkpoint."""
    from cse_cli.cli.hits import Search, choose_count, find, read_queries, show, tell_built
    from cse_cli.cli.probes import labelled, open_each

    queries = None if given["query"] is None else read_queries(given["query"])
    names = labelled(given["models"], given["labels"])
    search = Search.scan(given)
    search.check(given["k"])
    config = {**given, "checkpoints": names}
    records = []
    for _, encoder in open_each(names, loading):
        with search.opened(encoder) as searcher:
            if searcher is None:
                return
            if queries is None:
                tell_built(searcher, json=_format(given) == "json", config=config)
                return
            k = choose_count(given["k"], len(searcher.index), searcher.index.folder)
            records += find(
                searcher,
                encoder,
                queries,
                k,
                match=given["match"],
                exclude=given["exclude_query"],
            )
    show(records, format=_format(given), output=given["output"], config=config)


def _evaluate(given: "Given", loading: Loading) -> None:
    """Score every checkpoint on finding partners."""
    from cse_cli.cli.probes import labelled, note, open_each
    from cse_cli.cli.report import report
    from cse_cli.results import Table
    from cse_cli.tasks.retrieve import evaluate_retrieval

    names = labelled(given["models"], given["labels"])
    task, split, partners = _partners(given)
    table = Table()
    for label, encoder in open_each(names, loading):
        encode = partial(encoder.encode, progress=True)
        table.extend(
            evaluate_retrieval(
                encode, partners, model=label, task=task, split=split, match=given["match"]
            )
        )
    title = f"{task}: {len(partners.texts)} sentences, {len(partners.pairs)} queries"
    report(
        table,
        command="retrieve",
        config={**given, "checkpoints": names},
        format=_format(given) or "table",
        output=given["output"],
        title=note(title, task),
    )


def _partners(given: "Given") -> "tuple[str, str, Partners]":
    """Name, split and partners of what `--eval` asks for."""
    from cse_cli.cli.inputs import data_folder
    from cse_cli.cli.probes import stsb_pairs
    from cse_cli.data.partners import load_groups, load_partners, partners_of_pairs

    source = given["eval"]
    if source == STSB:
        task, pairs = stsb_pairs(data_folder(given["data_dir"]), "test")
        return task, "test", partners_of_pairs(pairs)
    if given["groups"] is not None:
        return Path(source).stem, "", load_groups(source, given["groups"])
    return Path(source).stem, "", load_partners(source)


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _format(given: "Given") -> str | None:
    return "json" if given["json"] else given["format"]
