"""SentEval's transfer tasks: how much does a linear classifier find in frozen vectors?

    MR CR SUBJ MPQA     nested k-fold             TREC MRPC      k-fold on train, then test
    SST2 SST5 SICK-E    train, dev, test          STS-B SICK-R   a regression on scores

Conneau & Kiela (2018). The papers print the average accuracy of MR, CR, SUBJ, MPQA, SST2, TREC
and MRPC.
"""

from pathlib import Path
from typing import Any

import numpy as np

from cse_cli.classifier import Outcome, Solver, solver
from cse_cli.classifier.judge import Encode, add_accuracy, add_detail, features, judge
from cse_cli.classifier.relatedness import regress
from cse_cli.data.transfer import TRANSFER_TASKS, TransferData, load_transfer
from cse_cli.results import Table

WITH_F1 = ("MRPC",)
REGRESSION = "regression"  # the `classifier` of rows that none has made


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
    split alone. `detail` adds penalties and confusion counts. Raises InputError for vectors that
    are not finite, or a class with too few rows.
    """
    table = Table()
    keys = {"pooler": pooler, "layer": layer, "classifier": solver.name, "seed": solver.seed}
    if not data.classes:
        keys["classifier"] = REGRESSION
        _regress(table, encode, data, model, keys, seed=solver.seed, dev=dev)
        return table
    judged = judge(encode, data, solver, model=model, dev=dev)
    add_accuracy(table, judged, model, keys)
    if data.name in WITH_F1 and not dev:
        n = len(judged.outcome.truth)
        table.add(model, data.name, judged.scored, "f1", _f1(judged.outcome), n, **keys)
    if detail:
        add_detail(table, judged, model, keys)
    return table


def load_all(data_dir: str | Path) -> list[TransferData]:
    """The seven tasks; InputError for the first that is missing or damaged."""
    return [load_transfer(data_dir, task) for task in TRANSFER_TASKS]


def transfer_dev(encode: Encode, tasks: list[TransferData]) -> float:
    """Average dev accuracy of `tasks` in SentEval's fast mode: for choosing a step."""
    fast = solver("senteval", fast=True)
    found = [judge(encode, data, fast, model="the encoder", dev=True) for data in tasks]
    return float(np.mean([judged.outcome.dev_accuracy for judged in found]))


def _f1(outcome: Outcome) -> float:
    """Of class 1, as SentEval reports it for paraphrases."""
    (_, wrong), (missed, found) = outcome.confusion(2).tolist()
    return 2 * found / max(1, 2 * found + wrong + missed)


def _regress(
    table: Table,
    encode: Encode,
    data: TransferData,
    model: str,
    keys: dict[str, Any],
    *,
    seed: int,
    dev: bool,
) -> None:
    rows = features(encode, data, model)
    train, held, test = ((rows[split], data.splits[split].y) for split in ("train", "dev", "test"))
    found = regress(train, held, test, seed=seed)
    if not dev:
        for metric in ("pearson", "spearman"):
            value = getattr(found, metric)
            table.add(model, data.name, "test", metric, value, len(test[1]), **keys)
    table.add(model, data.name, "dev", "dev_pearson", found.dev_pearson, len(held[1]), **keys)
