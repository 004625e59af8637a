"""Grouping by length: every row once, and no more padding than promised."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cse_cli.batching import budget_groups, step_groups

lengths_of_rows = st.lists(st.integers(1, 40), min_size=1, max_size=200)


def cost(groups: list[np.ndarray], lengths: list[int], launch: int) -> int:
    return sum(len(g) * max(lengths[i] for i in g) + launch for g in groups)


@given(lengths_of_rows, st.integers(0, 500))
def test_step_groups_hold_every_row_once(lengths: list[int], launch: int) -> None:
    groups = step_groups(lengths, launch)
    assert sorted(np.concatenate(groups).tolist()) == list(range(len(lengths)))


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.integers(0, 12))
def test_step_groups_are_the_cheapest_cuts(lengths: list[int], launch: int) -> None:
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    best = min(
        cost(
            [np.array(g) for g in _split(order, cuts)],
            lengths,
            launch,
        )
        for cuts in product([False, True], repeat=len(lengths) - 1)
    )
    assert cost(step_groups(lengths, launch), lengths, launch) == best


def _split(order: list[int], cuts: tuple[bool, ...]) -> list[list[int]]:
    groups = [[order[0]]]
    for row, cut in zip(order[1:], cuts, strict=True):
        if cut:
            groups.append([])
        groups[-1].append(row)
    return groups


def test_a_dear_launch_makes_one_group_and_a_free_one_one_per_length() -> None:
    assert len(step_groups([3, 9, 3, 5], 10**6)) == 1
    assert len(step_groups([3, 9, 3, 5], 0)) == 3


@given(lengths_of_rows, st.integers(1, 300))
def test_budget_groups_hold_every_row_once_within_the_budget(
    lengths: list[int], tokens: int
) -> None:
    groups = budget_groups(lengths, tokens)
    assert sorted(np.concatenate(groups).tolist()) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or len(group) * max(lengths[i] for i in group) <= tokens


def test_no_rows_make_no_groups() -> None:
    assert budget_groups([], 10) == []
