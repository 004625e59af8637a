"""An ingredient's own passes through a transformer: rows grouped by length, as the encoder does.

The sentence vectors of a step come through its seam; what an ingredient computes for itself (the
generator, the discriminator, masked language modelling) is put through the model here.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from cse_cli.batching import step_groups
from cse_cli.data.tokens import Tokens
from cse_cli.methods.base import Views
from cse_cli.rows import LAUNCH


def both_views(z: Views) -> tuple[Tokens, Tensor]:
    """The 2N rows of a step, anchors before positives, and the numbers of this process's rows."""
    own = torch.arange(len(z.tokens))[z.mine]
    return Tokens.cat([z.tokens, z.moved]), torch.cat([own, own + len(z.tokens)])


def length_groups(
    tokens: Tokens, device: torch.device, chunk_size: int | None = None
) -> Iterator[tuple[Tensor, int]]:
    """(row numbers, their longest length) of each group of rows of similar length.

    No group has more than `chunk_size` rows.
    """
    launch = LAUNCH.get(device.type, LAUNCH["cuda"])
    for group in step_groups(tokens.lengths.tolist(), launch):
        for rows in torch.from_numpy(group).split(chunk_size or len(group)):
            yield rows, int(tokens.lengths[rows].max())


def model_inputs(tokens: Tokens, rows: Tensor, width: int, device: torch.device) -> dict[str, Any]:
    """What a transformer is called with for some rows cut at `width`; no mask where none is due."""
    mask = tokens.mask[rows, :width]
    ids = tokens.ids[rows, :width].to(device, non_blocking=True)
    return {
        "input_ids": ids,
        "attention_mask": None if bool(mask.all()) else mask.long().to(device, non_blocking=True),
    }


def bounded(compute: Callable[..., Tensor], *inputs: Any, chunked: bool) -> Tensor:
    """`compute(*inputs)`; its activations are computed anew in the backward pass if `chunked`.

    The second computation replays the first one's dropout, so gradients do not depend on it.
    """
    if not chunked:
        return compute(*inputs)
    result: Tensor = checkpoint(compute, *inputs, use_reentrant=False)
    return result


@contextmanager
def wanted_logits(model: Any) -> Iterator[Callable[[dict[str, Any], Tensor], Tensor]]:
    """A function of inputs and positions (B, T): a masked LM's logits there only, (M, V).

    The projection onto the vocabulary is the largest product of such a model; a hook before it
    leaves it the wanted positions. They are on the model's device, and each thread has its own.
    """
    wanted = threading.local()

    def logits(inputs: dict[str, Any], where: Tensor) -> Tensor:
        wanted.where = where
        found: Tensor = model(**inputs).logits
        return found

    projection = model.get_output_embeddings()
    hook = projection.register_forward_pre_hook(lambda _module, args: (args[0][wanted.where],))
    try:
        yield logits
    finally:
        hook.remove()


def logits_at(model: Any, inputs: dict[str, Any], where: Tensor) -> Tensor:
    """A masked language model's logits (M, V) at the positions `where` (B, T)."""
    with wanted_logits(model) as logits:
        return logits(inputs, where)
