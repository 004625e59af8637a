"""Exact nearest neighbours: one matrix product a block, and a glance at the maxima of its parts.

The scores of a block of vectors with all queries are one product S = X q^T, small enough to stay in
the processor's cache. A query's k best so far give it a floor; 64 vectors whose best score is not
above the floor hold nothing for that query. After the first blocks that is nearly always so, and
the search costs little more than the product.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from cse_cli.linears import linear

QUERIES = 1024  # that share one pass over the vectors
SCORES = 1 << 21  # entries of S: 8 MiB
VECTORS = 1 << 12  # of a block, where the queries are few
GROUP = 64  # vectors whose maximum is looked at first

Decode = Callable[[Any], Tensor]
Best = tuple[Tensor, Tensor]  # scores and places, (Q, k) each


def top_k(queries: Tensor, vectors: Any, k: int, decode: Decode = torch.from_numpy) -> Best:
    """The k largest inner products of each query with the vectors, and the vectors' places.

    `queries` (Q, D) float32; `vectors` anything with a length whose slices `decode` turns into
    float32 (B, D), such as a mapped matrix; at least one of each. Returns scores (Q, k), descending
    and with the rounding of single precision, and places (Q, k); k is cut to what there is.
    """
    k = min(k, len(vectors))
    parts = [_one_pass(part, vectors, k, decode) for part in queries.split(QUERIES)]
    scores, places = zip(*parts, strict=True)
    return torch.cat(scores), torch.cat(places)


def _one_pass(queries: Tensor, vectors: Any, k: int, decode: Decode) -> Best:
    height = _whole_groups(max(k, min(VECTORS, SCORES // len(queries))))
    best: Best | None = None
    for start in range(0, len(vectors), height):
        block = decode(vectors[start : start + height])
        scores = linear(block, queries)  # (B, Q)
        if best is None:
            first, places = scores.T.contiguous().topk(k, dim=1)
            best = first, places
            continue
        missing = _whole_groups(len(block)) - len(block)
        if missing:  # of the last block
            scores = pad(scores, (0, 0, 0, missing), value=-torch.inf)
        _update(best, scores, start)
    assert best is not None
    return best


def _whole_groups(vectors: int) -> int:
    return -(-vectors // GROUP) * GROUP


def _update(best: Best, scores: Tensor, start: int) -> None:
    """Take what is better in a block's `scores` (B, Q), whose first vector is at `start`."""
    floor = best[0][:, -1]
    groups = scores.view(-1, GROUP, scores.shape[1])
    group, query = (groups.amax(1) > floor).nonzero(as_tuple=True)
    if not len(group):
        return
    found = groups[group, :, query]  # (H, GROUP)
    hit, within = (found > floor[query, None]).nonzero(as_tuple=True)
    query, order = query[hit].sort(stable=True)
    place = (start + group[hit] * GROUP + within)[order]
    _merge(best, query, found[hit, within][order], place)


def _merge(best: Best, query: Tensor, score: Tensor, place: Tensor) -> None:
    """Put F finds, sorted by query, among the queries' best."""
    kept, places = best
    k = kept.shape[1]
    rows, row, count = query.unique_consecutive(return_inverse=True, return_counts=True)
    column = k + torch.arange(len(query)) - (count.cumsum(0) - count)[row]
    shape = len(rows), k + int(count.max())
    merged, origin = torch.full(shape, -torch.inf), torch.zeros(shape, dtype=torch.int64)
    merged[:, :k], origin[:, :k] = kept[rows], places[rows]
    merged[row, column], origin[row, column] = score, place
    kept[rows], order = merged.topk(k, dim=1)
    places[rows] = origin.gather(1, order)
