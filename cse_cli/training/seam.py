"""The one seam of a training step: the graph is cut at the pooled vectors, before the head.

    rows --encoder--> pooled | leaf --head, losses--> loss

Losses see leaves that hold *all* rows of the step, whoever encoded them and in whatever chunks.
`loss.backward()` fills the leaves' gradients; `Seam.backward` carries them on through the encoder.
So gradient cache (Gao et al. 2021b: encode in chunks without a graph, then once more with it) and
gathering across processes happen in one place, and BatchNorm, queues and every loss see the same
rows on one process or many.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from cse_cli.data.tokens import Tokens
from cse_cli.dropout import dropout_off
from cse_cli.encoder import Encoder
from cse_cli.rows import Pooled
from cse_cli.training import distributed

Autocast = Callable[[], AbstractContextManager[object]]


class Seam:
    """One pass over token rows: `forward` gives leaves for all rows, `backward` goes on from them.

    `clean` switches dropout off; `chunk_size` rows are encoded at a time (None: all at once, their
    graph kept from the forward pass).
    """

    def __init__(
        self,
        encoder: Encoder,
        tokens: Tokens,
        layers: tuple[int, ...] = (),
        *,
        clean: bool = False,
        chunk_size: int | None = None,
        autocast: Autocast = nullcontext,
    ):
        self.encoder = encoder
        self.tokens = tokens
        self.layers = layers
        self.clean = clean
        self.chunk_size = chunk_size
        self.autocast = autocast
        self._graph: Pooled | None = None
        self._states: list[tuple[Tensor, Tensor | None]] = []

    def forward(self) -> Pooled:
        """Leaves for all rows of all processes, (R_all, D), that collect gradient."""
        if self.chunk_size is None:
            self._graph = self._encode(self.tokens)
            local = self._graph.map(Tensor.detach)
        else:
            local = self._first_pass()
        self._leaf = local.map(lambda rows: distributed.gather(_exact(rows)).requires_grad_())
        return self._leaf

    @property
    def leaves(self) -> list[Tensor]:
        """The leaves that `forward` made, each (R_all, D)."""
        return [self._leaf.last, *self._leaf.layers.values()]

    def backward(self) -> None:
        """Carry the leaves' gradients on into the encoder's parameters."""
        gradients = self._leaf.map(lambda leaf: self._share(leaf))
        if self._graph is not None:
            _backward(self._graph, gradients)
            self._graph = None
            return
        after = _random_state(self.encoder.device)
        start = 0
        for chunk, state in zip(self._chunks(), self._states, strict=True):
            _set_random_state(state, self.encoder.device)
            rows = slice(start, start + len(chunk.ids))
            _backward(self._encode(chunk), gradients.map(lambda g, rows=rows: g[rows]))  # type: ignore[misc]
            start = rows.stop
        _set_random_state(after, self.encoder.device)

    def _first_pass(self) -> Pooled:
        """Encode chunk by chunk without a graph, remembering each chunk's random state."""
        parts = []
        with torch.no_grad():
            for chunk in self._chunks():
                self._states.append(_random_state(self.encoder.device))
                parts.append(self._encode(chunk))
        return Pooled(
            torch.cat([part.last for part in parts]),
            {layer: torch.cat([part.layers[layer] for part in parts]) for layer in self.layers},
        )

    def _chunks(self) -> Iterator[Tokens]:
        rows = torch.arange(len(self.tokens.ids))
        for chunk in rows.split(self.chunk_size or len(rows)):
            yield self.tokens.select(chunk)

    def _encode(self, tokens: Tokens) -> Pooled:
        mode = dropout_off(self.encoder.backbone) if self.clean else nullcontext()
        with mode, self.autocast():
            return self.encoder.pooled(tokens, self.layers)

    def _share(self, leaf: Tensor) -> Tensor:
        """This process's rows of the mean gradient, scaled so that N processes equal one.

        Parameter gradients are averaged over processes afterwards, but each process carries on
        its own rows only, so their sum is wanted: hence the factor.
        """
        gradient = leaf.grad if leaf.grad is not None else torch.zeros_like(leaf)
        distributed.average_([gradient])
        return gradient[distributed.mine(len(leaf))] * distributed.world()


def _exact(rows: Tensor) -> Tensor:
    """Losses are computed in float32 at least, whatever the encoder computed in."""
    return rows if rows.dtype == torch.float64 else rows.float()


def _backward(graph: Pooled, gradients: Pooled) -> None:
    outputs = [graph.last, *graph.layers.values()]
    given = [gradients.last, *gradients.layers.values()]
    pairs = [(out, g.to(out.dtype)) for out, g in zip(outputs, given, strict=True)]
    torch.autograd.backward([out for out, _ in pairs], [g for _, g in pairs])


def _random_state(device: torch.device) -> tuple[Tensor, Tensor | None]:
    cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return torch.get_rng_state(), cuda


def _set_random_state(state: tuple[Tensor, Tensor | None], device: torch.device) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1], device)
