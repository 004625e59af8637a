"""The token store on disk: flat files that are mapped, never read into memory.

A row holds C sequences (one a column: the sentence, or anchor, positive and hard negative), laid
end to end, so sequence `row * C + column` has the tokens `ids[offsets[i]:offsets[i + 1]]`:

    ids.bin      uint16 or int32, special tokens included
    offsets.bin  int64, one more than there are sequences
    starts.bin   one bit a token, lowest first: it begins a whitespace word
    weights.bin  float32, one a row (only where the corpus has weights)
    meta.json    `Meta`, written last; a store is whole when the files have the sizes it states
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from cse_cli.data.hashing import count_duplicates, row_hashes
from cse_cli.data.tokenise import Sequences

SCHEMA = 1  # part of the cache key: raise it when the files or how rows are made change
HASHES = "hashes.bin"  # of rows, only while the store is made


@dataclass(frozen=True)
class Meta:
    """Everything about a store but its tokens.

    `histogram[n]` is the number of sequences of n tokens, `special` the number of special tokens
    in each, `duplicates` the rows whose tokens equal an earlier row's, `blank` the input rows left
    out, `truncated` the sequences that were cut, `files` the sizes in bytes.
    """

    schema: int
    fingerprint: str
    columns: tuple[str, ...]
    max_length: int
    dtype: str
    rows: int
    tokens: int
    special: int
    blank: int
    truncated: int
    duplicates: int
    histogram: tuple[int, ...]
    files: dict[str, int]


@dataclass(frozen=True)
class Store:
    """The mapped files of a store: see the module's description."""

    meta: Meta
    ids: np.ndarray
    offsets: np.ndarray
    starts: np.ndarray
    weights: np.ndarray | None


def open_store(folder: Path) -> Store | None:
    """Map the store in `folder`; None where there is none, or not a whole one of this schema."""
    try:
        stated = json.loads((folder / "meta.json").read_text())
        if stated["schema"] != SCHEMA:
            return None
        stated |= {"columns": tuple(stated["columns"]), "histogram": tuple(stated["histogram"])}
        meta = Meta(**stated)
        if any((folder / name).stat().st_size != size for name, size in meta.files.items()):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Store(
        meta,
        _mapped(folder / "ids.bin", meta.dtype),
        _mapped(folder / "offsets.bin", np.int64),
        _mapped(folder / "starts.bin", np.uint8),
        _mapped(folder / "weights.bin", np.float32) if "weights.bin" in meta.files else None,
    )


class StoreWriter:
    """Appends rows to the files of a new store in `folder`; `finish` makes it whole."""

    def __init__(self, folder: Path, columns: Sequence[str], max_length: int, *, weighted: bool):
        self.folder, self.columns, self.max_length = folder, tuple(columns), max_length
        self._names = ["ids.bin", "offsets.bin", "starts.bin"] + ["weights.bin"] * weighted
        self._files: dict[str, IO[bytes]] = {
            name: (folder / name).open("wb") for name in [*self._names, HASHES]
        }
        self._bits = np.zeros(0, bool)  # fewer than eight, waiting for their byte
        self._histogram = np.zeros(max_length + 1, np.int64)
        self.tokens = self.truncated = 0
        self._files["offsets.bin"].write(np.zeros(1, np.int64).tobytes())

    def add(self, sequences: Sequences, weights: np.ndarray | None = None) -> None:
        """Append rows of `len(columns)` sequences each, and their weights (rows,)."""
        ends = np.cumsum(sequences.lengths)
        heads = (ends - sequences.lengths)[:: len(self.columns)]
        bits = np.concatenate([self._bits, sequences.starts])
        whole = len(bits) // 8 * 8
        self._bits = bits[whole:]
        self._write("ids.bin", sequences.ids)
        self._write("offsets.bin", ends + self.tokens)
        self._write("starts.bin", np.packbits(bits[:whole], bitorder="little"))
        self._write(HASHES, row_hashes(sequences.ids, heads))
        if weights is not None:
            self._write("weights.bin", weights.astype(np.float32))
        self._histogram += np.bincount(sequences.lengths, minlength=len(self._histogram))
        self.tokens += int(ends[-1])
        self.truncated += int(sequences.truncated.sum())

    def finish(self, dtype: np.dtype[Any], fingerprint: str, special: int, blank: int) -> Meta:
        """Write what is left and the description, all of it synced to the disk."""
        self._write("starts.bin", np.packbits(self._bits, bitorder="little"))
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        self.close()
        meta = Meta(
            schema=SCHEMA,
            fingerprint=fingerprint,
            columns=self.columns,
            max_length=self.max_length,
            dtype=dtype.name,
            rows=int(self._histogram.sum()) // len(self.columns),
            tokens=self.tokens,
            special=special,
            blank=blank,
            truncated=self.truncated,
            duplicates=count_duplicates(self.folder / HASHES),
            histogram=tuple(self._histogram.tolist()),
            files={name: (self.folder / name).stat().st_size for name in self._names},
        )
        (self.folder / HASHES).unlink()
        with open(self.folder / "meta.json", "w") as text:
            json.dump(asdict(meta), text)
            text.flush()
            os.fsync(text.fileno())
        return meta

    def close(self) -> None:
        """Close the files, finished or not."""
        for file in self._files.values():
            file.close()

    def _write(self, name: str, values: np.ndarray) -> None:
        self._files[name].write(np.ascontiguousarray(values).tobytes())


def _mapped(path: Path, dtype: Any) -> np.ndarray:
    # A plain array over the mapping: indexing np.memmap itself costs microseconds each time.
    return np.asarray(np.memmap(path, dtype, "r"))
