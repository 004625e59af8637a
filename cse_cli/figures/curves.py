"""Pictures of training: score and loss over steps, as in SSCL Figure 6."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from cse_cli.figures.panels import Series, lines
from cse_cli.figures.style import caption, grid, legend, look, styled
from cse_cli.figures.tables import models, series
from cse_cli.results import Table

SMOOTHING = 0.1  # weight of a new loss value in the drawn running mean
PANELS = {
    "dev": ("Score on the development set", "Development score"),
    "loss": ("Training loss", "Loss (running mean)"),
    "lr": ("Learning rate", "Learning rate"),
    "alignment": ("Alignment of the in-batch positives", "Alignment"),
    "negative_cosine": ("Similarity of the in-batch negatives", "Mean cosine"),
    "sentences_per_second": ("Speed", "Sentences per second"),
}


@styled()
def draw_curves(table: Table, metrics: Sequence[str]) -> Figure:
    """One panel for each of `metrics`, over the steps; several seeds of a run have a band.

    Losses of single runs are drawn as a running mean, the values themselves faintly behind it.
    """
    names = models(table)
    figure, panels = grid(len(metrics), height=2.0)
    entries: dict[str, Any] = {}
    for axes, metric in zip(panels, metrics, strict=True):
        noisy = metric.startswith("loss")
        curves = [
            series(table, metric, "k", model=name, label=name, look=look(i))
            for i, name in enumerate(names)
        ]
        if noisy:
            for one in curves:
                axes.plot(one.x, one.y, color=one.look.colour, alpha=0.25, linewidth=0.6)
            curves = [_running_mean(one) for one in curves]
        drawn = lines(axes, [one for one in curves if len(one.x)], markers=metric == "dev")
        entries = {label: handle for handle, label in drawn} | entries
        title, ylabel = PANELS.get(metric, (metric, metric))
        if noisy and metric not in PANELS:
            title, ylabel = f"Training loss: {metric.removeprefix('loss/')}", PANELS["loss"][1]
        axes.set(title=title, ylabel=ylabel, xlabel="Training step")
    if any(len(one) for one in (table.where(metric=f"{m}_low") for m in metrics)):
        caption(figure, "Mean of the seeds, band from the lowest to the highest")
    legend(figure, [(handle, label) for label, handle in entries.items()])
    return figure


def _running_mean(one: Series) -> Series:
    """Exponential running mean, corrected for its start (as Adam's moments are)."""
    total, weight, smooth = 0.0, 0.0, []
    for value in one.y:
        total += SMOOTHING * (value - total)
        weight += SMOOTHING * (1 - weight)
        smooth.append(total / weight)
    return Series(one.label, one.look, one.x, smooth, one.low, one.high)
