"""Fast dropout is dropout, in the module and in attention; the shortcut changes nothing."""

from pathlib import Path

import pytest
import torch

from cse_cli.backbone import find_blocks
from cse_cli.dropout import (
    FastDropout,
    fast_dropout,
    first_token_only,
)
from cse_cli.encoder import Encoder
from tests.families import FAMILIES, make_family

TEXTS = ["the dog runs", "a", "the small old man sees a red ball", "woman eats"]


@pytest.mark.parametrize("p", [0.1, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rate_and_scale_are_those_of_dropout(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.ones(999, 1001, dtype=dtype)
    dropped = fast_dropout(x, p)
    kept = dropped != 0
    assert dropped.dtype == dtype
    assert kept.float().mean().item() == pytest.approx(1 - p, abs=0.002)
    assert dropped[kept].float().unique().tolist() == pytest.approx([1 / (1 - p)], rel=1e-2)
    assert abs(kept.float().mean(0) - (1 - p)).max() < 0.09  # no column is favoured
    assert abs(kept.float().mean(1) - (1 - p)).max() < 0.09


def test_neighbours_are_drawn_independently() -> None:
    torch.manual_seed(1)
    kept = (fast_dropout(torch.ones(400_000), 0.5) != 0).float() - 0.5
    for distance in (1, 2, 3, 4, 8):
        assert abs((kept[distance:] * kept[:-distance]).mean().item()) < 0.002


def test_gradient_goes_through_what_was_kept() -> None:
    x = torch.randn(50, 7, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(3)
    y = fast_dropout(x, 0.3)
    y.backward(torch.ones_like(y))
    assert x.grad is not None
    torch.testing.assert_close(x.grad * x.detach(), y.detach())


def test_the_ends_of_the_range() -> None:
    x = torch.randn(5, 3)
    assert fast_dropout(x, 0.0) is x
    assert not fast_dropout(x, 1.0).any()
    assert fast_dropout(torch.empty(0, 3), 0.5).shape == (0, 3)


def test_masks_follow_the_global_generator() -> None:
    x = torch.ones(100)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = fast_dropout(x, 0.5)
    second = fast_dropout(x, 0.5)
    torch.set_rng_state(state)
    assert torch.equal(fast_dropout(x, 0.5), first)
    assert not torch.equal(first, second)


def test_evaluation_mode_drops_nothing() -> None:
    x = torch.randn(4, 4)
    assert FastDropout(0.5).eval()(x) is x


@pytest.mark.parametrize("family", FAMILIES)
def test_the_shortcut_gives_the_same_first_token(family: str, tmp_path: Path) -> None:
    encoder = Encoder.load(str(make_family(family, tmp_path)), pooler="cls")
    ids = encoder.tokenizer(TEXTS, return_tensors="pt", padding=True)
    inputs = {"input_ids": ids["input_ids"], "attention_mask": ids["attention_mask"]}
    whole = encoder.backbone(**inputs).last_hidden_state[:, 0]
    with first_token_only(find_blocks(encoder.backbone)[-1]):
        states = encoder.backbone(**inputs).last_hidden_state
    torch.testing.assert_close(states[:, 0], whole, rtol=1e-5, atol=1e-6)
    if family in ("bert", "roberta", "xlm-roberta", "electra"):
        assert states.shape[1] == 1
    assert encoder.backbone(**inputs).last_hidden_state.shape[1] > 1  # the hook is gone
