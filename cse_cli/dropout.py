"""Dropout that a processor can afford, and passes that skip what nobody reads.

PyTorch draws a CPU's dropout mask one Bernoulli number at a time. Here four mask words come out of
one 64-bit draw of the same generator: each 16-bit word is compared with p, so the rate is p rounded
to 1/65536 and the scale is that of the rounded rate. Seeds, saved random states and replays work as
with `nn.Dropout`.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from cse_cli import lanes

WORDS = 1 << 16  # values of the 16-bit words that are compared with p


class _Clean(threading.local):
    """How many of the rows that a thread puts through a module, the last, have no dropout."""

    rows = 0


_clean = _Clean()


@contextmanager
def clean_rows(count: int) -> Iterator[None]:
    """Within, fast dropout leaves the last `count` rows as they are; each thread has its own."""
    before, _clean.rows = _clean.rows, count
    try:
        yield
    finally:
        _clean.rows = before


class _FastDropout(torch.autograd.Function):
    """x (R, ...), of whose first `rows` rows a share p is set to 0, the rest scaled by 1 / (1 - p).

    The words are kept for the backward pass, not the mask: they are never the larger of the two.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, cut: int, rows: int) -> Tensor:
        noisy = x[:rows]
        draws = torch.empty((noisy.numel() + 3) // 4, dtype=torch.int64)
        draws.random_(-(2**63), None, generator=lanes.generator())
        ctx.words = draws.view(torch.int16)[: noisy.numel()].view(noisy.shape)
        ctx.cut = cut
        return _masked(x, ctx.words, cut)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _masked(gradients[0], ctx.words, ctx.cut), None, None


def _masked(x: Tensor, words: Tensor, cut: int) -> Tensor:
    """x / (1 - p) where the words reach the cut, else 0; rows that have no words as they are."""
    rows = len(words)
    out = torch.empty_like(x)
    noisy = out[:rows]  # first the mask, of x's type: far faster than `torch.where`
    torch.ge(words, cut - WORDS // 2, out=noisy)
    noisy.mul_(x[:rows]).mul_(WORDS / (WORDS - cut))
    out[rows:] = x[rows:]
    return out


def fast_dropout(x: Tensor, p: float) -> Tensor:
    """Dropout at rate `p` (rounded to 1/65536) of a CPU tensor (R, ...), with its gradient.

    Rows that are clean (`clean_rows`) stay as they are.
    """
    cut, rows = round(p * WORDS), len(x) - _clean.rows
    if cut == 0 or rows <= 0 or x.numel() == 0:
        return x
    if cut == WORDS:
        return torch.cat([x[:rows] * 0, x[rows:]])
    return _FastDropout.apply(x, cut, rows)  # type: ignore[no-any-return]


class FastDropout(nn.Dropout):
    """`nn.Dropout` by `fast_dropout`."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape; the identity in evaluation mode."""
        return fast_dropout(x, self.p) if self.training else x


@contextmanager
def first_token_only(last_block: nn.Module) -> Iterator[None]:
    """Let the last block compute its output for the first token only.

    A [CLS] pooler reads nothing else, and what other tokens would need there is three quarters of
    a block. It works where a block has the structure of BERT's (attention with an `output` that
    takes the context and the residual, then `intermediate`); other blocks are left as they are.
    """
    attention = getattr(last_block, "attention", None)
    output = getattr(attention, "output", None)
    if output is None or not hasattr(last_block, "intermediate"):
        yield
        return
    hook = output.register_forward_pre_hook(lambda _, args: tuple(a[:, :1] for a in args))
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def dropout_off(module: nn.Module) -> Iterator[None]:
    """Evaluation mode for `module`, then every submodule's own mode restored.

    The whole module is switched: attention reads its own `training` flag for its dropout, so
    switching only the `nn.Dropout` modules would leave that on.
    """
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
