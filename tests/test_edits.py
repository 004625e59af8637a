"""Edits of token rows: what they may touch, how much of it, and what they are labelled."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cse_cli.data.tokens import Tokens
from cse_cli.methods.base import draw
from cse_cli.methods.edits import (
    NOTHING,
    Edit,
    Vocabulary,
    choose,
    corrupt,
    delete,
    edit,
    edit_counts,
    insert,
    kind_of_edit,
    mask,
    released,
)
from cse_cli.methods.generator import draw_tokens

PAD, CLS, SEP, MASK, FIRST, SIZE = 0, 1, 2, 3, 4, 60
WORDS = Vocabulary(torch.tensor([PAD, CLS, SEP]), MASK, SIZE)
KINDS = {"mask": mask, "insert": insert, "delete": delete, "released": released}

contents = st.lists(
    st.lists(st.integers(FIRST, SIZE - 1), min_size=0, max_size=30), min_size=1, max_size=8
)
ratios = st.floats(0.01, 1.0)
seeds = st.integers(0, 1000)


def rows(content: list[list[int]]) -> Tokens:
    """[CLS] content [SEP], every second token of the content a word's start."""
    ids = [[CLS, *row, SEP] for row in content]
    starts = [[False, *(i % 2 == 0 for i in range(len(row))), False] for row in content]
    return Tokens.from_rows(ids, PAD, starts)


def count(n: int, ratio: float) -> int:
    return min(n, max(1, round(ratio * n)))


def kept(tokens: Tokens, values: Tensor) -> list[list[int]]:
    return [row[:n].tolist() for row, n in zip(values, tokens.lengths, strict=True)]


@settings(deadline=None)
@given(contents, ratios, seeds)
def test_mask_hides_so_many_tokens_and_no_special_one(
    content: list[list[int]], ratio: float, seed: int
) -> None:
    tokens = rows(content)
    found = mask(tokens, ratio, WORDS, draw(seed, 1, "edit"))
    assert found.tokens.lengths.equal(tokens.lengths)
    assert found.original.equal(tokens.ids)
    for before, after, fill in zip(
        kept(tokens, tokens.ids),
        kept(tokens, found.tokens.ids),
        kept(tokens, found.fill),
        strict=True,
    ):
        assert sum(fill) == count(len(before) - 2, ratio)
        assert not fill[0]
        assert not fill[-1]
        assert after == [MASK if f else b for b, f in zip(before, fill, strict=True)]


@settings(deadline=None)
@given(contents, ratios, seeds)
def test_insert_keeps_every_token_in_order(
    content: list[list[int]], ratio: float, seed: int
) -> None:
    tokens = rows(content)
    found = insert(tokens, ratio, WORDS, draw(seed, 1, "edit"))
    marks = kept(found.tokens, found.tokens.starts)
    for i, before in enumerate(kept(tokens, tokens.ids)):
        after, fill, original = (
            kept(found.tokens, part)[i] for part in (found.tokens.ids, found.fill, found.original)
        )
        assert [t for t, f in zip(after, fill, strict=True) if not f] == before
        assert all(t == MASK for t, f in zip(after, fill, strict=True) if f)
        assert len(after) == len(before) + count(len(before) - 2, ratio)
        assert (after[0], after[-1]) == (CLS, SEP)
        assert [t == NOTHING for t in original] == fill
        assert [m for m, f in zip(marks[i], fill, strict=True) if not f] == kept(
            tokens, tokens.starts
        )[i]
    # Whatever the generator puts there, an inserted token counts as replaced, and only that one.
    assert found.replaced(found.tokens.ids).equal(found.fill)


@settings(deadline=None)
@given(contents, ratios, seeds)
def test_delete_labels_the_token_behind_a_dropped_one(
    content: list[list[int]], ratio: float, seed: int
) -> None:
    # Distinct ids make the dropped ones known from what is left.
    tokens = rows([list(range(FIRST, FIRST + len(row))) for row in content])
    found = delete(tokens, ratio, WORDS, draw(seed, 1, "edit"))
    assert not found.fill.any()
    labels = found.replaced(found.tokens.ids)
    for before, after, label in zip(
        kept(tokens, tokens.ids),
        kept(found.tokens, found.tokens.ids),
        kept(found.tokens, labels),
        strict=True,
    ):
        assert len(after) == len(before) - count(len(before) - 2, ratio)
        assert (after[0], after[-1]) == (CLS, SEP)
        assert after == [t for t in before if t in after]
        assert label == [i > 0 and before[before.index(t) - 1] not in after
                         for i, t in enumerate(after)]  # fmt: skip


@settings(deadline=None)
@given(contents, ratios, seeds)
def test_released_asks_for_every_token_but_the_first(
    content: list[list[int]], ratio: float, seed: int
) -> None:
    tokens = rows(content)
    tokens = replace(tokens, ids=tokens.ids.masked_fill(~tokens.mask, 7), pad_id=7)
    found = released(tokens, ratio, WORDS, draw(seed, 1, "edit"))
    assert found.original.equal(tokens.ids)
    assert not found.tokens.ids[~tokens.mask].any()  # padding becomes id 0
    assert found.tokens.pad_id == 0
    assert not found.fill[:, 0].any()
    assert found.fill[:, 1:].equal(tokens.mask[:, 1:])
    changed = (found.tokens.ids != tokens.ids) & tokens.mask
    special = torch.isin(tokens.ids, WORDS.special)
    assert not (changed & special).any()
    limits = [count(len(row), ratio) for row in content]
    assert all(changed.sum(1) <= torch.tensor(limits))


