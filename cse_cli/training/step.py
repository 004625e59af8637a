"""The one training step. A method is this step with ingredients; SimCSE is the empty list.

s = cos(h, h+) / tau                                    (N, N), the positive on the diagonal
l = w CE([s, further columns], diagonal) + further terms
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from cse_cli.data.tokens import Tokens
from cse_cli.encoder import Encoder
from cse_cli.maths import cosine, info_nce
from cse_cli.methods.base import Ingredient, Needs, Share, Views, draw, encode_alone
from cse_cli.rows import Pooled
from cse_cli.training import distributed
from cse_cli.training.seam import Autocast, Seam
from cse_cli.training.shares import gradient_shares


@dataclass(frozen=True)
class Batch:
    """The token rows of one step, for the whole batch: every process holds all of it.

    `tokens` the anchors (N rows), `moved` what the positives are encoded from, `hard` the third
    column of triplets with its `weights` (N,), `further` the rows that an ingredient adds.
    """

    step: int
    tokens: Tokens
    moved: Tokens
    hard: Tokens | None = None
    weights: Tensor | None = None
    further: Tokens | None = None


@dataclass(frozen=True)
class StepConfig:
    """What the step itself needs to know; the values are those of `TrainConfig`."""

    temperature: float = 0.05
    contrastive_weight: float = 1.0
    augmentation: bool = True
    seed: int = 42
    chunk_size: int | None = None
    gradient_shares: int = 0
    autocast: Autocast = field(default=nullcontext)
    scale: Callable[[Tensor], Tensor] = lambda loss: loss  # fp16's loss scaling


@dataclass
class Outcome:
    """What a step measured: the loss, its terms by name, and the batch's geometry (scalars).

    `shares`: each term's share of the gradient, at the steps that `gradient_shares` asks for.
    """

    loss: Tensor
    terms: dict[str, Tensor]
    views: Views
    alignment: Tensor
    negative_cosine: Tensor
    shares: dict[str, Tensor] = field(default_factory=dict)


def move(
    tokens: Tokens, positives: Tokens | None, parts: Sequence[Ingredient], seed: int, step: int
) -> Tokens:
    """The rows that become the positives: a given column, or the anchors as `parts` change them."""
    moved = tokens if positives is None else positives
    for i, part in enumerate(parts):
        moved = part.positive(moved, draw(seed, step, f"positive/{i}"))
    return moved


def further(tokens: Tokens, parts: Sequence[Ingredient], seed: int, step: int) -> Tokens | None:
    """The rows that an ingredient adds to the anchors `tokens`; at most one of `parts` does."""
    for part in parts:
        rows = part.further(tokens, draw(seed, step, "further"))
        if rows is not None:
            return rows
    return None


def training_step(
    batch: Batch, encoder: Encoder, parts: Sequence[Ingredient], config: StepConfig
) -> Outcome:
    """Forward and backward of one step; gradients are left in the parameters.

    With several processes each encodes its share of the rows, and the gradients are those of the
    whole batch.
    """
    needs = Needs()
    for part in parts:
        needs = needs | part.needs
    seam, views = encode_views(batch, encoder, needs, config)
    loss, terms, s = objective(views, parts)
    shares = {}
    if config.gradient_shares and batch.step % config.gradient_shares == 0:
        weighted = terms | {"contrastive": config.contrastive_weight * terms["contrastive"]}
        shares = gradient_shares(weighted, seam.leaves)
    config.scale(loss).backward()
    seam.backward()
    distributed.average_gradients([encoder, *parts])
    return replace(_outcome(loss, terms, views, s), shares=shares)


def encode_views(
    batch: Batch, encoder: Encoder, needs: Needs, config: StepConfig
) -> tuple[Seam, Views]:
    """All vectors of the step, behind the head, with the seam that carries gradient back.

    Everything goes through the encoder in one stack, at its end the anchors with dropout off.
    """
    mine = distributed.mine(len(batch.tokens.ids))
    rows = torch.arange(len(batch.tokens.ids))[mine]
    anchors, positives = batch.tokens.select(rows), batch.moved.select(rows)
    stack = [anchors, positives] if config.augmentation else [anchors]
    stack += [anchors, positives] * needs.passes
    stack += [column.select(rows) for column in (batch.further, batch.hard) if column is not None]
    stack += [anchors] * needs.clean
    layers = tuple(sorted(needs.layers | needs.positive_layers))

    seam = Seam(
        encoder,
        Tokens.cat(stack),
        layers,
        clean=len(anchors) * needs.clean,
        chunk_size=config.chunk_size,
        autocast=config.autocast,
    )
    parts = _unstack(seam.forward(), len(stack))
    clean = parts.pop() if needs.clean else None
    second = parts[1] if config.augmentation else parts[0]
    last = _through_head(encoder, [part.last for part in parts])
    views = Views(
        h=last[0],
        p=last[1 if config.augmentation else 0],
        tokens=batch.tokens,
        moved=batch.moved,
        temperature=config.temperature,
        seed=config.seed,
        step=batch.step,
        weights=batch.weights,
        mine=mine,
        contrastive_weight=config.contrastive_weight,
        encode=lambda other, tokens: encode_shared(other, tokens, config),
        autocast=config.autocast,
        chunk_size=config.chunk_size,
    )
    views.layers = {n: encoder.head(parts[0].layers[n]) for n in sorted(needs.layers)}
    views.positive_layers = {
        n: encoder.head(second.layers[n]) for n in sorted(needs.positive_layers)
    }
    if batch.hard is not None:
        views.hard = last.pop()
    if batch.further is not None:
        views.further = last.pop()
    if needs.passes:
        first = 2 if config.augmentation else 1
        extra = last[first : first + 2 * needs.passes]
        views.passes = (torch.stack(extra[::2]), torch.stack(extra[1::2]))
    if clean is not None:
        views.clean = encoder.head(clean.last)
    return seam, views


def encode_shared(encoder: Encoder, tokens: Tokens, config: StepConfig) -> Tensor:
    """`encode_alone` for the rows of a whole batch (R, T), each process encoding its share."""
    share = tokens.select(distributed.mine(len(tokens)))
    chunks = torch.arange(len(share)).split(config.chunk_size or len(share))
    with config.autocast():
        parts = [encode_alone(encoder, share.select(rows)) for rows in chunks]
    return distributed.gather(torch.cat(parts))


def _unstack(pooled: Pooled, count: int) -> list[Pooled]:
    """Split gathered rows back into the `count` views that each process stacked.

    Rows come rank by rank, each with its views in order: (world, count, n, D).
    """

    def views(rows: Tensor) -> Tensor:
        n = len(rows) // (distributed.world() * count)
        return rows.view(-1, count, n, rows.shape[-1]).transpose(0, 1).flatten(1, 2)

    last = views(pooled.last)
    layers = {layer: views(rows) for layer, rows in pooled.layers.items()}
    return [Pooled(last[i], {n: rows[i] for n, rows in layers.items()}) for i in range(count)]


def _through_head(encoder: Encoder, rows: list[Tensor]) -> list[Tensor]:
    """All views through the head at once, so that BatchNorm's statistics run over all of them."""
    return list(encoder.head(torch.cat(rows)).split(len(rows[0])))


