"""`cse eval-sts`: checkpoints on the semantic textual similarity tasks."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cse_cli.cli.groups import grouped
from cse_cli.cli.options import (
    DataDir,
    FailUnder,
    Loading,
    Models,
    Printing,
    choice,
    listed,
)
from cse_cli.errors import InputError, UsageError, suggestion

if TYPE_CHECKING:
    from torch import Tensor

    from cse_cli.data.sts import Pairs
    from cse_cli.results import Table

    Tasks = dict[str, dict[str, Pairs]]
    Encode = Callable[[list[str]], Tensor]

AGGREGATIONS = ("all", "mean", "wmean")

TaskNames = Annotated[
    list[str] | None,
    typer.Option(
        "--tasks",
        metavar="NAME[,NAME...]",
        help="Which of STS12, STS13, STS14, STS15, STS16, STS-B and SICK-R; else all that have "
        "the split.",
        show_default=False,
    ),
]
Split = Annotated[
    str,
    typer.Option(
        "--split",
        help="Only STS-B and SICK-R have train and dev.",
        **choice("--split", ("test", "dev", "train")),
    ),
]
Aggregation = Annotated[
    str,
    typer.Option(
        "--aggregation",
        help="How a task's subsets become one number: correlation of all pairs (as SimCSE and "
        "its successors print it), mean of the subsets', or mean weighted by size.",
        **choice("--aggregation", AGGREGATIONS),
    ),
]
Detail = Annotated[
    bool, typer.Option("--detail", help="Also each subset by itself.", show_default=False)
]
Whiten = Annotated[
    int | None,
    typer.Option(
        "--whiten",
        metavar="N",
        min=1,
        help="BERT-whitening: make the vectors isotropic and keep N dimensions.",
        show_default=False,
    ),
]
WhitenOn = Annotated[
    Path | None,
    typer.Option(
        "--whiten-on",
        metavar="FILE",
        help="The sentences that --whiten is fitted on, as `cse train --train-file` takes them.",
        show_default=False,
    ),
]


@grouped
def eval_sts(
    models: Models,
    data_dir: DataDir = None,
    tasks: TaskNames = None,
    split: Split = "test",
    aggregation: Aggregation = "all",
    detail: Detail = False,
    whiten: Whiten = None,
    whiten_on: WhitenOn = None,
    fail_under: FailUnder = None,
    *,
    loading: Loading,
    printing: Printing,
) -> None:
    """Score checkpoints on STS12-16, STS-B and SICK-R: Spearman x 100 of cosine and gold scores.

    Without data (--data-dir or CSE_DATA) it uses the small built-in demo set, which says only
    that things work.

    Example: cse eval-sts runs/sscl --data-dir SentEval/data --fail-under 75

    Example: cse eval-sts bert-base-uncased --pooler first_last_mean --tasks STS-B --json
    """
    from cse_cli.cli.inputs import data_folder
    from cse_cli.cli.report import check_output, parse_gates, report

    check_output(printing.output)
    corpus = _whitening_corpus(whiten, whiten_on)
    folder = data_folder(data_dir)
    chosen = _choose_tasks(tasks, split, demo=folder is None)
    parse_gates(fail_under, chosen)
    pairs = _load_tasks(folder, chosen, split)
    table, encoders = _evaluate(models, loading, pairs, split, detail, whiten, corpus)
    config: dict[str, Any] = {"data_dir": folder, "tasks": chosen, "split": split}
    config |= {"aggregation": aggregation, "whiten": whiten, "whiten_on": whiten_on}
    report(
        table,
        command="eval-sts",
        config=config | asdict(loading) | {"encoders": encoders},
        **asdict(printing),
        fail_under=fail_under,
        headline=f"spearman_{aggregation}",
        title=_title(split, aggregation, demo=folder is None),
    )


def _evaluate(
    models: Sequence[str],
    loading: Loading,
    pairs: "Tasks",
    split: str,
    detail: bool,
    whiten: int | None,
    corpus: Sequence[str],
) -> tuple["Table", list[dict[str, Any]]]:
    """The rows of all models, and what each encoder turned out to be."""
    from cse_cli.cli.inputs import describe, open_encoder
    from cse_cli.progress import log
    from cse_cli.results import Table
    from cse_cli.tasks.sts import evaluate_sts

    table, encoders = Table(), []
    for name, given in _distinct_names(models).items():
        encoder = open_encoder(given, **asdict(loading))
        log(f"{name}: pooler {encoder.pooler}, texts up to {encoder.max_length} tokens")
        encode: Encode = partial(encoder.encode, progress=True)
        if whiten is not None:
            encode, name = _whitened(encode, whiten, corpus), f"{name} + whitening {whiten}"
        table.extend(
            evaluate_sts(
                encode, pairs, model=name, split=split, pooler=encoder.pooler, detail=detail
            )
        )
        encoders.append(describe(encoder, given) | {"model": name})
    return table, encoders


def _choose_tasks(names: Sequence[str] | None, split: str, *, demo: bool) -> list[str]:
    """The tasks asked for, in the literature's order; all that have the split by default."""
    from cse_cli.data.builtin import DEMO_TASK
    from cse_cli.data.sts import STS_COUNTS, STS_TASKS

    asked = listed("--tasks", names)
    known = {task.lower(): task for task in (*STS_TASKS, DEMO_TASK)}
    for name in asked:
        if name.lower() not in known:
            raise UsageError(f"--tasks: unknown task '{name}'; {suggestion(name, known.values())}")
    chosen = {known[name.lower()] for name in asked}
    if demo and chosen - {DEMO_TASK}:
        raise InputError(
            f"--tasks {','.join(asked)} needs the SentEval data: give --data-dir or CSE_DATA, "
            "or get it with `cse data fetch senteval`"
        )
    if demo:
        return [DEMO_TASK]
    if DEMO_TASK in chosen:
        raise UsageError("--tasks Demo is the built-in set; leave --data-dir and CSE_DATA out")
    return [
        task for task in STS_TASKS if task in chosen or (not asked and split in STS_COUNTS[task])
    ]


