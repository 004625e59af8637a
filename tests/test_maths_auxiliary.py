"""Auxiliary losses against loops written from the papers' equations and the released code."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from cse_cli.errors import UsageError
from cse_cli.maths import barlow_twins, dimension_wise, masked_lm, replaced_token_detection
from tests.naive import columns, cos, dot, draw, log_softmax_at, mean

N, D = 6, 4
CLOSE = {"rtol": 1e-7, "atol": 1e-10}


def views():
    return draw(N, D, seed=1), draw(N, D, seed=2)


def close(ours, expected):
    torch.testing.assert_close(ours, torch.as_tensor(expected, dtype=ours.dtype), **CLOSE)


def centred(column):
    return [value - mean(column) for value in column]


# --- dimension-wise contrastive learning


def standardised(column, divisor, epsilon):
    c = centred(column)
    deviation = math.sqrt(dot(c, c) / divisor + epsilon)
    return [value / deviation for value in c]


def test_dimension_wise_is_equation_5():
    z1, z2 = views()
    u1 = [standardised(c, N - 1, 0) for c in columns(z1)]
    u2 = [standardised(c, N - 1, 0) for c in columns(z2)]
    a = [[dot(u1[c], u2[d]) / 5.0 for d in range(D)] for c in range(D)]
    close(dimension_wise(z1, z2), -sum(log_softmax_at(a[c], c) for c in range(D)))


def test_dimension_wise_released_reduction():
    z1, z2 = views()
    u1 = [standardised(c, N, 1e-5) for c in columns(z1)]
    u2 = [standardised(c, N, 1e-5) for c in columns(z2)]
    a = [[dot(u1[c], u2[d]) / N / 0.5 for d in range(D)] for c in range(D)]
    expected = -mean([log_softmax_at(a[c], c) for c in range(D)])
    close(dimension_wise(z1, z2, temperature=0.5, reduction="released"), expected)


@pytest.mark.parametrize("reduction", ["paper", "released"])
def test_dimension_wise_survives_a_dimension_that_does_not_vary(reduction):
    z1, z2 = views()
    z1[:, 2] = 1.0
    z1.requires_grad_()
    loss = dimension_wise(z1, z2, reduction=reduction)
    loss.backward()
    assert loss.isfinite()
    assert z1.grad.isfinite().all()


def test_dimension_wise_refuses_an_unknown_reduction():
    with pytest.raises(UsageError, match="did you mean 'released'"):
        dimension_wise(*views(), reduction="release")


# --- Barlow Twins


def barlow(columns1, columns2, weight):
    loss = 0.0
    for c in range(D):
        for d in range(D):
            correlation = cos(columns1[c], columns2[d])
            loss += (1 - correlation) ** 2 if c == d else weight * correlation**2
    return loss


def test_barlow_twins_is_the_uncentred_equation():
    z1, z2 = views()
    close(barlow_twins(z1, z2), barlow(columns(z1), columns(z2), 0.013))


def test_barlow_twins_appends_the_same_artificial_rows_to_both_views():
    z1, z2 = views()
    rows = draw(3, D, seed=3)
    first, second = columns(torch.cat([z1, rows])), columns(torch.cat([z2, rows]))
    close(barlow_twins(z1, z2, 0.5, artificial=rows), barlow(first, second, 0.5))


def test_barlow_twins_centres_on_request_artificial_rows_included():
    z1, z2 = views()
    rows = draw(3, D, seed=3) + 1
    first = [centred(c) for c in columns(torch.cat([z1, rows]))]
    second = [centred(c) for c in columns(torch.cat([z2, rows]))]
    close(barlow_twins(z1, z2, artificial=rows, center=True), barlow(first, second, 0.013))
    assert barlow_twins(z1 + 5, z2, center=True) == pytest.approx(
        barlow_twins(z1, z2, center=True).item()
    )


def test_barlow_twins_of_orthogonal_dimensions_is_zero():
    z = torch.eye(D, dtype=torch.float64)
    assert barlow_twins(z, 2 * z).item() == pytest.approx(0)


def test_no_artificial_rows_change_nothing():
    z1, z2 = views()
    assert barlow_twins(z1, z2, artificial=z1[:0]) == barlow_twins(z1, z2)


# --- replaced-token detection


def rtd_case():
    scores = draw(2, 4, 2)
    replaced = torch.tensor([[0, 1, 0, 1], [1, 0, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    return scores, replaced, mask


def rtd_terms(scores, replaced, mask):
    return [
        -log_softmax_at(scores[b, t], int(replaced[b, t]))
        for b in range(2)
        for t in range(4)
        if mask[b, t]
    ]


def test_rtd_mean_ignores_padding():
    scores, replaced, mask = rtd_case()
    expected = mean(rtd_terms(scores, replaced, mask))
    close(replaced_token_detection(scores, replaced, mask), expected)
    scores[mask == 0] = math.nan  # what padding holds is arbitrary
    close(replaced_token_detection(scores, replaced.bool(), mask.bool()), expected)


def test_rtd_sum_adds_up_all_tokens():
    case = rtd_case()
    close(replaced_token_detection(*case, reduction="sum"), sum(rtd_terms(*case)))


def test_rtd_released_averages_over_padding_too():
    scores, replaced, mask = rtd_case()
    expected = mean(rtd_terms(scores, replaced, torch.ones_like(mask)))
    close(replaced_token_detection(scores, replaced, mask, reduction="released"), expected)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_rtd_without_a_token_is_zero_and_differentiable(reduction):
    scores, replaced, mask = rtd_case()
    scores.requires_grad_()
    loss = replaced_token_detection(scores, replaced, torch.zeros_like(mask), reduction)
    loss.backward()
    assert loss.item() == 0
    assert not scores.grad.any()


def test_rtd_refuses_an_unknown_reduction():
    with pytest.raises(UsageError, match="RTD reduction"):
        replaced_token_detection(*rtd_case(), reduction="average")


# --- masked language modelling


def test_masked_lm_averages_over_masked_tokens_only():
    logits = draw(2, 3, 5)
    labels = torch.tensor([[-100, 4, -100], [0, -100, 2]])
    where = [(0, 1), (1, 0), (1, 2)]
    expected = mean([-log_softmax_at(logits[b, t], int(labels[b, t])) for b, t in where])
    close(masked_lm(logits, labels), expected)


def test_masked_lm_without_a_masked_token_is_zero():
    logits = draw(2, 3, 5).requires_grad_()
    loss = masked_lm(logits, torch.full((2, 3), -100))
    loss.backward()
    assert loss.item() == 0
    assert not logits.grad.any()


# --- gradients and dtypes of all

CASES = {
    "dcl_paper": lambda a, b: dimension_wise(a, b),
    "dcl_released": lambda a, b: dimension_wise(a, b, reduction="released"),
    "barlow": lambda a, b: barlow_twins(a, b, artificial=b.flip(0)),
    "barlow_centred": lambda a, b: barlow_twins(a, b, center=True),
    "rtd": lambda a, b: replaced_token_detection(
        torch.stack([a, b], -1), torch.ones(N, D), torch.ones(N, D).tril()
    ),
    "mlm": lambda a, b: masked_lm(torch.stack([a, b]), torch.arange(2 * N).view(2, N) % D),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients_match_finite_differences(case):
    assert gradcheck(CASES[case], tuple(z.requires_grad_() for z in views()))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", CASES)
def test_the_dtype_is_kept(case, dtype):
    z1, z2 = views()
    assert CASES[case](z1.to(dtype), z2.to(dtype)).dtype == dtype
