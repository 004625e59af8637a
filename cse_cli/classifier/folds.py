"""SentEval's three protocols: which rows choose the penalty, and which are scored.

    nested       MR CR SUBJ MPQA       k-fold, with a k-fold for the penalty in each training part
    train_test   TREC MRPC             k-fold on the training split, then the test split
    three_way    SST SICK-E, probing   the dev split chooses, then the test split

A penalty's score is its mean accuracy in per cent rounded to two decimals, and the first of the
best wins; so is the accuracy of each outer fold rounded before they are averaged. That rounding
decides between penalties, so it is kept, and kept as SentEval's own (numpy's for means).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from cse_cli.classifier.linear import Fold, LinearFits
from cse_cli.classifier.solvers import Solver
from cse_cli.errors import InputError

Part = tuple[Tensor, Tensor]  # rows (n, d) float32 and their classes (n,) int64


def _no_rows() -> np.ndarray:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Outcome:
    """What a protocol found; accuracies are shares of one.

    `penalties` has one entry for each refit. `truth` and `predicted` (n,) are the scored rows, in
    the order of the data; both are empty, and `accuracy` NaN, where only dev was asked for.
    """

    dev_accuracy: float
    penalties: tuple[float, ...]
    accuracy: float = float("nan")
    truth: np.ndarray = field(default_factory=_no_rows)
    predicted: np.ndarray = field(default_factory=_no_rows)

    def confusion(self, classes: int) -> np.ndarray:
        """Counts (C, C): row the true class, column the predicted one."""
        cells = np.bincount(self.truth * classes + self.predicted, minlength=classes**2)
        return cells.reshape(classes, classes)


def nested(data: Part, names: Sequence[str], solver: Solver, *, dev: bool = False) -> Outcome:
    """k-fold inside k-fold: every row is scored once, by a fit that never saw it.

    `names` are those of the classes. `dev` stops before the refits.
    """
    X, y = data
    outer = _stratified(y, names, solver)
    inner = [
        (train[a], train[b]) for train, _ in outer for a, b in _stratified(y[train], names, solver)
    ]
    shares = _grid_shares(data, len(names), solver, inner, solver.grid)
    scores = np.round(100 * shares.reshape(len(outer), solver.folds, -1).mean(axis=1), 2)
    chosen = tuple(solver.grid[best] for best in scores.argmax(axis=1))
    dev_accuracy = float(scores.max(axis=1).mean()) / 100
    if dev:
        return Outcome(dev_accuracy, chosen)
    refits = [Fold(train) for train, _ in outer]
    fits = solver.fit(X, y, len(names), refits, torch.tensor(chosen)[:, None])
    predicted = torch.empty_like(y)
    accuracies = []
    for i, (_, test) in enumerate(outer):
        predicted[test] = fits.predict(X[test], i)
        accuracies.append(round(100 * _share(predicted[test], y[test]), 2))
    accuracy = float(np.mean(accuracies)) / 100
    return Outcome(dev_accuracy, chosen, accuracy, y.numpy(), predicted.numpy())


def train_test(
    train: Part, test: Part, names: Sequence[str], solver: Solver, *, dev: bool = False
) -> Outcome:
    """k-fold on the training split chooses; a refit on all of it is scored on the test split."""
    folds, grid = _stratified(train[1], names, solver), solver.test_grid
    shares = _grid_shares(train, len(names), solver, folds, grid)
    scores = np.round(100 * shares.mean(axis=0), 2)
    best = int(scores.argmax())
    if dev:
        return Outcome(float(scores[best]) / 100, (grid[best],))
    everything = Fold(torch.arange(len(train[1])))
    fits = solver.fit(*train, len(names), [everything], torch.tensor([[grid[best]]]))
    return _tested(float(scores[best]), grid[best], fits, 0, test)


def three_way(
    train: Part,
    validation: Part,
    test: Part,
    names: Sequence[str],
    solver: Solver,
    *,
    dev: bool = False,
) -> Outcome:
    """The validation split stops each fit and chooses; the chosen fit is scored on the test split.

    SentEval fits the chosen penalty again, with the same draws: that is the same layer.
    """
    X = torch.cat([train[0], validation[0]])
    y = torch.cat([train[1], validation[1]])
    fold = Fold(torch.arange(len(train[1])), torch.arange(len(train[1]), len(y)))
    grid = solver.grid
    fits = solver.fit(X, y, len(names), [fold], torch.tensor([grid]))
    hits = fits.hits(*validation, 0).tolist()
    scores = [round(100 * (count / len(validation[1])), 2) for count in hits]
    best = int(np.argmax(scores))
    if dev:
        return Outcome(scores[best] / 100, (grid[best],))
    return _tested(scores[best], grid[best], fits, best, test)


def _tested(score: float, penalty: float, fits: LinearFits, which: int, test: Part) -> Outcome:
    """The outcome on a test split, of the layer of fold 0 and penalty `which`."""
    predicted = fits.predict(test[0], 0, which)
    accuracy = _share(predicted, test[1])
    return Outcome(score / 100, (penalty,), accuracy, test[1].numpy(), predicted.numpy())


def _grid_shares(
    data: Part,
    classes: int,
    solver: Solver,
    splits: Sequence[tuple[Tensor, Tensor]],
    grid: Sequence[float],
) -> np.ndarray:
    """Accuracy (F, P) of every penalty on the rows that each split leaves out."""
    X, y = data
    folds = [Fold(train, test) for train, test in splits]
    fits = solver.fit(X, y, classes, folds, torch.tensor(grid).expand(len(folds), -1))
    shares = []
    for i, (_, test) in enumerate(splits):
        hits = fits.hits(X[test], y[test], i).tolist()
        shares.append([count / len(test) for count in hits])
    return np.array(shares)


def _share(predicted: Tensor, truth: Tensor) -> float:
    return int((predicted == truth).sum()) / len(truth)


def _stratified(y: Tensor, names: Sequence[str], solver: Solver) -> list[tuple[Tensor, Tensor]]:
    """Training and test rows of a shuffled stratified k-fold, as scikit-learn draws it.

    Raises InputError for a class with fewer rows than folds.
    """
    from sklearn.model_selection import StratifiedKFold

    counts = torch.bincount(y, minlength=len(names)).tolist()
    for name, count in zip(names, counts, strict=True):
        if count < solver.folds:
            raise InputError(
                f"class '{name}' has {count} rows to share among {solver.folds} folds; "
                "every class needs one row a fold"
            )
    splitter = StratifiedKFold(solver.folds, shuffle=True, random_state=solver.seed)
    return [
        (torch.from_numpy(train), torch.from_numpy(test))
        for train, test in splitter.split(np.zeros(len(y)), y.numpy())
    ]
