"""`cse length-bias`: does like length pass for like meaning (ESimCSE)?"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cse_cli.cli.groups import grouped
from cse_cli.cli.options import (
    DataDir,
    Loading,
    Models,
    choice,
    listed,
)
from cse_cli.cli.probes import (
    Labels,
    Outputs,
    Probe,
    by_subset,
    finish,
    labelled,
    note,
    open_each,
)
from cse_cli.errors import InputError, UsageError, suggestion

if TYPE_CHECKING:
    from cse_cli.data.sts import Pairs
    from cse_cli.encoder import Encoder
    from cse_cli.results import Table

TaskNames = Annotated[
    list[str] | None,
    typer.Option(
        "--tasks",
        metavar="NAME[,NAME...]",
        help="Which of STS12, STS13, STS14, STS15, STS16, STS-B and SICK-R; else all.",
        show_default=False,
    ),
]
Threshold = Annotated[
    int,
    typer.Option(
        "--threshold",
        metavar="N",
        min=0,
        help="Up to here two lengths count as alike (ESimCSE: 3).",
    ),
]
Unit = Annotated[
    str,
    typer.Option(
        "--unit",
        help="What lengths are counted in: words between blanks, or the model's own tokens.",
        **choice("--unit", ("word", "token")),
    ),
]
Resamples = Annotated[
    int,
    typer.Option(
        "--bootstrap",
        metavar="N",
        min=1,
        max=10_000,  # each holds a number a pair: 400 MB on SICK-R
        help="Resamples behind the 95 % bands.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of the resamples.")]


@grouped
def length_bias(
    models: Models,
    data_dir: DataDir = None,
    tasks: TaskNames = None,
    threshold: Threshold = 3,
    unit: Unit = "word",
    resamples: Resamples = 1000,
    seed: Seed = 0,
    labels: Labels = None,
    *,
    outputs: Outputs,
    loading: Loading,
) -> None:
    """Score STS pairs of like and unlike length apart, and measure the bias itself.

    Without data it uses the small built-in demo set, which says only that things work.

    Example: cse length-bias runs/simcse runs/esimcse --out length.png

    Example: cse length-bias runs/simcse --tasks STS-B --unit token --json
    """
    from cse_cli.cli.inputs import data_folder

    outputs.check()
    names, folder = labelled(models, labels), data_folder(data_dir)
    pairs = _load(folder, tasks)
    settings = {"threshold": threshold, "unit": unit, "resamples": resamples, "seed": seed}
    finish(
        _probe(names, loading, pairs, settings),
        outputs,
        command="length-bias",
        config={
            "checkpoints": names,
            "data_dir": folder,
            "tasks": list(pairs),
            **settings,
            **asdict(loading),
        },
    )


def _load(folder: Path | None, names: Sequence[str] | None) -> "dict[str, dict[str, Pairs]]":
    """The test pairs of the tasks asked for, or of the demo set where nothing is configured."""
    from cse_cli.data.sts import STS_TASKS, load_sts
    from cse_cli.progress import warn

    known = {task.lower(): task for task in STS_TASKS}
    asked = listed("--tasks", names)
    for name in asked:
        if name.lower() not in known:
            raise UsageError(f"--tasks: unknown task '{name}'; {suggestion(name, STS_TASKS)}")
    if folder is None:
        from cse_cli.data.builtin import DEMO_NOTICE, DEMO_TASK, demo_pairs

        if asked:
            raise InputError(
                f"--tasks {','.join(asked)} needs the SentEval data: give --data-dir or CSE_DATA, "
                "or get it with `cse data fetch senteval`"
            )
        warn(DEMO_NOTICE)
        return {DEMO_TASK: {DEMO_TASK: demo_pairs("test")}}
    chosen = {known[name.lower()] for name in asked} or set(STS_TASKS)
    return {task: load_sts(folder, task) for task in STS_TASKS if task in chosen}


def _probe(
    models: dict[str, str],
    loading: Loading,
    pairs: "dict[str, dict[str, Pairs]]",
    settings: dict[str, Any],
) -> Probe:
    from functools import partial

    from cse_cli.cli.inputs import describe
    from cse_cli.results import Table
    from cse_cli.tasks.length_bias import length_bias as measure

    table, encoders = Table(), []
    for label, encoder in open_each(models, loading):
        encoders.append(describe(encoder, models[label]))
        lengths = _lengths(encoder, settings["unit"])
        encode = partial(encoder.encode, progress=True)
        table.extend(measure(encode, lengths, pairs, model=label, **settings))

    def draw() -> Any:
        from cse_cli.figures import draw_length_bias

        return draw_length_bias(table)

    return Probe(table, _sections(table, settings), draw, _curves(table), encoders)


def _lengths(encoder: "Encoder", unit: str) -> Callable[[list[str]], list[int]]:
    """How texts are counted: words between blanks, or tokens without the special ones."""
    if unit == "word":
        return lambda texts: [len(text.split()) for text in texts]

    def tokens(texts: list[str]) -> list[int]:
        rows = encoder.tokenizer(texts, add_special_tokens=False)["input_ids"]
        return [len(row) for row in rows]

    return tokens


def _sections(table: "Table", settings: dict[str, Any]) -> list[tuple[str, Any]]:
    """ESimCSE's Table 1, then the bias as one number a task."""
    unit, threshold = settings["unit"], settings["threshold"]
    sides = {"spearman_le": f"{threshold} or less", "spearman_gt": f"over {threshold}"}
    split = [row for row in table if row.metric in sides]
    task = next(iter(table)).task
    return [
        (
            note(f"Spearman x 100 by difference in length ({unit}s)", task),
            by_subset(split, lambda row: sides[row.metric], metric="spearman"),
        ),
        (
            note(f"Change of the cosine for one more {unit}, at equal gold score", task),
            table.where(metric="similarity_slope"),
        ),
    ]


def _curves(table: "Table") -> list[tuple[str, list[float]]]:
    """Cosine at equal gold score over the bins, a model each; the average of several tasks."""
    tasks = [row.task for row in table]
    rows = [r for r in table.where(metric="similarity") if r.task == tasks[-1]]
    models = dict.fromkeys(row.model for row in rows)
    return [(f"cosine {name}", [r.value for r in rows if r.model == name]) for name in models]
