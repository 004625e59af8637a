"""Codes of one byte or one bit a dimension, from which candidates are chosen for exact rescoring.

    int8     round(127 v / max |v|): a quarter of the size
    binary   the signs of v: a thirty-second

A vector of an index has unit length, so the scale of its code need not be kept: the unit vector in
the code's direction is the best guess at it. Only the stored side is coded, the query is not.
Blocks are decoded into the cache and searched like exact vectors, so what is saved is memory and
reading, not arithmetic: codes pay where the vectors do not fit into memory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cse_cli.index.exact import top_k
from cse_cli.index.records import corrupt, writing
from cse_cli.maths import unit

BLOCK = 1 << 14  # vectors coded at a time

_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
SIGNS = torch.from_numpy(_BITS).float() * 2 - 1  # (256, 8): what the bits of a byte stand for


@dataclass(frozen=True)
class Code:
    """One way of coding: `encode` (B, D) float32 to `width(D)` bytes a row, `decode` back."""

    dtype: type
    width: Callable[[int], int]
    encode: Callable[[np.ndarray], np.ndarray]
    decode: Callable[[Any, int], Tensor]


class Quantised:
    """The codes of a shard, mapped: proposes the vectors whose codes are nearest to a query."""

    def __init__(self, path: Path, code: Code, shape: tuple[int, int]):
        rows, self._dimension = shape
        self._code = code
        shape = rows, code.width(self._dimension)
        if path.stat().st_size != shape[0] * shape[1]:
            raise corrupt(path)
        self._codes = np.asarray(np.memmap(path, code.dtype, "c", shape=shape))

    def propose(self, queries: Tensor, wanted: int, effort: int) -> np.ndarray:
        """Places (Q, C) of `effort` candidates, at least `wanted`, the best first."""

        def decode(codes: Any) -> Tensor:
            return self._code.decode(codes, self._dimension)

        _, places = top_k(queries, self._codes, max(wanted, effort), decode)
        return places.numpy()


def write_codes(vectors: np.ndarray, path: Path, code: Code) -> None:
    """Code `vectors` (N, D) into the file `path`, block by block."""
    with writing(path), path.open("wb") as file:
        for start in range(0, len(vectors), BLOCK):
            file.write(code.encode(vectors[start : start + BLOCK]).tobytes())


def _to_int8(vectors: np.ndarray) -> np.ndarray:
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    return np.rint(vectors * (127 / np.where(largest == 0, 1, largest))).astype(np.int8)


def _from_int8(codes: np.ndarray, _dimension: int) -> Tensor:
    return unit(torch.from_numpy(codes).float())


def _to_bits(vectors: np.ndarray) -> np.ndarray:
    return np.packbits(vectors > 0, axis=1)


def _from_bits(codes: np.ndarray, dimension: int) -> Tensor:
    signs = torch.nn.functional.embedding(torch.from_numpy(codes).int(), SIGNS)  # (B, D / 8, 8)
    return signs.flatten(1)[:, :dimension]


CODES = {
    "int8": Code(np.int8, lambda dimension: dimension, _to_int8, _from_int8),
    "binary": Code(np.uint8, lambda dimension: -(-dimension // 8), _to_bits, _from_bits),
}
