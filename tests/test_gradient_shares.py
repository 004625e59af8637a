"""The share of each loss term in the gradient, against one backward pass a term."""

import dataclasses
from pathlib import Path

import pytest
import torch

from cse_cli.lanes import LANES
from cse_cli.methods import INGREDIENTS
from cse_cli.training.shares import gradient_shares
from tests.trainer import Trainer, make_trainer, write_triplets


def test_two_terms_by_hand() -> None:
    leaf = torch.tensor([3.0, 4.0], requires_grad=True)
    other = torch.zeros(2, requires_grad=True)
    terms = {"a": leaf.sum() + other.sum(), "b": leaf.square().sum(), "c": torch.tensor(1.0)}
    shares = gradient_shares(terms, [leaf, other])
    # |(1, 1, 1, 1)| = 2, |(6, 8)| = 10
    assert shares["a"].item() == pytest.approx(2 / 12)
    assert shares["b"].item() == pytest.approx(10 / 12)
    assert shares["c"].item() == 0


@pytest.fixture
def trainer(tiny_bert: Path, corpus_file: Path) -> Trainer:
    t = make_trainer(tiny_bert, corpus_file, ["dcl", "layer-negatives"], neg_layer=("1",))
    t.config = t.config.__class__(**{**vars(t.config), "gradient_shares": 2})
    return t


def test_only_at_the_steps_asked_for(trainer: Trainer) -> None:
    assert [bool(trainer.step(step).shares) for step in (1, 2, 3, 4)] == [False, True] * 2


def test_shares_add_up_and_leave_the_gradient_as_it_is(trainer: Trainer) -> None:
    outcome = trainer.measure(2)
    assert set(outcome.shares) == {"contrastive", "DimensionWise"}
    assert sum(outcome.shares.values()).item() == pytest.approx(1)
    assert not any(value.requires_grad for value in outcome.terms.values())
    with_shares = [p.grad.clone() for p in trainer.encoder.parameters()]
    trainer.config = trainer.config.__class__(**{**vars(trainer.config), "gradient_shares": 0})
    trainer.measure(2)
    pairs = zip(with_shares, trainer.encoder.parameters(), strict=True)
    assert all(torch.equal(grad, p.grad) for grad, p in pairs)


@pytest.mark.parametrize("name", INGREDIENTS)
def test_no_ingredient_minds_being_asked(
    name: str, tiny_bert: Path, corpus_file: Path, sentences: list[str], tmp_path: Path
) -> None:
    triplets = name == "hard-negatives"
    file = write_triplets(tmp_path / "t.tsv", sentences) if triplets else corpus_file
    found = []
    for every in (1, 0):
        t = make_trainer(tiny_bert, file, [name])
        t.encoder.lanes = LANES
        t.config = dataclasses.replace(t.config, gradient_shares=every)
        outcome = t.measure(1)
        assert set(outcome.shares) == (set(outcome.terms) if every else set())
        gradients = [p.grad for m in (t.encoder, *t.parts) for p in m.parameters()]
        found.append([g for g in gradients if g is not None])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_a_weight_of_0_has_no_share(tiny_bert: Path, corpus_file: Path) -> None:
    t = make_trainer(tiny_bert, corpus_file, ["dcl"], contrastive_weight=0.0)
    t.config = t.config.__class__(**{**vars(t.config), "gradient_shares": 1})
    shares = t.step(1).shares
    assert shares["contrastive"].item() == 0
    assert shares["DimensionWise"].item() == pytest.approx(1)
