"""Codes of one byte or one bit a dimension, from which candidates are chosen for exact rescoring.

    int8     round(127 v / m), m the largest entry of all vectors: a quarter of the size
    binary   the signs of v: a thirty-second

The order of candidates does not depend on m, so it is not kept. Only the stored side is coded, the
query is not. Blocks are decoded into the cache and searched like exact vectors, so what is saved is
memory and reading, not arithmetic: codes pay where the vectors do not fit into memory.
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

BLOCK = 1 << 14  # vectors coded at a time

_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
SIGNS = torch.from_numpy(_BITS).float() * 2 - 1  # (256, 8): what the bits of a byte stand for


@dataclass(frozen=True)
class Code:
    """One way of coding: vectors (B, D) to `width(D)` bytes a row, and back, up to a factor.

    `encode` is told the largest entry of all vectors, `decode` is told D.
    """

    dtype: type
    width: Callable[[int], int]
    encode: Callable[[np.ndarray, float], np.ndarray]
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
    blocks = [slice(start, start + BLOCK) for start in range(0, len(vectors), BLOCK)]
    largest = max(float(np.abs(vectors[block]).max()) for block in blocks)
    with writing(path), path.open("wb") as file:
        for block in blocks:
            file.write(code.encode(vectors[block], largest).tobytes())


def _to_int8(vectors: np.ndarray, largest: float) -> np.ndarray:
    return np.rint(vectors * (127 / (largest or 1))).astype(np.int8)


def _from_int8(codes: np.ndarray, _dimension: int) -> Tensor:
    return torch.from_numpy(codes).float()


def _to_bits(vectors: np.ndarray, _largest: float) -> np.ndarray:
    return np.packbits(vectors > 0, axis=1)


def _from_bits(codes: np.ndarray, dimension: int) -> Tensor:
    signs = torch.nn.functional.embedding(torch.from_numpy(codes).int(), SIGNS)  # (B, D / 8, 8)
    return signs.flatten(1)[:, :dimension]


CODES = {
    "int8": Code(np.int8, lambda dimension: dimension, _to_int8, _from_int8),
    "binary": Code(np.uint8, lambda dimension: -(-dimension // 8), _to_bits, _from_bits),
}
