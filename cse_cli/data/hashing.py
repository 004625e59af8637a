"""64-bit hashing of integers: to find equal rows, and to shuffle without a table."""

from pathlib import Path

import numpy as np

COUNT_BLOCK = 1 << 20


def mix(x: np.ndarray) -> np.ndarray:
    """splitmix64's output function on uint64: every input bit reaches every output bit."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def row_hashes(ids: np.ndarray, heads: np.ndarray) -> np.ndarray:
    """A 64-bit hash of each row; `heads` are the positions in `ids` where rows begin.

    The sum over a row of a mixed (token, position in the row). Ten million different rows share a
    hash with probability 3e-6.
    """
    lengths = np.diff(heads, append=len(ids))
    place = np.arange(len(ids)) - np.repeat(heads, lengths)
    keyed = ids.astype(np.uint64) << np.uint64(32) | place.astype(np.uint64)
    return np.add.reduceat(mix(keyed), heads)


def count_duplicates(path: Path) -> int:
    """How many hashes in the file equal an earlier one. Sorts the file in place.

    A mapped file, not an array: sorting it takes no private memory, however long the corpus.
    """
    hashes = np.memmap(path, np.uint64, "r+")
    hashes.sort()
    equal = 0
    for start in range(0, len(hashes), COUNT_BLOCK):
        block = hashes[start : start + COUNT_BLOCK + 1]
        equal += int(np.count_nonzero(block[1:] == block[:-1]))
    return equal
