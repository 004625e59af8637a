"""Rank correlations against a hand-written one, and the pair counts of the real test sets."""

import csv
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from cse_cli.maths import length_bias, spearman_groups
from tests.naive import dot, draw, mean

ASSETS = Path(__file__).parent.parent / os.environ.get("CSE_ASSETS", "../shared")
STS_TEST = ASSETS / "data/senteval/downstream/STS/STSBenchmark/sts-test.csv"


def pearson(a, b):
    a, b = [x - mean(a) for x in a], [x - mean(b) for x in b]
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def ranks(values):
    """1 + how many are smaller, ties sharing their average rank."""
    return [
        1 + sum(v < value for v in values) + (sum(v == value for v in values) - 1) / 2
        for value in values
    ]


def spearman(a, b):
    return pearson(ranks(a), ranks(b))


def two_subsets():
    """Subsets of different size and scale, gold scores with ties."""
    return {
        "small": (draw(7).tolist(), [0, 1, 1, 2, 3, 3, 3]),
        "large": ((5 + draw(12, seed=1)).tolist(), [1, 5, 2, 4, 4, 3, 0, 0, 1, 5, 5, 2]),
    }


@pytest.mark.parametrize(("name", "correlate"), [("spearman", spearman), ("pearson", pearson)])
def test_groups_are_all_mean_and_weighted_mean(name, correlate):
    pairs = two_subsets()
    small, large = (correlate(*pair) for pair in pairs.values())
    everything = [[x for pair in pairs.values() for x in pair[side]] for side in (0, 1)]
    result = spearman_groups(pairs)
    assert result["all"][name] == pytest.approx(correlate(*everything), rel=1e-7)
    assert result["mean"][name] == pytest.approx((small + large) / 2, rel=1e-7)
    assert result["wmean"][name] == pytest.approx((7 * small + 12 * large) / 19, rel=1e-7)


def test_a_single_subset_has_one_correlation():
    result = spearman_groups({"": two_subsets()["small"]})
    assert result["all"] == result["mean"] == pytest.approx(result["wmean"])


@pytest.mark.parametrize("convert", [torch.tensor, np.array, list])
def test_tensors_arrays_and_lists_are_the_same(convert):
    pairs = two_subsets()
    converted = {name: (convert(a), convert(b)) for name, (a, b) in pairs.items()}
    assert spearman_groups(converted)["all"] == pytest.approx(
        spearman_groups(pairs)["all"], rel=1e-5
    )


def test_scores_that_carry_a_gradient_are_taken():
    result = spearman_groups({"": (draw(3).requires_grad_(), [1, 2, 3])})
    assert math.isfinite(result["all"]["spearman"])


@pytest.mark.filterwarnings("error")
def test_a_constant_side_correlates_at_zero():
    for pair in (([1.0] * 4, [1, 2, 3, 4]), ([1, 2, 3, 4], [1.0] * 4)):
        result = spearman_groups({"a": pair})
        for group in ("all", "mean", "wmean"):
            assert result[group] == {"spearman": 0.0, "pearson": 0.0}


def test_a_similarity_that_is_nan_counts_as_zero():
    gold = [1, 2, 3, 4]
    with_nan = spearman_groups({"": ([0.1, math.nan, 0.3, -0.2], gold)})
    assert with_nan == spearman_groups({"": ([0.1, 0.0, 0.3, -0.2], gold)})


@pytest.mark.filterwarnings("error")
def test_fewer_than_two_pairs_have_no_correlation():
    assert math.isnan(spearman_groups({"": ([0.5], [1.0])})["all"]["spearman"])


def test_length_bias_splits_at_the_threshold():
    system, gold = draw(10).tolist(), draw(10, seed=1).tolist()
    difference = [0, 1, 2, 3, 3, 4, 5, 6, 9, 4]
    assert length_bias(torch.tensor(system), gold, difference) == {
        "spearman_le": pytest.approx(spearman(system[:5], gold[:5]), rel=1e-7),
        "spearman_gt": pytest.approx(spearman(system[5:], gold[5:]), rel=1e-7),
        "n_le": 5,
        "n_gt": 5,
    }


def test_length_bias_takes_another_threshold():
    result = length_bias(draw(4), draw(4, seed=1), [0, 1, 2, 3], threshold=0)
    assert (result["n_le"], result["n_gt"]) == (1, 3)
    assert math.isnan(result["spearman_le"])


@pytest.mark.skipif(not STS_TEST.exists(), reason="needs the SentEval data of $CSE_ASSETS")
def test_sts_benchmark_splits_into_the_known_counts():
    with STS_TEST.open(encoding="utf-8") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    gold = np.array([float(row[4]) for row in rows])
    words = [abs(len(row[5].split()) - len(row[6].split())) for row in rows]
    result = length_bias(-np.array(words), gold, words)
    assert (result["n_le"], result["n_gt"]) == (1096, 283)
    assert (int((gold > 4).sum()), int((gold >= 4).sum())) == (231, 338)
