"""Measures of a space against loops over all pairs."""

import math
from itertools import combinations, permutations

import pytest
import torch
from torch.autograd import gradcheck

from cse_cli.errors import InputError
from cse_cli.maths import (
    alignment,
    geometry,
    set_similarity,
    token_similarity,
    top_similarities,
    uniformity,
)
from tests.naive import cos, direction, draw, mean, squared_distance

N, D, T, L = 9, 4, 5, 3
CLOSE = {"rtol": 1e-7, "atol": 1e-10}


def close(ours, expected):
    expected = torch.as_tensor(expected, dtype=ours.dtype)
    torch.testing.assert_close(ours, expected, equal_nan=True, **CLOSE)


@pytest.fixture(params=[1, 20, 2**22], ids=["one row", "two rows", "one block"])
def block(request, monkeypatch):
    """How much of the similarity matrix is held at once must not matter."""
    monkeypatch.setattr(geometry, "_BLOCK", request.param)


# --- alignment and uniformity


def test_alignment_is_the_mean_squared_distance_of_unit_vectors():
    a, b = draw(N, D), draw(N, D, seed=1)
    expected = [squared_distance(direction(x), direction(y)) for x, y in zip(a, b, strict=True)]
    close(alignment(a, b), mean(expected))


def test_alignment_of_a_vector_with_itself_is_zero():
    a = draw(N, D)
    assert alignment(a, 2 * a).item() == pytest.approx(0, abs=1e-30)


def test_alignment_needs_a_pair():
    with pytest.raises(InputError, match="at least one positive pair"):
        alignment(draw(0, D), draw(0, D))


def naive_uniformity(x, t):
    distances = [squared_distance(direction(a), direction(b)) for a, b in combinations(x, 2)]
    return math.log(mean([math.exp(-t * d) for d in distances]))


@pytest.mark.parametrize("t", [2.0, 0.5])
def test_uniformity_is_over_pairs_of_different_sentences(block, t):
    x = draw(N, D)
    close(uniformity(x, t), naive_uniformity(x, t))


def test_uniformity_of_duplicates_is_zero_and_of_opposites_minus_8(block):
    x = torch.ones(N, D, dtype=torch.float64)
    assert uniformity(x).item() == pytest.approx(0, abs=1e-12)
    assert uniformity(torch.stack([x[0], -x[0]])).item() == pytest.approx(-8)


def test_uniformity_counts_a_zero_vector_at_distance_one():
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], dtype=torch.float64)
    assert uniformity(x).item() == pytest.approx(-2)


def test_uniformity_does_not_underflow():
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    assert uniformity(x, t=1000.0).item() == pytest.approx(-4000)


@pytest.mark.parametrize("n", [0, 1])
def test_uniformity_needs_two_vectors(n):
    with pytest.raises(InputError, match="at least two vectors"):
        uniformity(draw(n, D))


@pytest.mark.parametrize("measure", [uniformity, top_similarities])
def test_no_block_holds_the_whole_similarity_matrix(measure, monkeypatch):
    monkeypatch.setattr(geometry, "_BLOCK", 1000)
    masks = []
    original = geometry._upper_triangle

    def recorded(n, device):
        for rows, columns, others in original(n, device):
            masks.append(others)
            yield rows, columns, others

    monkeypatch.setattr(geometry, "_upper_triangle", recorded)
    measure(draw(100, D))
    assert max(mask.numel() for mask in masks) <= 1000
    assert sum(int((~mask).sum()) for mask in masks) == 100 * 99 // 2


# --- nearest pairs


@pytest.mark.parametrize("k", [1, 4, N * (N - 1) // 2])
def test_top_similarities_are_the_largest_over_pairs(block, k):
    x = draw(N, D)
    expected = sorted((cos(a, b) for a, b in combinations(x, 2)), reverse=True)[:k]
    close(top_similarities(x, k), expected)


def test_top_similarities_count_every_pair_of_duplicates(block):
    x = torch.eye(4, dtype=torch.float64)
    x[3] = x[0]
    close(top_similarities(x, 2), [1.0, 0.0])


def test_top_similarities_refuse_more_than_there_are():
    with pytest.raises(InputError, match="3 vectors make 3 pairs, fewer than the 4"):
        top_similarities(draw(3, D))


# --- over-smoothing


def test_set_similarity_compares_consecutive_layers():
    states = draw(L + 1, N, D)
    expected = [mean([cos(states[k, i], states[k + 1, i]) for i in range(N)]) for k in range(L)]
    close(set_similarity(states), expected)


def test_set_similarity_of_unchanging_layers_is_one():
    close(set_similarity(draw(1, N, D).expand(L + 1, N, D)), [1.0] * L)


def ragged():
    tokens = draw(N, T, D)
    mask = torch.ones(N, T, dtype=torch.long)
    for row, holes in enumerate([(), (4,), (0, 4), (2, 3, 4), (1, 2, 3, 4), range(T)]):
        mask[row, list(holes)] = 0
    return tokens, mask


def naive_token_similarity(tokens, mask):
    result = []
    for states, counts in zip(tokens, mask, strict=True):
        kept = [state for state, count in zip(states, counts, strict=True) if count]
        pairs = [cos(a, b) for a, b in permutations(kept, 2)]
        result.append(mean(pairs) if pairs else math.nan)
    return result


def test_token_similarity_is_the_mean_over_ordered_pairs():
    tokens, mask = ragged()
    result = token_similarity(tokens, mask)
    close(result, naive_token_similarity(tokens, mask))
    assert result.isnan().tolist() == [False] * 4 + [True] * 2 + [False] * 3


def test_token_similarity_does_not_see_padding():
    tokens, mask = ragged()
    expected = token_similarity(tokens, mask)
    tokens[mask == 0] = math.nan
    close(token_similarity(tokens, mask.bool()), expected)


def test_token_similarity_counts_a_zero_vector_as_dissimilar():
    tokens = torch.ones(1, 3, D, dtype=torch.float64)
    tokens[0, 2] = 0
    close(token_similarity(tokens, torch.ones(1, 3)), [1 / 3])


def test_token_similarity_of_equal_tokens_is_one():
    close(token_similarity(torch.ones(2, T, D, dtype=torch.float64), torch.ones(2, T)), [1.0] * 2)


def test_token_similarity_needs_no_token_by_token_matrix():
    tokens, mask = torch.ones(1, 20_000, 2), torch.ones(1, 20_000)  # the matrix: 1.6 GB
    with torch.profiler.profile(profile_memory=True) as profile:
        token_similarity(tokens, mask)
    largest = max(event.self_cpu_memory_usage for event in profile.key_averages())
    assert largest < 10 * tokens.numel() * 4


def test_gradient_of_token_similarity_is_finite_beside_a_sentence_of_one_token():
    tokens, mask = ragged()
    tokens.requires_grad_()
    token_similarity(tokens, mask)[mask.sum(1) > 1].sum().backward()
    assert tokens.grad.isfinite().all()


# --- gradients and dtypes of all

CASES = {
    "alignment": lambda x: alignment(x, x.flip(0) * draw(N, D, seed=3).to(x)),
    "uniformity": uniformity,
    "top_similarities": top_similarities,
    "set_similarity": lambda x: set_similarity(torch.stack([x, x.flip(0), x.flip(1)])),
    "token_similarity": lambda x: token_similarity(x.view(3, 3, D), torch.ones(3, 3)),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients_match_finite_differences(case, block):
    assert gradcheck(CASES[case], draw(N, D).requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", CASES)
def test_the_dtype_is_kept(case, dtype):
    assert CASES[case](draw(N, D).to(dtype)).dtype == dtype
