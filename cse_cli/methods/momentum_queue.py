"""ESimCSE, second half (Wu et al. 2022): sentences of earlier batches as negatives.

    l_i = -log e^{s(h_i,h_i+)} / ( sum_j e^{s(h_i,h_j+)} + sum_{m=1..M} e^{s(h_i,q_m)} )
    theta_m <- momentum theta_m + (1 - momentum) theta_e

q (M, D) are vectors of the *original* sentences, dropout off, from a momentum encoder: the moving
average of encoder and head. After the optimiser's step the average is updated, the batch is encoded
with it and put into the queue, oldest out first, so a sentence never meets itself there. The queue
starts empty.

Departures from the released code: there the momentum encoder was copied before the pre-trained
weights were loaded, so it started random, and it was updated before the optimiser's step; the
vectors then went through the trained head, which `momentum_head="online"` does here too.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from cse_cli.config.fields import row_count
from cse_cli.config.ingredients import MomentumQueueConfig
from cse_cli.encoder import Encoder
from cse_cli.maths import queue_negatives
from cse_cli.methods.base import Ingredient, Views


class MomentumQueue(Ingredient):
    """The newest M vectors of earlier batches as negatives of every anchor: (N, fill) columns."""

    queue: Tensor  # (fill, D) fp32, oldest first

    def __init__(self, config: MomentumQueueConfig, encoder: Encoder):
        super().__init__()
        self.config = config
        self._online = (encoder,)  # in a tuple: a submodule would be trained and saved twice
        self.encoder = _frozen_copy(encoder)
        self.register_buffer("queue", torch.empty(0, _width(self.encoder)))
        self._average = get_ema_multi_avg_fn(config.momentum)
        self.train()

    def train(self, mode: bool = True) -> "MomentumQueue":
        """Dropout stays off whatever `mode`; a BatchNorm head uses the batch's own statistics."""
        super().train(mode)
        self.encoder.backbone.eval()
        self.encoder.head.train()
        return self

    def negatives(self, z: Views) -> Tensor:
        """(N, fill) logits; none at the first step."""
        return queue_negatives(z.h, self.queue, z.temperature)

    @torch.no_grad()
    def after_step(self, z: Views) -> None:
        """Update the average, encode the batch with it, and queue the vectors."""
        size = row_count("queue_size", self.config.queue_size, len(z.h))
        if size == 0:
            return
        (online,) = self._online
        self._average(list(self.encoder.parameters()), list(online.parameters()), 0)
        head = online.head if self.config.momentum_head == "online" else self.encoder.head
        vectors = head(z.encode(self.encoder, z.tokens))
        self.queue = torch.cat([self.queue, vectors.float()])[-size:]

    def diagnostics(self) -> dict[str, Any]:
        """`queue_fill`: vectors in the queue."""
        return {"queue_fill": len(self.queue)}

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """The queue grows while it fills: take its present length from the saved one."""
        saved = state_dict.get(prefix + "queue")
        if saved is not None:
            self.queue = self.queue.new_empty(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _frozen_copy(encoder: Encoder) -> Encoder:
    """Backbone and head copied as they are now, in fp32; the tokenizer is shared."""
    frozen = Encoder(
        copy.deepcopy(encoder.backbone),
        encoder.tokenizer,
        name=encoder.name,
        pooler=encoder.pooler,
        max_length=encoder.max_length,
        head=copy.deepcopy(encoder.head),
    )
    return frozen.float().requires_grad_(False)


@torch.no_grad()
def _width(encoder: Encoder) -> int:
    """D of the vectors behind the head."""
    head: nn.Module = copy.deepcopy(encoder.head).eval()
    return int(head(torch.zeros(2, encoder.width, device=encoder.device)).shape[1])
