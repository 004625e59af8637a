"""The linear probes: against one-at-a-time fits, scikit-learn, and bad input."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from benchmarks import senteval_reference as slow
from cse_cli.classifier import (
    LBFGSClassifier,
    SentEvalClassifier,
    lbfgs,
    nested,
    senteval,
    solver,
    three_way,
    train_test,
)
from cse_cli.classifier.linear import Fold
from cse_cli.classifier.lockstep import Settings
from cse_cli.classifier.relatedness import regress
from cse_cli.errors import InputError, UsageError

SHORT = Settings(max_epoch=40)
SLOW_SHORT = slow.Settings(max_epoch=40)


def blobs(rows: int, classes: int, *, width: int = 12, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Overlapping clouds, unequal in size, so that fits stop at different rounds."""
    draw = np.random.default_rng(seed)
    y = np.sort(draw.choice(classes, rows, p=np.arange(1, classes + 1) / sum(range(classes + 1))))
    X = draw.normal(size=(classes, width))[y] * 0.7 + draw.normal(size=(rows, width))
    order = draw.permutation(rows)
    return torch.from_numpy(X[order]).float(), torch.from_numpy(y[order]).long()


def names(classes: int) -> list[str]:
    return [str(i) for i in range(classes)]


@pytest.mark.parametrize("classes", [2, 5])
def test_lock_step_fits_are_the_one_at_a_time_fits(classes: int) -> None:
    """Folds of three sizes, one of them with another number of batches, and held-out 5%."""
    X, y = blobs(330, classes)
    rows = torch.arange(330)
    folds = [
        Fold(rows[:250], rows[250:]),
        Fold(rows[80:], rows[:80]),
        Fold(rows[40:297], torch.cat([rows[:40], rows[297:]])),
        Fold(rows[::2].clone(), rows[1::2].clone()),
        Fold(rows),
    ]
    penalties = torch.tensor(senteval.PENALTIES).expand(len(folds), -1)
    fits = senteval.fit_folds(X, y, classes, folds, penalties, SHORT)
    for f, fold in enumerate(folds):
        held = None if fold.validation is None else (X[fold.validation], y[fold.validation])
        for p, penalty in enumerate(senteval.PENALTIES):
            alone = slow.fit(X[fold.train], y[fold.train], classes, penalty, SLOW_SHORT, held)
            assert int(fits.steps[f, p]) == alone.rounds
            torch.testing.assert_close(
                fits.weight[f, p], alone.model.weight.detach(), atol=1e-4, rtol=0
            )
            torch.testing.assert_close(
                fits.bias[f, p], alone.model.bias.detach(), atol=1e-4, rtol=0
            )
    assert len(set(fits.steps.flatten().tolist())) > 1, "the fits should stop at different rounds"


def test_fast_mode_is_its_reference() -> None:
    X, y = blobs(300, 3)
    fold = Fold(torch.arange(250), torch.arange(250, 300))
    fits = senteval.fit_folds(X, y, 3, [fold], torch.tensor([[1e-3]]), senteval.FAST)
    alone = slow.fit(X[:250], y[:250], 3, 1e-3, slow.FAST, (X[250:], y[250:]))
    assert int(fits.steps[0, 0]) == alone.rounds
    torch.testing.assert_close(fits.weight[0, 0], alone.model.weight.detach(), atol=1e-4, rtol=0)


def test_protocols_are_their_references() -> None:
    """Accuracies, dev accuracies and chosen penalties of all three protocols."""
    fast, settings = solver("senteval", fast=True), slow.FAST
    X, y = blobs(260, 2)
    found, wanted = nested((X, y), names(2), fast), slow.nested(X, y, 2, settings)
    assert 100 * found.accuracy == pytest.approx(wanted.accuracy)
    assert 100 * found.dev_accuracy == pytest.approx(wanted.dev_accuracy)
    assert list(found.penalties) == wanted.penalties
    assert (found.truth == y.numpy()).all()
    train, dev, test = (X[:150], y[:150]), (X[150:200], y[150:200]), (X[200:], y[200:])
    found, wanted = (
        train_test(train, test, names(2), fast),
        slow.train_test(*train, *test, 2, settings),
    )
    assert round(100 * found.accuracy, 2) == wanted.accuracy
    assert 100 * found.dev_accuracy == pytest.approx(wanted.dev_accuracy)
    assert (found.predicted == wanted.predicted).all()
    found, wanted = (
        three_way(train, dev, test, names(2), fast),
        slow.split(train, dev, test, 2, settings),
    )
    assert round(100 * found.accuracy, 2) == wanted.accuracy
    assert list(found.penalties) == wanted.penalties


def test_dev_only_chooses_alike_and_leaves_the_test_rows_alone() -> None:
    X, y = blobs(200, 2)
    fast = solver("senteval", fast=True)
    whole, dev = nested((X, y), names(2), fast), nested((X, y), names(2), fast, dev=True)
    assert (dev.dev_accuracy, dev.penalties) == (whole.dev_accuracy, whole.penalties)
    assert np.isnan(dev.accuracy)
    assert not len(dev.predicted)


