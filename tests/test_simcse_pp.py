"""SimCSE++: off-dropout, DCL, Barlow Twins and the noise study against plain loops."""

import math
from pathlib import Path

import pytest
import torch

from cse_cli.attention import ATTENTION
from cse_cli.config.ingredients import (
    BarlowTwinsConfig,
    DimensionWiseConfig,
    NoiseStudyConfig,
    OffDropoutConfig,
)
from cse_cli.data.tokens import Tokens
from cse_cli.dropout import dropout_off
from cse_cli.encoder import Encoder
from cse_cli.errors import UsageError
from cse_cli.maths import barlow_twins, cosine, dimension_wise
from cse_cli.methods.base import Views
from cse_cli.methods.resolve import resolve
from cse_cli.methods.simcse_pp import BarlowTwins, DimensionWise, NoiseStudy, OffDropout
from cse_cli.training.step import objective
from tests.trainer import make_trainer

TAU = 0.05
N = 4


def views() -> Views:
    g = torch.Generator().manual_seed(7)
    h, p, clean = (torch.randn(N, 6, generator=g, dtype=torch.float64) for _ in range(3))
    passes = tuple(torch.randn(3, N, 6, generator=g, dtype=torch.float64) for _ in range(2))
    tokens = Tokens.from_rows([[2, 3]] * N, 0)
    return Views(h, p, tokens, tokens, TAU, 3, 1, clean=clean, passes=passes)


def e(a: torch.Tensor, b: torch.Tensor, scale: float = 1.0) -> float:
    return math.exp(scale * float(a @ b / (a.norm() * b.norm())) / TAU)


# ------------------------------------------------------------------------------------- off-dropout


@pytest.mark.parametrize("m", [0.5, 0.9, 1.0, 1.2])
@pytest.mark.parametrize("mode", ["negatives", "logit"])
def test_equation_3_by_a_loop(m: float, mode: str) -> None:
    z = views()
    part = OffDropout(OffDropoutConfig(off_dropout_m=m, m_mode=mode), None)
    total = 0.0
    for i in range(N):
        own = e(z.h[i], z.p[i], m if mode == "logit" else 1.0)
        others = sum(e(z.clean[i], z.clean[j]) for j in range(N) if j != i)
        total -= math.log(own / (own + (m if mode == "negatives" else 1.0) * others))
    assert math.isclose(float(objective(z, [part])[0]), total / N, rel_tol=1e-7)


def test_the_modes_agree_at_m_1() -> None:
    one, other = (
        objective(views(), [OffDropout(OffDropoutConfig(1.0, mode), None)])[0]
        for mode in ("negatives", "logit")
    )
    assert torch.equal(one, other)


@pytest.mark.parametrize("attention", [ATTENTION, "eager", "sdpa"])
def test_the_clean_pass_has_no_dropout_and_the_views_have(
    attention: str, tiny_bert: Path, corpus_file: Path
) -> None:
    t = make_trainer(tiny_bert, corpus_file, ["off-dropout"])
    assert t.encoder.backbone.config._attn_implementation == ATTENTION
    t.encoder.backbone.set_attn_implementation(attention)
    outcome = t.measure(1)
    z = outcome.views
    with torch.no_grad(), dropout_off(t.encoder):
        expected = t.encoder.head(t.encoder.pooled(z.tokens).last)
        torch.testing.assert_close(z.clean, expected)
    assert torch.equal(z.clean, t.measure(1).views.clean)
    assert not torch.allclose(z.h, z.p)  # dropout lives on in the views
    assert all(m.training for m in t.encoder.modules())


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_attention_dropout_alone_is_on_and_off_too(
    attention: str, tiny_bert: Path, corpus_file: Path
) -> None:
    """Attention reads its own training flag: with hidden dropout at 0 the views still differ."""
    encoder = Encoder.load(str(tiny_bert), pooler="cls")
    t = make_trainer(tiny_bert, corpus_file)
    tokens = t.batch(1).tokens
    encoder.backbone.set_attn_implementation(attention)
    encoder.train()
    for module in encoder.modules():
        if isinstance(module, torch.nn.Dropout):
            module.eval()
    with torch.no_grad():
        first, second = encoder.pooled(tokens).last, encoder.pooled(tokens).last
        assert not torch.equal(first, second)
        with dropout_off(encoder.backbone):
            first, second = encoder.pooled(tokens).last, encoder.pooled(tokens).last
        assert torch.equal(first, second)


def test_gradient_flows_through_the_clean_pass(tiny_bert: Path, corpus_file: Path) -> None:
    t = make_trainer(tiny_bert, corpus_file, ["off-dropout"])
    t.measure(1)
    with_clean = [p.grad.clone() for p in t.encoder.backbone.parameters() if p.grad is not None]
    t.parts[0].logits = lambda z, s: OffDropout.logits(  # the clean pass cut off
        t.parts[0], _replaced(z, clean=z.clean.detach()), s
    )
    t.measure(1)
    without = [p.grad for p in t.encoder.backbone.parameters() if p.grad is not None]
    assert any(not torch.allclose(a, b) for a, b in zip(with_clean, without, strict=True))


