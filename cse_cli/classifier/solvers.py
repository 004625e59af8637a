"""The two ways to fit a linear probe, under their names: `senteval` and `lbfgs`.

A solver is a way to fit many folds at once, with the grid of penalties and the number of folds
that SentEval uses it with. The name belongs beside every accuracy: the two do not agree.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from cse_cli.classifier import lbfgs, senteval
from cse_cli.classifier.linear import Fold, LinearFits
from cse_cli.classifier.lockstep import Settings
from cse_cli.errors import UsageError, suggestion

SEED = 1111
CLASSIFIERS = ("senteval", "lbfgs")

Fit = Callable[[Tensor, Tensor, int, Sequence[Fold], Tensor], LinearFits]


@dataclass(frozen=True)
class Solver:
    """What SentEval's protocols ask for.

    `fit(X, y, classes, folds, penalties)` fits every fold with each of its penalties (F, P).
    `grid` holds the penalties to choose from, `test_grid` those of tasks with k-fold on a training
    split and a test split: strengths of L2 for `senteval`, inverse strengths C for `lbfgs`.
    `folds` is k of every k-fold, `seed` that of the shuffles and of all else that is drawn.
    """

    name: str
    fit: Fit
    grid: tuple[float, ...]
    test_grid: tuple[float, ...]
    folds: int
    seed: int


def solver(name: str, *, fast: bool = False, seed: int = SEED) -> Solver:
    """The solver called `name`; `fast` is SentEval's cheap setting for use during development.

    Raises UsageError for another name.
    """
    folds = 5 if fast else 10
    if name == "senteval":
        settings = replace(senteval.FAST if fast else Settings(), seed=seed)
        fit = partial(senteval.fit_folds, settings=settings)
        return Solver(name, fit, senteval.PENALTIES, senteval.PENALTIES, folds, seed)
    if name == "lbfgs":
        return Solver(name, lbfgs.fit_folds, _powers(-2, 3), _powers(-1, 5), folds, seed)
    raise UsageError(f"unknown classifier '{name}': {suggestion(name, CLASSIFIERS)}")


def _powers(low: int, high: int) -> tuple[float, ...]:
    """2^low .. 2^high."""
    return tuple(2.0**exponent for exponent in range(low, high + 1))
