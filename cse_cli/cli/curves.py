"""`cse curves`: how training runs went, side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cse_cli.cli.groups import grouped
from cse_cli.cli.probes import (
    FIGURES_PANEL,
    Labels,
    Outputs,
    Probe,
    finish,
    labelled,
)
from cse_cli.errors import UsageError, suggestion

if TYPE_CHECKING:
    from cse_cli.results import Table

DEFAULT = ("dev", "loss")

Runs = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN...",
        help="Output folders of `cse train`; one with several seeds is drawn as their mean, with a "
        "band from the lowest to the highest.",
        show_default=False,
    ),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME[,NAME...]",
        help="What to draw of what the runs logged, a panel each: dev, loss, lr, alignment, "
        "negative_cosine, ...; else dev and loss.",
        rich_help_panel=FIGURES_PANEL,
        show_default=False,
    ),
]


@grouped
def curves(
    runs: Runs,
    metrics: Metrics = None,
    labels: Labels = None,
    *,
    outputs: Outputs,
) -> None:
    """Compare training runs: dev score and loss over the steps, best score and when it came.

    Example: cse curves runs/simcse runs/sscl --out convergence.png

    Example: cse curves runs/sscl --metric alignment,negative_cosine --format csv
    """
    from cse_cli.results import Table
    from cse_cli.tasks.curves import training_curves

    outputs.check()
    names, table = labelled(runs, labels), Table()
    for label, run in names.items():
        table.extend(training_curves(Path(run).expanduser(), model=label))
    chosen = _metrics(metrics, table)

    def draw() -> Any:
        from cse_cli.figures import draw_curves

        return draw_curves(table, chosen)

    finish(
        Probe(table, [("Training runs", _summary(table))], draw, _lines(table, chosen)),
        outputs,
        command="curves",
        config={"runs": names, "metrics": chosen},
    )


def _metrics(names: Sequence[str] | None, table: "Table") -> list[str]:
    """The metrics to draw: those asked for, else the usual ones that were logged."""
    logged = dict.fromkeys(r.metric for r in table if not r.metric.endswith(("_low", "_high")))
    logged.pop("dev_best", None)
    asked = [name.strip() for text in names or () for name in text.split(",")]
    for name in asked:
        if name not in logged:
            raise UsageError(f"--metric '{name}' was not logged: {suggestion(name, logged)}")
    return list(dict.fromkeys(asked)) or [name for name in DEFAULT if name in logged]


def _summary(table: "Table") -> Any:
    """One line a run: best dev score and its step, last loss and step, seeds."""
    import pandas as pd

    from cse_cli.tasks.curves import last

    lines = []
    for model in dict.fromkeys(row.model for row in table):
        run = table.where(model=model)
        best, loss = last(run, "dev_best"), last(run, "loss")
        lines.append(
            {
                "Run": model,
                "Best dev x 100": f"{100 * best[0]:.2f}" if best else "",
                "at step": str(best[1]) if best else "",
                "Last loss": f"{loss[0]:.4f}" if loss else "",
                "Steps": str(loss[1]) if loss else "",
                "Seeds": str(next(iter(run)).n),
            }
        )
    return pd.DataFrame(lines)


def _lines(table: "Table", metrics: Sequence[str]) -> list[tuple[str, list[float]]]:
    models = dict.fromkeys(row.model for row in table)
    return [
        (f"{metric} {model}", [row.value for row in table.where(model=model, metric=metric)])
        for metric in metrics
        for model in models
    ]
