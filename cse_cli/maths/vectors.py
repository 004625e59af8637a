"""Unit vectors, the one primitive under every cosine of the package.

Scaling by the largest entry before taking the norm keeps the squares in range, so vectors as short
as 1e-30 or as long as 1e30 still have a direction in single precision. A zero vector has none: it
stays zero, its cosine with anything is 0, and its gradient is finite.
"""

from collections.abc import Iterable

import torch

from cse_cli.errors import UsageError, suggestion


def unit(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """`x / |x|` along `dim`, same shape; zero vectors stay zero."""
    largest = x.detach().abs().amax(dim, keepdim=True)
    scaled = x / (largest + (largest == 0))  # the direction does not depend on the scale
    norm = torch.linalg.vector_norm(scaled, dim=dim, keepdim=True)
    return scaled / norm.clamp_min(1)  # one entry is +-1, so only a zero vector is shorter than 1


def cosine(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Pairwise cosine of the rows of `a` (N, D) and `b` (M, D): (N, M); 0 for a zero vector."""
    return unit(a) @ unit(b).T


def paired_cosine(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Cosine of the vectors at the same place of `a` and `b` (..., D): (...)."""
    return (unit(a) * unit(b)).sum(-1)


def require(option: str, value: str, known: Iterable[str]) -> None:
    """Raise UsageError, naming the nearest of `known`, unless `value` is one of them."""
    if value not in (names := list(known)):
        raise UsageError(f"unknown {option} '{value}'; {suggestion(value, names)}")
