"""Losses and extra columns against loops written from the papers' equations."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from cse_cli.errors import UsageError
from cse_cli.maths import (
    cosine,
    gaussian_negatives,
    info_nce,
    layer_negatives,
    off_dropout,
    queue_negatives,
    sscl_literal_negatives,
)
from tests.naive import cos, draw, mean

N, D, M, K, TAU = 5, 4, 7, 2, 0.05
CLOSE = {"rtol": 1e-7, "atol": 1e-10}


def s(a, b):
    return cos(a, b) / TAU


def views():
    return draw(N, D, seed=1), draw(N, D, seed=2)


def in_batch(z1, z2):
    return cosine(z1, z2) / TAU


def close(ours, expected):
    torch.testing.assert_close(ours, torch.as_tensor(expected, dtype=ours.dtype), **CLOSE)


# --- cosine


def test_cosine_is_pairwise():
    a, b = draw(3, D), draw(M, D, seed=1)
    close(cosine(a, b), [[cos(x, y) for y in b] for x in a])


def test_cosine_of_a_zero_vector_is_zero_with_a_finite_gradient():
    a = torch.stack([torch.zeros(D), torch.ones(D)]).double().requires_grad_()
    result = cosine(a, a)
    assert result.tolist() == [[0, 0], [0, pytest.approx(1)]]
    result.sum().backward()
    assert a.grad.isfinite().all()


@pytest.mark.parametrize("length", [1e-30, 1e30])
def test_cosine_of_very_short_and_long_vectors_keeps_the_direction_in_single_precision(length):
    a = draw(3, D).float()
    torch.testing.assert_close(cosine(a * length, a), cosine(a, a))


def test_cosine_of_identical_rows_is_one_and_does_not_depend_on_scale():
    a = draw(3, D)
    close(cosine(a, 3 * a).diagonal(), [1.0] * 3)


# --- InfoNCE and its columns


def test_info_nce_without_extra_columns_is_the_simcse_equation():
    z1, z2 = views()
    terms = [
        -math.log(math.exp(s(z1[i], z2[i])) / sum(math.exp(s(z1[i], z2[j])) for j in range(N)))
        for i in range(N)
    ]
    close(info_nce(in_batch(z1, z2)), mean(terms))


def test_info_nce_survives_logits_whose_exponentials_overflow():
    logits = torch.tensor([[1e4, 0.0], [0.0, -1e4]], requires_grad=True)
    loss = info_nce(logits)
    assert loss.item() == pytest.approx(5e3)
    loss.backward()
    assert logits.grad.isfinite().all()


def test_layer_negatives_give_the_sscl_equation():
    z1, z2 = views()
    states = draw(K, N, D, seed=3)
    extra = layer_negatives(z1, states, TAU)
    assert extra.shape == (N, K * N)
    terms = []
    for i in range(N):
        denominator = sum(
            math.exp(s(z1[i], z2[j])) + sum(math.exp(s(z1[i], states[k, j])) for k in range(K))
            for j in range(N)
        )
        terms.append(-math.log(math.exp(s(z1[i], z2[i])) / denominator))
    close(info_nce(torch.cat([in_batch(z1, z2), extra], 1)), mean(terms))


def test_sscl_literal_counts_the_own_layer_vector_n_times():
    z1, z2 = views()
    states = draw(K, N, D, seed=3)
    extra = sscl_literal_negatives(z1, states, TAU)
    assert extra.shape == (N, K)
    terms = []
    for i in range(N):
        denominator = sum(
            math.exp(s(z1[i], z2[j])) + sum(math.exp(s(z1[i], states[k, i])) for k in range(K))
            for j in range(N)
        )
        terms.append(-math.log(math.exp(s(z1[i], z2[i])) / denominator))
    close(info_nce(torch.cat([in_batch(z1, z2), extra], 1)), mean(terms))


def test_queue_negatives_give_the_esimcse_equation():
    z1, z2 = views()
    queue = draw(M, D, seed=4)
    terms = []
    for i in range(N):
        denominator = sum(math.exp(s(z1[i], z2[j])) for j in range(N))
        denominator += sum(math.exp(s(z1[i], queue[m])) for m in range(M))
        terms.append(-math.log(math.exp(s(z1[i], z2[i])) / denominator))
    logits = torch.cat([in_batch(z1, z2), queue_negatives(z1, queue, TAU)], 1)
    close(info_nce(logits), mean(terms))


def test_an_empty_queue_changes_nothing():
    z1, z2 = views()
    extra = queue_negatives(z1, torch.empty(0, D, dtype=z1.dtype), TAU)
    assert extra.shape == (N, 0)
    logits = in_batch(z1, z2)
    assert info_nce(torch.cat([logits, extra], 1)) == info_nce(logits)


def test_no_gradient_flows_into_the_queue():
    anchor, queue = draw(N, D).requires_grad_(), draw(M, D).requires_grad_()
    queue_negatives(anchor, queue, TAU).sum().backward()
    assert anchor.grad is not None
    assert queue.grad is None


@pytest.mark.parametrize("weight", [1.0, 0.25, 3.0])
def test_gaussian_negatives_give_the_gs_infonce_equation(weight):
    z1, z2 = views()
    noise = draw(M, D, seed=5)
    terms = []
    for i in range(N):
        denominator = sum(math.exp(s(z1[i], z2[j])) for j in range(N))
        denominator += weight * sum(math.exp(s(noise[k], z1[i])) for k in range(M))
        terms.append(-math.log(math.exp(s(z1[i], z2[i])) / denominator))
    logits = torch.cat([in_batch(z1, z2), gaussian_negatives(z1, noise, TAU, weight)], 1)
    close(info_nce(logits), mean(terms))


def test_a_noise_weight_of_zero_gives_no_column():
    z1, z2 = views()
    extra = gaussian_negatives(z1, draw(M, D), TAU, weight=0)
    assert extra.shape == (N, 0)
    logits = in_batch(z1, z2)
    assert info_nce(torch.cat([logits, extra], 1)) == info_nce(logits)


def test_the_noise_scale_is_immaterial():
    z1, noise = draw(N, D), draw(M, D, seed=5)
    close(gaussian_negatives(z1, 0.1 * noise, TAU), gaussian_negatives(z1, noise, TAU))


# --- off-dropout


@pytest.mark.parametrize("m", [0.5, 0.9, 1.0, 1.2])
def test_off_dropout_gives_equation_3(m):
    z1, z2 = views()
    clean = draw(N, D, seed=6)
    terms = []
    for i in range(N):
        positive = math.exp(s(z1[i], z2[i]))
        others = sum(math.exp(s(clean[i], clean[j])) for j in range(N) if j != i)
        terms.append(-math.log(positive / (positive + m * others)))
    close(info_nce(off_dropout(in_batch(z1, z2), clean, TAU, m)), mean(terms))


@pytest.mark.parametrize("m", [0.5, 0.9, 1.2])
def test_off_dropout_logit_mode_scales_the_positive_logit(m):
    z1, z2 = views()
    clean = draw(N, D, seed=6)
    terms = []
    for i in range(N):
        positive = math.exp(m * s(z1[i], z2[i]))
        others = sum(math.exp(s(clean[i], clean[j])) for j in range(N) if j != i)
        terms.append(-math.log(positive / (positive + others)))
    logits = off_dropout(in_batch(z1, z2), clean, TAU, m, mode="logit")
    assert logits.shape == (N, N)
    close(info_nce(logits), mean(terms))


def test_off_dropout_logit_mode_equals_weighting_the_negatives_by_exp_1_minus_m_s():
    z1, z2 = views()
    clean = draw(N, D, seed=6)
    m = 0.9
    terms = []
    for i in range(N):
        positive = math.exp(s(z1[i], z2[i]))
        others = sum(math.exp(s(clean[i], clean[j])) for j in range(N) if j != i)
        weight = math.exp((1 - m) * s(z1[i], z2[i]))
        terms.append(-math.log(positive / (positive + weight * others)))
    close(info_nce(off_dropout(in_batch(z1, z2), clean, TAU, m, mode="logit")), mean(terms))


def test_off_dropout_modes_agree_at_m_1():
    z1, z2 = views()
    clean = draw(N, D, seed=6)
    logits = in_batch(z1, z2)
    literal = off_dropout(logits, clean, TAU, 1.0)
    assert torch.equal(literal, off_dropout(logits, clean, TAU, 1.0, mode="logit"))
    assert torch.equal(literal.diagonal(), logits.diagonal())


def test_off_dropout_with_m_0_leaves_no_negatives():
    z1, z2 = views()
    z1.requires_grad_()
    loss = info_nce(off_dropout(in_batch(z1, z2), z1, TAU, 0.0))
    loss.backward()
    assert loss.item() == 0
    assert z1.grad.isfinite().all()


def test_off_dropout_names_the_nearest_mode():
    with pytest.raises(UsageError, match="did you mean 'negatives'"):
        off_dropout(torch.eye(2), torch.eye(2), TAU, mode="negative")


# --- gradients and dtypes of all

CASES = {
    "cosine": lambda a, b: cosine(a, b),
    "info_nce": lambda a, b: info_nce(a @ b.T),
    "layer_negatives": lambda a, b: layer_negatives(a, torch.stack([b, b.flip(0)]), TAU),
    "sscl_literal": lambda a, b: sscl_literal_negatives(a, torch.stack([b, b.flip(0)]), TAU),
    "queue_negatives": lambda a, b: queue_negatives(a, views()[1].to(a), TAU) * b.sum(),
    "gaussian_negatives": lambda a, b: gaussian_negatives(a, b, TAU, 0.5),
    "off_dropout": lambda a, b: off_dropout(a @ b.T, b, TAU, 0.9),
    "off_dropout_logit": lambda a, b: off_dropout(a @ b.T, b, TAU, 0.9, mode="logit"),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients_match_finite_differences(case):
    inputs = tuple(z.requires_grad_() for z in views())
    assert gradcheck(CASES[case], inputs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", CASES)
def test_the_dtype_is_kept(case, dtype):
    z1, z2 = views()
    assert CASES[case](z1.to(dtype), z2.to(dtype)).dtype == dtype