def _load_tasks(folder: Path | None, tasks: Sequence[str], split: str) -> "Tasks":
    """The pairs of all tasks; warns where they are the demo's or not the published ones."""
    from cse_cli.data.builtin import DEMO_NOTICE, DEMO_TASK, demo_pairs
    from cse_cli.data.sts import STS_COUNTS, load_sts
    from cse_cli.progress import warn

    if folder is None:
        warn(DEMO_NOTICE)
        return {DEMO_TASK: {DEMO_TASK: demo_pairs(split)}}
    pairs = {task: load_sts(folder, task, split) for task in tasks}
    for task, subsets in pairs.items():
        count, published = sum(map(len, subsets.values())), STS_COUNTS[task][split]
        if count != published:
            warn(
                f"{task} {split} has {count} pairs here instead of {published}; "
                "its score is not comparable with published ones"
            )
    return pairs


def _distinct_names(models: Sequence[str]) -> dict[str, str]:
    """Display name -> model as given; models of the same name are shown as given."""
    from cse_cli.loading import display_name

    given = list(dict.fromkeys(models))
    names = [display_name(model) for model in given]
    return {
        name if names.count(name) == 1 else model: model
        for name, model in zip(names, given, strict=True)
    }


def _whitening_corpus(whiten: int | None, path: Path | None) -> list[str]:
    """The sentences to fit whitening on; none where it is not asked for."""
    if (whiten is None) != (path is None):
        raise UsageError("--whiten N and --whiten-on FILE go together")
    if path is None:
        return []
    from cse_cli.data.readers import iter_texts

    return list(iter_texts([str(path)]))


def _whitened(encode: "Encode", dimensions: int, corpus: Sequence[str]) -> "Encode":
    from cse_cli.whitening import Whitening

    whitening = Whitening(dimensions).fit(encode(list(corpus)))
    return lambda texts: whitening.transform(encode(texts))


def _title(split: str, aggregation: str, *, demo: bool) -> str:
    measure = f"Spearman x 100 ({aggregation})"
    return f"Built-in demo set, not a benchmark: {measure}" if demo else f"STS {split}, {measure}"
