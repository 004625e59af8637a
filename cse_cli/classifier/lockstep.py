"""Mini-batch training of many softmax regressions in lock-step: the engine of `senteval.py`.

With F folds, P penalties, C classes, B rows a batch and D = d + 1 inputs (the bias is the weight
of a column of ones, so that the penalty reaches it as it does in SentEval), a step is

    logits (F, P*C, B) = W (F, P*C, D) x^T (F, D, B)      one gathered batch serves P penalties
    grad   (F, P*C, D) = (softmax - onehot)/B x (F, B, D)  +  penalty * W

A fold whose fits have all stopped leaves the batch; a stopped fit beside a running one of the same
fold goes on unheeded, since its best weights have been kept.
"""

import math
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cse_cli.classifier.updates import UPDATES

GATHERED_BYTES = 2**21  # of a chunk's batch: it is read twice, so it should stay in the cache


@dataclass(frozen=True)
class Settings:
    """What SentEval calls `params['classifier']`, with the values of published scores."""

    optimizer: str = "adam"
    batch_size: int = 64
    tenacity: int = 5
    epoch_size: int = 4
    max_epoch: int = 200
    seed: int = 1111

    def batches(self, rows: int) -> int:
        """Batches an epoch, a short last one included."""
        return math.ceil(rows / self.batch_size)


@dataclass(frozen=True)
class Draws:
    """A fold's row numbers, and the permutations drawn from its generator before training."""

    train: Tensor
    validation: Tensor
    drawn: tuple[int, ...]

    @property
    def key(self) -> tuple[int, ...]:
        """Folds of equal key see equal permutations."""
        return (*self.drawn, len(self.train))

    def generator(self, seed: int) -> np.random.RandomState:
        """numpy's legacy generator as it stands before the first epoch."""
        generator = np.random.RandomState(seed)
        for rows in self.drawn:
            generator.permutation(rows)
        return generator


