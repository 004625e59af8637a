"""GS-InfoNCE: the loss against a plain loop, and what the noise is."""

import math
from pathlib import Path

import pytest
import torch

from cse_cli.config.ingredients import GaussianNoiseConfig
from cse_cli.data.tokens import Tokens
from cse_cli.errors import UsageError
from cse_cli.maths import cosine
from cse_cli.methods.base import Views
from cse_cli.methods.gs_infonce import GaussianNoise
from cse_cli.methods.resolve import resolve
from cse_cli.training.step import objective
from tests.trainer import make_trainer

TAU = 0.05


def views(step: int = 1, n: int = 4, width: int = 6) -> Views:
    g = torch.Generator().manual_seed(7)
    h, p = (torch.randn(n, width, generator=g, dtype=torch.float64) for _ in range(2))
    tokens = Tokens.from_rows([[2, 3]] * n, 0)
    return Views(h.requires_grad_(), p.requires_grad_(), tokens, tokens, TAU, 3, step)


def noise_of(config: GaussianNoiseConfig, z: Views, count: int) -> torch.Tensor:
    drawn = torch.randn(count, z.h.shape[1], generator=z.rng("gaussian-noise")).double()
    return config.noise_mean + config.noise_std * drawn


@pytest.mark.parametrize(
    "config",
    [
        GaussianNoiseConfig(),
        GaussianNoiseConfig(noise_count="5", noise_weight=0.3, noise_mean=0.2, noise_std=0.5),
    ],
)
def test_equation_2_by_a_loop(config: GaussianNoiseConfig) -> None:
    z = views()
    loss, _, _ = objective(z, [GaussianNoise(config, None)])
    n = len(z.h)
    noise = noise_of(config, z, 3 * n if config.noise_count == "3x" else 5)

    def e(a: torch.Tensor, b: torch.Tensor) -> float:
        return math.exp((a @ b / (a.norm() * b.norm())).item() / TAU)

    total = 0.0
    for i in range(n):
        below = sum(e(z.h[i], z.p[j]) for j in range(n))
        below += config.noise_weight * sum(e(g, z.h[i]) for g in noise)
        total -= math.log(e(z.h[i], z.p[i]) / below)
    assert math.isclose(loss.item(), total / n, rel_tol=1e-7)


def test_redrawn_at_every_step_and_the_same_for_a_step_taken_again() -> None:
    part = GaussianNoise(GaussianNoiseConfig(), None)
    first, again, next_step = (part.negatives(views(step)) for step in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, next_step)


def test_cosine_removes_the_scale_at_mean_0() -> None:
    one, half = (
        GaussianNoise(GaussianNoiseConfig(noise_std=std), None).negatives(views())
        for std in (1.0, 0.1)
    )
    torch.testing.assert_close(one, half)
    shifted = GaussianNoise(GaussianNoiseConfig(noise_std=0.1, noise_mean=1.0), None)
    assert not torch.allclose(one, shifted.negatives(views()))


def test_no_noise_and_no_weight_are_no_column() -> None:
    assert GaussianNoise(GaussianNoiseConfig(noise_count="0"), None).negatives(views()).shape == (
        4,
        0,
    )
    assert GaussianNoise(GaussianNoiseConfig(noise_weight=0.0), None).negatives(views()).shape == (
        4,
        0,
    )


def test_the_noise_does_not_pass_the_head_and_the_anchor_does(
    tiny_bert: Path, corpus_file: Path
) -> None:
    t = make_trainer(tiny_bert, corpus_file, ["gaussian-noise"])
    z = t.measure().views
    drawn = torch.randn(24, 32, generator=z.rng("gaussian-noise"))
    torch.testing.assert_close(t.parts[0].negatives(z), cosine(z.h, drawn) / z.temperature)


@pytest.mark.parametrize("value", ["-3", "3y", "1.5", "x", "inf"])
def test_bad_counts_are_refused(value: str) -> None:
    with pytest.raises(UsageError, match=f"--noise-count {value}: a number of rows"):
        resolve({"method": "gs-infonce", "noise_count": value})
