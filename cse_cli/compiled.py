"""`--compile`: the backbone compiled for one shape, for the rows of training steps.

Every step pads its rows to the training length, so that one graph serves all steps (longer rows,
which word repetition makes, to the next multiple of 8), and on a GPU the graph is recorded as a
CUDA graph. Hooks would be traced into the graph and break it at every step, so all hidden states
are returned instead; training keeps them for the backward pass anyway.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cse_cli.backbone import find_final_norm
from cse_cli.data.tokens import Tokens
from cse_cli.encoder import Encoder
from cse_cli.pooling import POOLER_LAYERS, pool_layer
from cse_cli.rows import Pooled

MULTIPLE = 8  # rows longer than the training length are padded to a multiple of this


def compile_encoder(encoder: Encoder, length: int) -> None:
    """Have `encoder.pooled` run a compiled backbone on rows of `length` tokens from now on."""
    mode = "reduce-overhead" if encoder.device.type == "cuda" else None
    backbone = encoder.backbone

    def states(ids: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        output = backbone(ids, attention_mask=mask, output_hidden_states=True)
        return tuple(output.hidden_states)

    run: Callable[..., Any] = torch.compile(states, dynamic=False, mode=mode)
    encoder.compiled = lambda tokens, layers: _pooled(encoder, run, length, tokens, layers)


def _pooled(
    encoder: Encoder, run: Callable[..., Any], length: int, tokens: Tokens, layers: Sequence[int]
) -> Pooled:
    """`Encoder.pooled` for rows in their own order, all padded to one length."""
    longest = int(tokens.lengths.max())
    width = length if longest <= length else -(-longest // MULTIPLE) * MULTIPLE
    ids, mask = tokens.narrowed(longest).widened(width).on(encoder.device)
    states = run(ids, mask.long())
    norm = find_final_norm(encoder.backbone) or nn.Identity()
    last = encoder.num_layers

    def vector(layer: int) -> Tensor:
        normed = norm(states[layer]) if 0 < layer < last else states[layer]
        # A copy, as a CUDA graph's outputs are overwritten when it runs again.
        return pool_layer(normed, mask, encoder.pooler).clone()

    own = [vector(layer % (last + 1)) for layer in POOLER_LAYERS[encoder.pooler]]
    pooled = own[0] if len(own) == 1 else torch.stack(own).mean(dim=0)
    return Pooled(pooled, {layer: vector(layer) for layer in layers})
