"""Pictures of over-smoothing: the curves of SSCL Figures 1 and 4, the matrices of Figure 5."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cse_cli.figures.panels import Matrix, lines, matrix
from cse_cli.figures.style import MUTED, caption, grid, legend, look, styled
from cse_cli.figures.tables import models, series, task_names
from cse_cli.results import Table


@styled()
def draw_smoothing(table: Table) -> Figure:
    """SetSim between layers above TokSim in layers, with their 95 % bands; one colour a model.

    Several poolers of one model share its colour and differ in their dashes.
    """
    names = models(table)
    poolers = list(dict.fromkeys(r.keys["pooler"] for r in table if "pooler" in r.keys))
    figure, (between, within) = grid(2, height=2.0)
    setsim = [
        series(
            table, "setsim", "layer", model=name, pooler=pooler,
            label=f"{name}, {pooler}" if len(poolers) > 1 else name, look=look(i, j),
        )
        for i, name in enumerate(names)
        for j, pooler in enumerate(poolers)
    ]  # fmt: skip
    toksim = [
        series(table, "toksim", "layer", model=name, label=name, look=look(i, 0))
        for i, name in enumerate(names)
    ]
    entries = lines(between, setsim)
    lines(within, toksim)
    depth = max(max(one.x, default=0) for one in toksim)
    between.set(
        title="Similarity of consecutive layers (SetSim)",
        xlabel="Layer l, compared with layer l + 1",
        ylabel="Mean cosine of sentences",
    )
    within.set(
        title="Similarity of a sentence's tokens (TokSim)",
        xlabel="Layer (0 = embedding output)",
        ylabel="Mean cosine of tokens",
    )
    for axes in (between, within):
        axes.set_xlim(-0.03 * depth, 1.03 * depth)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=13))
    caption(figure, f"{', '.join(task_names(table))}: mean and its 95 % band")
    legend(figure, entries)
    return figure


@styled()
def draw_token_matrices(matrices: Sequence[Matrix]) -> Figure:
    """Token-by-token cosines of one sentence, models side by side over one colour scale."""
    columns = min(len(matrices), 2)
    figure, axes = grid(len(matrices), height=3.6, columns=columns)
    low = min(0.0, *(float(one.values.min()) for one in matrices))
    images = [matrix(a, one, low=low) for a, one in zip(axes, matrices, strict=True)]
    for number, panel in enumerate(axes):
        panel.set(xlabel="Token", ylabel="" if number % columns else "Token")
    bar = figure.colorbar(
        images[0], ax=axes, orientation="horizontal", shrink=0.6, aspect=30 * columns, pad=0.02
    )
    bar.set_label("Cosine of two tokens")
    bar.outline.set(edgecolor=MUTED, linewidth=0.5)
    return figure
