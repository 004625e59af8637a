"""SentEval's PyTorch classifier, one fit at a time: slow on purpose.

The yardstick of `benchmarks/transfer.py` and of the tests. It is written straight from the
protocol (docs/transfer.md) with `torch.nn` and `torch.optim`, one model and one step at a time,
and shares no code with `cse_cli.classifier`, which solves the same fits together.
"""

from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np
import torch
from sklearn.model_selection import StratifiedKFold
from torch import nn

PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2)


@dataclass(frozen=True)
class Settings:
    """What SentEval calls `params['classifier']`, with the values of its published scores."""

    optim: str = "adam"
    batch_size: int = 64
    tenacity: int = 5
    epoch_size: int = 4
    max_epoch: int = 200
    folds: int = 10
    seed: int = 1111


FAST = Settings(optim="rmsprop", batch_size=128, tenacity=3, epoch_size=2, folds=5)


@dataclass
class Fit:
    """A fitted layer and how its fit went."""

    model: nn.Linear
    rounds: int
    best: float


@dataclass
class Outcome:
    """Accuracies in per cent as SentEval prints them, and every inner fit in order."""

    accuracy: float
    dev_accuracy: float
    penalties: list[float]
    fits: list[Fit] = field(default_factory=list)
    predicted: np.ndarray | None = None


def score(model: nn.Linear, X: torch.Tensor, y: torch.Tensor) -> float:
    """Share of rows whose largest logit is that of their class."""
    with torch.no_grad():
        return float((model(X).argmax(1) == y).sum()) / len(y)


def fit(X, y, classes: int, penalty: float, settings: Settings, validation=None) -> Fit:
    """One fit, drawn and stopped as SentEval does (`validation` is a pair, or None for 5%)."""
    np.random.seed(settings.seed)
    torch.manual_seed(settings.seed)
    model = nn.Linear(X.shape[1], classes)
    if validation is None:
        order = np.random.permutation(len(X))
        held = int(0.05 * len(X))
        validation = X[order[:held]], y[order[:held]]
        X, y = X[order[held:]], y[order[held:]]
    if settings.optim == "adam":
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=penalty)
    else:
        optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-2, weight_decay=penalty)
    loss = nn.CrossEntropyLoss()
    best, kept, misses, epochs, rounds = -1.0, None, 0, 0, 0
    while epochs <= settings.max_epoch:
        for _ in range(settings.epoch_size):
            order = torch.from_numpy(np.random.permutation(len(X)))
            for batch in order.split(settings.batch_size):
                optimizer.zero_grad()
                loss(model(X[batch]), y[batch]).backward()
                optimizer.step()
        epochs += settings.epoch_size
        rounds += 1
        accuracy = score(model, *validation)
        if accuracy > best:
            best, kept = accuracy, deepcopy(model)
        elif misses >= settings.tenacity:
            break
        else:
            misses += 1
    return Fit(kept, rounds, best)


def kfold(X, y, classes: int, settings: Settings) -> tuple[float, float, list[Fit]]:
    """The best penalty by k-fold, its score in per cent, and all fits (penalty by penalty)."""
    splitter = StratifiedKFold(settings.folds, shuffle=True, random_state=settings.seed)
    scores, fits = [], []
    for penalty in PENALTIES:
        fold_scores = []
        for train, test in splitter.split(X, y):
            held = X[test], y[test]
            fits.append(fit(X[train], y[train], classes, penalty, settings, held))
            fold_scores.append(score(fits[-1].model, *held))
        scores.append(round(100 * float(np.mean(fold_scores)), 2))
    return PENALTIES[int(np.argmax(scores))], max(scores), fits


def nested(
    X, y, classes: int, settings: Settings = Settings(), outer: int | None = None
) -> Outcome:
    """MR, CR, SUBJ, MPQA: k-fold inside k-fold; `outer` stops after that many outer folds."""
    splitter = StratifiedKFold(settings.folds, shuffle=True, random_state=settings.seed)
    accuracies, bests, chosen, fits = [], [], [], []
    for train, test in list(splitter.split(X, y))[:outer]:
        penalty, best, inner = kfold(X[train], y[train], classes, settings)
        final = fit(X[train], y[train], classes, penalty, settings)
        accuracies.append(round(100 * score(final.model, X[test], y[test]), 2))
        bests.append(best)
        chosen.append(penalty)
        fits += [*inner, final]
    return Outcome(float(np.mean(accuracies)), float(np.mean(bests)), chosen, fits)


def train_test(X, y, test_X, test_y, classes: int, settings: Settings = Settings()) -> Outcome:
    """TREC and MRPC: k-fold on the training rows, a refit on all of them, the test rows."""
    penalty, best, fits = kfold(X, y, classes, settings)
    final = fit(X, y, classes, penalty, settings)
    accuracy = round(100 * score(final.model, test_X, test_y), 2)
    with torch.no_grad():
        predicted = final.model(test_X).argmax(1).numpy()
    return Outcome(accuracy, best, [penalty], [*fits, final], predicted)


def split(train, dev, test, classes: int, settings: Settings = Settings()) -> Outcome:
    """SST-2: the dev split chooses the penalty and stops each fit."""
    fits = [fit(*train, classes, penalty, settings, dev) for penalty in PENALTIES]
    scores = [round(100 * score(f.model, *dev), 2) for f in fits]
    best = int(np.argmax(scores))
    final = fit(*train, classes, PENALTIES[best], settings, dev)
    accuracy = round(100 * score(final.model, *test), 2)
    return Outcome(accuracy, scores[best], [PENALTIES[best]], [*fits, final])
