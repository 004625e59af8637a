"""The two optimisers of SentEval's classifier, as in-place updates of many layers at once.

Each is torch's own rule with its default settings (`torch.optim.Adam`, `torch.optim.RMSprop`),
rearranged so that few passes over memory are made.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

EPS = 1e-8


def adam(weight: Tensor, grad: Tensor, moments: Sequence[Tensor], scratch: Tensor, t: int) -> None:
    """Kingma & Ba (2015), lr 1e-3, betas (0.9, 0.999), after `t` >= 1 steps.

    lr m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps), with the second correction moved into the step size.
    """
    first, second = moments
    first.lerp_(grad, 0.1)
    second.mul_(0.999).addcmul_(grad, grad, value=0.001)
    correction = (1 - 0.999**t) ** 0.5
    torch.sqrt(second, out=scratch).add_(EPS * correction)
    weight.addcdiv_(first, scratch, value=-1e-3 * correction / (1 - 0.9**t))


def rmsprop(
    weight: Tensor, grad: Tensor, moments: Sequence[Tensor], scratch: Tensor, _t: int
) -> None:
    """lr 1e-2, alpha 0.99, no momentum: the optimiser of SentEval's fast settings."""
    (square,) = moments
    square.mul_(0.99).addcmul_(grad, grad, value=0.01)
    torch.sqrt(square, out=scratch).add_(EPS)
    weight.addcdiv_(grad, scratch, value=-1e-2)


@dataclass(frozen=True)
class Update:
    """An update rule and how many running moments, shaped like the weights, it keeps."""

    apply: Callable[[Tensor, Tensor, Sequence[Tensor], Tensor, int], None]
    moments: int


UPDATES = {"adam": Update(adam, 2), "rmsprop": Update(rmsprop, 1)}
