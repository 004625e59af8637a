"""Attention for rows as short as sentences, on a processor: plain products and a softmax.

PyTorch's fused attention is made for long rows. On rows of 32 tokens in bf16 it took about twice as
long as the plain products (timed by hand, one core), and its backward pass over a batch's rows
without dropout an eighth of a whole training step (profiled, one core). It also draws dropout by
torch's own generator; here it is the fast one of dropout.py.
"""

from typing import Any

import torch
from torch import Tensor, nn

from cse_cli.dropout import FastDropout, fast_dropout

ATTENTION = "cse_short"


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """softmax(q k^T / sqrt(d) + mask) with fast dropout, times v: (B, H, T, d) -> (B, T, H, d).

    Keys and values may have fewer heads (grouped-query attention). It takes the masks of
    transformers' sdpa attention, and in float32 leaves evaluation to it.
    """
    exact = dropout == 0.0 and query.dtype == torch.float32
    if exact and torch.is_inference_mode_enabled():
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=0.0, scaling=scaling, **options
        )
    shared = query.shape[1] // key.shape[1]  # heads of the query for each of key and value
    if shared > 1:
        key, value = (heads.repeat_interleave(shared, dim=1) for heads in (key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = (query * scale) @ key.transpose(2, 3)  # (B, H, T, T)
    if attention_mask is not None:
        if attention_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
        else:
            scores = scores + attention_mask
    weights = fast_dropout(scores.softmax(dim=-1).to(value.dtype), dropout)
    return (weights @ value).transpose(1, 2).contiguous(), None


def use_short_attention(backbone: Any) -> bool:
    """Switch a backbone on a processor to this attention; whether it could be.

    It can where the backbone's attention is transformers' sdpa and looks both ways.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    if backbone.config._attn_implementation != "sdpa":
        return has_short_attention(backbone)
    if any(getattr(module, "is_causal", False) for module in backbone.modules()):
        return False
    AttentionInterface.register(ATTENTION, _attention)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
    backbone.set_attn_implementation(ATTENTION)
    return True


def has_short_attention(backbone: Any) -> bool:
    """Whether a backbone was switched to this attention, and is still."""
    return bool(backbone.config._attn_implementation == ATTENTION)


def use_fast_dropout(backbone: Any) -> bool:
    """Switch a backbone that trains on a processor to fast dropout, in modules and attention.

    Returns whether all of it was switched.
    """
    for module in list(backbone.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, FastDropout(child.p).train(child.training))
    return use_short_attention(backbone)