@pytest.mark.parametrize(("classes", "scale"), [(2, 1.0), (2, 20.0), (5, 1.0)])
def test_lbfgs_is_the_optimum(classes: int, scale: float) -> None:
    """Its gradient is at most 1e-4, and scikit-learn at tight tolerance predicts the same."""
    X, y = blobs(600, classes)
    X = X * scale
    rows = torch.arange(600)
    folds = [Fold(rows[:500], rows[500:]), Fold(rows[100:], rows[:100])]
    strengths = torch.tensor([0.25, 2.0, 8.0]).expand(2, -1)
    fits = lbfgs.fit_folds(X, y, classes, folds, strengths)
    for f, fold in enumerate(folds):
        for p, C in enumerate(strengths[f].tolist()):
            theirs = LogisticRegression(C=C, tol=1e-10, max_iter=50_000)
            theirs.fit(X[fold.train].double().numpy(), y[fold.train].numpy())
            same = theirs.predict(X.double().numpy()) == fits.predict(X, f, p).numpy()
            assert same.mean() >= 0.999
            norm = gradient_norm(fits.weight[f, p], fits.bias[f, p], X, y, fold.train, C)
            assert norm <= 1.01 * lbfgs.TOLERANCE


def gradient_norm(weight, bias, X, y, rows, C: float) -> float:
    """By autograd, from the objective as the module's docstring prints it."""
    W = weight.double().clone().requires_grad_()
    b = bias.double().clone().requires_grad_()
    loss = torch.nn.functional.cross_entropy(X[rows].double() @ W.T + b, y[rows], reduction="sum")
    (0.5 * (W * W).sum() + C * loss).backward()
    if len(W) == 2:  # one layer's difference: its first row is zero by definition
        return float(torch.cat([W.grad[1], b.grad[1:]]).norm())
    return float(torch.cat([W.grad.flatten(), b.grad]).norm())


@pytest.mark.parametrize("estimator", [SentEvalClassifier(1e-4), LBFGSClassifier(C=2.0)])
def test_estimators_work_in_scikit_learn(estimator) -> None:
    X, y = blobs(1200, 3)
    labels = np.array(["ant", "bee", "cow"])[y.numpy()]
    fitted = clone(estimator).fit(X.numpy(), labels)
    assert list(fitted.classes_) == ["ant", "bee", "cow"]
    assert fitted.coef_.shape == (3, 12)
    assert fitted.intercept_.shape == (3,)
    assert fitted.score(X.numpy(), labels) > 0.6
    assert set(fitted.predict(X.numpy())) <= set(labels)
    np.testing.assert_allclose(fitted.predict_proba(X).sum(axis=1), 1, rtol=1e-5)
    assert len(cross_val_score(estimator, X.numpy(), labels, cv=3)) == 3


def test_fitting_leaves_the_callers_random_state_and_threads_alone() -> None:
    X, y = blobs(200, 2)
    torch.manual_seed(7)
    np.random.seed(7)
    expected = torch.rand(1), np.random.rand()
    torch.manual_seed(7)
    np.random.seed(7)
    threads = torch.get_num_threads()
    SentEvalClassifier(max_epoch=4).fit(X, y)
    assert (torch.rand(1), np.random.rand()) == expected
    assert torch.get_num_threads() == threads


def test_bad_input_is_told_in_one_line() -> None:
    X, y = blobs(100, 2)
    broken = X.clone()
    broken[3, 1] = float("nan")
    for estimator in (SentEvalClassifier(), LBFGSClassifier()):
        with pytest.raises(InputError, match=r"not finite .* row 3"):
            estimator.fit(broken, y)
        with pytest.raises(InputError, match="nothing to learn"):
            estimator.fit(X, np.zeros(100))
        with pytest.raises(InputError, match="99 labels for 100 rows"):
            estimator.fit(X, y[:99])
    with pytest.raises(InputError, match="never seen in training"):
        SentEvalClassifier().fit(X, y, validation=(X, y + 1))
    with pytest.raises(InputError, match="too few to hold out"):
        SentEvalClassifier().fit(X[:10], [0, 1] * 5)
    with pytest.raises(InputError, match="11 columns"):
        LBFGSClassifier().fit(X, y).predict(X[:, :11])
    with pytest.raises(UsageError, match="did you mean 'adam'"):
        SentEvalClassifier(optimizer="adan").fit(X, y)
    with pytest.raises(UsageError, match="did you mean 'lbfgs'"):
        solver("lbgfs")


def test_a_class_with_fewer_rows_than_folds_is_refused() -> None:
    X, y = blobs(200, 2)
    y = torch.zeros_like(y)
    y[:7] = 1
    with pytest.raises(InputError, match=r"class 'rare' has 7 rows .* 10 folds"):
        train_test((X, y), (X, y), ["common", "rare"], solver("lbfgs"))
    y[:10] = 1  # enough outside, too few inside
    with pytest.raises(InputError, match="class 'rare' has 9 rows"):
        nested((X, y), ["common", "rare"], solver("lbfgs"))


def test_relatedness_learns_scores_and_stops() -> None:
    draw = torch.Generator().manual_seed(0)
    X = torch.randn(300, 6, generator=draw)
    scores = (3 + 0.8 * X[:, 0]).clamp(1, 5).numpy()
    parts = [(X[a:b], scores[a:b]) for a, b in ((0, 200), (200, 250), (250, 300))]
    found = regress(*parts)
    assert found.pearson > 0.95
    assert found.spearman > 0.95
    assert found.dev_pearson > 0.95


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_of_a_wide_task_stays_bounded() -> None:
    """Forty fits of 6 classes on 3000 x 768 rows need no copy of the rows for each fold."""
    import resource

    X, y = blobs(3000, 6, width=768)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    train_test((X, y), (X, y), names(6), solver("senteval", fast=True), dev=True)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 300 * 1024  # kilobytes
