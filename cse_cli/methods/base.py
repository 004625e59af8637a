"""The ingredient: what it may change in a training step, and what it is given.

An ingredient is an `nn.Module` (its trainable parts reach the optimiser, its buffers the resume
state) with its own small configuration; it holds no reference to the training loop. Every hook has
a neutral default, and plain SimCSE is the empty list of ingredients.
"""

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from cse_cli.data.tokens import Tokens
from cse_cli.dropout import dropout_off
from cse_cli.encoder import Encoder


def draw(seed: int, step: int, name: str) -> torch.Generator:
    """A generator of its own for each (seed, step, name).

    Draws made with it do not depend on what else was drawn, so prefetching, resuming and several
    processes agree.
    """
    key = hashlib.sha256(f"{seed}/{step}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(key[:8], "little") >> 1)


@dataclass(frozen=True)
class Needs:
    """What the encoder must deliver beside the two views.

    `layers`: blocks whose pooled states of the anchors are wanted; `positive_layers`: of the
    positives; `clean`: a third pass over the anchors with dropout off; `passes`: extra dropout
    passes of each view.
    """

    layers: frozenset[int] = frozenset()
    positive_layers: frozenset[int] = frozenset()
    clean: bool = False
    passes: int = 0

    def __or__(self, other: "Needs") -> "Needs":
        return Needs(
            self.layers | other.layers,
            self.positive_layers | other.positive_layers,
            self.clean or other.clean,
            max(self.passes, other.passes),
        )


@torch.no_grad()
def encode_alone(encoder: Encoder, tokens: Tokens) -> Tensor:
    """Rows (R, T) -> pooled vectors (R, D), before the head, without gradient and dropout."""
    with dropout_off(encoder.backbone):
        return encoder.pooled(tokens).last.float()


@dataclass
class Views:
    """The vectors of one step, behind the head, for all N sentences of the batch.

    `h` anchors (N, D), `p` positives (N, D); `layers[l]`, `positive_layers[l]` (N, D); `clean`
    (N, D) with dropout off; `passes` the extra passes of anchors and positives, (K, N, D) each;
    `hard` the third column of triplets (N, D) and `weights` its (N,) weights. `tokens` and `moved`
    are the rows before and after the positives' hooks, of the whole batch; `mine` is the slice of
    the batch that this process encodes. `encode` is `encode_alone` for a whole batch, which the
    training step replaces by one that shares the rows between the processes. `further` (N, D) are
    the vectors of the rows that an ingredient's `further` gave. `autocast` and `chunk_size` are how
    the encoder is run; an ingredient's own passes are run alike.
    """

    h: Tensor
    p: Tensor
    tokens: Tokens
    moved: Tokens
    temperature: float
    seed: int
    step: int
    layers: dict[int, Tensor] = field(default_factory=dict)
    positive_layers: dict[int, Tensor] = field(default_factory=dict)
    clean: Tensor | None = None
    passes: tuple[Tensor, Tensor] | None = None
    hard: Tensor | None = None
    weights: Tensor | None = None
    further: Tensor | None = None
    mine: slice = field(default_factory=lambda: slice(None))
    contrastive_weight: float = 1.0
    encode: Callable[[Encoder, Tokens], Tensor] = encode_alone
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext
    chunk_size: int | None = None

    def rng(self, name: str) -> torch.Generator:
        """This step's generator for `name`; see `draw`."""
        return draw(self.seed, self.step, name)


@dataclass(frozen=True)
class Share:
    """A share among rows that the processes have divided: this one counted `hits` of `count`."""

    hits: Tensor  # scalar
    count: Tensor  # scalar


class Ingredient(nn.Module):
    """Base of all ingredients: every hook neutral. N is the batch, D the vectors' width."""

    needs = Needs()

    def positive(self, tokens: Tokens, rng: torch.Generator) -> Tokens:
        """Change the rows that become the positives; a pure function of `tokens` and `rng`."""
        return tokens

    def further(self, tokens: Tokens, rng: torch.Generator) -> Tokens | None:
        """Rows of its own, one for each anchor in `tokens`, to be encoded as `z.further`, or None.

        Like `positive`, a pure function that is called ahead of the step.
        """
        return None

    def logits(self, z: Views, s: Tensor) -> Tensor:
        """Change the in-batch logits s (N, N), the positive on the diagonal."""
        return s

    def negatives(self, z: Views) -> Tensor | None:
        """More columns of logits, (N, M), or None."""
        return None

    def loss(self, z: Views, s: Tensor) -> Tensor | None:
        """A further loss term (scalar, already weighted), or None."""
        return None

    def after_step(self, z: Views) -> None:
        """Called once the optimiser has stepped."""

    def diagnostics(self) -> dict[str, Any]:
        """Numbers of the last step for `metrics.jsonl`: scalars, and this process's `Share`s."""
        return {}
