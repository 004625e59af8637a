"""`cse eval-transfer`: checkpoints on SentEval's classification tasks."""

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
from cse_cli.errors import InputError, UsageError, suggestion

if TYPE_CHECKING:
    from cse_cli.data.transfer import TransferData

ALL = "all"

TaskNames = Annotated[
    list[str] | None,
    typer.Option(
        "--tasks",
        metavar="NAME[,NAME...]",
        help="Which of MR, CR, SUBJ, MPQA, SST2, TREC, MRPC, SST5, SICK-E, STS-B and SICK-R; "
        "else the first seven, whose average is printed; `all` adds those of the further four "
        "whose files are there.",
        show_default=False,
    ),
]


@grouped
def eval_transfer(
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
    """Score frozen vectors by a linear classifier on SentEval's seven tasks: accuracy x 100.

    The vectors are kept in the cache folder, so another classifier encodes nothing. Without data
    (--data-dir or CSE_DATA) it uses a small built-in demo set, which says only that things work.

    Example: cse eval-transfer runs/sscl --data-dir SentEval/data

    Example: cse eval-transfer runs/simcse runs/sscl --classifier lbfgs --json

    Example: cse eval-transfer runs/sscl --tasks TREC,MRPC --layers all --out layers.png
    """
    from cse_cli.data.transfer import TRANSFER_TASKS
    from cse_cli.tasks.transfer import evaluate_transfer

    outputs.check()
    fitting.check(outputs.out)
    names, folder = labelled(models, labels), data_folder(data_dir)
    data = _load(folder, tasks)
    given = [one.name for one in data]
    gates = parse_gates(fail_under, given, average=any(task in TRANSFER_TASKS for task in given))
    probe = LinearProbe(
        "eval-transfer", "SentEval transfer", folder, data, evaluate_transfer, TRANSFER_TASKS
    )
    probe.run(names, loading, fitting, outputs, gates)


def _load(folder: Path | None, names: Sequence[str] | None) -> "list[TransferData]":
    """The tasks asked for, in the literature's order; the demo where nothing is configured."""
    from cse_cli.data.transfer import (
        EXTRA_TASKS,
        TRANSFER_COUNTS,
        TRANSFER_TASKS,
        load_transfer,
        transfer_files,
    )
    from cse_cli.progress import warn

    everything = (*TRANSFER_TASKS, *EXTRA_TASKS)
    known = {_plain(task): task for task in everything}
    asked = listed("--tasks", names)
    for name in asked:
        if name != ALL and _plain(name) not in known:
            raise UsageError(f"--tasks: unknown task '{name}'; {suggestion(name, everything)}")
    if folder is None:
        return _demo(asked)
    chosen = {known[_plain(name)] for name in asked if name != ALL}
    if ALL in asked:
        present = {t for t in EXTRA_TASKS if any((folder / f).exists() for f in transfer_files(t))}
        chosen |= {*TRANSFER_TASKS, *present}
    chosen = chosen or set(TRANSFER_TASKS)
    data = [load_transfer(folder, task) for task in everything if task in chosen]
    for one in data:
        for split, published in TRANSFER_COUNTS[one.name].items():
            if len(one.splits[split]) != published:
                warn(
                    f"{one.name} {split} has {len(one.splits[split])} rows here instead of "
                    f"{published}; its score is not comparable with published ones"
                )
    return data


def _plain(name: str) -> str:
    """SST-2, sst2 and SST2 are one name."""
    return name.lower().replace("-", "")


def _demo(asked: Sequence[str]) -> "list[TransferData]":
    from cse_cli.data.builtin import DEMO_NOTICE
    from cse_cli.data.demo_probe import demo_probe
    from cse_cli.progress import warn

    if asked:
        raise InputError(
            f"--tasks {','.join(asked)} needs the SentEval data: give --data-dir or CSE_DATA, "
            "or get it with `cse data fetch senteval`"
        )
    warn(DEMO_NOTICE)
    return [demo_probe()]
