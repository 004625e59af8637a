"""Lanes: on a processor, independent groups of rows go beside each other, not one by one.

Spreading every single operation over the cores makes them wait for each other at each of the
thousand operations of a step; dealing the rows into lanes makes them wait once. A training step
has `LANES` lanes on every machine, also where they have to take turns, so that what a lane draws
does not depend on the number of cores. A GPU needs none of this.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, TypeVar

import torch
from torch import Tensor

LANES = 2
Item = TypeVar("Item")
Result = TypeVar("Result")
Job = Callable[[Tensor], tuple[Tensor, ...]]  # rows of x (n, ...) to tensors of n rows each
_own = threading.local()


def generator() -> torch.Generator | None:
    """The random generator of the lane that asks; None, torch's own, outside of lanes."""
    return getattr(_own, "generator", None)


@contextmanager
def graphs_kept() -> Iterator[None]:
    """Backward passes inside leave the lanes' graphs for a further pass, as `retain_graph` does."""
    _own.kept = True
    try:
        yield
    finally:
        _own.kept = False


def beside(work: Callable[[Item], Result], items: Iterable[Item], lanes: int) -> Iterator[Result]:
    """`work` on every item, results in order, at most `lanes` of them at a time.

    Each gets its share of torch's threads, and the caller's gradient, inference and autocast
    modes. Items are taken as lanes get free; a single one gets all threads.
    """
    threads = torch.get_num_threads()
    items = iter(items)
    first = list(islice(items, 2))
    if lanes <= 1 or len(first) <= 1:
        yield from map(work, chain(first, items))
        return
    lanes = min(lanes, threads)
    grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    casts, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    def run(item: Item) -> Result:
        """One item in its lane, with the lane's threads and the caller's modes."""
        torch.set_num_threads(threads // lanes)
        with (
            torch.inference_mode(inference),
            torch.set_grad_enabled(grad),
            # Without its cache, which all threads share: whose cast of a weight a lane found there,
            # and so in which precision its gradients are summed, would be a matter of time.
            torch.autocast("cpu", dtype=dtype, enabled=casts, cache_enabled=False),
        ):
            return work(item)

    if lanes == 1:  # they take turns, each as it would run beside another
        yield from map(run, chain(first, items))
        return
    torch.set_num_threads(threads // lanes)  # MKL has one setting for the whole process
    coming: deque[Future[Result]] = deque()
    try:
        with ThreadPoolExecutor(lanes) as pool:
            for item in chain(first, items):
                coming.append(pool.submit(run, item))
                if len(coming) > 2 * lanes:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()
    finally:
        torch.set_num_threads(threads)


def _seeds(count: int, draws: bool) -> list[int | None]:
    """One seed a lane, from torch's own generator, so that they are saved and replayed with it."""
    return torch.empty(count, dtype=torch.int64).random_().tolist() if draws else [None] * count


def _run(jobs: Sequence[Job], xs: Sequence[Tensor], draws: bool) -> list[tuple[Tensor, ...]]:
    """Each job on its rows, beside each other, with a random generator of its own."""

    def run(lane: tuple[Job, Tensor, int | None]) -> tuple[Tensor, ...]:
        job, x, seed = lane
        _own.generator = None if seed is None else torch.Generator().manual_seed(seed)
        try:
            return job(x)
        finally:
            _own.generator = None

    return list(beside(run, zip(jobs, xs, _seeds(len(jobs), draws), strict=True), len(jobs)))


class _Lanes(torch.autograd.Function):
    """Lanes as one node of the graph: forward passes beside each other, backward passes too."""

    @staticmethod
    def forward(
        ctx: Any,
        jobs: Sequence[Job],
        rows: Sequence[Tensor],
        draws: bool,
        x: Tensor,
        *parameters: Tensor,
    ) -> tuple[Tensor, ...]:
        """The jobs' outputs (R, ...), lane below lane; each lane's own graph is kept."""
        leaves = [x[index].detach().requires_grad_() for index in rows]
        with torch.enable_grad():
            ctx.outputs = _run(jobs, leaves, draws)
        ctx.leaves, ctx.rows, ctx.parameters, ctx.shape = leaves, rows, parameters, x.shape
        parts = zip(*ctx.outputs, strict=True)
        return tuple(torch.cat([part.detach() for part in lanes]) for lanes in parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        """Gradients of x and of the parameters, summed over the lanes in their order."""
        sizes = [len(index) for index in ctx.rows]
        kept = getattr(_own, "kept", False)
        given = zip(*(gradient.split(sizes) for gradient in gradients), strict=True)

        def carry(lane: Any) -> tuple[Tensor | None, ...]:
            outputs, leaf, gradients = lane
            wanted = [leaf, *ctx.parameters]
            return torch.autograd.grad(
                outputs, wanted, gradients, retain_graph=kept, allow_unused=True
            )

        lanes = zip(ctx.outputs, ctx.leaves, given, strict=True)
        to_rows, *found = zip(*beside(carry, lanes, len(sizes)), strict=True)
        if not kept:
            del ctx.outputs, ctx.leaves
        to_x = to_rows[0].new_empty(ctx.shape)
        to_x[torch.cat(list(ctx.rows))] = torch.cat(to_rows)
        return None, None, None, to_x, *map(_total, found)


def _total(parts: Iterable[Tensor | None]) -> Tensor | None:
    """The sum of what the lanes found, always in the same order; None where none found any."""
    total = None
    for part in parts:
        if part is not None:
            total = part if total is None else total.add_(part)
    return total


def through_lanes(
    jobs: Sequence[Job],
    rows: Sequence[Tensor],
    x: Tensor,
    parameters: Sequence[Tensor],
    *,
    draws: bool,
) -> tuple[Tensor, ...]:
    """Each job's outputs for its `rows` of `x`, put below each other in the order of the jobs.

    Every row of `x` belongs to one job; `parameters` are what the jobs use besides, and gradient
    flows to them and to `x`. Jobs that draw random numbers (by `generator`) say so with `draws`.
    """
    if torch.is_grad_enabled():
        trained = [p for p in parameters if p.requires_grad]
        return _Lanes.apply(jobs, rows, draws, x, *trained)  # type: ignore[no-any-return]
    results = _run(jobs, [x[index] for index in rows], draws)
    return tuple(torch.cat(parts) for parts in zip(*results, strict=True))
