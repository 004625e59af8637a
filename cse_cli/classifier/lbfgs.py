"""L2-penalised logistic regression at its optimum, all folds and penalties of a task together.

The objective is that of scikit-learn's `LogisticRegression(C)`: over the rows i of a fold,

    min over W, b of   1/2 |W|^2  +  C sum_i -log p(y_i | x_i),      b not penalised

with a sigmoid for two classes and a softmax for more. Every fold is a 0/1 weighting of the same
rows, so one matrix product gives the logits of all problems and a second one their gradients.

L-BFGS (Liu & Nocedal 1989) multiplies by a first guess of the inverse Hessian. Here that is the
Hessian of the problem on *all* rows, which a fold's nearly equals, and each fold starts from that
problem's solution: some ten iterations then do what takes hundreds from a cold start.
"""

from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import one_hot, softplus

from cse_cli.classifier.linear import Fold, LinearFits
from cse_cli.errors import DivergedError

TOLERANCE = 1e-4  # on the Euclidean norm of a problem's gradient
ROUGH = 1.0  # the same, for the problem on all rows: it only lends its neighbourhood
MEMORY = 20  # steps and gradient changes remembered
ITERATIONS = 2000
BLOCK = 2**22  # logits held at a time


def fit_folds(
    X: Tensor, y: Tensor, classes: int, folds: Sequence[Fold], strengths: Tensor
) -> LinearFits:
    """Solve one problem for each fold and each of its values of C, `strengths` (F, P).

    X (n, d) and y (n,) int64 in 0..classes-1 are the rows of all folds; only a fold's training
    rows count. The arithmetic is float64. DivergedError where an optimum is out of reach.
    """
    levels, level = strengths.double().unique(return_inverse=True)  # (L,), (F, P)
    level = level.flatten()  # (M,), M = F * P
    data = _Rows(X, y, classes)
    everything = torch.ones(len(X), 1, dtype=torch.float64)
    whole = _Problems(data, everything, torch.zeros_like(level[: len(levels)]), levels)
    origin = torch.zeros(len(levels), data.outputs, data.X.shape[1], dtype=torch.float64)
    metric = _Metric(data, origin, levels)
    shared, _ = _minimise(whole, origin, metric, torch.arange(len(levels)), ROUGH)
    member = torch.zeros(len(X), len(folds), dtype=torch.float64)
    for f, fold in enumerate(folds):
        member[fold.train, f] = 1.0
    fold_of = torch.arange(len(folds)).repeat_interleave(strengths.shape[1])
    problems = _Problems(data, member, fold_of, levels[level])
    metric = _Metric(data, shared, levels)
    found, steps = _minimise(problems, shared[level], metric, level, TOLERANCE)
    layer = found.view(*strengths.shape, *found.shape[1:])  # (F, P, K, D)
    if classes == 2:
        layer = torch.cat([torch.zeros_like(layer), layer], dim=2)
    return LinearFits(layer[..., :-1], layer[..., -1], steps.view(strengths.shape))


class _Rows:
    """X with a column of ones (n, D), and the classes as targets of K outputs (n, K)."""

    def __init__(self, X: Tensor, y: Tensor, classes: int) -> None:
        ones = torch.ones(len(X), 1, dtype=torch.float64)
        self.X = torch.cat([X.double(), ones], dim=1)
        self.target = (y[:, None] if classes == 2 else one_hot(y, classes)).double()
        self.outputs = self.target.shape[1]  # one for two classes: their difference
        self.penalised = torch.ones(self.X.shape[1], dtype=torch.float64)
        self.penalised[-1] = 0.0

    def probabilities(self, logits: Tensor) -> Tensor:
        """(..., K) -> (..., K)."""
        return logits.sigmoid() if self.outputs == 1 else logits.softmax(dim=-1)


