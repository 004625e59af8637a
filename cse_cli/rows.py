"""From token rows to pooled vectors: what a training step runs, with the graph.

Rows of one call are grouped by length, and on a processor the groups are dealt into lanes. Word
vectors are looked up once for all of them: the gradient of a look-up is as large as the vocabulary.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cse_cli.backbone import block_output, find_blocks, find_final_norm, known_blocks
from cse_cli.batching import deal, step_groups
from cse_cli.data.tokens import Tokens
from cse_cli.dropout import clean_rows, first_token_only
from cse_cli.errors import InputError
from cse_cli.lanes import through_lanes
from cse_cli.pooling import POOLER_LAYERS, pool_layer

# Rows x (n, T, D), their mask (n, T), whether it is full of ones -> tensors of n rows each.
Compute = Callable[[Tensor, Tensor, bool], tuple[Tensor, ...]]
LAUNCH = {"cpu": 96, "cuda": 1 << 20}  # what one more group costs, in tokens (see step_groups)


@dataclass
class Pooled:
    """Vectors before the head: the last layer's (R, D) and, by block number, the layers' (R, D)."""

    last: Tensor
    layers: dict[int, Tensor] = field(default_factory=dict)

    @staticmethod
    def cat(parts: "Sequence[Pooled]") -> "Pooled":
        """The rows of all parts below each other."""
        layers = {n: torch.cat([part.layers[n] for part in parts]) for n in parts[0].layers}
        return Pooled(torch.cat([part.last for part in parts]), layers)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Pooled":
        """The same function applied to every tensor."""
        layers = {layer: change(rows) for layer, rows in self.layers.items()}
        return Pooled(change(self.last), layers)


@dataclass(frozen=True)
class Rows:
    """What goes through a transformer: `x` (R, T, D), `mask` (R, T) and `lengths` (R,).

    Rows that are `clean` (R,) go with fast dropout off.
    """

    x: Tensor
    mask: Tensor
    lengths: Tensor
    clean: Tensor

    def select(self, rows: Tensor, x: Tensor) -> "Rows":
        """Some of the rows, whose part of x is `x`."""
        return Rows(x, self.mask[rows], self.lengths[rows], self.clean[rows])


class _Kept(threading.local):
    """What the hooks of a forward pass find: each lane sees its own."""

    mask: Tensor
    layers: dict[int, Tensor]


class RowPooler:
    """Pools the rows of a backbone; used as a context manager around one or more passes.

    `layers` (0 … L) are pooled beside what `pooler` itself reads, as they are made; no hidden
    state is kept, and the last block computes [CLS] only where that is all that is read of it.
    """

    def __init__(self, backbone: Any, pooler: str, layers: Sequence[int] = ()):
        self.backbone = backbone
        self.pooler = pooler
        self.layers = tuple(layers)
        self.depth = int(backbone.config.num_hidden_layers)
        self._kept = _Kept()
        self._open = contextlib.ExitStack()

    def __enter__(self) -> "RowPooler":
        with contextlib.ExitStack() as opening:  # whatever fails, no hook stays behind
            blocks = known_blocks(self.backbone)
            if self.pooler == "cls" and blocks is not None:
                opening.enter_context(first_token_only(blocks[-1]))
            opening.enter_context(self._hooked())
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def _own(self) -> list[int]:
        """The layers that the pooler reads, as block numbers."""
        return sorted({layer % (self.depth + 1) for layer in POOLER_LAYERS[self.pooler]})

    def __call__(self, mask: Tensor, full: bool, **inputs: Tensor) -> Pooled:
        """Vectors of rows given as `input_ids` (B, T) or `inputs_embeds` (B, T, D).

        `mask` (B, T), and whether it is `full` of ones.
        """
        found: dict[int, Tensor] = {}
        self._kept.mask, self._kept.layers = mask, found
        output = self.backbone(attention_mask=None if full else mask.long(), **inputs)
        found[self.depth] = pool_layer(output.last_hidden_state, mask, self.pooler)
        vectors = [found[layer] for layer in self._own]
        last = vectors[0] if len(vectors) == 1 else torch.stack(vectors).mean(dim=0)
        return Pooled(last, {layer: found[layer] for layer in self.layers})

    @contextlib.contextmanager
    def _hooked(self) -> Iterator[None]:
        """hs[0] is what the first block is given, hs[l] what block l returns (normed in pre-norm
        encoders, as their last state is). hs[L] needs no hook: the backbone returns it.
        """
        inner = sorted({*self._own, *self.layers} - {self.depth})
        if not inner:
            yield
            return
        blocks = find_blocks(self.backbone)
        norm = find_final_norm(self.backbone) or nn.Identity()

        def keep(layer: int, states: Tensor) -> None:
            states = states if layer == 0 else norm(states)
            self._kept.layers[layer] = pool_layer(states, self._kept.mask, self.pooler)

        def first(_: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            keep(0, args[0] if args else kwargs["hidden_states"])

        def after(layer: int) -> Callable[..., None]:
            return lambda _module, _args, output: keep(layer, block_output(output))

        hooks = [
            blocks[0].register_forward_pre_hook(first, with_kwargs=True)
            if layer == 0
            else blocks[layer - 1].register_forward_hook(after(layer))
            for layer in inner
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def pool_rows(
    backbone: Any,
    tokens: Tokens,
    pooler: str,
    layers: Sequence[int],
    lanes: int,
    clean: int = 0,
) -> Pooled:
    """Pooled vectors of token rows (R, T), before the head, with the graph, in the rows' order.

    `layers` names the blocks (1 … L) whose pooled states are wanted too; the last `clean` rows go
    with fast dropout off; `lanes` as in `in_groups`. Raises InputError for an encoder that scales
    its word vectors by what it sees of the tokens (ESM's token dropout), as it is given none.
    """
    if getattr(backbone.config, "token_dropout", False):
        raise InputError(
            f"{backbone.name_or_path}: an encoder with token_dropout cannot be trained; a copy of "
            "it with token_dropout false in its config.json can"
        )
    words = backbone.get_input_embeddings()
    ids, mask = tokens.narrowed(int(tokens.lengths.max())).on(words.weight.device)
    with RowPooler(backbone, pooler, layers) as pool:

        def vectors(x: Tensor, mask: Tensor, full: bool) -> tuple[Tensor, ...]:
            """The last and the asked layers' vectors (n, D) of word vectors x (n, T, D)."""
            pooled = pool(mask, full, inputs_embeds=x)
            return (pooled.last, *pooled.layers.values())

        rows = Rows(words(ids), mask, tokens.lengths, torch.arange(len(ids)) >= len(ids) - clean)
        last, *others = in_groups(vectors, rows, backbone, lanes)
    return Pooled(last, dict(zip(layers, others, strict=True)))


def in_groups(
    compute: Compute, rows: Rows, module: nn.Module, lanes: int, *, narrow: bool = True
) -> tuple[Tensor, ...]:
    """`compute` on rows, group by group: tensors of one row each, in the rows' order.

    The rows are dealt into `lanes` by turns in the order of their lengths, and grouped by length
    inside each lane; `compute` is given rows cut at their group's longest, unless `narrow` is
    False. `module` is what it computes with.
    """
    if min(lanes, len(rows.x)) == 1:
        return _one_lane(compute, rows, narrow)
    dealt = [torch.from_numpy(own) for own in deal(rows.lengths.tolist(), lanes)]

    def job(own: Tensor) -> Callable[[Tensor], tuple[Tensor, ...]]:
        """The lane of the rows `own`, to be given their part of x."""
        return lambda x: _one_lane(compute, rows.select(own, x), narrow)

    jobs, parameters = [job(own) for own in dealt], list(module.parameters())
    return _in_order(through_lanes(jobs, dealt, rows.x, parameters, draws=module.training), dealt)


def _one_lane(compute: Compute, rows: Rows, narrow: bool) -> tuple[Tensor, ...]:
    """`in_groups` for the rows of one lane."""
    launch = LAUNCH.get(rows.x.device.type, LAUNCH["cuda"])
    groups = step_groups(rows.lengths.tolist(), launch) if narrow else [np.arange(len(rows.x))]
    if len(groups) == 1 and not rows.clean.any():  # nothing to sort: a GPU's rows stay in place
        return compute(rows.x, rows.mask, bool((rows.lengths == rows.x.shape[1]).all()))
    found, order = [], []
    for numbers in groups:
        group = torch.from_numpy(numbers)
        group = group[rows.clean[group].int().argsort(stable=True)]  # clean rows last
        width = int(rows.lengths[group].max()) if narrow else rows.x.shape[1]
        full = bool((rows.lengths[group] == width).all())
        with clean_rows(int(rows.clean[group].sum())):
            found.append(compute(rows.x[group, :width], rows.mask[group, :width], full))
        order.append(group)
    return _in_order([torch.cat(parts) for parts in zip(*found, strict=True)], order)


def _in_order(found: Sequence[Tensor], rows: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Put back tensors whose rows stand in the order of the indices `rows`."""
    order = torch.argsort(torch.cat(list(rows))).to(found[0].device)
    return tuple(part[order] for part in found)
