"""The linear probes as scikit-learn estimators, one fit at a time: `fit`, `predict`, `score`."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import Tensor

from cse_cli.classifier import lbfgs, senteval
from cse_cli.classifier.linear import Fold, LinearFits
from cse_cli.classifier.lockstep import Settings
from cse_cli.classifier.updates import UPDATES
from cse_cli.errors import InputError, UsageError, suggestion


class _LinearProbe(ClassifierMixin, BaseEstimator):
    """What both share once a layer is fitted.

    Attributes after `fit`: `classes_` (C,) the labels in sorted order; `coef_` (C, d) and
    `intercept_` (C,); `n_iter_` rounds or iterations; `n_features_in_` d.
    """

    def decision_function(self, X: Any) -> np.ndarray:
        """Class scores (n, C) of the rows X (n, d)."""
        rows = _matrix(X)
        if rows.shape[1] != self.n_features_in_:
            raise InputError(f"X has {rows.shape[1]} columns; the fit had {self.n_features_in_}")
        return self._fits.logits(rows, 0)[:, 0].numpy()

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities (n, C)."""
        return torch.from_numpy(self.decision_function(X)).softmax(dim=1).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each row, (n,)."""
        return self.classes_[self.decision_function(X).argmax(axis=1)]

    def _keep(self, fits: LinearFits, rows: Tensor) -> Self:
        self._fits, self.n_features_in_ = fits, rows.shape[1]
        self.coef_, self.intercept_ = fits.weight[0, 0].numpy(), fits.bias[0, 0].numpy()
        self.n_iter_ = int(fits.steps[0, 0])
        return self


class SentEvalClassifier(_LinearProbe):
    """SentEval's PyTorch classifier without a hidden layer (Conneau & Kiela 2018).

    Softmax regression by mini-batches, stopped early: after every `epoch_size` epochs the
    validation accuracy is taken, and the fit ends at the miss after `tenacity` of them. Draws
    come from `seed` as SentEval's do, so a fit gives SentEval's weights up to the order of sums.

    Args:
        penalty: strength of the L2 penalty, added to the gradient (also the bias's).
        optimizer: `adam` (lr 1e-3) or `rmsprop` (lr 1e-2, SentEval's fast mode).
    """

    def __init__(
        self,
        penalty: float = 1e-5,
        *,
        optimizer: str = "adam",
        batch_size: int = 64,
        tenacity: int = 5,
        epoch_size: int = 4,
        max_epoch: int = 200,
        seed: int = 1111,
    ) -> None:
        self.penalty = penalty
        self.optimizer = optimizer
        self.batch_size = batch_size
        self.tenacity = tenacity
        self.epoch_size = epoch_size
        self.max_epoch = max_epoch
        self.seed = seed

    def fit(self, X: Any, y: Any, validation: tuple[Any, Any] | None = None) -> Self:
        """Fit on the rows X (n, d) with labels y (n,); `validation` is such a pair too.

        Without it a random 5% of the rows validate and do not train. Raises InputError for values
        that are not finite, a single class, too few rows or a label that only `validation` has.
        """
        if self.optimizer not in UPDATES:
            raise UsageError(f"optimizer '{self.optimizer}': {suggestion(self.optimizer, UPDATES)}")
        rows = _matrix(X)
        self.classes_, numbers = _labels(y, len(rows))
        fold = Fold(torch.arange(len(rows)))
        if validation is not None:
            held = _matrix(validation[0])
            held_numbers = _numbers(validation[1], self.classes_)
            fold = Fold(fold.train, torch.arange(len(rows), len(rows) + len(held)))
            rows, numbers = torch.cat([rows, held]), torch.cat([numbers, held_numbers])
        elif len(rows) < 20:
            raise InputError(f"{len(rows)} rows are too few to hold out 5%; give validation rows")
        names = ("optimizer", "batch_size", "tenacity", "epoch_size", "max_epoch", "seed")
        settings = Settings(**{name: getattr(self, name) for name in names})
        penalty = torch.tensor([[self.penalty]])
        fits = senteval.fit_folds(rows, numbers, len(self.classes_), [fold], penalty, settings)
        return self._keep(fits, rows)


class LBFGSClassifier(_LinearProbe):
    """L2-penalised logistic regression at its optimum: scikit-learn's, solved tightly.

    Args:
        C: inverse strength of the penalty; the intercept is not penalised.
    """

    def __init__(self, C: float = 1.0) -> None:
        self.C = C

    def fit(self, X: Any, y: Any) -> Self:
        """Fit on the rows X (n, d) with labels y (n,).

        Of two classes the first has a zero row in `coef_`. Raises InputError for values that are
        not finite or a single class, DivergedError where the optimum is out of reach.
        """
        rows = _matrix(X)
        self.classes_, numbers = _labels(y, len(rows))
        folds, strength = [Fold(torch.arange(len(rows)))], torch.tensor([[float(self.C)]])
        fits = lbfgs.fit_folds(rows, numbers, len(self.classes_), folds, strength)
        return self._keep(fits, rows)


def _matrix(X: Any) -> Tensor:
    """X as float32 (n, d); InputError where it is not a finite matrix."""
    rows = torch.as_tensor(X, dtype=torch.float32)
    if rows.ndim != 2 or not len(rows):
        raise InputError(f"X has the shape {tuple(rows.shape)}; it must be (rows, columns)")
    if not rows.isfinite().all():
        bad = int((~rows.isfinite()).any(dim=1).nonzero()[0])
        raise InputError(f"X is not finite (NaN or infinite), first in row {bad}")
    return rows


def _labels(y: Any, rows: int) -> tuple[np.ndarray, Tensor]:
    """The labels in sorted order (C,) and each row's number among them (n,)."""
    classes, numbers = np.unique(np.asarray(y), return_inverse=True)
    if len(numbers) != rows:
        raise InputError(f"{len(numbers)} labels for {rows} rows")
    if len(classes) < 2:
        raise InputError(f"all {rows} rows have the one label {classes[0]!r}: nothing to learn")
    return classes, torch.from_numpy(numbers).long()


def _numbers(y: Any, classes: Sequence[Any] | np.ndarray) -> Tensor:
    """Each label's number in `classes`; InputError for one that is not among them."""
    labels = np.asarray(y)
    unseen = ~np.isin(labels, classes)
    if unseen.any():
        raise InputError(f"label {labels[unseen][0]!r} was never seen in training")
    return torch.from_numpy(np.searchsorted(classes, labels)).long()