class _Problems:
    """M weightings of the rows: problem m has the rows of fold `fold[m]` and C = `strength[m]`."""

    def __init__(self, data: _Rows, member: Tensor, fold: Tensor, strength: Tensor) -> None:
        self.data, self.member, self.fold, self.strength = data, member, fold, strength

    def evaluate(self, theta: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        """Objective (m,) and gradient (m, K, D) of the problems `which` at theta (m, K, D)."""
        rows, penalised = self.data, self.data.penalised
        m, K, D = theta.shape
        loss = 0.5 * (theta * theta * penalised).sum(dim=(1, 2))
        gradient = (theta * penalised).view(m * K, D)
        size = max(1, BLOCK // (m * K))
        for start in range(0, len(rows.X), size):
            block = slice(start, start + size)
            weight = self.member[block][:, self.fold[which]] * self.strength[which]  # (b, m)
            logits = (rows.X[block] @ theta.view(m * K, D).T).view(-1, m, K)
            target = rows.target[block][:, None, :]
            if K == 1:
                normaliser = softplus(logits[..., 0])
            else:
                normaliser = logits.logsumexp(dim=2)
            loss += (weight * (normaliser - (logits * target).sum(dim=2))).sum(dim=0)
            residual = (rows.probabilities(logits) - target) * weight[..., None]
            gradient += residual.view(-1, m * K).T @ rows.X[block]
        return loss, gradient.view(m, K, D)


class _Metric:
    """For each level of C an inverse Hessian on all rows, taken near `theta` (L, K, D).

    I + C sum_i (diag p_i - p_i p_i^T) x x_i x_i^T is taken for I + C A x G, with A (K, K) the mean
    of the first factor and G (D, D) the second one's sum weighted by its trace. In the eigenvectors
    of A and G that is diagonal. It guides the way to an optimum and does not move it.
    """

    def __init__(self, data: _Rows, theta: Tensor, levels: Tensor) -> None:
        self.bases = []
        for layer, strength in zip(theta, levels, strict=True):
            p = data.probabilities(data.X @ layer.T)  # (n, K)
            spread = (p * (1 - p)).sum(dim=1)  # (n,)
            outer = torch.diag(p.sum(dim=0)) - p.T @ p if data.outputs > 1 else spread.sum()
            a, U = torch.linalg.eigh(outer.view(data.outputs, data.outputs) / spread.sum())
            g, V = torch.linalg.eigh((data.X * spread[:, None]).T @ data.X)
            inverse = 1 / (1 + strength * a.clamp(min=0)[:, None] * g.clamp(min=0))
            self.bases.append((U, V, inverse))

    def apply(self, gradient: Tensor, level: Tensor) -> Tensor:
        """The inverse Hessian of each problem's level times its gradient (m, K, D)."""
        step = torch.empty_like(gradient)
        for i, (U, V, inverse) in enumerate(self.bases):
            chosen = level == i
            rotated = U.T @ gradient[chosen] @ V
            step[chosen] = U @ (rotated * inverse) @ V.T
        return step


def _minimise(
    problems: _Problems, start: Tensor, metric: _Metric, level: Tensor, tolerance: float
) -> tuple[Tensor, Tensor]:
    """Minima (M, K, D) from `start`, and the iterations each took (M,). Solved ones drop out."""
    solution, iterations = start.clone(), torch.zeros(len(start), dtype=torch.int64)
    left, theta = torch.arange(len(start)), start
    value, gradient = problems.evaluate(theta, left)
    history: deque[tuple[Tensor, Tensor]] = deque(maxlen=MEMORY)
    for _ in range(ITERATIONS):
        unsolved = ~(gradient.flatten(1).norm(dim=1) <= tolerance)  # NaN is unsolved
        solution[left] = theta
        if not unsolved.any():
            return solution, iterations
        if not unsolved.all():
            left, theta = left[unsolved], theta[unsolved]
            value, gradient = value[unsolved], gradient[unsolved]
            history = deque(((s[unsolved], c[unsolved]) for s, c in history), MEMORY)
        direction = _direction(gradient, history, metric, level[left])
        before = theta, gradient
        theta, value, gradient = _descend(problems, left, theta, value, gradient, direction)
        history.append((theta - before[0], gradient - before[1]))
        iterations[left] += 1
    raise DivergedError(
        f"logistic regression did not come within {tolerance:g} of its optimum in {ITERATIONS} "
        "steps; the vectors are badly scaled, normalise them"
    )


def _direction(
    gradient: Tensor, history: Sequence[tuple[Tensor, Tensor]], metric: _Metric, level: Tensor
) -> Tensor:
    """The two-loop recursion: minus the approximate inverse Hessian times the gradient."""

    def dot(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum(dim=(1, 2), keepdim=True)

    q, weights = gradient.clone(), []
    for step, change in reversed(history):
        weights.append(dot(step, q) / dot(step, change))
        q -= weights[-1] * change
    q = metric.apply(q, level)
    for step, change in history:
        q += (weights.pop() - dot(change, q) / dot(step, change)) * step
    return -q


def _descend(
    problems: _Problems,
    which: Tensor,
    theta: Tensor,
    value: Tensor,
    gradient: Tensor,
    direction: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Take the full step, halved for every problem until its objective falls enough (Armijo).

    The objective is strongly convex, so any step keeps the curvature that L-BFGS asks for.
    """
    slope = (gradient * direction).sum(dim=(1, 2))
    rate = torch.ones_like(value)
    noise = 1e-13 * value.abs()  # of the sum over all rows, which near an optimum is all there is
    landed = theta + direction
    new_value, new_gradient = problems.evaluate(landed, which)
    while (high := new_value > value + 1e-4 * rate * slope + noise).any():
        rate[high] *= 0.5
        landed[high] = theta[high] + rate[high, None, None] * direction[high]
        new_value[high], new_gradient[high] = problems.evaluate(landed[high], which[high])
    return landed, new_value, new_gradient
