"""The kinds of picture: lines with a band, points in a plane, ridges, a matrix.

Every function draws into one axes and returns the legend entries it made, (handle, label), so
that all panels of a figure share one legend.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.image import AxesImage

from cse_cli.figures.style import COLOURS, INK, MUTED, Look, shortened

Entries = list[tuple[Any, str]]
# White to the palette's blue and on to ink: order is visible in grey as well.
NUMBERED = 12  # the most tokens whose cosines are legible as numbers
SEQUENTIAL = LinearSegmentedColormap.from_list("cse", ["#ffffff", "#9ecae9", COLOURS[0], "#06263d"])


@dataclass(frozen=True)
class Series:
    """One curve: `x`, `y` of equal length, and a band `low`..`high` where there is one."""

    label: str
    look: Look
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = field(default_factory=list)
    high: Sequence[float] = field(default_factory=list)


def lines(axes: Axes, series: Sequence[Series], *, markers: bool = True) -> Entries:
    """Curves with their confidence bands; NaN leaves a gap."""
    entries: Entries = []
    for one in series:
        style = one.look
        if len(one.low):
            axes.fill_between(one.x, one.low, one.high, color=style.colour, alpha=0.18, linewidth=0)
        (line,) = axes.plot(
            one.x,
            one.y,
            color=style.colour,
            linestyle=style.dashes,
            marker=style.marker if markers else "",
        )
        entries.append((line, one.label))
    return entries


def points(axes: Axes, series: Sequence[Series], notes: Sequence[str]) -> Entries:
    """One point a series, each with a short note below it; notes of near points are stacked."""
    entries: Entries = []
    for i, (one, note) in enumerate(zip(series, notes, strict=True)):
        above = sum(_near(one, other, series) for other in series[:i])
        (mark,) = axes.plot(
            one.x,
            one.y,
            color=one.look.colour,
            marker=one.look.marker,
            linestyle="",
            markersize=6,
        )
        axes.annotate(
            note,
            (one.x[0], one.y[0]),
            xytext=(0, -5 - 8 * above),
            textcoords="offset points",
            horizontalalignment="center",
            verticalalignment="top",
            fontsize=6.5,
            color=one.look.colour,
        )
        entries.append((mark, one.label))
    axes.margins(0.25)
    return entries


def _near(one: Series, other: Series, series: Sequence[Series]) -> bool:
    """Whether two points are so close, beside the spread of all, that their notes would overlap."""
    x, y = ([getattr(each, name)[0] for each in series] for name in "xy")
    aside = abs(one.x[0] - other.x[0]) <= 0.3 * (max(x) - min(x))
    return aside and abs(one.y[0] - other.y[0]) <= 0.15 * (max(y) - min(y))


def ridges(axes: Axes, groups: Sequence[str], series: Sequence[Sequence[Series]]) -> Entries:
    """Densities over one x axis, one row a group from the bottom up.

    `series[g]` are the curves of group g; all rows share one scale, so areas compare.
    """
    entries: dict[str, Any] = {}
    peak = max((max(one.y) for row in series for one in row), default=1.0) or 1.0
    for height, row in enumerate(series):
        base = float(height)
        for one in row:
            y = base + 0.92 * np.asarray(one.y, dtype=float) / peak
            axes.fill_between(one.x, base, y, color=one.look.colour, alpha=0.15, linewidth=0)
            (line,) = axes.plot(
                one.x, y, color=one.look.colour, linestyle=one.look.dashes, linewidth=1.1
            )
            entries.setdefault(one.label, line)
        axes.axhline(base, color=MUTED, linewidth=0.5)
    axes.set_yticks(range(len(groups)), labels=list(groups))
    axes.set_ylim(-0.05, len(groups) + 0.02)
    axes.tick_params(axis="y", length=0)
    return [(line, label) for label, line in entries.items()]


@dataclass(frozen=True)
class Matrix:
    """A square matrix (m, m) with the same labels on both sides."""

    title: str
    labels: Sequence[str]
    values: np.ndarray


def matrix(axes: Axes, one: Matrix, *, low: float, high: float = 1.0) -> AxesImage:
    """A matrix as an image over the colours of `low` .. `high`; a small one shows its numbers."""
    image = axes.imshow(one.values, cmap=SEQUENTIAL, vmin=low, vmax=high)
    count = len(one.labels)
    size = float(np.clip(110 / count, 3.0, 7.5))
    axes.set_xticks(range(count), labels=list(one.labels), rotation=90, fontsize=size)
    axes.set_yticks(range(count), labels=list(one.labels), fontsize=size)
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.set_title(shortened(one.title, 30))
    if count <= NUMBERED:
        for (row, column), value in np.ndenumerate(one.values):
            ink = "white" if (value - low) / (high - low) > 0.55 else INK
            text = f"{value:.2f}".replace("0.", ".", 1)
            axes.text(
                column, row, text, ha="center", va="center", fontsize=min(6, 58 / count), color=ink
            )
    return image
