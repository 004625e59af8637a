"""What `cse retrieve` finds: queries read, each checkpoint's hits, and how they are shown."""

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cse_cli.cli.retrieve_check import require_inexact
from cse_cli.cli.retrieve_options import JSON_LINES
from cse_cli.errors import InputError, UsageError
from cse_cli.progress import log, warn

if TYPE_CHECKING:
    import pandas as pd

    from cse_cli.encoder import Encoder
    from cse_cli.index import Corpus, Searcher

MOST = 10  # hits of a query, where nobody says how many
COLUMNS = ("query", "model", "rank", "score", "row", "text")


@dataclass(frozen=True)
class Search:
    """Where is searched and how: `corpus`, `folder` of an index, or both."""

    corpus: "Corpus | None"
    folder: Path | None
    kind: str | None
    candidates: int | None
    extend: bool
    verify: bool

    @classmethod
    def scan(cls, given: Mapping[str, Any]) -> "Search":
        """The search that a command line asks for; the corpus is read once, for its size."""
        from cse_cli.index import Corpus

        corpus = None
        if given["corpus"] is not None:
            corpus = Corpus.scan(
                given["corpus"], column=given["text_column"], encoding=given["encoding"]
            )
            if corpus.blank:
                warn(f"blank lines left out: {corpus.blank}")
        return cls(
            corpus,
            given["index"],
            given["index_type"],
            given["candidates"],
            given["extend"],
            not given["no_verify"],
        )

    @contextmanager
    def opened(self, encoder: "Encoder") -> "Iterator[Searcher | None]":
        """The index for `encoder`, brought up to date; None while other processes build at it.

        Without a folder it is built in a temporary one.
        """
        from cse_cli.index import Index, Searcher, build_index

        with tempfile.TemporaryDirectory(prefix="cse-index-") as temporary:
            folder = self.folder or Path(temporary)
            if self.corpus is not None:
                kind = self.kind or "exact"
                if not build_index(folder, self.corpus, encoder, kind=kind, extend=self.extend):
                    yield None
                    return
            kept = self.folder is not None  # what was written just now is not hashed again
            index = Index.open(folder, verify=self.verify and kept)
            if self.corpus is None:  # `build_index` has compared them
                index.require(encoder)
            yield Searcher(
                index, kind=self.kind, candidates=self.candidates, verify=self.verify and kept
            )

    def check(self, k: int | None) -> None:
        """Refuse what can be told before any model is loaded.

        Raises UsageError for more hits than sentences, and for candidates of an index that compares
        a query with every vector.
        """
        from cse_cli.index import Index
        from cse_cli.index.store import read_manifest

        kind = "exact"
        if self.corpus is None and self.folder is not None:
            index = Index.open(self.folder, verify=False)
            choose_count(k, len(index), self.folder)
            kind = index.kind
        elif self.corpus is not None and self.folder is None:
            choose_count(k, self.corpus.rows, self.corpus.source.label)
        elif self.folder is not None and (manifest := read_manifest(self.folder)):
            kind = manifest["kind"]
        require_inexact(self.kind or kind, self.candidates)


def read_queries(given: str) -> list[str]:
    """The queries of `--query`: the text itself, the lines of a file, or of standard input.

    Raises InputError for a blank query and for what looks like a file but is none.
    """
    from cse_cli.data.readers import Tally, iter_texts
    from cse_cli.data.sources import KINDS

    path = Path(given)
    if given != "-" and not _is_file(path):
        if path.suffix and path.suffix in KINDS and not any(map(str.isspace, given)):
            raise InputError(f"--query {given}: no such file")
        if not given.strip():
            raise InputError("--query is blank: there is nothing to look for")
        return [given]
    tally = Tally()
    queries = []
    for text in iter_texts([given], keep_blank=True, tally=tally):
        if not text.strip():
            raise InputError(f"{tally.place} is blank: every line of --query must be a query")
        queries.append(text)
    return queries


def choose_count(k: int | None, rows: int, where: object) -> int:
    """How many hits to show; UsageError for more than there are sentences."""
    if k is not None and k > rows:
        raise UsageError(f"-k {k} is more than the {rows} sentences of {where}")
    return k or min(MOST, rows)


def tell_built(searcher: "Searcher", *, json: bool, config: Mapping[str, Any]) -> None:
    """Say what the index holds; with `json` on standard output."""
    import pandas as pd

    from cse_cli.cli.report import report_frame

    index = searcher.index
    row = {
        "path": str(index.folder),
        "n": len(index),
        "dimension": index.dimension,
        "index_type": searcher.kind,
        "shards": len(index.shards),
        "model": index.manifest["model"],
    }
    if json:
        report_frame(pd.DataFrame([row]), command="retrieve", config=config, format="json")
    else:
        log("{path}: {n} sentences, {dimension} dimensions, {index_type}".format(**row))


def find(
    searcher: "Searcher",
    encoder: "Encoder",
    queries: Sequence[str],
    k: int,
    *,
    match: str,
    exclude: bool,
) -> list[dict[str, Any]]:
    """One record a hit, in the order of queries and ranks."""
    vectors = encoder.encode(queries)
    if match == "index":
        found = searcher.every(vectors, k)
    else:
        found = searcher.distinct(vectors, k, leave_out=queries if exclude else None)
    return [
        dict(zip(COLUMNS, (query, encoder.name, rank, hit.score, hit.row, hit.text), strict=True))
        for query, hits in zip(queries, found, strict=True)
        for rank, hit in enumerate(hits, start=1)
    ]


def show(
    records: Sequence[Mapping[str, Any]],
    *,
    format: str | None,
    output: Path | None,
    config: Mapping[str, Any],
) -> None:
    """Print the hits, by default a table on a terminal and JSON lines in a pipe; write a file."""
    from cse_cli.cli.report import EXTENSIONS
    from cse_cli.cli.stdout import print_result
    from cse_cli.files import whole_file

    if not records:
        warn("no hits: every sentence that was searched is the query's own")
    terminal = sys.stdout.isatty()
    print_result(_text(records, format or ("table" if terminal else JSON_LINES), config, terminal))
    if output is not None:
        with whole_file(output) as file:
            file.write(_text(records, EXTENSIONS[output.suffix.lower()], config, False).encode())


def _text(
    records: Sequence[Mapping[str, Any]], format: str, config: Mapping[str, Any], terminal: bool
) -> str:
    import json

    import pandas as pd

    from cse_cli.render import render_frame

    if format == JSON_LINES:
        return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    frame = pd.DataFrame(records, columns=COLUMNS)
    if format in ("json", "csv"):
        return render_frame(frame, format, command="retrieve", config=config)
    return "\n".join(
        render_frame(_side_by_side(hits), format, title=str(query), terminal=terminal)
        for query, hits in frame.groupby("query", sort=False)
    )


def _side_by_side(hits: "pd.DataFrame") -> "pd.DataFrame":
    """Ranks down the side, a checkpoint a column, for people."""
    import pandas as pd

    columns = {
        model: {hit.rank: f"{hit.score:.4f}  {hit.text}" for hit in own.itertuples()}
        for model, own in hits.groupby("model", sort=False)
    }
    table = pd.DataFrame(columns).sort_index()
    table.insert(0, "#", table.index, allow_duplicates=True)
    return table


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a sentence can be too long for a file name
        return False
