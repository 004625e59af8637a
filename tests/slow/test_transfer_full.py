"""Whole tasks, fit by fit: the lock-step classifier against the one-at-a-time reference.

Run by `pytest tests/slow/test_transfer_full.py`; the reference takes some minutes of one core.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from benchmarks import senteval_reference as slow
from cse_cli.classifier import Part, nested, senteval, solver, train_test
from cse_cli.classifier import lbfgs as optimum
from cse_cli.classifier.judge import features
from cse_cli.classifier.linear import Fold, LinearFits
from cse_cli.data.transfer import load_transfer
from cse_cli.embedding_cache import CachedEncoder, embedding_cache
from cse_cli.encoder import Encoder

TASKS = ("CR", "TREC", "MRPC")


@pytest.fixture(scope="module")
def encode(assets: Path) -> Callable[..., torch.Tensor]:
    encoder = Encoder.load(str(assets / "models/all-MiniLM-L6-v2"), max_length=128)
    with embedding_cache(keep=False) as folder:
        yield CachedEncoder(encoder, folder)


def parts(assets: Path, encode: Callable[..., torch.Tensor], task: str) -> dict[str, Part]:
    data = load_transfer(assets / "data/senteval", task)
    rows = features(encode, data, "all-MiniLM-L6-v2")
    return {name: (rows[name], torch.from_numpy(s.y)) for name, s in data.splits.items()}


def inner_folds(y: torch.Tensor) -> list[Fold]:
    splitter = StratifiedKFold(10, shuffle=True, random_state=1111)
    return [
        Fold(torch.from_numpy(train), torch.from_numpy(test))
        for train, test in splitter.split(np.zeros(len(y)), y.numpy())
    ]


def compare(fits: LinearFits, wanted: list[slow.Fit]) -> tuple[list[bool], float]:
    """Which fits stop at the same round, and the largest difference of weights where they do.

    `wanted` goes penalty by penalty, as the reference makes them.
    """
    same, worst = [], 0.0
    for number, alone in enumerate(wanted):
        penalty, fold = divmod(number, len(fits.steps))
        same.append(int(fits.steps[fold, penalty]) == alone.rounds)
        if same[-1]:
            gap = (fits.weight[fold, penalty] - alone.model.weight.detach()).abs().max()
            worst = max(worst, float(gap))
    return same, worst


@pytest.mark.parametrize("task", TASKS)
def test_a_whole_task(assets: Path, encode: Callable[..., torch.Tensor], task: str) -> None:
    """Accuracies within 0.05; 99% of the fits stop together, their weights agree to 1e-4."""
    found = parts(assets, encode, task)
    penalties = torch.tensor(senteval.PENALTIES).expand(10, -1)
    if task == "CR":
        X, y = found["all"]
        ours, theirs = nested((X, y), ["0", "1"], solver("senteval")), slow.nested(X, y, 2)
        assert list(ours.penalties) == theirs.penalties
        checks = []
        outer = inner_folds(y)
        for i, fold in enumerate(outer):
            part = X[fold.train], y[fold.train]
            fits = senteval.fit_folds(*part, 2, inner_folds(part[1]), penalties)
            checks.append(compare(fits, theirs.fits[41 * i : 41 * i + 40]))
    else:
        classes = int(found["train"][1].max()) + 1
        names = [str(c) for c in range(classes)]
        ours = train_test(found["train"], found["test"], names, solver("senteval"))
        theirs = slow.train_test(*found["train"], *found["test"], classes)
        X, y = found["train"]
        fits = senteval.fit_folds(X, y, classes, inner_folds(y), penalties)
        checks = [compare(fits, theirs.fits[:40])]
    together = [same for each, _ in checks for same in each]
    assert np.mean(together) >= 0.99
    assert max(worst for _, worst in checks) <= 1e-4
    assert 100 * ours.accuracy == pytest.approx(theirs.accuracy, abs=0.05)
    assert 100 * ours.dev_accuracy == pytest.approx(theirs.dev_accuracy, abs=0.05)


@pytest.mark.parametrize("task", TASKS)
def test_lbfgs_predicts_what_scikit_learn_does(
    assets: Path, encode: Callable[..., torch.Tensor], task: str
) -> None:
    """Every penalty on two folds: the same class for at least 99.9% of all rows."""
    X, y = parts(assets, encode, task)["all" if task == "CR" else "train"]
    classes = int(y.max()) + 1
    folds = inner_folds(y)[:2]
    grid = solver("lbfgs").test_grid
    fits = optimum.fit_folds(X, y, classes, folds, torch.tensor(grid).expand(2, -1))
    rows = X.double().numpy()
    for f, fold in enumerate(folds):
        for p, C in enumerate(grid):
            theirs = LogisticRegression(C=C, tol=1e-9, max_iter=50_000)
            theirs.fit(rows[fold.train], y[fold.train].numpy())
            assert (theirs.predict(rows) == fits.predict(X, f, p).numpy()).mean() >= 0.999
