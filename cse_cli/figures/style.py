"""The one look of every figure: size, type, colours, where the legend goes, how it is saved.

A figure is one column of a two-column paper wide (or both columns), its text is 8 pt there, dark
on white. The colours are Okabe and Ito's, which people with any colour blindness tell apart; each
also has its own marker and dashes, so that a figure survives a black-and-white printer.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from cse_cli.errors import UsageError
from cse_cli.files import check_writable, whole_file

COLUMN = 3.35  # inches: one column of a two-column paper
FORMATS = (".png", ".svg", ".pdf")
INK = "#1a1a1a"
MUTED = "#6b6b6b"
HANDLE, LETTER = 0.5, 0.062  # inches that a legend's sign and one letter of its text take
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.2, 1.2, 1.2)))

_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 6,
    "axes.labelsize": 8,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "text.parse_math": False,  # a token or a label may hold dollar signs
    "lines.linewidth": 1.5,
    "lines.markersize": 4,
    "lines.markeredgewidth": 0,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "legend.handlelength": 3.2,
    "figure.facecolor": "white",
    "savefig.dpi": 300,
    "pdf.fonttype": 42,  # real, searchable type
    "svg.hashsalt": "cse",  # the same numbers give the same bytes
}


@dataclass(frozen=True)
class Look:
    """How one series is drawn."""

    colour: str
    marker: str
    dashes: Any


def look(colour: int, dashes: int | None = None) -> Look:
    """The look of series number `colour`; beyond seven, colours return with other dashes."""
    style = colour // len(COLOURS) if dashes is None else dashes
    return Look(
        COLOURS[colour % len(COLOURS)],
        MARKERS[colour % len(MARKERS)],
        DASHES[style % len(DASHES)],
    )


@contextmanager
def styled() -> Iterator[None]:
    """Draw in this project's look, whatever the user's own matplotlib settings are."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def grid(panels: int, *, height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of `panels` axes, each one paper column wide and `height` inches high."""
    rows = -(-panels // columns)
    figure = Figure(figsize=(COLUMN * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for unused in axes[panels:]:
        unused.remove()
    return figure, axes[:panels]


def caption(figure: Figure, text: str) -> None:
    """A line above all panels that says what was measured."""
    _grow(figure, 0.2)
    text = shortened(text, int(figure.get_figwidth() / LETTER))
    figure.suptitle(text, fontsize=7.5, color=MUTED, x=0.01, horizontalalignment="left")


def shortened(label: str, most: int) -> str:
    """At most `most` letters; the end of a long name, which tells paths apart, is kept."""
    return label if len(label) <= most else f"…{label[1 - most :]}"


def legend(figure: Figure, entries: Sequence[tuple[Any, str]]) -> None:
    """One legend for all panels, below them: it never covers data, and the figure grows by it.

    `entries` are (handle, label). It takes as many columns as fit the figure's width.
    """
    if not entries:
        return
    width = figure.get_figwidth()
    handles = [handle for handle, _ in entries]
    labels = [shortened(label, int((width - HANDLE) / LETTER)) for _, label in entries]
    columns = int(width / (HANDLE + LETTER * max(map(len, labels))))
    columns = max(1, min(len(labels), columns))
    _grow(figure, 0.08 + 0.16 * -(-len(labels) // columns))
    # Matplotlib hides labels that begin with an underscore; a space of no width saves them.
    shown = ["\u200b" + label if label.startswith("_") else label for label in labels]
    figure.legend(handles, shown, loc="outside lower center", ncols=columns)


def _grow(figure: Figure, inches: float) -> None:
    figure.set_figheight(figure.get_figheight() + inches)


def check_figure_path(path: str | Path) -> Path:
    """`path`, or UsageError for another extension, OutputError where nothing can be written there.

    Called before anything is measured, so that nobody waits for a figure that cannot be kept.
    """
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"--out {path}: a figure is {', '.join(FORMATS)}, by its extension")
    return check_writable(path)


def save(figure: Figure, path: str | Path) -> Path:
    """Write the figure as PNG, SVG or PDF by extension: whole or not at all.

    The file holds no date, so the same numbers make the same file. Errors: `check_figure_path`,
    and OutputError for a disk that fills up.
    """
    path = check_figure_path(path)
    kind = path.suffix.lower().removeprefix(".")
    stamp = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with whole_file(path) as file, styled(), warnings.catch_warnings():
        # A script that no installed font covers is drawn as boxes, which is plain to see.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing")
        figure.savefig(file, format=kind, metadata=stamp)
    return path
