"""Sentence files to rows of text: .txt (one a line), .csv, .tsv, .jsonl, each also .gz, and `-`.

Everything is streamed: no file is held in memory. Lines end at LF or CRLF and nowhere else (a
Unicode line separator is part of a sentence), a byte order mark is dropped, blank rows are skipped
and counted. TSV is read without quoting, as SentEval's files are written. Whatever is wrong with
a file is one InputError that names the file and the line.
"""

import codecs
import csv
import json
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from cse_cli.data.decoding import DecodedText
from cse_cli.data.sources import BLOCK, Source, find_source
from cse_cli.errors import InputError, UsageError, suggestion

Row = tuple[str, ...]
DEFAULT_COLUMN = "text"
# Codecs of names and literals. What they decode may hold half of a surrogate pair, as in UTF-7.
NO_FILES = ("unicode-escape", "raw-unicode-escape", "punycode", "idna", "utf-7")
TABLE_ROWS = 4096  # rows of a .csv or .tsv that pandas parses at a time
MARK = "\ufdd0"  # a noncharacter: Unicode keeps it for a program's own use
_LONE_CR = re.compile(r"\r(?!\n|\Z)")


@dataclass
class Tally:
    """Where a reader stands: the file and line (or row) of the last row, and what was skipped.

    `bytes_read` counts stored bytes of all files so far.
    """

    name: str = ""
    unit: str = "line"
    line: int = 0
    blank: int = 0
    bytes_read: int = 0

    @property
    def place(self) -> str:
        """For messages: `corpus.txt, line 7`."""
        return f"{self.name}, {self.unit} {self.line}"


def iter_texts(
    paths: Sequence[str],
    *,
    text_column: str | None = None,
    encoding: str = "utf-8",
    columns: Sequence[str] | None = None,
    keep_blank: bool = False,
    tally: Tally | None = None,
) -> Iterator[Any]:
    """Sentences of all `paths` in order; with `columns`, tuples of that many strings.

    `text_column` names the column of .csv, .tsv and .jsonl files (default: the only one, or
    `text`). `keep_blank` yields blank rows too, for callers whose output must line up with the
    input. `tally` is kept up to date while rows are drawn.
    Raises InputError (unreadable, empty, broken) and UsageError (no such column or encoding).
    """
    wanted = list(columns) if columns else [text_column] if text_column else None
    rows = iter_rows(
        [find_source(path) for path in paths],
        wanted,
        encoding=encoding,
        keep_blank=keep_blank,
        tally=tally if tally is not None else Tally(),
    )
    return rows if columns else (row[0] for row in rows)


def iter_rows(
    sources: Sequence[Source],
    wanted: Sequence[str] | None,
    *,
    encoding: str,
    tally: Tally,
    keep_blank: bool = False,
) -> Iterator[Row]:
    """Rows of all `sources`: the `wanted` columns, or the one text of each. A row is blank when
    any of its columns is."""
    _check_request(sources, wanted, encoding)
    for source in sources:
        tally.name, tally.unit, tally.line = source.label, "line", 0
        before, filled = tally.bytes_read, False
        with source.open() as file:
            stream = DecodedText(source, file, encoding)
            for row in _PARSERS[source.kind](stream, wanted, tally):
                blank = not all(map(str.strip, row))
                tally.blank += blank
                tally.bytes_read = before + stream.position
                if keep_blank or not blank:
                    filled = True
                    yield row
        if not filled:
            raise InputError(f"{source.label} {_emptiness(source.kind, tally.line, wanted)}")


def _check_request(sources: Sequence[Source], wanted: Sequence[str] | None, encoding: str) -> None:
    try:
        "".encode(encoding)
        known = codecs.lookup(encoding).name not in NO_FILES
    except (LookupError, UnicodeError):  # no codec, none for text (base64), one that always fails
        known = False
    if not known:
        near = suggestion(encoding, ["utf-8", "utf-16", "latin-1", "cp1252", "gb18030"])
        raise UsageError(f"--encoding: unknown encoding '{encoding}'; {near}")
    plain = [source.label for source in sources if source.kind == "txt"]
    # Plain text beside tables is fine where one sentence a row is wanted.
    if wanted and plain and (len(wanted) > 1 or len(plain) == len(sources)):
        raise UsageError(
            f"{plain[0]} has no columns, so no column {_quoted(wanted)}; "
            "only .csv, .tsv and .jsonl files have"
        )


def _emptiness(kind: str, lines: int, wanted: Sequence[str] | None) -> str:
    if lines and wanted and len(wanted) > 1:
        return f"has no row in which {_quoted(wanted)} are all filled"
    if lines:
        return "holds only blank lines"
    return "is empty" if kind in ("txt", "jsonl") else "has no rows under its header"


