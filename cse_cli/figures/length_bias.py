"""Pictures of length bias: ESimCSE Table 1 made finer."""

from dataclasses import replace

from matplotlib.figure import Figure

from cse_cli.figures.panels import Series, lines
from cse_cli.figures.style import caption, grid, legend, look, styled
from cse_cli.figures.tables import models, series, task_names
from cse_cli.results import AVERAGE, Table


@styled()
def draw_length_bias(table: Table) -> Figure:
    """Spearman above cosine at equal gold score, over the length difference; 95 % bands.

    Several tasks are drawn as their average, a single task as itself.
    """
    several = any(row.task == AVERAGE for row in table)
    shown = AVERAGE if several else next(iter(table)).task
    names, unit = models(table), next(row.keys["unit"] for row in table if "unit" in row.keys)
    bins = list(dict.fromkeys(r.keys["subset"] for r in table if "subset" in r.keys))
    bins.sort(key=lambda name: int(name.split("-")[0].rstrip("+")))
    figure, (score, bias) = grid(2, height=2.0)

    def curves(metric: str) -> list[Series]:
        rows = table.where(task=shown)
        found = [
            series(rows, metric, "subset", model=name, label=name, look=look(i))
            for i, name in enumerate(names)
        ]
        return [replace(one, x=[bins.index(str(x)) for x in one.x]) for one in found]

    entries = lines(score, curves("spearman"))
    lines(bias, curves("similarity"))
    score.set(title="Agreement with people", ylabel="Spearman correlation")
    bias.set(title="Predicted similarity at equal gold score", ylabel="Mean cosine")
    for axes in (score, bias):
        axes.set_xlabel(f"Difference in length ({unit}s)")
        axes.set_xticks(range(len(bins)), labels=bins)
        axes.set_xlim(-0.3, len(bins) - 0.7)
    what = task_names(Table([row for row in table if row.task != AVERAGE]))
    if several:
        what = [f"Mean of {', '.join(what) if len(what) < 4 else f'{len(what)} tasks'}"]
    caption(figure, f"{what[0]}; 95 % bootstrap bands")
    legend(figure, entries)
    return figure
