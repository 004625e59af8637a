"""`cse probe-linguistic`: what a linear classifier reads off about a sentence's form."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cse_cli.cli.groups import grouped
from cse_cli.cli.inputs import data_folder
from cse_cli.cli.linear_probe import Fitting, LinearProbe
from cse_cli.cli.options import (
    DataDir,
    FailUnder,
    Loading,
    Models,
    listed,
)
from cse_cli.cli.probes import Labels, Outputs, labelled
from cse_cli.cli.report import parse_gates
from cse_cli.errors import InputError

if TYPE_CHECKING:
    from cse_cli.data.transfer import TransferData

TaskNames = Annotated[
    list[str] | None,
    typer.Option(
        "--tasks",
        metavar="NAME[,NAME...]",
        help="Which of SentLen, WordContent, TreeDepth, TopConst, BigramShift, Tense, SubjNum, "
        "ObjNum, OddManOut and CoordInv; else all whose files are there.",
        show_default=False,
    ),
]


@grouped
def probe_linguistic(
    models: Models,
    data_dir: DataDir = None,
    tasks: TaskNames = None,
    labels: Labels = None,
    fail_under: FailUnder = None,
    *,
    fitting: Fitting,
    outputs: Outputs,
    loading: Loading,
) -> None:
    """Probe vectors for length, word content, word order, depth and more: accuracy x 100.

    The data folder holds SentEval's `probing/`, or what `cse data make-probing` made of a corpus.
    Without data it uses a small built-in demo set, which says only that things work.

    Example: cse probe-linguistic runs/simcse runs/sscl --data-dir SentEval/data

    Example: cse probe-linguistic runs/sscl --tasks SentLen,CoordInv --layers all --out layers.png
    """
    from cse_cli.data.probing import PROBING_TASKS
    from cse_cli.tasks.probing import evaluate_probing

    outputs.check()
    fitting.check(outputs.out)
    names, folder = labelled(models, labels), data_folder(data_dir)
    data = _load(folder, tasks)
    gates = parse_gates(fail_under, [one.name for one in data])
    probe = LinearProbe(
        "probe-linguistic", "Linguistic probing", folder, data, evaluate_probing, PROBING_TASKS
    )
    probe.run(names, loading, fitting, outputs, gates)


def _load(folder: Path | None, names: Sequence[str] | None) -> "list[TransferData]":
    """The tasks asked for, or all that are there; the demo where nothing is configured."""
    from cse_cli.data.probing import PROBING_TASKS, load_probing, probing_file, probing_task
    from cse_cli.progress import log, warn

    asked = listed("--tasks", names)
    chosen = {probing_task(name) for name in asked}
    if folder is None:
        from cse_cli.data.builtin import DEMO_NOTICE
        from cse_cli.data.demo_probe import demo_probe

        if asked:
            raise InputError(
                f"--tasks {','.join(asked)} needs probing files: give --data-dir or CSE_DATA, "
                "or build some with `cse data make-probing`"
            )
        warn(DEMO_NOTICE)
        return [demo_probe()]
    if not chosen:
        chosen = {task for task in PROBING_TASKS if probing_file(folder, task).is_file()}
        absent = [task for task in PROBING_TASKS if task not in chosen]
        if not chosen:
            raise InputError(
                f"there is no probing file in {folder / 'probing'}; get SentEval's, "
                "or build some with `cse data make-probing`"
            )
        if absent:
            log(f"not in {folder}, and left out: {', '.join(absent)}")
    return [load_probing(folder, task) for task in PROBING_TASKS if task in chosen]