@settings(deadline=None)
@given(contents, ratios, seeds, st.sampled_from(list(KINDS)))
def test_padding_is_never_an_edit(
    content: list[list[int]], ratio: float, seed: int, kind: str
) -> None:
    found = edit(kind, rows(content), ratio, WORDS, draw(seed, 1, "edit"))
    padding = ~found.tokens.mask
    assert not found.fill[padding].any()
    assert not found.tokens.starts[padding].any()
    assert not found.replaced(torch.full_like(found.tokens.ids, SIZE))[padding].any()
    assert (found.tokens.ids[padding] == found.tokens.pad_id).all()
    assert found.tokens.ids.shape == found.fill.shape == found.original.shape


def test_a_recovered_token_is_original() -> None:
    tokens = rows([[10, 11, 12, 13]])
    found = mask(tokens, 0.5, WORDS, draw(0, 1, "edit"))
    assert found.fill.sum() == 2
    assert not found.replaced(tokens.ids).any()
    other = tokens.ids.masked_fill(found.fill, 20)
    assert found.replaced(other).equal(found.fill)


def test_insertion_stops_at_the_limit() -> None:
    tokens = rows([[10] * 10, [10] * 4, [10] * 12])
    found = insert(tokens, 0.5, WORDS, draw(0, 1, "edit"), limit=13)
    assert found.tokens.lengths.tolist() == [13, 8, 14]  # the last was too long to begin with
    assert insert(tokens, 0.5, WORDS, draw(0, 1, "edit")).tokens.lengths.tolist() == [17, 8, 20]


def test_all_draws_one_kind_for_the_batch_and_each_kind_at_times() -> None:
    tokens = rows([[10] * 20, [11] * 10])
    seen = []
    for seed in range(60):
        rng = draw(seed, 1, "edit")
        found = edit(kind_of_edit("all", rng), tokens, 0.3, WORDS, rng)
        grown = (found.tokens.lengths - tokens.lengths).sign().tolist()
        assert len(set(grown)) == 1
        seen.append(grown[0])
    assert all(10 <= seen.count(kind) <= 30 for kind in (-1, 0, 1))


def test_every_other_kind_is_itself_and_draws_nothing() -> None:
    rng = draw(0, 1, "edit")
    before = rng.get_state()
    assert [kind_of_edit(kind, rng) for kind in KINDS] == list(KINDS)
    assert torch.equal(rng.get_state(), before)


def test_counts_are_berts() -> None:
    content = torch.arange(41)
    expected = [count(n, 0.15) for n in range(41)]
    assert edit_counts(content, 0.15).tolist() == expected
    assert expected[:12] == [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2]


def test_positions_are_chosen_uniformly() -> None:
    eligible = torch.zeros(4000, 7, dtype=torch.bool)
    eligible[:, 1:6] = True
    chosen = choose(eligible, torch.full((4000,), 2), draw(0, 1, "choose"))
    share = chosen.double().mean(0)
    assert share[0] == share[6] == 0
    torch.testing.assert_close(share[1:6], torch.full((5,), 0.4).double(), atol=0.03, rtol=0)


def test_corruption_is_80_10_10() -> None:
    ids = torch.full((200, 100), 10)
    chosen = torch.rand(ids.shape, generator=draw(0, 1, "where")) < 0.5
    found = corrupt(ids, chosen, WORDS, draw(0, 1, "corrupt"))
    assert found[~chosen].eq(10).all()
    masked = (found[chosen] == MASK).double().mean()
    same = (found[chosen] == 10).double().mean()
    assert masked.item() == pytest.approx(0.8 + 0.1 / SIZE, abs=0.01)
    assert same.item() == pytest.approx(0.1 + 0.1 / SIZE, abs=0.01)
    assert len(found[chosen].unique()) == SIZE


def test_edits_depend_on_their_generator_only() -> None:
    tokens = rows([[10, 11, 12, 13, 14, 15]] * 4)
    for kind in KINDS:
        first, second = (edit(kind, tokens, 0.4, WORDS, draw(3, 5, "edit")) for _ in range(2))
        assert first.tokens.ids.equal(second.tokens.ids)
        assert first.original.equal(second.original)


def test_select_takes_rows() -> None:
    found = insert(rows([[10, 11], [12], [13, 14, 15]]), 0.5, WORDS, draw(0, 1, "edit"))
    some = found.select(torch.tensor([2, 0]))
    assert isinstance(some, Edit)
    assert some.tokens.lengths.tolist() == [7, 5]
    assert some.fill.equal(found.fill[[2, 0]])


def test_lots_draw_tokens_by_their_probability() -> None:
    chance = torch.tensor([0.5, 0.0, 0.3, 0.2, 0.0])
    lots = (torch.arange(10000) + 0.5) / 10000
    found = draw_tokens(chance.log().expand(10000, 5), lots)
    shares = torch.bincount(found, minlength=5) / 10000
    torch.testing.assert_close(shares, chance, atol=2e-4, rtol=0)
    edge = draw_tokens(chance.log().expand(2, 5), torch.tensor([0.0, 1.0 - 2**-24]))
    assert edge.tolist() == [0, 3]  # never a token of probability 0
    assert draw_tokens(chance.log().expand(1, 5), None).tolist() == [0]