def objective(z: Views, parts: Sequence[Ingredient]) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """(loss, its terms by name, the plain in-batch logits s (N, N)) of one step's vectors.

    The contrastive term is given without its weight, the others with theirs.
    """
    s = cosine(z.h, z.p) / z.temperature  # (N, N)
    plain = s.detach()
    for part in parts:
        s = part.logits(z, s)
    extra = [columns for part in parts if (columns := part.negatives(z)) is not None]
    main = info_nce(torch.cat([s, *extra], dim=1))
    terms = {"contrastive": main}
    loss = z.contrastive_weight * main
    for part in parts:
        term = part.loss(z, s)
        if term is not None:
            terms[type(part).__name__] = term
            loss = loss + term
    return loss, terms, plain


def _outcome(loss: Tensor, terms: dict[str, Tensor], views: Views, s: Tensor) -> Outcome:
    """Geometry of the batch from its logits: alignment of positives, mean cosine of negatives."""
    cosines = s * views.temperature
    n = len(cosines)
    positive = cosines.diagonal().mean()
    negative = (cosines.sum() - cosines.diagonal().sum()) / max(n * (n - 1), 1)
    # A term may be that of a process's own rows; the mean over processes is the step's.
    measured = [value.detach().clone() for value in (loss, *terms.values())]
    distributed.average_(measured)
    named = dict(zip(terms, measured[1:], strict=True))
    return Outcome(measured[0], named, views, 2 - 2 * positive, negative)


def diagnostics(parts: Sequence[Ingredient]) -> dict[str, Any]:
    """What the ingredients noted of the last step; shares are those of all processes' rows."""
    found: dict[str, Any] = {}
    for part in parts:
        found |= part.diagnostics()
    shares = {
        key: torch.stack([value.hits, value.count]).float()
        for key, value in found.items()
        if isinstance(value, Share)
    }
    distributed.average_(shares.values())
    return found | {key: hits / count for key, (hits, count) in shares.items()}
