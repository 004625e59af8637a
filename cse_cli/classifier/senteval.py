"""SentEval's PyTorch classifier, every fit of a task at once.

Conneau & Kiela (2018), "SentEval", `tools/classifier.py` with no hidden layer: softmax regression
by Adam on mini-batches, stopped early on a validation set. The protocol, draw by draw, is in
docs/transfer.md. A single fit is tiny, there are hundreds of them (folds x penalties), and all are
seeded alike: fits on equally many rows walk the same permutations. So they advance together
(`lockstep.py`), and their results differ from one-at-a-time fits by the order of sums alone.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from cse_cli.classifier.linear import Fold, LinearFits
from cse_cli.classifier.lockstep import Draws, LockStep, Settings

FAST = Settings(optimizer="rmsprop", batch_size=128, tenacity=3, epoch_size=2)
PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2)


def fit_folds(
    X: Tensor,
    y: Tensor,
    classes: int,
    folds: Sequence[Fold],
    penalties: Tensor,
    settings: Settings = Settings(),
) -> LinearFits:
    """Fit one layer for each fold and penalty, as SentEval would one after the other.

    X (n, d) float32 and y (n,) int64 in 0..classes-1 are the rows of all folds; penalties (F, P)
    are the L2 strengths. A fold without validation rows holds out the first 5% of a permutation.
    """
    inputs = torch.cat([X.float(), torch.ones(len(X), 1)], dim=1)  # (n, d+1)
    first = initial_layer(X.shape[1], classes, settings.seed)  # (C, d+1)
    weight = first.expand(*penalties.shape, *first.shape).clone()  # (F, P, C, d+1)
    rounds = torch.zeros(penalties.shape, dtype=torch.int64)
    draws = [_draws(fold, settings.seed) for fold in folds]
    lengths = [settings.batches(len(fold.train)) for fold in draws]
    with _workers() as (pool, count):
        for length in sorted(set(lengths)):
            same = [i for i, other in enumerate(lengths) if other == length]
            group = LockStep(inputs, y, [draws[i] for i in same], penalties[same], settings)
            weight[same], rounds[same] = group.run(weight[same], pool, count)
    return LinearFits(weight[..., :-1], weight[..., -1], rounds)


def initial_layer(inputs: int, classes: int, seed: int) -> Tensor:
    """The weights and, as last column, the bias (C, d+1) that `nn.Linear` draws after this seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = nn.Linear(inputs, classes)
    return torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach()


def _draws(fold: Fold, seed: int) -> Draws:
    """Settle the validation rows; a fold without any gives up 5%, which costs one draw."""
    if fold.validation is not None:
        return Draws(fold.train, fold.validation, ())
    order = torch.from_numpy(np.random.RandomState(seed).permutation(len(fold.train)))
    held = int(0.05 * len(order))
    rows = fold.train[order]
    return Draws(rows[held:], rows[:held], (len(order),))


@contextmanager
def _workers() -> Iterator[tuple[Executor, int]]:
    """As many threads as torch may use, each with its operations on one core.

    The operations are microseconds short: splitting the folds over threads loses less than
    splitting every operation.
    """
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(count) as pool:
            yield pool, count
    finally:
        torch.set_num_threads(count)
