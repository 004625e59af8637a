"""Poolers: from token states to one sentence vector.

Hidden states are counted as everywhere here: `hs[0]` is the embedding output and `hs[l]` the
output of block l, so "first" is either of two things and has two names: `first_last_mean` takes
`hs[0]` (Su et al. 2021; the published BERT 56.70), `layer1_last_mean` takes `hs[1]` (the SimCSE
repository today). Means run over `attention_mask == 1`, [CLS] and [SEP] included.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from cse_cli.errors import UsageError, suggestion

# The layers that each pooler reads, as indices into the L + 1 hidden states.
POOLER_LAYERS: dict[str, tuple[int, ...]] = {
    "cls": (-1,),
    "mean": (-1,),
    "max": (-1,),
    "first_last_mean": (0, -1),
    "layer1_last_mean": (1, -1),
    "top2_mean": (-2, -1),
}


def check_pooler(kind: str) -> str:
    """`kind` itself, or UsageError with the nearest known pooler."""
    if kind not in POOLER_LAYERS:
        raise UsageError(f"unknown pooler '{kind}'; {suggestion(kind, POOLER_LAYERS)}")
    return kind


def pool_layer(tokens: Tensor, mask: Tensor, kind: str) -> Tensor:
    """Pool one layer: tokens (B, T, D), mask (B, T) -> (B, D).

    Two-layer poolers average two layers that are each pooled by their mean.
    """
    if kind == "cls":
        return tokens[:, 0]
    if kind == "max":
        return tokens.masked_fill(mask.unsqueeze(-1) == 0, -torch.inf).amax(dim=1)
    weights = mask.to(tokens.dtype).unsqueeze(-1)  # (B, T, 1)
    return (tokens * weights).sum(dim=1) / weights.sum(dim=1).clamp_min(1)


def pool(hidden_states: Sequence[Tensor], mask: Tensor, kind: str) -> Tensor:
    """Sentence vectors (B, D) from the L + 1 hidden states (each (B, T, D)) and mask (B, T).

    Raises UsageError for an unknown `kind` (see `POOLER_LAYERS`).
    """
    layers = POOLER_LAYERS[check_pooler(kind)]
    vectors = [pool_layer(hidden_states[layer], mask, kind) for layer in layers]
    return vectors[0] if len(vectors) == 1 else torch.stack(vectors).mean(dim=0)
