"""A curve in one line of text, for a terminal without a figure."""

import math
from collections.abc import Sequence
from itertools import pairwise

BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """The curve as bars between its smallest and largest value; a gap where it is not finite.

    More than `width` values are averaged in equal parts. A constant curve is a low line.
    """
    values = _shorten(values, width)
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return " " * len(values)
    low, span = min(finite), max(finite) - min(finite)

    def bar(value: float) -> str:
        if not math.isfinite(value):
            return " "
        return BARS[round((value - low) / span * (len(BARS) - 1))] if span else BARS[0]

    return "".join(map(bar, values))


def sparklines(curves: Sequence[tuple[str, Sequence[float]]], digits: int = 3) -> list[str]:
    """One line a curve: its name, its bars, its smallest and largest value."""
    widest = max((len(name) for name, _ in curves), default=0)
    lines = []
    for name, values in curves:
        finite = [value for value in values if math.isfinite(value)]
        ends = f"{min(finite):.{digits}f} to {max(finite):.{digits}f}" if finite else "no value"
        lines.append(f"{name:<{widest}}  {sparkline(values)}  {ends}")
    return lines


def _shorten(values: Sequence[float], width: int) -> list[float]:
    if len(values) <= width:
        return list(values)
    cuts = [round(i * len(values) / width) for i in range(width + 1)]
    parts = [values[start:end] for start, end in pairwise(cuts)]
    return [sum(part) / len(part) for part in parts]
