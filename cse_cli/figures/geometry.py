"""Pictures of a sentence space: one panel for each view of `cse geometry`."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, PercentFormatter

from cse_cli.figures.panels import Entries, Series, lines, points, ridges
from cse_cli.figures.style import DASHES, INK, MUTED, caption, grid, legend, look, styled
from cse_cli.figures.tables import models, series, task_names
from cse_cli.results import Table

PLAIN = FuncFormatter(lambda value, _: f"{value:g}")


@styled()
def draw_geometry(table: Table, views: Sequence[str]) -> Figure:
    """One panel a view, in the given order; more than one make two columns."""
    figure, panels = grid(len(views), height=2.45, columns=min(len(views), 2))
    entries: dict[str, object] = {}
    for axes, view in zip(panels, views, strict=True):
        entries |= {label: handle for handle, label in PANELS[view](axes, table)}
    caption(figure, ", ".join(task_names(table)))
    legend(figure, [(handle, label) for label, handle in entries.items()])
    return figure


def plane(axes: Axes, table: Table) -> Entries:
    """Alignment against uniformity, each point with its Spearman correlation x 100."""
    found, notes = [], []
    for i, name in enumerate(models(table)):
        x, y, score = (
            table.value(model=name, metric=metric)
            for metric in ("uniformity", "alignment", "spearman_all")
        )
        found.append(Series(name, look(i, 0), [x], [y]))
        notes.append(f"Spearman {100 * score:.1f}")
    entries = points(axes, found, notes)
    axes.set(
        title="Alignment and uniformity",
        xlabel="Uniformity (lower is better)",
        ylabel="Alignment (lower is better)",
    )
    return entries


def distribution(axes: Axes, table: Table) -> Entries:
    """Density of the cosines, one ridge a group of gold scores."""
    rows = table.where(metric="cosine_density")
    groups = sorted({row.keys["subset"] for row in rows})
    curves = [
        [
            series(
                rows, "cosine_density", "threshold", model=name, subset=group, label=name,
                look=look(i, 0),
            )
            for i, name in enumerate(models(table))
            if len(rows.where(model=name, subset=group))
        ]
        for group in groups
    ]  # fmt: skip
    entries = ridges(axes, groups, curves)
    filled = [row.keys["threshold"] for row in rows if row.value > 0]
    axes.set_xlim(min(filled) - 0.03, max(filled) + 0.03)
    axes.set(title="Cosine by gold score", xlabel="Cosine of the pair", ylabel="Gold score")
    return entries


def spectrum(axes: Axes, table: Table) -> Entries:
    """Singular values relative to the largest, on a logarithmic axis."""
    entries = lines(axes, _one_a_model(table, "singular_value", "k"), markers=False)
    axes.set_yscale("log")
    lowest = min(row.value for row in table.where(metric="singular_value") if row.value > 0)
    axes.set_ylim(max(lowest, 1e-3) / 1.5, 1.4)  # what lies below is rounding
    axes.yaxis.set_major_formatter(PLAIN)
    axes.set(title="Spectrum", xlabel="Singular value number", ylabel="Relative to the largest")
    return entries


def correlation(axes: Axes, table: Table) -> Entries:
    """How many pairs of dimensions correlate by more than x."""
    entries = lines(axes, _one_a_model(table, "correlation_share", "threshold"), markers=False)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    wide = [r.keys["threshold"] for r in table.where(metric="correlation_share") if r.value > 1e-3]
    axes.set_xlim(0, min(1.0, max(wide, default=1.0) + 0.05))
    axes.set(
        title="Correlation between dimensions",
        xlabel="Absolute correlation r",
        ylabel="Pairs of dimensions over r",
    )
    return entries


def rank(axes: Axes, table: Table) -> Entries:
    """Rank of the cross-correlation matrix over the batch size, beside the bound N."""
    curves = _one_a_model(table, "rank", "k")
    sizes = max((one.x for one in curves), key=len)
    (bound,) = axes.plot(sizes, sizes, color=MUTED, linestyle=":", linewidth=1)
    entries = lines(axes, curves)
    _powers_of_two(axes, sizes)
    axes.set_yscale("log", base=2)
    axes.set_yticks(sizes, labels=[f"{size:g}" for size in sizes])
    axes.yaxis.minorticks_off()
    axes.set(
        title="Rank of the cross-correlation",
        xlabel="Batch size N (sentences)",
        ylabel="Rank (dimensions)",
    )
    return [*entries, (bound, "Rank = N")]


def batch(axes: Axes, table: Table) -> Entries:
    """Mean of the four largest in-batch cosines; dashed: between sentences and noise."""
    mean = table.where(subset="mean")
    curves = _one_a_model(mean, "top_similarity", "k")
    entries = lines(axes, curves)
    noise = _one_a_model(mean, "noise_similarity", "k", dashes=1)
    lines(axes, noise)
    _powers_of_two(axes, max((one.x for one in curves), key=len))
    axes.set(
        title="Nearest pairs of a batch",
        xlabel="Batch size (sentences)",
        ylabel="Mean of the 4 largest cosines",
    )
    return [*entries, (_dashed(), "With Gaussian noise (nearest pairs)")]


def dimension(axes: Axes, table: Table) -> Entries:
    """Score over the number of kept dimensions; dashed: principal directions."""
    first = _one_a_model(table, "spearman_truncated", "k")
    entries = lines(axes, first)
    lines(axes, _one_a_model(table, "spearman_pca", "k", dashes=1))
    _powers_of_two(axes, max((one.x for one in first), key=len))
    axes.set(
        title="Score of shortened vectors",
        xlabel="Dimensions kept",
        ylabel="Spearman correlation",
    )
    return [*entries, (_dashed(), "Principal directions (shortened)")]


PANELS: dict[str, Callable[[Axes, Table], Entries]] = {
    "plane": plane,
    "distribution": distribution,
    "spectrum": spectrum,
    "correlation": correlation,
    "rank": rank,
    "batch": batch,
    "dimension": dimension,
}


def _one_a_model(table: Table, metric: str, key: str, dashes: int = 0) -> list[Series]:
    return [
        series(table, metric, key, model=name, label=name, look=look(i, dashes))
        for i, name in enumerate(models(table))
    ]


def _dashed() -> Line2D:
    """The legend's sign for the second curve of every model."""
    return Line2D([], [], color=INK, linestyle=DASHES[1])


def _powers_of_two(axes: Axes, sizes: Sequence[float]) -> None:
    """A logarithmic axis labelled with the sizes themselves, as far as they have room."""
    axes.set_xscale("log", base=2)
    shown = [size for size in sizes[:-1] if sizes[-1] / size > 1.7]
    shown = [*shown[:: 1 if len(shown) < 8 else 2], sizes[-1]]
    axes.set_xticks(shown, labels=[f"{size:g}" for size in shown])
    axes.xaxis.minorticks_off()
