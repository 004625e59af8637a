"""The options of `cse retrieve`, by what they are for."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cse_cli.cli.options import FORMATS, OUTPUT_PANEL, choice

KINDS = ("exact", "hnsw", "ivfpq", "int8", "binary")
MATCHES = ("text", "index")
STSB = "stsb"
JSON_LINES = "jsonl"
SEARCH_PANEL, INDEX_PANEL, EVAL_PANEL = "Search", "Index", "Evaluation"


def _option(panel: str, *names: str, **settings: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, show_default=False, **settings)


CorpusFile = Annotated[
    str | None,
    _option(
        SEARCH_PANEL,
        "--corpus",
        metavar="FILE",
        help="The sentences that are searched: .txt (one a line), .csv, .tsv, .jsonl, each also "
        ".gz, or `-`.",
    ),
]
Query = Annotated[
    str | None,
    _option(
        SEARCH_PANEL,
        "--query",
        metavar="TEXT|FILE|-",
        help="What is looked for: a sentence, a file of sentences, or standard input.",
    ),
]
Count = Annotated[
    int | None,
    _option(SEARCH_PANEL, "-k", "--top", metavar="N", min=1, help="Hits of a query; else 10."),
]
ExcludeQuery = Annotated[
    bool,
    _option(SEARCH_PANEL, "--exclude-query", help="The query's own string is no hit."),
]
Match = Annotated[
    str,
    typer.Option(
        "--match",
        rich_help_panel=SEARCH_PANEL,
        help="What is ranked: `text`, different strings, each once; `index`, every row.",
        **choice("--match", MATCHES),
    ),
]
TextColumn = Annotated[
    str | None,
    _option(
        SEARCH_PANEL,
        "--text-column",
        metavar="NAME",
        help="The corpus's column, in .csv, .tsv and .jsonl; else the only one, or `text`.",
    ),
]
FileEncoding = Annotated[
    str,
    typer.Option("--encoding", metavar="NAME", rich_help_panel=SEARCH_PANEL, help="Of the corpus."),
]
IndexFolder = Annotated[
    Path | None,
    _option(
        INDEX_PANEL,
        "--index",
        metavar="DIR",
        help="Keep the vectors of --corpus here, and use them again. A build that was interrupted "
        "is resumed by the same command; under torchrun each process builds a shard.",
    ),
]
IndexType = Annotated[
    str | None,
    _option(
        INDEX_PANEL,
        "--index-type",
        help="exact (default); hnsw or ivfpq, approximate, which need faiss; int8 or binary "
        "codes. All are rescored with the exact vectors.",
        **choice("--index-type", KINDS),
    ),
]
Extend = Annotated[
    bool, _option(INDEX_PANEL, "--extend", help="Add --corpus to an index of other text.")
]
Candidates = Annotated[
    int | None,
    _option(
        INDEX_PANEL,
        "--candidates",
        metavar="N",
        min=1,
        help="Candidates of a query in an index that is not exact: more is slower and finds more.",
    ),
]
NoVerify = Annotated[
    bool,
    _option(
        INDEX_PANEL,
        "--no-verify",
        help="Compare the index's files by size only, not by hash: opens a large one at once.",
    ),
]
Eval = Annotated[
    str | None,
    _option(
        EVAL_PANEL,
        "--eval",
        metavar="stsb|FILE",
        help="Recall and MRR of partners: the pairs of STS-B test with the top score, both ways; "
        "a file of a<TAB>b or score<TAB>a<TAB>b; or, with --groups, of sentences.",
    ),
]
Groups = Annotated[
    str | None,
    _option(
        EVAL_PANEL,
        "--groups",
        metavar="N|FILE",
        help="The rows of --eval that belong together: each N in a row, or a file with a label "
        "for every row.",
    ),
]
HitFormat = Annotated[
    str | None,
    _option(
        OUTPUT_PANEL,
        "--format",
        envvar="CSE_FORMAT",
        help="What standard output gets; else hits are a table on a terminal and JSON lines in a "
        "pipe. JSON and CSV are unrounded.",
        **choice("--format", (*FORMATS, JSON_LINES)),
    ),
]
