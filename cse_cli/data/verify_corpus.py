"""Is a training corpus fit for training? Counts it, and finds what spoils or skews a run.

One pass in bounded memory: duplicates are told by 64-bit hashes, eight bytes a line.
A line that is not UTF-8 or holds a NUL byte fails; blank lines, duplicates and very long lines are
notes, for training skips the first, keeps the second and truncates the third.
"""

import csv
import gzip
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from cse_cli.data.catalog import known_file
from cse_cli.data.checks import FAILED, NOTE, OK, Check, compare
from cse_cli.errors import InputError

LONG_LINE = 10_000  # bytes; a sentence has some hundred


@dataclass
class _Scan:
    """What one pass over the lines finds; `first_*` are line numbers, 0 for none."""

    lines: int = 0
    blank: int = 0
    long: int = 0
    not_utf8: int = 0
    first_not_utf8: int = 0
    nul: int = 0
    first_nul: int = 0
    hashes: "array[int]" = field(default_factory=lambda: array("Q"))

    def add(self, line: bytes) -> None:
        """Count one line, without its end."""
        self.lines += 1
        if not line.strip():
            self.blank += 1
            return
        self.hashes.append(int.from_bytes(blake2b(line, digest_size=8).digest(), "little"))
        self.long += len(line) > LONG_LINE
        if b"\0" in line:
            self.nul += 1
            self.first_nul = self.first_nul or self.lines
        try:
            line.decode("utf-8")
        except UnicodeDecodeError:
            self.not_utf8 += 1
            self.first_not_utf8 = self.first_not_utf8 or self.lines

    @property
    def duplicates(self) -> int:
        """Lines with text that repeat an earlier one."""
        return len(self.hashes) - len(np.unique(np.frombuffer(self.hashes, dtype=np.uint64)))


def verify_corpus(path: Path) -> list[Check]:
    """Check a text file with one sentence a line, or a .csv of sentences; either may be .gz.

    A file with the name of one of the hub's corpora must have as many rows as that one.
    Raises InputError where the file cannot be read.
    """
    plain = path.name.removesuffix(".gz")
    known = known_file(plain)
    expected = known.rows if known else None
    scan = _Scan()
    try:
        with _open(path) as handle:
            for line in handle:
                scan.add(line.rstrip(b"\r\n"))
        if plain.endswith(".csv") and not scan.not_utf8:
            rows = _check_csv(path, expected)
        else:
            sentences = scan.lines if expected else scan.lines - scan.blank
            rows = compare(path.name, "sentences", sentences, expected)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    return [rows, *_blemishes(path.name, scan)]


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path) if path.suffix == ".gz" else path.open("rb"))


def _blemishes(name: str, scan: _Scan) -> Iterator[Check]:
    for part, count, line in (
        ("not UTF-8", scan.not_utf8, scan.first_not_utf8),
        ("with NUL bytes", scan.nul, scan.first_nul),
    ):
        status, problem = (FAILED, f"first in line {line}") if count else (OK, "")
        yield Check(name, part, count, 0, status, problem)
    for part, count in (
        ("blank", scan.blank),
        ("duplicates", scan.duplicates),
        (f"over {LONG_LINE} bytes", scan.long),
    ):
        yield Check(name, part, count, None, NOTE if count else OK)


def _lines(handle: BinaryIO) -> Iterator[str]:
    """Lines as the readers tell them apart: a CR alone ends none, and csv would refuse it."""
    for line in TextIOWrapper(handle, "utf-8-sig", newline="\n"):
        yield line.replace("\r\n", "\n").replace("\r", " ")


def _check_csv(path: Path, expected: int | None) -> Check:
    """The rows below the header; each must have as many columns as it. Blank lines are none."""
    rows = 0
    with _open(path) as handle:
        reader = csv.reader(_lines(handle))
        try:
            header = next(reader, [])
            for row in filter(None, reader):
                rows += 1
                if len(row) != len(header):
                    raise csv.Error(f"{len(row)} columns where the header has {len(header)}")
        except csv.Error as error:
            problem = f"line {reader.line_num}: {error}"
            return Check(path.name, "rows", rows, expected, FAILED, problem)
    return compare(path.name, "rows", rows, expected)
