"""The shuffled order: a permutation, the same for everyone, without pattern."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cse_cli.data.order import order


@given(n=st.integers(1, 5000), seed=st.integers(0, 2**32), epoch=st.integers(0, 5))
def test_every_row_once(n, seed, epoch):
    rows = order(n, seed, epoch)[:]
    assert np.array_equal(np.sort(rows), np.arange(n))


def test_any_position_is_available_at_once():
    rows = order(1000, 42, 3)
    whole = rows[:]
    assert np.array_equal(rows[640:704], whole[640:704])
    assert np.array_equal(rows[np.array([999, 0, 5])], whole[[999, 0, 5]])
    assert np.array_equal(rows[1:1000:4], whole[1::4])
    assert len(rows) == 1000
    for wrong in ([1000], [-1]):
        with pytest.raises(IndexError):
            rows[np.array(wrong)]


def test_seed_and_epoch_decide():
    whole = order(1000, 42, 0)[:]
    assert np.array_equal(whole, order(1000, 42, 0)[:])
    for other in (order(1000, 43, 0)[:], order(1000, 42, 1)[:], order(1000, 4, 20)[:]):
        # Two unrelated permutations agree in one place on average.
        assert (whole == other).sum() < 10


def test_the_order_is_part_of_the_contract():
    """A resumed run continues the old order, so these numbers may never change."""
    assert order(10, 0, 0)[:].tolist() == [0, 9, 6, 2, 7, 1, 5, 8, 3, 4]


@pytest.mark.parametrize("n", [7, 64, 1000])
def test_every_row_is_equally_likely_at_every_position(n):
    draws, places = 4000, [0, n // 2, n - 1]
    at = np.array([order(n, seed, 0)[np.array(places)] for seed in range(draws)])
    for column in at.T:
        counts = np.bincount(column * min(n, 50) // n, minlength=min(n, 50))
        share = np.bincount(np.arange(n) * min(n, 50) // n) / n
        chi2 = ((counts - draws * share) ** 2 / (draws * share)).sum()
        freedom = len(share) - 1
        assert chi2 < freedom + 5 * np.sqrt(2 * freedom)


def test_neighbours_are_not_kept_together():
    n = 20_000
    rows = order(n, 1, 0)[:].astype(float)
    bound = 5 / np.sqrt(n)
    assert abs(np.corrcoef(rows[:-1], rows[1:])[0, 1]) < bound
    assert abs(np.corrcoef(rows, np.arange(n))[0, 1]) < bound
    assert (np.abs(np.diff(rows)) == 1).sum() < 15  # two are expected
