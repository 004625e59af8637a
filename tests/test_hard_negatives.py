"""Supervised SimCSE: the loss against a plain loop, and triplet files from end to end."""

import math
from pathlib import Path

import pytest
import torch

from cse_cli.config.ingredients import HardNegativesConfig
from cse_cli.data.tokens import Tokens
from cse_cli.errors import InputError, UsageError
from cse_cli.methods.base import Views
from cse_cli.methods.hard_negatives import HardNegatives
from cse_cli.methods.resolve import resolve
from cse_cli.training.step import objective
from tests.trainer import COLUMNS, make_trainer, write_triplets

TAU = 0.05


def views(weights: torch.Tensor | None = None) -> Views:
    g = torch.Generator().manual_seed(7)
    h, p, hard = (torch.randn(4, 6, generator=g, dtype=torch.float64) for _ in range(3))
    tokens = Tokens.from_rows([[2, 3]] * 4, 0)
    return Views(h, p, tokens, tokens, TAU, 3, 1, hard=hard, weights=weights)


@pytest.mark.parametrize("hard_weight", [1.0, 0.25, 0.0])
@pytest.mark.parametrize("weights", [None, [1.0, 0.5, 0.0, 2.0]])
def test_the_loss_by_a_loop(hard_weight: float, weights: list[float] | None) -> None:
    z = views(None if weights is None else torch.tensor(weights))
    part = HardNegatives(HardNegativesConfig(hard_weight=hard_weight), None)
    loss, _, _ = objective(z, [part])

    def e(a: torch.Tensor, b: torch.Tensor) -> float:
        return math.exp(float(a @ b / (a.norm() * b.norm())) / TAU)

    total = 0.0
    for i in range(4):
        below = 0.0
        for j in range(4):
            w = hard_weight * (weights[i] if weights else 1.0) if i == j else 1.0
            below += e(z.h[i], z.p[j]) + w * e(z.h[i], z.hard[j])
        total -= math.log(e(z.h[i], z.p[i]) / below)
    assert math.isclose(float(loss), total / 4, rel_tol=1e-7)


def test_weight_0_leaves_finite_gradients() -> None:
    z = views(torch.zeros(4))
    z.hard.requires_grad_()
    objective(z, [HardNegatives(HardNegativesConfig(), None)])[0].backward()
    assert z.hard.grad.isfinite().all()


def test_a_triplet_file_trains_with_its_weights(
    tiny_bert: Path, sentences: list[str], tmp_path: Path
) -> None:
    weights = [0.5 * (i % 3) for i in range(32)]
    file = write_triplets(tmp_path / "t.tsv", sentences[:32], weights)
    t = make_trainer(
        tiny_bert, file, (), triplet_columns=COLUMNS, weight_column="weight", batch_size=32
    )
    assert t.run.ingredients == ["hard-negatives"]  # the third column brings it
    batch = t.batch(1)
    decode = t.encoder.tokenizer.batch_decode
    anchors = decode(batch.tokens.ids, skip_special_tokens=True)
    hard = decode(batch.hard.ids, skip_special_tokens=True)
    places = [sentences.index(a) for a in anchors]
    assert [sentences.index(h) for h in hard] == [(i + 1) % 32 for i in places]
    assert batch.weights.tolist() == [weights[i] for i in places]
    assert t.step(1).loss.isfinite()
    assert t.encoder.keep_head  # the tanh head stays at evaluation


def test_pairs_alone_need_no_ingredient(
    tiny_bert: Path, sentences: list[str], tmp_path: Path
) -> None:
    file = write_triplets(tmp_path / "t.tsv", sentences[:16])
    t = make_trainer(tiny_bert, file, (), triplet_columns="sent0,sent1")
    assert t.run.ingredients == []
    assert t.step(1).loss.isfinite()


def test_a_file_without_the_column_is_refused(
    tiny_bert: Path, sentences: list[str], tmp_path: Path
) -> None:
    file = write_triplets(tmp_path / "t.tsv", sentences[:16])
    with pytest.raises((InputError, UsageError), match="hard"):
        make_trainer(tiny_bert, file, (), triplet_columns="sent0,sent1,hard")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"with_": ("hard-negatives",)}, "needs --triplet-columns"),
        ({"with_": ("hard-negatives",), "triplet_columns": "a,b"}, "needs --triplet-columns"),
        ({"triplet_columns": "a"}, "ANCHOR,POSITIVE"),
        ({"triplet_columns": "a,b,c,d"}, "ANCHOR,POSITIVE"),
        ({"triplet_columns": "a,,c"}, "ANCHOR,POSITIVE"),
        ({"weight_column": "w"}, "--weight-column"),
        ({"hard_weight": 0.5}, "--hard-weight belongs to 'hard-negatives'"),
        ({"triplet_columns": "a,b,c", "hard_weight": -1.0}, "--hard-weight"),
    ],
)
def test_contradictory_options_are_refused(values: dict[str, object], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        resolve(values)
