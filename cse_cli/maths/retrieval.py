"""Retrieval of a sentence's partner from a corpus: recall at k and mean reciprocal rank.

The retrieval experiment of DiffCSE (Chuang et al. 2022) on STS-B: pair p asks with the sentence
`texts[own]` for its partner `texts[partner]`, where `pairs[p] = (own, partner)` are row numbers of
the corpus. Both directions of a pair are two rows of `pairs`.

What is ranked (`match`):

- "text": the *distinct* strings of the corpus, each by its first row's vector, without the query's
  own string. A hit is the partner's string. A corpus may hold a sentence several times; a copy of
  the query is then no competitor, and a copy of the partner takes no second place.
- "index": the rows of the corpus without the query's own row. A hit is the partner's row.

Candidates are ordered by cosine, equal ones by their place in the corpus, so a space in which all
vectors are equal scores chance, not 1. A partner that is the query itself (the same string, or the
same row) was removed from the candidates: it is never found.
"""

from collections.abc import Sequence

import torch

from cse_cli.errors import InputError
from cse_cli.linears import linear
from cse_cli.maths.vectors import require, unit

_BLOCK = 2**22  # query x candidate entries held at once: 16 MiB in fp32

Pairs = torch.Tensor | Sequence[tuple[int, int]]


def recall_at_k(
    queries: torch.Tensor,
    corpus: torch.Tensor,
    pairs: Pairs,
    texts: Sequence[str],
    ks: Sequence[int] = (1, 5, 10),
    match: str = "text",
) -> dict[int, float]:
    """Share of queries whose partner is among the k nearest candidates, for each k of `ks`.

    `queries` (P, D), row p the vector of pair p's query; `corpus` (M, D) and `texts`, M strings;
    `pairs` (P, 2) integers, the query's and the partner's row in `texts`. Raises InputError if
    sizes disagree, a row number is out of range, or a vector is not finite.
    """
    return recall_of(partner_ranks(queries, corpus, pairs, texts, match), ks)


def recall_of(ranks: torch.Tensor, ks: Sequence[int]) -> dict[int, float]:
    """Recall at each k of `ks`, from the partners' ranks (P,)."""
    return {k: (ranks <= k).double().mean().item() for k in ks}


def mean_reciprocal_rank(
    queries: torch.Tensor,
    corpus: torch.Tensor,
    pairs: Pairs,
    texts: Sequence[str],
    match: str = "text",
) -> float:
    """Mean of 1 / (the partner's rank), 0 for one never found. Arguments as `recall_at_k`."""
    return partner_ranks(queries, corpus, pairs, texts, match).reciprocal().mean().item()


def partner_ranks(
    queries: torch.Tensor,
    corpus: torch.Tensor,
    pairs: Pairs,
    texts: Sequence[str],
    match: str = "text",
) -> torch.Tensor:
    """The partners' ranks from 1, infinite where the partner is no candidate: (P,) float64.

    Arguments and errors as `recall_at_k`.
    """
    require("match", match, ("text", "index"))
    pairs = torch.as_tensor(pairs, device=corpus.device)
    _validate(queries, corpus, pairs, texts)
    if match == "text":
        first: dict[str, int] = {}  # string -> its first row; insertion order numbers the strings
        for row, text in enumerate(texts):
            first.setdefault(text, row)
        number = {text: n for n, text in enumerate(first)}
        corpus = corpus[list(first.values())]
        string_of_row = torch.tensor([number[text] for text in texts], device=corpus.device)
        pairs = string_of_row[pairs]
    own, partner = pairs.unbind(1)
    queries, corpus = unit(queries), unit(corpus)
    height = max(1, _BLOCK // len(corpus))
    blocks = zip(*(part.split(height) for part in (queries, own, partner)), strict=True)
    with torch.no_grad():
        ahead = torch.cat([_ahead(linear(q, corpus), o, p) for q, o, p in blocks])
    return (ahead + 1.0).double().masked_fill(own == partner, torch.inf)


def _ahead(scores: torch.Tensor, own: torch.Tensor, partner: torch.Tensor) -> torch.Tensor:
    """How many candidates come before the partner. (Q, M), (Q,), (Q,): (Q,)."""
    wanted = scores.gather(1, partner[:, None])  # (Q, 1)
    mine = scores.gather(1, own[:, None])
    ahead = (scores > wanted).sum(1)
    equal = scores == wanted
    tied = (equal.sum(1) > 1).nonzero().squeeze(1)  # few: equal ones are ordered by their place
    place = torch.arange(scores.shape[1], device=scores.device)
    ahead[tied] += (equal[tied] & (place < partner[tied, None])).sum(1)
    itself = (mine > wanted) | ((mine == wanted) & (own < partner)[:, None])
    return ahead - itself.squeeze(1).long()


def _validate(
    queries: torch.Tensor, corpus: torch.Tensor, pairs: torch.Tensor, texts: Sequence[str]
) -> None:
    if len(corpus) != len(texts):
        raise InputError(f"the corpus has {len(corpus)} vectors for {len(texts)} texts")
    if len(queries) == 0 or pairs.shape != (len(queries), 2):
        raise InputError(
            f"retrieval needs one (query, partner) pair of row numbers per query vector, at least "
            f"one: got {len(queries)} queries and pairs of shape {tuple(pairs.shape)}"
        )
    if pairs.min() < 0 or pairs.max() >= len(texts):
        raise InputError(f"a pair's row number is outside the corpus, 0 to {len(texts) - 1}")
    if not (queries.isfinite().all() and corpus.isfinite().all()):
        raise InputError("an embedding is not finite, so the candidates cannot be ranked")
