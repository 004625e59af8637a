"""Linguistic probing: which surface and grammatical facts does a linear classifier read off?

Conneau et al. (2018), "What you can cram into a single $&!#* vector". Each task has train, dev and
test splits; dev chooses the penalty and stops the fits. SSCL's Table 4 compares models by them.
"""

from cse_cli.classifier import Solver
from cse_cli.classifier.judge import Encode, add_accuracy, add_detail, judge
from cse_cli.data.transfer import TransferData
from cse_cli.results import Table


def evaluate_probing(
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
    """One task: `accuracy` of the test split and `dev_accuracy`, in [0, 1].

    The arguments and errors are those of `evaluate_transfer`; `layer` names the layer that
    `encode` reads.
    """
    table = Table()
    keys = {"pooler": pooler, "layer": layer, "classifier": solver.name, "seed": solver.seed}
    judged = judge(encode, data, solver, model=model, dev=dev)
    add_accuracy(table, judged, model, keys)
    if detail:
        add_detail(table, judged, model, keys)
    return table
