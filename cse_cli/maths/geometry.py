"""Measures of a space: alignment, uniformity, layer and token smoothing, nearest pairs.

Alignment and uniformity: Wang & Isola 2020, as used by SimCSE. Set and token similarity: the
over-smoothing measures of SSCL. Top similarities: Figure 1 of GS-InfoNCE.
"""

import math
from collections.abc import Iterator

import torch

from cse_cli.errors import InputError
from cse_cli.maths.vectors import paired_cosine, unit

_BLOCK = 2**22  # entries of a block of the similarity matrix held at once: 16 MiB in fp32


def alignment(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Mean of |a_p - b_p|^2 over P positive pairs, vectors L2-normalised. (P, D) twice: scalar.

    Raises InputError without a pair.
    """
    if len(a) == 0:
        raise InputError("alignment needs at least one positive pair")
    return (unit(a) - unit(b)).square().sum(-1).mean()


def uniformity(x: torch.Tensor, t: float = 2.0) -> torch.Tensor:
    """log mean over i<j of e^{-t |x_i - x_j|^2}, vectors L2-normalised. (N, D): scalar.

    Exact over all pairs, a block of rows at a time: memory is linear in N (unless a gradient is
    asked for, which keeps the blocks). Raises InputError for fewer than two vectors.
    """
    n = len(x)
    if n < 2:
        raise InputError(f"uniformity needs at least two vectors, got {n}")
    x = unit(x)
    squared = x.square().sum(-1)  # 1, or 0 for a zero vector
    parts = []
    for rows, columns, others in _upper_triangle(n, x.device):
        distances = squared[rows, None] + squared[columns] - 2 * x[rows] @ x[columns].T
        exponents = (-t * distances.clamp_min(0)).masked_fill(others, -math.inf)
        parts.append(torch.logsumexp(exponents, dim=(0, 1)))
    return torch.logsumexp(torch.stack(parts), dim=0) - math.log(n * (n - 1) / 2)


def top_similarities(x: torch.Tensor, k: int = 4) -> torch.Tensor:
    """The k largest cosines over i<j, descending. (N, D): (k,). Memory as `uniformity`.

    Raises InputError if there are fewer than k pairs.
    """
    n = len(x)
    if n * (n - 1) // 2 < k:
        raise InputError(f"{n} vectors make {n * (n - 1) // 2} pairs, fewer than the {k} asked for")
    x = unit(x)
    best = x.new_empty(0)
    for rows, columns, others in _upper_triangle(n, x.device):
        cosines = (x[rows] @ x[columns].T).masked_fill(others, -math.inf)
        found = torch.cat([best, cosines.flatten()])
        best = found.topk(min(k, len(found))).values
    return best


def set_similarity(states: torch.Tensor) -> torch.Tensor:
    """SetSim of SSCL: mean cosine of a sentence's pooled vectors in consecutive layers.

    `states` (L+1, N, D). Returns (L,): entry l compares layer l with layer l+1.
    """
    return paired_cosine(states[:-1], states[1:]).mean(-1)


def token_similarity(tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """TokSim of SSCL: mean cosine of the m(m-1) ordered pairs of different tokens of a sentence.

    `tokens` (N, T, D), `mask` (N, T) 1 where a token counts. Returns (N,), NaN where m < 2.

    The sum over all pairs u, v of x_u . x_v is |sum_u x_u|^2, so no (T, T) matrix is needed.
    """
    mask = mask.bool()
    x = unit(tokens.masked_fill(~mask[..., None], 0))  # whatever padding holds, it adds nothing
    pairs = x.sum(1).square().sum(-1) - x.square().sum((1, 2))  # (N,)
    count = mask.sum(1)
    return (pairs / (count * (count - 1)).clamp_min(1)).masked_fill(count < 2, math.nan)


def _upper_triangle(n: int, device: torch.device) -> Iterator[tuple[slice, slice, torch.Tensor]]:
    """Blocks (rows i, columns j, mask of the entries *not* i<j) that hold each pair of n once."""
    height = max(1, _BLOCK // n)
    for start in range(0, n - 1, height):  # the last row alone would hold no pair
        rows, columns = slice(start, min(start + height, n)), slice(start, n)
        shape = (rows.stop - start, n - start)
        yield rows, columns, torch.ones(shape, dtype=torch.bool, device=device).tril()
