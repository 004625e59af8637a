"""Searching an index: shard by shard, each shard's candidates rescored, then merged exactly.

Every kind of index proposes candidates; their scores are computed from the vectors themselves, one
by one, so a score does not depend on the kind, the block or the shard in which a row was found.
Hits are ordered by score, equal ones by row: the merge of exact shards equals one exact search.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge

import numpy as np
from torch import Tensor

from cse_cli.errors import InputError
from cse_cli.index.kinds import EFFORT, Proposer, check_kind, derive, open_proposer
from cse_cli.index.rescored import rescore
from cse_cli.index.store import Index
from cse_cli.maths import unit

HELD = 1 << 22  # scores held while looking for more different sentences: 32 MiB
BLOCK = 1 << 12  # rows scored together where every row is looked at
MORE = 4  # candidates for each wanted row; and times as many rows where too many were the same


@dataclass(frozen=True)
class Hits:
    """`scores` (Q, k) float64, cosines in descending order, and `rows` (Q, k); -1 where no more."""

    scores: np.ndarray
    rows: np.ndarray


@dataclass(frozen=True)
class Hit:
    """One found sentence."""

    score: float
    row: int
    text: str


class Searcher:
    """An index made ready for queries.

    `kind` is one of `kinds.KINDS` (default: the index's own), derived now where it is not there
    yet; `candidates` sets how many candidates of a query an inexact kind looks at.
    """

    def __init__(
        self,
        index: Index,
        *,
        kind: str | None = None,
        candidates: int | None = None,
        verify: bool = True,
    ):
        self.index = index
        self.kind = check_kind(kind or index.kind)
        self._candidates = candidates
        for shard in index.shards:
            derive(shard, self.kind)
        self._proposers: list[Proposer] = [
            open_proposer(shard, self.kind, verify=verify) for shard in index.shards
        ]

    def search(self, queries: Tensor, k: int) -> Hits:
        """The k rows nearest to each of `queries` (Q, D), which need not have unit length.

        Raises InputError for a query of another width or one that is not finite.
        """
        queries = self._checked(queries)
        parts = [self._search_shard(number, queries, k) for number in range(len(self._proposers))]
        scores = np.concatenate([part.scores for part in parts], axis=1)
        rows = np.concatenate([part.rows for part in parts], axis=1)
        order = np.lexsort((rows, -scores), axis=1)[:, :k]
        return Hits(np.take_along_axis(scores, order, 1), np.take_along_axis(rows, order, 1))

    def distinct(
        self, queries: Tensor, k: int, *, leave_out: Sequence[str] | None = None
    ) -> list[list[Hit]]:
        """The k nearest different sentences of each query, every one by its best row.

        `leave_out` names for each query a sentence that is no hit, such as the query itself. Fewer
        than k come where the index has no more.
        """
        found: dict[int, list[Hit]] = {}
        without = leave_out if leave_out is not None else [None] * len(queries)
        open_queries = list(range(len(queries)))
        fetch = k + 1
        while open_queries and (fetch == k + 1 or fetch * len(open_queries) <= HELD):
            fetch = min(fetch, len(self.index))
            hits = self.search(queries[open_queries], fetch)
            for place, query in enumerate(open_queries):
                found[query] = _different(self._hits(hits, place), k, without[query])
            all_seen = fetch == len(self.index)
            open_queries = [q for q in open_queries if len(found[q]) < k and not all_seen]
            fetch *= MORE
        for query in open_queries:
            found[query] = self._of_every_row(queries[query : query + 1], k, without[query])
        return [found[query] for query in range(len(queries))]

    def every(self, queries: Tensor, k: int) -> list[list[Hit]]:
        """The k nearest rows of each query, the same sentence as often as it occurs."""
        hits = self.search(queries, k)
        return [list(self._hits(hits, place)) for place in range(len(queries))]

    def _search_shard(self, number: int, queries: Tensor, k: int) -> Hits:
        vectors = self.index.shards[number].vectors
        effort = self._candidates or max(EFFORT.get(self.kind, 0), MORE * k)
        places = self._proposers[number].propose(queries, k, effort)
        scores = rescore(queries, vectors, places)
        return Hits(scores, np.where(places < 0, -1, places + self.index.starts[number]))

    def _of_every_row(self, query: Tensor, k: int, without: str | None) -> list[Hit]:
        """`distinct` for one query (1, D), a block of rows after the other."""
        query = self._checked(query)
        best: list[Hit] = []
        for shard, first in zip(self.index.shards, self.index.starts, strict=False):
            for start in range(0, len(shard), BLOCK):
                places = np.arange(start, min(start + BLOCK, len(shard)))
                scores = rescore(query, shard.vectors, places[None])[0]
                floor = best[-1].score if len(best) == k else -np.inf
                order = np.argsort(-scores, kind="stable")
                order = order[scores[order] > floor]
                hits = self._hits(Hits(scores[None, order], first + places[None, order]), 0)
                best = _different(merge(best, hits, key=lambda hit: -hit.score), k, without)
        return best

    def _hits(self, hits: Hits, place: int) -> Iterator[Hit]:
        pairs = zip(hits.scores[place].tolist(), hits.rows[place].tolist(), strict=True)
        return (Hit(score, row, self.index.text(row)) for score, row in pairs if row >= 0)

    def _checked(self, queries: Tensor) -> Tensor:
        if queries.shape[1] != self.index.dimension:
            raise InputError(
                f"queries have {queries.shape[1]} dimensions, {self.index.folder} has "
                f"{self.index.dimension}"
            )
        if not queries.isfinite().all():
            raise InputError("a query's vector is not finite, so nothing is near it")
        return unit(queries.float()).contiguous()


def _different(hits: Iterable[Hit], k: int, without: str | None) -> list[Hit]:
    """The first k of the descending `hits` with different texts, none of them `without`."""
    first: dict[str, Hit] = {}
    for hit in hits:
        if hit.text != without:
            first.setdefault(hit.text, hit)
        if len(first) == k:
            break
    return list(first.values())
