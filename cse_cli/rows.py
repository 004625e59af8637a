"""From token rows to pooled vectors: what a training step runs, with the graph.

Rows of one call are grouped by length, and on a processor the groups are dealt into lanes. Word
vectors are looked up once for all of them: the gradient of a look-up is as large as the vocabulary.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from cse_cli.backbone import block_output, find_blocks, find_final_norm
from cse_cli.batching import deal, step_groups
from cse_cli.data.tokens import Tokens
from cse_cli.dropout import first_token_only
from cse_cli.lanes import through_lanes
from cse_cli.pooling import POOLER_LAYERS, pool_layer

LAUNCH = {"cpu": 96, "cuda": 1 << 20}  # what one more group costs, in tokens (see step_groups)


@dataclass
class Pooled:
    """Vectors before the head: the last layer's (R, D) and, by block number, the layers' (R, D)."""

    last: Tensor
    layers: dict[int, Tensor] = field(default_factory=dict)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Pooled":
        """The same function applied to every tensor."""
        layers = {layer: change(rows) for layer, rows in self.layers.items()}
        return Pooled(change(self.last), layers)


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
            if self.pooler == "cls":
                opening.enter_context(first_token_only(find_blocks(self.backbone)[-1]))
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
    backbone: Any, tokens: Tokens, pooler: str, layers: Sequence[int], lanes: int
) -> Pooled:
    """Pooled vectors of token rows (R, T), before the head, with the graph, in the rows' order.

    The rows are dealt into `lanes` by turns in the order of their lengths, and grouped by length
    inside each lane. `layers` names the blocks (1 … L) whose pooled states are wanted too.
    """
    words = backbone.get_input_embeddings()
    device = words.weight.device
    ids, mask = tokens.narrowed(int(tokens.lengths.max())).on(device)
    x = words(ids)  # (R, T, D)
    with RowPooler(backbone, pooler, layers) as pool:
        if min(lanes, len(tokens)) == 1:
            found = _pool_lane(pool, x, mask, tokens.lengths)
        else:
            dealt = [torch.from_numpy(rows) for rows in deal(tokens.lengths.tolist(), lanes)]

            def job(rows: Tensor) -> Callable[[Tensor], tuple[Tensor, ...]]:
                """The lane of these rows, to be given their word vectors."""
                return lambda own: _pool_lane(pool, own, mask[rows], tokens.lengths[rows])

            parameters = list(backbone.parameters())
            jobs = [job(rows) for rows in dealt]
            found = through_lanes(jobs, dealt, x, parameters, draws=backbone.training)
            found = _in_order(found, dealt)
    last, *others = found
    return Pooled(last, dict(zip(layers, others, strict=True)))


def _pool_lane(pool: RowPooler, x: Tensor, mask: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    """The last and the asked layers' vectors (n, D) of word vectors x (n, T, D), mask (n, T)."""
    groups = step_groups(lengths.tolist(), LAUNCH.get(x.device.type, LAUNCH["cuda"]))
    if len(groups) == 1:
        return _listed(pool(mask, bool((lengths == x.shape[1]).all()), inputs_embeds=x))
    found, rows = [], [torch.from_numpy(group) for group in groups]
    for group in rows:
        width = int(lengths[group].max())
        full = bool((lengths[group] == width).all())
        found.append(_listed(pool(mask[group, :width], full, inputs_embeds=x[group, :width])))
    return _in_order([torch.cat(parts) for parts in zip(*found, strict=True)], rows)


def _listed(pooled: Pooled) -> tuple[Tensor, ...]:
    return (pooled.last, *pooled.layers.values())


def _in_order(found: Sequence[Tensor], rows: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Put back tensors whose rows stand in the order of the indices `rows`."""
    order = torch.argsort(torch.cat(list(rows))).to(found[0].device)
    return tuple(part[order] for part in found)
