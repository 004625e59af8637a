"""Rows that are equally near: the lowest are taken, wherever they stand.

Exact search compares scores in single precision and keeps a few rows more than wanted, which are
then ordered by their exact scores, equal ones by row. Where the last row kept is as near as the
last one wanted, rows that were not kept may be as near too (a sentence that the corpus holds a
hundred times); for such a query all rows are looked at once more.
"""

import numpy as np
import torch
from torch import Tensor

from cse_cli.index.exact import QUERIES, VECTORS
from cse_cli.index.rescored import rescore
from cse_cli.linears import linear

ROUNDING = 4e-6  # more than single precision moves a product of unit vectors

Best = tuple[np.ndarray, np.ndarray]  # scores and places, (C,) each


def settle(
    queries: Tensor, vectors: np.ndarray, scores: Tensor, places: Tensor, wanted: int
) -> Tensor:
    """The nearest `places` (Q, C) by single-precision `scores` (Q, C), with their ties settled.

    Among the places of a query are then its `wanted` nearest by exact score, equal ones by row; the
    others may be -1 (none).
    """
    if places.shape[1] == len(vectors):
        return places
    floor = scores[:, wanted - 1] - ROUNDING
    for some in (scores[:, -1] >= floor).nonzero()[:, 0].split(QUERIES):
        found = _nearest(queries[some], vectors, floor[some], wanted)
        places[some] = -1
        for query, best in zip(some.tolist(), found, strict=True):
            places[query, :wanted] = torch.from_numpy(best)
    return places


def _nearest(queries: Tensor, vectors: np.ndarray, floor: Tensor, wanted: int) -> list[np.ndarray]:
    """Places of each query's `wanted` nearest rows, of those whose score reaches its `floor`."""
    kept: list[Best] = [(np.empty(0), np.empty(0, np.int64))] * len(queries)
    for start in range(0, len(vectors), VECTORS):
        near = (
            linear(torch.from_numpy(vectors[start : start + VECTORS]), queries) >= floor
        )  # (B, Q)
        for query in near.any(0).nonzero()[:, 0].tolist():
            found = start + near[:, query].nonzero()[:, 0].numpy()
            exact = rescore(queries[query : query + 1], vectors, found[None])[0]
            scores, places = kept[query]
            both = np.concatenate([scores, exact]), np.concatenate([places, found])
            kept[query] = _best(both, wanted) if len(both[0]) > 2 * wanted + VECTORS else both
    return [_best(one, wanted)[1] for one in kept]


def _best(found: Best, wanted: int) -> Best:
    """The `wanted` best, equal ones in their order."""
    order = np.argsort(-found[0], kind="stable")[:wanted]
    return found[0][order], found[1][order]
