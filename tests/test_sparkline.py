"""Curves as one line of text."""

import math

from cse_cli.sparkline import BARS, sparkline, sparklines


def test_lowest_and_highest_bars_are_the_ends() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == BARS
    assert sparkline([3.5, -2.0, 3.5]) == f"{BARS[-1]}{BARS[0]}{BARS[-1]}"


def test_a_constant_is_a_low_line() -> None:
    assert sparkline([0.4, 0.4, 0.4]) == BARS[0] * 3


def test_gaps_where_there_is_no_number() -> None:
    assert sparkline([0, math.nan, 1]) == f"{BARS[0]} {BARS[-1]}"
    assert sparkline([math.nan, math.inf]) == "  "
    assert sparkline([]) == ""


def test_long_curves_are_averaged_into_the_width() -> None:
    line = sparkline([float(i // 10) for i in range(80)], width=8)
    assert line == BARS
    assert len(sparkline(list(range(1000)), width=60)) == 60


def test_lines_say_name_and_range() -> None:
    lines = sparklines([("a", [1.0, 2.0]), ("long name", [math.nan])])
    assert lines[0] == f"a          {BARS[0]}{BARS[-1]}  1.000 to 2.000"
    assert lines[1].endswith("no value")
