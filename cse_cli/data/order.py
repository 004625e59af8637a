"""The shuffled order of a corpus, computed where it is asked for instead of stored.

A permutation of {0 … n-1} as a keyed Feistel network (Luby and Rackoff, 1988) on a grid of a x b
cells, a and b near sqrt(n): x = (l, r), and in turns

    l <- l + F_k(r) mod a        r <- r + F_k'(l) mod b

each of which can be undone, so the whole is one-to-one; the few cells of the grid at or above n are
passed through again until they fall below (cycle walking). It needs no memory however long the
corpus, any position is available at once (so a run resumes anywhere), and it does not depend on
the version of a random library, as a stored state of numpy's generator would.
"""

import hashlib
import math
from dataclasses import dataclass, field

import numpy as np

from cse_cli.data.hashing import mix

ROUNDS = 4  # of two half-rounds each; four make a pseudo-random permutation of any round function


def order(n: int, seed: int, epoch: int) -> "Permutation":
    """The order in which the `n` rows are visited in `epoch`; the same for equal arguments."""
    key = hashlib.sha512(f"order {seed} {epoch}".encode()).digest()
    return Permutation(n, np.frombuffer(key, "<u8"))


@dataclass(frozen=True, eq=False)
class Permutation:
    """A permutation of {0 … n-1}; `perm[positions]` computes the rows at those positions.

    Positions are a slice (`perm[640:704]` is the batch at 640) or an integer array.
    """

    n: int
    keys: np.ndarray
    grid: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        a = math.isqrt(max(self.n - 1, 0)) + 1
        object.__setattr__(self, "grid", (a, -(-self.n // a)))

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, positions: slice | np.ndarray) -> np.ndarray:
        if isinstance(positions, slice):
            positions = np.arange(*positions.indices(self.n))
        elif len(positions) and (positions.min() < 0 or positions.max() >= self.n):
            raise IndexError(f"a position outside 0 … {self.n - 1}")
        rows = self._pass(positions.astype(np.uint64))
        while len(outside := np.flatnonzero(rows >= self.n)):
            rows[outside] = self._pass(rows[outside])
        return rows.astype(np.int64)

    def _pass(self, x: np.ndarray) -> np.ndarray:
        left: np.ndarray
        right: np.ndarray
        a, b = np.uint64(self.grid[0]), np.uint64(self.grid[1])
        left, right = x // b, x % b
        for i in range(0, 2 * ROUNDS, 2):
            left = (left + mix(right ^ self.keys[i]) % a) % a
            right = (right + mix(left ^ self.keys[i + 1]) % b) % b
        return left * b + right
