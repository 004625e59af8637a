"""What the classification tasks share: from texts to rows, and to one task's part of a table.

A sentence is its vector x; a pair with vectors u, v is [|u - v|, u * v] (Tai et al. 2015). Which
rows train, choose the penalty and are scored follows from the splits that a task has
(`cse_cli.classifier.folds`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cse_cli.classifier import Outcome, Part, Solver, nested, three_way, train_test
from cse_cli.data.transfer import TransferData
from cse_cli.finite import require_finite
from cse_cli.results import Table

Encode = Callable[[Sequence[str]], Tensor]


@dataclass(frozen=True)
class Judged:
    """One task's outcome, its `scored` split, and how many rows the penalty was `chosen_on`."""

    data: TransferData
    outcome: Outcome
    scored: str
    chosen_on: int


def features(encode: Encode, data: TransferData, model: str) -> dict[str, Tensor]:
    """The rows (n, D), or (n, 2D) of pairs, of each split; `encode` is called once.

    Raises InputError for vectors that are not finite.
    """
    sides = [side for split in data.splits.values() for side in (split.a, split.b)]
    texts = [text for side in sides for text in side]
    vectors = require_finite(encode(texts), texts, model)
    pieces = iter(vectors.split([len(side) for side in sides]))
    return {name: _row(next(pieces), next(pieces)) for name in data.splits}


def _row(u: Tensor, v: Tensor) -> Tensor:
    return torch.cat([(u - v).abs(), u * v], dim=1) if len(v) else u


def judge(encode: Encode, data: TransferData, solver: Solver, *, model: str, dev: bool) -> Judged:
    """Encode one task and fit it by the protocol of its splits; `dev` leaves out the refits.

    Raises InputError for vectors that are not finite, or a class with too few rows.
    """
    return judge_rows(features(encode, data, model), data, solver, dev=dev)


def judge_rows(
    rows: Mapping[str, Tensor], data: TransferData, solver: Solver, *, dev: bool
) -> Judged:
    """`judge` for rows (n, D) of each split that are there already."""

    def part(split: str) -> Part:
        return rows[split], torch.from_numpy(data.splits[split].y)

    names = data.classes
    if "all" in rows:
        outcome = nested(part("all"), names, solver, dev=dev)
        return Judged(data, outcome, "all", len(rows["all"]))
    if "dev" in rows:
        outcome = three_way(part("train"), part("dev"), part("test"), names, solver, dev=dev)
        return Judged(data, outcome, "test", len(rows["dev"]))
    outcome = train_test(part("train"), part("test"), names, solver, dev=dev)
    return Judged(data, outcome, "test", len(rows["train"]))


def add_accuracy(table: Table, judged: Judged, model: str, keys: dict[str, Any]) -> None:
    """Append `accuracy` of the scored split, unless only dev was asked for, and `dev_accuracy`."""
    task, outcome = judged.data.name, judged.outcome
    n = len(outcome.truth)
    if n:
        table.add(model, task, judged.scored, "accuracy", outcome.accuracy, n, **keys)
    table.add(model, task, "dev", "dev_accuracy", outcome.dev_accuracy, judged.chosen_on, **keys)


def add_detail(table: Table, judged: Judged, model: str, keys: dict[str, Any]) -> None:
    """Append, by subset, the `penalty` of each refit and how often a class was taken for another.

    `confusion` rows count, their `n` is the number of rows of the true class.
    """
    task, split, outcome = judged.data.name, judged.scored, judged.outcome
    for i, penalty in enumerate(outcome.penalties, start=1):
        subset = f"fold {i}" if len(outcome.penalties) > 1 else "refit"
        table.add(model, task, split, "penalty", penalty, 1, subset=subset, **keys)
    if not len(outcome.truth):
        return
    classes = judged.data.classes
    for true, row in zip(classes, outcome.confusion(len(classes)), strict=True):
        for predicted, count in zip(classes, row, strict=True):
            subset, n = f"{true} -> {predicted}", int(row.sum())
            table.add(model, task, split, "confusion", count, n, subset=subset, **keys)


def add_averages(table: Table, tasks: Sequence[str], *, model: str, layer: int | None) -> None:
    """Append `Avg` of `accuracy` and of `dev_accuracy` over those of `tasks` that are there."""
    for metric in ("accuracy", "dev_accuracy"):
        rows = [r for r in table.where(model=model, metric=metric, layer=layer) if r.task in tasks]
        if rows:
            table.add_average(model, metric, [row.task for row in rows], **rows[0].keys)
