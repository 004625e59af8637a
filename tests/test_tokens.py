"""Token batches: padding, selection and joining keep every row as it was."""

import pytest
import torch

from cse_cli.data.tokens import Tokens

ROWS = [[2, 7, 8, 3], [2, 3], [2, 9, 3]]
STARTS = [[False, True, False, False], [False, False], [False, True, False]]
PAD = 5


def batch() -> Tokens:
    return Tokens.from_rows(ROWS, PAD, STARTS)


def rows_of(tokens: Tokens) -> list[list[int]]:
    return [ids[:n].tolist() for ids, n in zip(tokens.ids, tokens.lengths, strict=True)]


def test_rows_are_padded_on_the_right_with_the_pad_id():
    tokens = batch()
    assert tokens.ids.tolist() == [[2, 7, 8, 3], [2, 3, PAD, PAD], [2, 9, 3, PAD]]
    assert tokens.mask.tolist() == [[True] * 4, [True, True, False, False], [True] * 3 + [False]]
    assert (tokens.ids.dtype, tokens.lengths.dtype) == (torch.int64, torch.int64)
    assert tokens.starts.dtype == tokens.mask.dtype == torch.bool
    assert tokens.starts.nonzero().tolist() == [[0, 1], [2, 1]]


def test_select_takes_rows_in_the_order_asked_for():
    chosen = batch().select(torch.tensor([2, 0, 2]))
    assert rows_of(chosen) == [ROWS[2], ROWS[0], ROWS[2]]
    assert chosen.starts.sum().item() == 3
    assert chosen.pad_id == PAD


def test_cat_pads_to_the_widest_and_keeps_every_row():
    narrow = Tokens.from_rows([[2, 3]], PAD)
    joined = Tokens.cat([narrow, batch()])
    assert joined.ids.shape == (4, 4)
    assert rows_of(joined) == [[2, 3], *ROWS]
    assert joined.ids[0].tolist() == [2, 3, PAD, PAD]
    assert joined.starts.sum().item() == batch().starts.sum().item()


def test_a_batch_cannot_be_cut_by_widening():
    with pytest.raises(ValueError, match="cannot widen 4 tokens to 3"):
        batch().widened(3)
    assert batch().widened(6).ids[0].tolist() == [2, 7, 8, 3, PAD, PAD]


def test_no_rows_make_an_empty_batch():
    empty = Tokens.from_rows([], PAD)
    assert len(empty) == 0
    assert empty.ids.shape == (0, 0)
