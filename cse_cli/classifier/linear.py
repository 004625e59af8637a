"""What the solvers share: the folds they are given and the linear layers they return."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Fold:
    """Which rows of the one matrix X a fit sees, as int64 row numbers.

    `train` (n,) keeps its order: the random draws of a fit count along it. `validation` (v,) is
    what early stopping looks at and what a penalty is scored on; None leaves it to the solver.
    """

    train: Tensor
    validation: Tensor | None = None


@dataclass(frozen=True)
class LinearFits:
    """F folds x P penalties of fitted layers: `weight` (F, P, C, d), `bias` (F, P, C).

    A layer has a row for each class, two classes included, whichever solver made it. `steps`
    (F, P) counts rounds of SentEval's classifier, or iterations of L-BFGS.
    """

    weight: Tensor
    bias: Tensor
    steps: Tensor

    def logits(self, X: Tensor, fold: int) -> Tensor:
        """Class scores (n, P, C) of the rows X (n, d), by the layers of one fold."""
        weight, bias = self.weight[fold].flatten(0, 1), self.bias[fold].flatten()
        return torch.addmm(bias, X.to(weight.dtype), weight.T).view(len(X), *self.bias.shape[1:])

    def predict(self, X: Tensor, fold: int, penalty: int = 0) -> Tensor:
        """Class numbers (n,) of the rows X (n, d), by one layer."""
        return self.logits(X, fold)[:, penalty].argmax(dim=1)

    def hits(self, X: Tensor, y: Tensor, fold: int) -> Tensor:
        """How many of the rows X (n, d) of classes y (n,) each layer of a fold gets right: (P,)."""
        return (self.logits(X, fold).argmax(dim=2) == y[:, None]).sum(dim=0)
