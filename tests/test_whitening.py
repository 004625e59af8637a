"""Whitening: what the map does to a covariance, and what it refuses."""

import pytest
import torch

from cse_cli.errors import InputError, UsageError
from cse_cli.maths import cosine
from cse_cli.whitening import Whitening
from tests.naive import columns, dot, draw, mean

N, D = 40, 5


def correlated(n=N):
    return draw(n, D) @ draw(D, D, seed=1) + 3


def covariance(x):
    """Entry by entry, dividing by N."""
    centred = [[value - mean(column) for value in column] for column in columns(x)]
    return torch.tensor([[dot(a, b) / len(x) for b in centred] for a in centred])


def assert_identity(matrix):
    torch.testing.assert_close(
        matrix.double(), torch.eye(len(matrix), dtype=torch.float64), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("k", [None, D, 3, 1])
def test_whitened_vectors_have_zero_mean_and_identity_covariance(k):
    x = correlated()
    y = Whitening(k).fit(x).transform(x)
    assert y.shape == (N, k or D)
    torch.testing.assert_close(y.mean(0), torch.zeros(y.shape[1], dtype=torch.float64))
    assert_identity(covariance(y))


def test_the_directions_kept_are_those_of_largest_variance():
    scales = torch.tensor([1.0, 4.0, 0.5, 9.0, 2.0], dtype=torch.float64)
    fitted = Whitening(2).fit(draw(4000, D) * scales)
    assert fitted.variances_[0] > fitted.variances_[1]
    assert fitted.components_.abs().argmax(0).tolist() == [3, 1]


def test_fitted_attributes_satisfy_the_definition():
    x = correlated()
    fitted = Whitening().fit(x)
    rebuilt = fitted.components_ @ fitted.variances_.diag() @ fitted.components_.T
    torch.testing.assert_close(rebuilt, covariance(x).double(), rtol=1e-6, atol=1e-6)
    assert fitted.mean_.tolist() == pytest.approx([mean(column) for column in columns(x)])
    assert fitted.n_samples_ == N


def test_cosines_are_those_of_the_mahalanobis_product():
    x = correlated()
    fitted = Whitening().fit(x)
    inverse = torch.linalg.inv(covariance(x).double())
    centred = x - x.mean(0)
    gram = centred @ inverse @ centred.T
    lengths = gram.diagonal().sqrt()
    y = fitted.transform(x)
    expected = gram / lengths / lengths[:, None]
    torch.testing.assert_close(cosine(y, y), expected, rtol=1e-5, atol=1e-5)


def test_fitting_does_not_depend_on_how_rows_are_chunked(monkeypatch):
    x = correlated()
    whole = Whitening().fit(x)
    monkeypatch.setattr("cse_cli.whitening._CHUNK", 7)
    chunked = Whitening().fit(x)
    torch.testing.assert_close(chunked.mean_, whole.mean_)
    torch.testing.assert_close(chunked.variances_, whole.variances_)
    torch.testing.assert_close(chunked.transform(x).abs(), whole.transform(x).abs())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_dtype_is_kept_and_statistics_are_double(dtype):
    x = correlated().to(dtype)
    fitted = Whitening().fit(x)
    assert fitted.transform(x).dtype == dtype
    assert fitted.mean_.dtype == fitted.components_.dtype == torch.float64


def test_no_vectors_transform_to_no_vectors():
    assert Whitening(2).fit(correlated()).transform(draw(0, D)).shape == (0, 2)


def test_single_precision_directions_of_little_variance_are_still_whitened():
    scales = torch.logspace(0, -5, D)
    x = draw(200, D).float() * scales
    assert_identity(covariance(Whitening().fit(x).transform(x)))


@pytest.mark.parametrize("n", [0, 1, D])
def test_fitting_needs_more_samples_than_dimensions(n):
    with pytest.raises(InputError, match=f"more than {D} sentences to fit on, got {n}"):
        Whitening().fit(draw(n, D))


def test_fitting_refuses_directions_without_variance():
    x = correlated()
    x[:, 4] = x[:, 0] + x[:, 1]
    with pytest.raises(InputError, match="vary in 4 of 5 dimensions only"):
        Whitening().fit(x)
    assert_identity(covariance(Whitening(4).fit(x).transform(x)))


def test_fitting_refuses_identical_sentences():
    with pytest.raises(InputError, match="vary in 0 of 5"):
        Whitening(1).fit(torch.ones(N, D))


@pytest.mark.parametrize("k", [0, -1, D + 1])
def test_the_number_kept_must_fit_the_width(k):
    with pytest.raises(UsageError, match=f"keeps 1 to {D} dimensions"):
        Whitening(k).fit(correlated())


def test_transform_needs_fit():
    with pytest.raises(UsageError, match="call fit first"):
        Whitening().transform(correlated())


def test_vectors_of_another_width_or_shape_are_refused():
    fitted = Whitening().fit(correlated())
    with pytest.raises(InputError, match="5-dimensional vectors, got 3"):
        fitted.transform(draw(2, 3))
    with pytest.raises(InputError, match=r"got shape \(5,\)"):
        fitted.transform(draw(D))


def test_vectors_that_are_not_finite_are_refused():
    x = correlated()
    x[3, 2] = float("inf")
    with pytest.raises(InputError, match="not finite"):
        Whitening().fit(x)
