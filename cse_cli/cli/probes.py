"""What the probing commands share: labelled checkpoints, scored pairs, a table and its picture."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cse_cli.cli.options import OUTPUT_PANEL, Loading, Printing
from cse_cli.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from cse_cli.data.sts import Pairs
    from cse_cli.encoder import Encoder
    from cse_cli.results import Row, Table

FIGURES_PANEL = "Figure"

Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="NAME",
        help="What a checkpoint is called in table and figure, one for each in their order; "
        "else its folder's name.",
        rich_help_panel=OUTPUT_PANEL,
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FIGURE",
        help="Draw the figure: .png, .svg or .pdf. The numbers behind it are the table's, "
        "all of them with --format json or csv.",
        rich_help_panel=FIGURES_PANEL,
        show_default=False,
    ),
]
Show = Annotated[
    bool,
    typer.Option(
        "--show",
        help="Open the figure of --out with the system's viewer; on a terminal only, never in CI.",
        rich_help_panel=FIGURES_PANEL,
        show_default=False,
    ),
]


@dataclass
class Probe:
    """What a probing command ends with: a table, its reading for people, and a picture.

    `table` holds every number (JSON, CSV). `sections` are (title, table or frame) for people,
    `draw` makes the figure, `curves` are (name, values) for a terminal without one, `encoders`
    what each encoder turned out to be (`inputs.describe`), which joins the config.
    """

    table: "Table"
    sections: Sequence[tuple[str, "Table | pd.DataFrame"]]
    draw: Callable[[], "Figure"]
    curves: Sequence[tuple[str, Sequence[float]]] = field(default_factory=list)
    encoders: Sequence[dict[str, Any]] = field(default_factory=list)


def labelled(models: Sequence[str], labels: Sequence[str] | None) -> dict[str, str]:
    """Label -> checkpoint as given, in order.

    Without labels these are the checkpoints' names, or the paths as given where names are equal.
    Raises UsageError for another number of labels than checkpoints, or two that are equal.
    """
    from cse_cli.loading import display_name

    if labels:
        if len(labels) != len(models):
            raise UsageError(
                f"--label was given {len(labels)} times for {len(models)} checkpoints; "
                "give one each, in their order"
            )
        names = [label.strip() for label in labels]
    else:
        names = [display_name(model) for model in models]
        names = [
            name if names.count(name) == 1 else model
            for name, model in zip(names, models, strict=True)
        ]
    for name in names:
        if not name:
            raise UsageError("--label is blank; give every checkpoint a name")
        if names.count(name) > 1:
            raise UsageError(f"two checkpoints are called '{name}'; tell them apart with --label")
    return dict(zip(names, models, strict=True))


def open_each(models: Mapping[str, str], loading: Loading) -> Iterator[tuple[str, "Encoder"]]:
    """Label and encoder of each checkpoint; only one is in memory at a time."""
    from cse_cli.cli.inputs import open_encoder
    from cse_cli.progress import log

    for label, given in models.items():
        encoder = open_encoder(given, **asdict(loading))
        encoder.name = label
        log(f"{label}: pooler {encoder.pooler}, texts up to {encoder.max_length} tokens")
        yield label, encoder


def stsb_pairs(folder: Path | None, split: str) -> tuple[str, "Pairs"]:
    """The name and pairs of STS-B in `folder`, or of the demo set where nothing is configured."""
    from cse_cli.data.sts import load_sts
    from cse_cli.progress import warn

    if folder is None:
        from cse_cli.data.builtin import DEMO_NOTICE, DEMO_TASK, demo_pairs

        warn(DEMO_NOTICE)
        return DEMO_TASK, demo_pairs(split)
    return "STS-B", load_sts(folder, "STS-B", split)["STS-B"]


def note(title: str, task: str) -> str:
    """The title of a section; it says so where the demo set was measured."""
    from cse_cli.data.builtin import DEMO_TASK

    return f"Built-in demo set, not a benchmark: {title}" if task == DEMO_TASK else title


def by_subset(
    rows: Iterable["Row"],
    name: Callable[["Row"], str],
    *,
    keep: Sequence[str] = (),
    metric: str | None = None,
) -> "Table":
    """Rows laid out for people: `name(row)` down the side, models across.

    Of the keys only those in `keep` stay; `metric` renames all rows' metric.
    """
    from cse_cli.results import Table

    table = Table()
    for row in rows:
        keys = {key: row.keys[key] for key in keep if key in row.keys}
        shown = metric or row.metric
        table.add(row.model, row.task, row.split, shown, row.value, row.n, subset=name(row), **keys)
    return table


@dataclass(frozen=True)
class Outputs(Printing):
    """Where a probe's numbers and figure go."""

    out: Out = None
    show: Show = False

    def check(self) -> "Outputs":
        """Refuse files that cannot be written, before anything is measured."""
        from cse_cli.cli.report import check_output

        check_output(self.output)
        if self.out is not None:
            from cse_cli.figures import check_figure_path

            check_figure_path(self.out)
        elif self.show:
            raise UsageError("--show shows the figure of --out; give --out FIGURE too")
        return self


def finish(probe: Probe, outputs: Outputs, *, command: str, config: Mapping[str, Any]) -> None:
    """Print the table, write `--output` and the figure; on a terminal without one, sparklines."""
    from cse_cli.cli.report import EXTENSIONS
    from cse_cli.cli.stdout import print_result
    from cse_cli.files import whole_file
    from cse_cli.progress import log
    from cse_cli.sparkline import sparklines

    config = {**config, "encoders": probe.encoders} if probe.encoders else config
    chosen = "json" if outputs.json else outputs.format
    terminal = sys.stdout.isatty()
    print_result(_text(probe, chosen, command, config, terminal))
    if outputs.output is not None:
        kind = EXTENSIONS[outputs.output.suffix.lower()]
        with whole_file(outputs.output) as file:
            file.write(_text(probe, kind, command, config, False).encode())
    if outputs.out is not None:
        _draw(probe, outputs.out, outputs.show)
    elif terminal and chosen == "table":
        for line in sparklines(probe.curves):
            log(line)


def _text(
    probe: Probe, format: str, command: str, config: Mapping[str, Any], terminal: bool
) -> str:
    """All rows for machines, the sections one below the other for people."""
    from cse_cli.render import render, render_frame
    from cse_cli.results import Table

    if format in ("json", "csv"):
        return render(probe.table, format, command=command, config=config)
    parts = [
        render(content, format, title=title, terminal=terminal)
        if isinstance(content, Table)
        else render_frame(content, format, title=title, terminal=terminal)
        for title, content in probe.sections
    ]
    return "\n".join(parts)


def _draw(probe: Probe, out: Path, show: bool) -> None:
    from cse_cli.figures import save
    from cse_cli.progress import log

    save(probe.draw(), out)
    log(f"{out}: drawn")
    if show and sys.stdout.isatty() and not os.environ.get("CI"):
        typer.launch(str(out))