def _replaced(z: Views, **fields: object) -> Views:
    from dataclasses import replace

    return replace(z, **fields)


# --------------------------------------------------------------------------------------------- DCL


@pytest.mark.parametrize("reduction", ["paper", "released"])
def test_dcl_is_added_with_its_weight(reduction: str) -> None:
    z = views()
    config = DimensionWiseConfig(dcl_weight=0.3, dcl_temperature=2.0, dcl_reduction=reduction)
    loss, terms, _ = objective(z, [DimensionWise(config, None)])
    plain, _, _ = objective(z, [])
    expected = plain + 0.3 * dimension_wise(z.h, z.p, 2.0, reduction)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(terms["DimensionWise"], expected - plain)


def test_training_defaults_to_the_released_reduction() -> None:
    (_, config) = resolve({"method": "simcse-pp"}).parts[1]
    assert (config.dcl_weight, config.dcl_temperature) == (0.1, 5.0)
    assert config.dcl_reduction == "released"


def test_dcl_never_uses_the_clean_pass() -> None:
    z = views()
    part = DimensionWise(DimensionWiseConfig(), None)
    assert torch.equal(part.loss(z, z.h), part.loss(_replaced(z, clean=None), z.h))


def test_dcl_alone() -> None:
    z = _replaced(views(), contrastive_weight=0.0)
    loss, _, _ = objective(z, [DimensionWise(DimensionWiseConfig(), None)])
    torch.testing.assert_close(loss, 0.1 * dimension_wise(z.h, z.p, 5.0, "released"))


# ------------------------------------------------------------------------------------ Barlow Twins


@pytest.mark.parametrize("center", [False, True])
def test_artificial_rows_join_both_views(center: bool) -> None:
    z = views()
    config = BarlowTwinsConfig(bt_weight=0.2, bt_artificial=9, bt_center=center)
    rows = torch.randn(9, 6, generator=z.rng("barlow-twins")).double()
    expected = 0.2 * barlow_twins(torch.cat([z.h, rows]), torch.cat([z.p, rows]), center=center)
    torch.testing.assert_close(BarlowTwins(config, None).loss(z, z.h), expected)


def test_without_artificial_rows_the_correlation_has_the_rank_of_the_batch() -> None:
    z = views()
    config = BarlowTwinsConfig(bt_weight=1.0, bt_artificial=0)
    torch.testing.assert_close(
        BarlowTwins(config, None).loss(z, z.h), barlow_twins(z.h, z.p, 0.013)
    )


# ------------------------------------------------------------------------------------- noise study


@pytest.mark.parametrize("place", ["pos", "neg"])
def test_less_noise_is_the_mean_of_the_passes(place: str) -> None:
    z = views()
    config = NoiseStudyConfig(noise_study=place + "-", noise_passes=3)
    s = cosine(z.h, z.p) / TAU
    changed = NoiseStudy(config, None).logits(z, s)
    means = [x.mean(0) for x in z.passes]
    for i in range(N):
        for j in range(N):
            ours = (i == j) == (place == "pos")
            a, b = (means[0][i], means[1][j]) if ours else (z.h[i], z.p[j])
            torch.testing.assert_close(changed[i, j].exp().item(), e(a, b))


@pytest.mark.parametrize("place", ["pos", "neg"])
def test_more_noise_has_the_variance_of_the_table(place: str) -> None:
    z = _replaced(views(), h=torch.zeros(200, 500), p=torch.zeros(200, 500))
    part = NoiseStudy(NoiseStudyConfig(noise_study=place + "+"), None)
    h, p = part._noisier(z)
    assert abs(h.var().item() - 0.1) < 0.002
    assert abs(torch.corrcoef(torch.stack([h.flatten(), p.flatten()]))[0, 1]) < 0.02
    changed = part.logits(z, torch.zeros(200, 200))
    kept = changed.diagonal() if place == "neg" else changed[~torch.eye(200, dtype=torch.bool)]
    assert (kept == 0).all()


def test_k_fresh_passes_of_both_views(tiny_bert: Path, corpus_file: Path) -> None:
    t = make_trainer(tiny_bert, corpus_file, ["noise-study"], noise_study="neg-", noise_passes=3)
    z = t.step(1).views
    rows = torch.cat([z.h[None], z.p[None], *z.passes])  # (2 + 2K, N, D)
    assert rows.shape == (8, 8, 32)
    for i in range(8):
        for j in range(i):
            assert not torch.allclose(rows[i], rows[j])


def test_it_refuses_off_dropout_before_anything_is_loaded() -> None:
    with pytest.raises(UsageError, match="'off-dropout' and 'noise-study' both replace"):
        resolve({"method": "simcse-pp", "with_": ("noise-study",)})


@pytest.mark.parametrize(
    ("name", "value"),
    [("off_dropout_m", -1.0), ("m_mode", "logits"), ("dcl_weight", -0.1),
     ("dcl_temperature", 0.0), ("dcl_reduction", "sum")],
)  # fmt: skip
def test_bad_values_are_refused(name: str, value: object) -> None:
    with pytest.raises(UsageError, match="--" + name.replace("_", "-")):
        resolve({"method": "simcse-pp", name: value})
