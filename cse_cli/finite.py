"""Vectors that are numbers: what evaluators ask of an encoder before they measure anything."""

from collections.abc import Sequence

from torch import Tensor

from cse_cli.errors import InputError


def require_finite(vectors: Tensor, texts: Sequence[str], model: str) -> Tensor:
    """`vectors` (n, D), those of the n `texts`; InputError where one is NaN or infinite."""
    broken = (~vectors.isfinite()).any(dim=1).nonzero()[:, 0].tolist()
    if broken:
        raise InputError(
            f"{model} gives NaN or infinite vectors for {len(broken)} of {len(texts)} texts, "
            f"first '{texts[broken[0]][:60]}': the checkpoint is damaged"
        )
    return vectors
