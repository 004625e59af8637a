"""Which rows go through the encoder together, so that next to nothing is padding.

Groups hold rows of like length, and what bounds a group differs. Training rows of one step
are few and each extra group costs a fixed launch time, so the cut points are chosen by dynamic
programming; encoding has many rows, so groups are filled up to a token budget.
"""

from collections.abc import Sequence

import numpy as np


def step_groups(lengths: Sequence[int], launch: int) -> list[np.ndarray]:
    """Split the rows of a training step into groups of similar length.

    Minimises sum over groups of (rows x longest length + `launch`), where `launch` is what starting
    one more group costs, in tokens. Returns row indices, longest group last; every row is in
    exactly one group.
    """
    sizes = np.asarray(lengths)
    order = np.argsort(sizes, kind="stable")
    tops, counts = np.unique(sizes, return_counts=True)
    ends = np.cumsum(counts)  # rows at or under each distinct length
    best = [0.0] + [np.inf] * len(tops)
    cut = [0] * (len(tops) + 1)
    for j in range(1, len(tops) + 1):
        for i in range(j):
            rows = ends[j - 1] - (ends[i - 1] if i else 0)
            cost = best[i] + rows * tops[j - 1] + launch
            if cost < best[j]:
                best[j], cut[j] = cost, i
    groups: list[np.ndarray] = []
    j = len(tops)
    while j:
        i = cut[j]
        groups.append(order[(ends[i - 1] if i else 0) : ends[j - 1]])
        j = i
    return groups[::-1]


def deal(lengths: Sequence[int], lanes: int) -> list[np.ndarray]:
    """Deal rows into at most `lanes` lanes by turns in the order of their lengths.

    So lanes have as many rows of every length, and as much to do. Returns row indices.
    """
    order = np.argsort(np.asarray(lengths), kind="stable")
    return [order[lane::lanes] for lane in range(min(lanes, len(order)))]


def budget_groups(lengths: Sequence[int], tokens: int) -> list[np.ndarray]:
    """Split rows into groups of at most `tokens` padded tokens each (at least one row).

    Rows are sorted by length, longest first, so the largest group comes first and memory that
    suffices at the start suffices to the end.
    """
    sizes = np.asarray(lengths)
    order = np.argsort(-sizes, kind="stable")
    groups: list[np.ndarray] = []
    start = 0
    while start < len(order):
        rows = max(1, tokens // max(1, int(sizes[order[start]])))
        groups.append(order[start : start + rows])
        start += rows
    return groups
