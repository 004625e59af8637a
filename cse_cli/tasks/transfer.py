"""SentEval's transfer tasks: how much does a linear classifier find in frozen vectors?

A sentence is its vector x; a pair with vectors u, v is [|u - v|, u * v] (Tai et al. 2015). Which
rows train, choose the penalty and are scored is `cse_cli.classifier.folds`, by task:

    MR CR SUBJ MPQA     nested k-fold             TREC MRPC      k-fold on train, then test
    SST2 SST5 SICK-E    train, dev, test          STS-B SICK-R   a regression on scores
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cse_cli.classifier import Outcome, Part, Solver, nested, solver, three_way, train_test
from cse_cli.classifier.relatedness import regress
from cse_cli.data.transfer import TRANSFER_TASKS, TransferData, load_transfer
from cse_cli.errors import InputError
from cse_cli.results import Table

Encode = Callable[[Sequence[str]], Tensor]

WITH_F1 = ("MRPC",)
REGRESSION = "regression"  # the `classifier` of rows that no classifier made


def evaluate_transfer(
    encode: Encode,
    data: TransferData,
    solver: Solver,
    *,
    model: str,
    pooler: str | None = None,
    layer: int | None = None,
    dev: bool = False,
    detail: bool = False,
) -> Table:
    """One task: `accuracy` of the scored split, `dev_accuracy`, for MRPC also `f1`, all in [0, 1].

    `encode` maps n texts to (n, D) vectors; it is called once. Regressions give `pearson`,
    `spearman` and `dev_pearson`. `dev` stops where the penalty is chosen and leaves the scored
    split alone. `detail` adds, by subset, the `penalty` of every refit and the `confusion` counts.
    Raises InputError for vectors that are not finite, or a class with too few rows.
    """
    parts = _features(encode, data, model)
    table = Table()
    keys = {"pooler": pooler, "layer": layer, "classifier": solver.name, "seed": solver.seed}
    if not data.classes:
        _add_regression(table, parts, data, model, {**keys, "classifier": REGRESSION}, dev)
        return table
    outcome = _classify(parts, data, solver, dev)
    scored, chosen_on = _split_names(data)
    rows = len(data.splits[chosen_on])
    if not dev:
        n = len(outcome.truth)
        table.add(model, data.name, scored, "accuracy", outcome.accuracy, n, **keys)
        if data.name in WITH_F1:
            table.add(model, data.name, scored, "f1", _f1(outcome), n, **keys)
    table.add(model, data.name, "dev", "dev_accuracy", outcome.dev_accuracy, rows, **keys)
    if detail:
        _add_detail(table, outcome, data, model, scored, keys)
    return table


def add_averages(table: Table, *, model: str, layer: int | None = None) -> None:
    """Append `Avg` of `accuracy` and `dev_accuracy` over those of the papers' seven tasks."""
    for metric in ("accuracy", "dev_accuracy"):
        rows = [
            row
            for row in table.where(model=model, metric=metric, layer=layer)
            if row.task in TRANSFER_TASKS
        ]
        if rows:
            table.add_average(model, metric, [row.task for row in rows], **rows[0].keys)


def transfer_dev(encode: Encode, data_dir: str | Path) -> float:
    """Average dev accuracy of the seven tasks in SentEval's fast mode: for choosing a step."""
    fast = solver("senteval", fast=True)
    scores = []
    for task in TRANSFER_TASKS:
        data = load_transfer(data_dir, task)
        scores.append(_classify(_features(encode, data, "the encoder"), data, fast, dev=True))
    return float(np.mean([outcome.dev_accuracy for outcome in scores]))


def _features(encode: Encode, data: TransferData, model: str) -> dict[str, Tensor]:
    """The rows (n, D) or (n, 2D) of each split; all texts of the task are encoded together."""
    sides = [side for split in data.splits.values() for side in (split.a, split.b)]
    texts = [text for side in sides for text in side]
    vectors = encode(texts)
    broken = (~vectors.isfinite()).any(dim=1).nonzero()[:, 0].tolist()
    if broken:
        raise InputError(
            f"{model} gives NaN or infinite vectors for {len(broken)} of {len(texts)} texts of "
            f"{data.name}, first '{texts[broken[0]][:60]}': the checkpoint is damaged"
        )
    pieces = iter(vectors.split([len(side) for side in sides]))
    return {name: _row(next(pieces), next(pieces)) for name in data.splits}


def _row(u: Tensor, v: Tensor) -> Tensor:
    """What the classifier sees of sentences u, or of pairs u, v: |u - v| beside u * v."""
    return torch.cat([(u - v).abs(), u * v], dim=1) if len(v) else u


def _classify(parts: dict[str, Tensor], data: TransferData, solver: Solver, dev: bool) -> Outcome:
    """The protocol that the task's splits ask for."""

    def part(split: str) -> Part:
        return parts[split], torch.from_numpy(data.splits[split].y)

    if "all" in parts:
        return nested(part("all"), data.classes, solver, dev=dev)
    if "dev" in parts:
        return three_way(part("train"), part("dev"), part("test"), data.classes, solver, dev=dev)
    return train_test(part("train"), part("test"), data.classes, solver, dev=dev)


def _split_names(data: TransferData) -> tuple[str, str]:
    """The split that is scored, and the one the penalty is chosen on."""
    if "all" in data.splits:
        return "all", "all"
    return "test", "dev" if "dev" in data.splits else "train"


def _f1(outcome: Outcome) -> float:
    """Of class 1, as SentEval reports it for paraphrases."""
    (_, wrong), (missed, found) = outcome.confusion(2).tolist()
    return 2 * found / max(1, 2 * found + wrong + missed)


def _add_regression(
    table: Table,
    parts: dict[str, Tensor],
    data: TransferData,
    model: str,
    keys: dict[str, object],
    dev: bool,
) -> None:
    train, held, test = ((parts[s], data.splits[s].y) for s in ("train", "dev", "test"))
    found = regress(train, held, test, seed=int(str(keys["seed"])))
    if not dev:
        for metric in ("pearson", "spearman"):
            value = getattr(found, metric)
            table.add(model, data.name, "test", metric, value, len(test[1]), **keys)
    table.add(model, data.name, "dev", "dev_pearson", found.dev_pearson, len(held[1]), **keys)


def _add_detail(
    table: Table,
    outcome: Outcome,
    data: TransferData,
    model: str,
    scored: str,
    keys: dict[str, object],
) -> None:
    """Chosen penalties by refit, and how often each class was taken for each."""
    for i, penalty in enumerate(outcome.penalties, start=1):
        subset = f"fold {i}" if len(outcome.penalties) > 1 else "refit"
        table.add(model, data.name, scored, "penalty", penalty, 1, subset=subset, **keys)
    if not len(outcome.truth):
        return
    counts = outcome.confusion(len(data.classes))
    for true, row in zip(data.classes, counts, strict=True):
        for predicted, count in zip(data.classes, row, strict=True):
            subset = f"{true} -> {predicted}"
            n = int(row.sum())
            table.add(model, data.name, scored, "confusion", count, n, subset=subset, **keys)
