"""Sentence vectors kept on disk, so that a second look at a checkpoint encodes nothing.

A file `embeddings/<key>.npy` in the cache folder holds a list of texts as float32 (S, n, D): one
slice of evaluation vectors, or L + 1 slices of pooled layers. The key is a SHA-256 of all that
the vectors depend on: the checkpoint's fingerprint (weights, pooler, head, normalisation), its
tokenizer, the length texts are cut at, the precision, the kind of slice, and the texts.

Files are mapped, not read, and appear under their name only when whole. Beyond `LIMIT` bytes the
least recently used go, and what a killed process left half-made goes when it is `STALE`. Several
processes, on several machines and of several users, may share the folder: what is not theirs to
change stays, and a file that another one has removed is made again.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from cse_cli.data.locate import cache_folder
from cse_cli.identity import identity
from cse_cli.pooling import pool_layer
from cse_cli.progress import warn

if TYPE_CHECKING:
    from cse_cli.encoder import Encoder, LayerBatch

LIMIT = 8 * 2**30
STALE = 24 * 3600  # seconds after which a file that nobody has finished is taken for abandoned


@contextmanager
def embedding_cache(keep: bool = True) -> Iterator[Path]:
    """The folder of cached vectors; without `keep` an empty one that goes with the block."""
    if not keep:
        with TemporaryDirectory(prefix="cse-") as throwaway:
            yield Path(throwaway)
        return
    folder = cache_folder() / "embeddings"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if writable:
        yield folder
        _prune(folder)
    else:
        warn(f"vectors cannot be kept in {folder}; set CSE_CACHE, or say --no-cache")
        with embedding_cache(keep=False) as elsewhere:
            yield elsewhere


class CachedEncoder:
    """An encoder whose vectors are looked up in `folder` before they are computed.

    `encoded` counts the texts that had to go through the encoder.
    """

    def __init__(self, encoder: "Encoder", folder: Path) -> None:
        self.encoder, self.folder = encoder, folder
        self._identity = json.dumps(identity(encoder))
        self.encoded = 0

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """What `Encoder.encode` gives: (n, D) float32."""

        def fill(into: np.ndarray) -> None:
            into[0] = self.encoder.encode(texts, progress=True).numpy()

        shape = (1, len(texts), self.encoder.dimension)
        return _tensor(self._array(texts, "vectors", shape, fill)[0])

    def layer(self, number: int) -> Callable[[Sequence[str]], Tensor]:
        """An `encode` that gives the pooled states of layer `number` (0 is the embeddings).

        The first call for a list of texts makes all L + 1 layers in one pass. Layers are pooled as
        the encoder pools its last one (two-layer poolers: by the mean), without a head, and
        normalised where the encoder normalises.
        """

        def encode(texts: Sequence[str]) -> Tensor:
            encoder = self.encoder
            shape = (encoder.num_layers + 1, len(texts), encoder.width)
            layers = self._array(texts, "layers", shape, lambda into: self._fill(texts, into))
            vectors = _tensor(layers[number])
            return torch.nn.functional.normalize(vectors) if encoder.normalize else vectors

        return encode

    def _fill(self, texts: Sequence[str], into: np.ndarray) -> None:
        kind = "mean" if self.encoder.pooler.endswith("_mean") else self.encoder.pooler

        def pooled(batch: "LayerBatch") -> tuple[np.ndarray, list[np.ndarray]]:
            """A group's places in the texts, and its vectors (B, D) of every layer."""
            vectors = [pool_layer(state, batch.mask, kind) for state in batch.states]
            return batch.index, [layer.float().cpu().numpy() for layer in vectors]

        for index, layers in self.encoder.stream(texts, pooled, progress=True):
            for slice_, vectors in zip(into, layers, strict=True):
                slice_[index] = vectors

    def _array(
        self,
        texts: Sequence[str],
        kind: str,
        shape: tuple[int, int, int],
        fill: Callable[[np.ndarray], None],
    ) -> np.ndarray:
        """The mapped array of `texts`, computed by `fill` where it is not there."""
        digest = hashlib.sha256(f"{self._identity} {kind} {shape}".encode())
        for text in texts:
            digest.update(b"\0" + text.encode())
        path = self.folder / f"{digest.hexdigest()}.npy"
        found = _open(path, shape)
        if found is not None:
            return found
        self.encoded += len(texts)
        temporary = path.with_suffix(f".{token_hex(8)}.part")
        try:
            array = _reserve(temporary, shape)
            fill(array)
            if isinstance(array, np.memmap):
                with suppress(OSError):  # kept or not, the vectors are there
                    array.flush()
                    os.replace(temporary, path)
        finally:
            _remove(temporary)
        return array


def _reserve(path: Path, shape: tuple[int, int, int]) -> np.ndarray:
    """A writable array mapped to `path`, or one in memory, with a warning, where the disk is full.

    The space is written first: a mapped page without room on the disk would kill the process.
    """
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    zeros = bytes(2**20)
    try:
        with open(path, "xb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            left = 4 * int(np.prod(shape))
            while left > 0:
                left -= file.write(zeros[:left])
        return np.load(path, mmap_mode="r+", allow_pickle=False)
    except OSError as error:
        warn(f"vectors are not kept in {path.parent}: {error.strerror}")
        return np.empty(shape, dtype=np.float32)


def _open(path: Path, shape: tuple[int, int, int]) -> np.ndarray | None:
    """The array at `path`, marked as used now; None where there is none or it is damaged."""
    if not path.is_file():
        return None
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:  # removed by another process, or not ours to read
        return None
    except (ValueError, EOFError):
        array = np.empty(0)
    if array.shape != shape or array.dtype != np.float32:
        warn(f"{path} is damaged; the vectors are computed again")
        return None
    with suppress(OSError):
        os.utime(path)
    return array


def _tensor(rows: np.ndarray) -> Tensor:
    """A copy in memory: mapped pages may not be written to."""
    return torch.from_numpy(np.array(rows))


def _prune(folder: Path) -> None:
    """Remove the least recently used files until what is left fits `LIMIT`, and abandoned ones."""
    found: list[tuple[float, int, Path]] = []
    for path in [*folder.glob("*.npy"), *folder.glob("*.part")]:
        with suppress(OSError):  # another process has removed it
            known = path.stat()
            found.append((known.st_mtime, known.st_size, path))
    total = 0
    for changed, size, path in sorted(found, reverse=True):
        if path.suffix == ".part":
            forgotten = changed < time.time() - STALE
        else:
            total += size
            forgotten = total > LIMIT
        if forgotten:
            _remove(path)


def _remove(path: Path) -> None:
    """Unlink a file, if it is there and ours to remove."""
    with suppress(OSError):
        path.unlink()