class LockStep:
    """Folds with equally many batches an epoch, and one fit for each penalty of each fold."""

    def __init__(
        self,
        inputs: Tensor,
        y: Tensor,
        folds: Sequence[Draws],
        penalties: Tensor,
        settings: Settings,
    ) -> None:
        self.inputs, self.y = inputs, y  # (n, D), (n,)
        self.folds, self.penalties = list(folds), penalties  # F, (F, P)
        self.settings = settings
        self.update = UPDATES[settings.optimizer]
        self.length = settings.batches(len(folds[0].train))

    def run(self, weight: Tensor, pool: Executor, workers: int) -> tuple[Tensor, Tensor]:
        """From `weight` (F, P, C, D), the best weights and the rounds each fit took (F, P)."""
        kept, running = weight.clone(), torch.arange(len(weight))
        best = torch.full(self.penalties.shape, -1)
        misses, rounds = torch.zeros_like(best), torch.zeros_like(best)
        going = torch.ones_like(best, dtype=torch.bool)
        state = [weight, *(torch.zeros_like(weight) for _ in range(self.update.moments))]
        orders = _Orders(self.folds, self.settings)
        epochs = 0
        while epochs <= self.settings.max_epoch and len(running):
            permutations = orders.next_round()
            hits = self._round(running, state, permutations, epochs, pool, workers)
            epochs += self.settings.epoch_size
            live = going[running]
            better = live & (hits > best[running])
            fold, penalty = better.nonzero(as_tuple=True)
            kept[running[fold], penalty] = state[0][fold, penalty]
            best[running[fold], penalty] = hits[fold, penalty]
            rounds[running] += live
            # a miss stops the fit if there were `tenacity` before; the count is never reset
            missed = live & ~better
            going[running] &= ~(missed & (misses[running] >= self.settings.tenacity))
            misses[running] += missed
            stays = going[running].any(dim=1)
            if not stays.all():
                running, state = running[stays], [tensor[stays] for tensor in state]
        return kept, rounds

    def _round(
        self,
        running: Tensor,
        state: list[Tensor],
        permutations: dict[tuple[int, ...], Tensor],
        epochs: int,
        pool: Executor,
        workers: int,
    ) -> Tensor:
        """Train the running folds for one round in place; their validation hits (F, P)."""
        gathered = self.settings.batch_size * self.inputs.shape[1] * self.inputs.element_size()
        turns = math.ceil(len(running) * gathered / (workers * GATHERED_BYTES))
        chunks = torch.arange(len(running)).tensor_split(turns * workers)

        def train(chunk: Tensor) -> Tensor:
            """One round of a chunk of folds, on a core of its own."""
            span = slice(int(chunk[0]), int(chunk[-1]) + 1)
            folds = [self.folds[i] for i in running[span]]
            penalty = self.penalties[running[span]]
            views = [tensor[span] for tensor in state]
            rows = [fold.train[permutations[fold.key]] for fold in folds]  # (epoch_size, n_f)
            for epoch in range(self.settings.epoch_size):
                self._epoch([r[epoch] for r in rows], views, penalty, epochs + epoch)
            return torch.stack([self._hits(f, w) for f, w in zip(folds, views[0], strict=True)])

        return torch.cat(list(pool.map(train, (chunk for chunk in chunks if len(chunk)))))

    def _epoch(self, rows: list[Tensor], state: list[Tensor], penalty: Tensor, epoch: int) -> None:
        """One pass of a few folds over their rows, given in the order of the pass."""
        weight, *moments = state
        F, P, C, D = weight.shape
        B = self.settings.batch_size
        index, share = _batches(rows, self.length, B)  # (S, F*B), (S, F, 1, 1, B)
        labels = self.y[index].view(-1, F, 1, 1, B).expand(-1, F, P, 1, B)
        x, ones = torch.empty(F * B, D), torch.full((F, P, 1, B), -1.0)
        logits, grad = torch.empty(F, P * C, B), torch.empty(F, P * C, D)
        p, g = logits.view(F, P, C, B), grad.view(F, P, C, D)
        scratch, decay = torch.empty_like(weight), penalty[:, :, None, None]
        batch, flat = x.view(F, B, D), weight.view(F, P * C, D)
        for step in range(self.length):
            torch.index_select(self.inputs, 0, index[step], out=x)
            torch.bmm(flat, batch.transpose(1, 2), out=logits)
            torch.softmax(p, dim=2, out=p)
            p.scatter_add_(2, labels[step], ones).mul_(share[step])
            torch.bmm(logits, batch, out=grad)
            g.addcmul_(weight, decay)
            self.update.apply(weight, g, moments, scratch, epoch * self.length + step + 1)

    def _hits(self, fold: Draws, weight: Tensor) -> Tensor:
        """Right answers on a fold's validation rows (P,) of its layers (P, C, D)."""
        logits = self.inputs[fold.validation] @ weight.flatten(0, 1).T
        guesses = logits.view(-1, *weight.shape[:2]).argmax(dim=2)
        return (guesses == self.y[fold.validation, None]).sum(dim=0)


class _Orders:
    """The permutations of every round: one stream for all folds of a key."""

    def __init__(self, folds: Sequence[Draws], settings: Settings) -> None:
        self.epoch_size = settings.epoch_size
        self.generators = {fold.key: fold.generator(settings.seed) for fold in folds}

    def next_round(self) -> dict[tuple[int, ...], Tensor]:
        """For each key the permutations (epoch_size, n) of the coming round."""
        return {
            key: torch.from_numpy(
                np.stack([generator.permutation(key[-1]) for _ in range(self.epoch_size)])
            )
            for key, generator in self.generators.items()
        }


def _batches(rows: list[Tensor], length: int, size: int) -> tuple[Tensor, Tensor]:
    """Cut each fold's rows into batches: row numbers (S, F*B) and what each row weighs in its mean.

    A short last batch is filled up with rows that weigh nothing.
    """
    index = torch.zeros(len(rows), length * size, dtype=torch.int64)
    share = torch.zeros(len(rows), length, size)
    for f, order in enumerate(rows):
        index[f, : len(order)] = order
        last = len(order) - (length - 1) * size
        share[f, :-1] = 1 / size
        share[f, -1, :last] = 1 / last
    index = index.view(len(rows), length, size).transpose(0, 1).reshape(length, -1)
    return index, share.transpose(0, 1)[:, :, None, None, :].contiguous()