def _parse_lines(stream: DecodedText, wanted: Sequence[str] | None, tally: Tally) -> Iterator[Row]:
    del wanted  # plain text has no columns
    for tally.line, line in enumerate(stream, 1):
        yield (line,)


def _parse_json(stream: DecodedText, wanted: Sequence[str] | None, tally: Tally) -> Iterator[Row]:
    columns = list(wanted) if wanted else []
    for tally.line, line in enumerate(stream, 1):
        if not line.strip():
            yield ("",) * max(1, len(columns))
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{tally.place}: not JSON ({error})") from None
        if not isinstance(record, dict):
            raise InputError(f'{tally.place}: not a JSON object such as {{"text": "…"}}')
        if not columns:
            columns = [_only_column(tally.name, list(record))]
        if missing := [name for name in columns if name not in record]:
            if tally.line == 1:
                raise _no_column(tally.name, missing[0], list(record))
            raise InputError(f"{tally.place}: has no '{missing[0]}'")
        yield tuple(_json_text(record[name], name, tally) for name in columns)


def _json_text(value: Any, column: str, tally: Tally) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(f"{tally.place}: '{column}' is not a string but {json.dumps(value)[:40]}")
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{tally.place}: '{column}' holds half of a surrogate pair") from None
    return text


def _parse_table(stream: DecodedText, wanted: Sequence[str] | None, tally: Tally) -> Iterator[Row]:
    tally.unit = "row"  # quoted fields may hold line ends, so lines cannot be counted
    columns = list(wanted) if wanted else []
    marked = _MarkedText(stream)
    for chunk in _table_chunks(marked, tally.name):
        known = [str(name) for name in chunk.columns]
        columns = columns or [_only_column(tally.name, known)]
        if missing := [name for name in columns if name not in known]:
            raise _no_column(tally.name, missing[0], known)
        for row in zip(*(chunk[name].tolist() for name in columns), strict=True):
            tally.line += 1
            yield tuple(cell.replace(MARK, "\r") for cell in row) if marked.found else row


class _MarkedText:
    """What pandas reads: each CR that is alone, which would end a row there, is a `MARK`."""

    def __init__(self, stream: DecodedText):
        self._stream = stream
        self.found = False  # whether there has been one

    def __iter__(self) -> Iterator[str]:
        """Its blocks; pandas takes for a file only what can be iterated over."""
        return iter(self.read, "")

    def read(self, size: int = BLOCK) -> str:
        """The next text, about `size` bytes of it; an empty string at the end only."""
        text = self._stream.read(size)
        while text.endswith("\r") and (more := self._stream.read(1)):
            text += more
        if "\r" not in text:
            return text
        marked = _LONE_CR.sub(MARK, text)
        self.found = self.found or marked != text
        return marked


def _table_chunks(stream: _MarkedText, name: str) -> Iterator[pd.DataFrame]:
    """Frames of strings; InputError where rows do not fit the header or nothing is there."""
    tabs = name.removesuffix(".gz").endswith(".tsv")
    table = None
    while True:
        try:
            with warnings.catch_warnings():
                # A first row longer than the header: pandas would drop fields of every row.
                warnings.simplefilter("error", pd.errors.ParserWarning)
                if table is None:
                    table = pd.read_csv(
                        stream,  # type: ignore[call-overload]
                        sep="\t" if tabs else ",",
                        quoting=csv.QUOTE_NONE if tabs else csv.QUOTE_MINIMAL,
                        dtype=str,
                        na_filter=False,
                        index_col=False,
                        skip_blank_lines=False,
                        chunksize=TABLE_ROWS,
                    )
                chunk = next(table)
        except StopIteration:
            return
        except pd.errors.EmptyDataError:
            raise InputError(f"{name} is empty") from None
        except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
            reason = str(error).strip().rpartition("error: ")[2]
            hint = "" if tabs else "; a comma inside a field needs quotes"
            raise InputError(f"{name}: rows do not fit the header ({reason}){hint}") from None
        yield chunk


_PARSERS = {"txt": _parse_lines, "jsonl": _parse_json, "csv": _parse_table, "tsv": _parse_table}


def _only_column(name: str, known: list[str]) -> str:
    if len(known) == 1:
        return known[0]
    if DEFAULT_COLUMN in known:
        return DEFAULT_COLUMN
    raise UsageError(f"{name} has the columns {_quoted(known)}; choose with --text-column")


def _no_column(name: str, column: str, known: list[str]) -> UsageError:
    near = suggestion(column, known)
    listed = f"; it has {_quoted(known)}" if near.startswith("did") else ""
    return UsageError(f"{name} has no column '{column}'; {near}{listed}")


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
