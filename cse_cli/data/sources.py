"""Where sentences come from: a file, a compressed one, a pipe, or standard input (`-`).

A `Source` knows what kind of file it is and hands out its bytes. `spooled` makes a source that
can be read only once readable again; `digest` tells contents apart by their sha256.
"""

import gzip
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, cast

from cse_cli.errors import InputError, OutputError
from cse_cli.files import whole_file

STDIN = "-"
KINDS = {"": "txt", ".txt": "txt", ".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl"}
HASHED_EVERY_TIME = 16 << 20  # bytes; hashing that much costs about 10 ms
CLOCK_TICK = 2_000_000_000  # ns; a file changed twice within it may keep its time stamp
BLOCK = 1 << 20


@dataclass(frozen=True)
class Source:
    """One input: `name` as the user wrote it, `kind` (a value of `KINDS`), compressed or not.

    `spool` is the open temporary file that holds what could be read only once, and `sha256` the
    digest of that.
    """

    name: str
    kind: str
    compressed: bool = False
    spool: IO[bytes] | None = None
    sha256: str | None = None

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The bytes as they are stored, from the start. InputError where they cannot be read."""
        if self.spool is not None:
            self.spool.seek(0)
            yield self.spool
        elif self.name == STDIN:
            yield sys.stdin.buffer
        else:
            with _opened(self.name) as file:
                yield file

    def unpacked(self, file: IO[bytes]) -> IO[bytes]:
        """`file`, which `open` gave, read through gzip where it is compressed."""
        return cast(IO[bytes], gzip.GzipFile(fileobj=file)) if self.compressed else file

    @property
    def label(self) -> str:
        """The name for messages."""
        return "standard input" if self.name == STDIN else self.name

    @property
    def size(self) -> int:
        """Bytes as stored; 0 where that is not known beforehand."""
        if self.spool is not None:
            return self.spool.seek(0, 2)
        path = Path(self.name)
        return path.stat().st_size if path.is_file() else 0

    @property
    def stamp(self) -> tuple[int, int, int, int] | None:
        """Size, inode and times of the file: equal stamps mean an untouched file. None if spooled.

        The change time is part of it because setting the modification time back alters it.
        """
        if self.spool is not None:
            return None
        found = Path(self.name).stat()
        return found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def find_source(name: str) -> Source:
    """What `name` stands for. InputError where there is no such file or its kind is unknown."""
    if name == STDIN:
        return Source(STDIN, "txt")
    path = Path(name)
    compressed = path.suffix == ".gz"
    suffix = Path(path.stem).suffix if compressed else path.suffix
    if not path.exists():
        raise InputError(f"{name}: no such file")
    if path.is_dir():
        raise InputError(f"{name} is a folder; name the files in it")
    if suffix not in KINDS:
        raise InputError(
            f"{name}: '{suffix}' is no known kind of sentence file (.txt .csv .tsv .jsonl, each "
            f"also .gz); one sentence a line can be given as `- < {name}`"
        )
    return Source(name, KINDS[suffix], compressed)


def spooled(source: Source, folder: Path) -> Source:
    """`source`, if it can be read twice; otherwise a copy of its bytes in a temporary file.

    The file is made in `folder` without a name, so it is gone with the process, however that
    ends. OutputError where it cannot be written.
    """
    if source.name != STDIN and Path(source.name).is_file():
        return source
    hasher = hashlib.sha256()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        copy: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (the source keeps it)
        with source.open() as stream:
            while block := stream.read(BLOCK):
                hasher.update(block)
                copy.write(block)
        copy.flush()
    except OSError as error:
        raise OutputError(
            f"cannot keep a copy of {source.label} in {folder}: {error.strerror or error}; "
            "set CSE_CACHE to a folder with room"
        ) from error
    return replace(source, spool=copy, sha256=hasher.hexdigest())


def digest(source: Source, index: Path) -> str:
    """sha256 of the bytes of `source`.

    Digests of large files are remembered in the folder `index` by path and stamp, so that a
    second start does not read them again. InputError where the file changes meanwhile.
    """
    if source.sha256 is not None:
        return source.sha256
    path = str(Path(source.name).resolve())
    stamp = source.stamp
    entry = index / f"{hashlib.sha256(path.encode()).hexdigest()[:32]}.json"
    large = source.size > HASHED_EVERY_TIME
    if large and (known := _recall(entry, path, stamp)):
        return known
    with source.open() as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    check_unchanged(source, stamp)
    if large and stamp is not None and time.time_ns() - max(stamp[2:]) > CLOCK_TICK:
        _remember(entry, {"path": path, "stamp": stamp, "sha256": sha256})
    return sha256


def check_unchanged(source: Source, stamp: tuple[int, ...] | None) -> None:
    """InputError unless the file still is what it was when `stamp` was taken."""
    if source.stamp != stamp:
        raise InputError(f"{source.label} was changed while it was read; start again")


def _opened(name: str) -> IO[bytes]:
    try:
        return open(name, "rb")
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror or error}") from error


def _recall(entry: Path, path: str, stamp: tuple[int, ...] | None) -> str | None:
    try:
        known = json.loads(entry.read_text())
        same = known["path"] == path and tuple(known["stamp"]) == stamp
        return str(known["sha256"]) if same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # absent or damaged: the file is hashed again


def _remember(entry: Path, record: dict[str, object]) -> None:
    """Keep a digest. It only saves time, so a cache that cannot be written is no error here."""
    with suppress(OSError, OutputError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(entry) as file:
            file.write(json.dumps(record).encode())
