"""Pictures of linear probes over the layers: where in a model is what it knows?"""

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cse_cli.figures.panels import lines
from cse_cli.figures.style import caption, grid, legend, look, styled
from cse_cli.figures.tables import models, series
from cse_cli.results import AVERAGE, Table


@styled()
def draw_layers(table: Table, metric: str, title: str) -> Figure:
    """`metric` over the layers, one panel a task and one for their average; a curve a model."""
    names = models(table)
    tasks = list(dict.fromkeys(row.task for row in table.where(metric=metric)))
    if len(tasks) == 2:  # one task, and an average that would say it twice
        tasks = [task for task in tasks if task != AVERAGE]
    figure, panels = grid(len(tasks), height=1.7, columns=min(2, len(tasks)))
    entries = []
    for axes, task in zip(panels, tasks, strict=True):
        curves = [
            series(table, metric, "layer", model=name, task=task, label=name, look=look(i))
            for i, name in enumerate(names)
        ]
        entries = lines(axes, curves)
        axes.set(title="Average" if task == AVERAGE else task, ylabel="Accuracy", xlabel="Layer")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    caption(figure, f"{title}; layer 0 is the embedding output")
    legend(figure, entries)
    return figure
