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
from cse_cli.encoder import Encoder
from cse_cli.rows import Pooled
from cse_cli.training import distributed

Autocast = Callable[[], AbstractContextManager[object]]


class Seam:
    """One pass over token rows: `forward` gives leaves for all rows, `backward` goes on from them.

    The last `clean` rows are encoded with dropout off; `chunk_size` rows are encoded at a time
    (None: all at once, their graph kept from the forward pass).
    """

    def __init__(
        self,
        encoder: Encoder,
        tokens: Tokens,
        layers: tuple[int, ...] = (),
        *,
        clean: int = 0,
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
            self._graph = self._encode(self.tokens, self.clean)
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
        for (rows, clean), state in zip(self._chunks(), self._states, strict=True):
            _set_random_state(state, self.encoder.device)
            pooled = self._encode(self.tokens.select(rows), clean)
            _backward(pooled, gradients.map(lambda g, rows=rows: g[rows]))  # type: ignore[misc]
        _set_random_state(after, self.encoder.device)

    def _first_pass(self) -> Pooled:
        """Encode chunk by chunk without a graph, remembering each chunk's random state."""
        parts = []
        with torch.no_grad():
            for rows, clean in self._chunks():
                self._states.append(_random_state(self.encoder.device))
                parts.append(self._encode(self.tokens.select(rows), clean))
        return Pooled.cat(parts)

    def _chunks(self) -> Iterator[tuple[slice, int]]:
        """(the rows of a chunk, how many of them, the last, are clean)."""
        count = len(self.tokens)
        size = self.chunk_size or count
        for start in range(0, count, size):
            stop = min(start + size, count)
            yield slice(start, stop), max(0, stop - max(start, count - self.clean))

    def _encode(self, tokens: Tokens, clean: int) -> Pooled:
        with self.autocast():
            return self.encoder.pooled(tokens, self.layers, clean)

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
