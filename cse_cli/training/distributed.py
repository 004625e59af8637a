"""Several processes as one: who encodes which rows, and how gradients are put together.

One rule: the loss is the mean over processes of each one's loss, and all gradients are averaged.
A term that every process computes on all rows is the same everywhere, so its mean is itself; a term
that a process computes on its own rows only is scaled by the number of processes beforehand.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from cse_cli.progress import silence
from cse_cli.shards import process

Encode = Callable[[Sequence[str]], Tensor]


def start(device: str) -> None:
    """Join the process group that `torchrun` describes in the environment, if there is one.

    From then on only process 0 speaks; errors are told by whoever meets them.
    """
    number, count = process()
    if count > 1 and not dist.is_initialized():
        cuda = device.startswith("cuda")
        if cuda:
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if cuda else "gloo")
        if number:
            silence()


def stop() -> None:
    """Leave the process group, if one was joined."""
    if dist.is_initialized():
        dist.destroy_process_group()


def lost(error: Exception) -> bool:
    """Whether `error` says that another process of the run is gone."""
    return world() > 1 and any(word in str(error) for word in ("peer", "NCCL", "timed out"))


def world() -> int:
    """The number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """This process's number, 0 for the one that writes."""
    return dist.get_rank() if dist.is_initialized() else 0


def mine(rows: int) -> slice:
    """The slice of a batch of `rows` that this process encodes; equal shares, in rank order."""
    share = rows // world()
    return slice(rank() * share, (rank() + 1) * share)


def gather(rows: Tensor) -> Tensor:
    """All processes' rows (R, …) concatenated in rank order, without gradient."""
    if world() == 1:
        return rows
    if dist.get_backend() == "nccl" and not rows.is_cuda:
        return gather(rows.cuda()).cpu()
    parts = [torch.empty_like(rows) for _ in range(world())]
    dist.all_gather(parts, rows.contiguous())
    return torch.cat(parts)


def average_(tensors: Iterable[Tensor]) -> None:
    """Average each tensor over the processes, in place, in one message."""
    found = list(tensors)
    if world() == 1 or not found:
        return
    flat = torch.cat([tensor.reshape(-1) for tensor in found])
    dist.all_reduce(flat)
    flat /= world()
    start = 0
    for tensor in found:
        tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
        start += tensor.numel()


def average_gradients(modules: Iterable[nn.Module]) -> None:
    """Average the gradients of all parameters; one that a process has no gradient for counts 0."""
    if world() == 1:
        return
    gradients = []
    for module in modules:
        for parameter in module.parameters():
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                gradients.append(parameter.grad)
    average_(gradients)


def agree(number: int) -> int:
    """The largest `number` of all processes, on every process."""
    if world() == 1:
        return number
    box = torch.tensor([number])
    if dist.get_backend() == "nccl":
        box = box.cuda()
    dist.all_reduce(box, dist.ReduceOp.MAX)
    return int(box)


def shared(encode: Encode) -> Encode:
    """`encode` with its texts divided among the processes; all of them get all vectors."""

    def over_all(texts: Sequence[str]) -> Tensor:
        place = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        mine = list(place)[rank() :: world()]
        each = -(-len(place) // world())
        vectors = encode([*mine, *[""] * (each - len(mine))])  # (each, D), equal shares
        found = gather(vectors).view(world(), each, -1).transpose(0, 1).flatten(0, 1)
        return found[[place[text] for text in texts]]

    return encode if world() == 1 else over_all
