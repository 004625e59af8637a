"""A shard: vectors and their sentences in flat files, mapped and never read into memory whole.

    vectors.f32   (rows, D) little-endian float32, each row of unit length, or zero
    texts.utf8    the sentences end to end
    offsets.i64   rows + 1 little-endian int64: sentence i is texts[offsets[i]:offsets[i + 1]]
    shard.json    what was indexed by which encoder, and the files' sizes and SHA-256

`ShardWriter` appends block by block and notes after each how far it is. A build that was killed
goes on behind the last note; as blocks are cut by row number alone, it ends with the bytes that an
undisturbed build writes.
"""

import fcntl
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from cse_cli.errors import UsageError
from cse_cli.index.records import check_file, corrupt, describe, read_record, write_record, writing

VECTORS, TEXTS, OFFSETS = "vectors.f32", "texts.utf8", "offsets.i64"
RECORD, PROGRESS = "shard.json", "progress.json"


@dataclass(frozen=True)
class Shard:
    """The mapped files of a shard: `vectors` (rows, D), and the sentences by `text`."""

    folder: Path
    vectors: np.ndarray
    texts: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.vectors)

    @classmethod
    def open(cls, folder: Path, record: Mapping[str, Any], *, verify: bool) -> "Shard":
        """Map the shard that `record` describes; InputError where a file is not as described."""
        paths = {
            name: check_file(folder / name, stated, verify=verify)
            for name, stated in record["files"].items()
        }
        shape = record["rows"], record["origin"]["dimension"]
        offsets = _mapped(paths[OFFSETS], "<i8", (shape[0] + 1,))
        texts = _mapped(paths[TEXTS], "u1", (int(offsets[-1]),))
        return cls(folder, _mapped(paths[VECTORS], "<f4", shape), texts, offsets)

    def text(self, row: int) -> str:
        """The sentence of a row."""
        return bytes(self.texts[self.offsets[row] : self.offsets[row + 1]]).decode()


class ShardWriter:
    """Appends rows to a new shard `folder`, which appears when it is finished.

    `origin` says what is being indexed by which encoder (with D as `dimension`); a half-built shard
    is continued only for the same origin. Until `finish`, the files are in `folder` + `.part`.
    Raises UsageError where another process writes it or it has another origin, OutputError where
    it cannot be written.
    """

    def __init__(self, folder: Path, origin: Mapping[str, Any]):
        self.folder, self.origin = folder, dict(origin)
        self.part = folder.with_name(folder.name + ".part")
        self.rows = self._text_bytes = 0
        with writing(self.part):
            self.part.mkdir(parents=True, exist_ok=True)
            self._files: dict[str, IO[bytes]] = {
                name: (self.part / name).open("ab") for name in (VECTORS, TEXTS, OFFSETS)
            }
        try:
            fcntl.flock(self._files[VECTORS], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{self.folder} is being written by another process") from None
        self._resume()

    def append(self, texts: Sequence[str], vectors: np.ndarray) -> None:
        """Add sentences and their vectors (B, D), and note that they are there."""
        encoded = [text.encode() for text in texts]
        ends = self._text_bytes + np.cumsum([len(text) for text in encoded], dtype="<i8")
        with writing(self.part):
            self._files[VECTORS].write(np.ascontiguousarray(vectors, "<f4").data)
            self._files[TEXTS].writelines(encoded)
            self._files[OFFSETS].write(ends.tobytes())
            self._sync()
        self.rows, self._text_bytes = self.rows + len(texts), int(ends[-1])
        self._note()

    def finish(self) -> None:
        """Describe the files and give the shard its name."""
        files = {name: describe(self.part / name) for name in self._files}
        record = {"rows": self.rows, "origin": self.origin, "files": files}
        write_record(self.part / RECORD, record)
        with writing(self.folder):
            self.part.rename(self.folder)
            (self.folder / PROGRESS).unlink()
        self.close()

    def close(self) -> None:
        """Let go of the files, finished or not."""
        for file in self._files.values():
            file.close()

    def _resume(self) -> None:
        """Cut the files back to the last note; start afresh where there is none."""
        if (self.part / PROGRESS).exists():
            noted = read_record(self.part / PROGRESS)
            if noted["origin"] != self.origin:
                raise UsageError(
                    f"{self.part} is an unfinished build of other text, by another checkpoint "
                    "(or its precision, length or tokenizer) or by another number of processes; "
                    "finish that one or remove it"
                )
            self.rows, self._text_bytes = noted["rows"], noted["text_bytes"]
        sizes = {
            VECTORS: 4 * self.rows * self.origin["dimension"],
            TEXTS: self._text_bytes,
            OFFSETS: 8 * (self.rows + 1 if self.rows else 0),
        }
        with writing(self.part):
            for name, size in sizes.items():
                if os.fstat(self._files[name].fileno()).st_size < size:
                    raise corrupt(self.part / name)
                self._files[name].truncate(size)
            if not self.rows:
                self._files[OFFSETS].write(bytes(8))
        self._note()

    def _note(self) -> None:
        noted = {"origin": self.origin, "rows": self.rows, "text_bytes": self._text_bytes}
        write_record(self.part / PROGRESS, noted)

    def _sync(self) -> None:
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())


def _mapped(path: Path, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """A file as an array. The mapping is private ("c"), which torch takes without a copy."""
    if path.stat().st_size != np.dtype(kind).itemsize * int(np.prod(shape)):
        raise corrupt(path)
    return np.asarray(np.memmap(path, kind, "c", shape=shape))
