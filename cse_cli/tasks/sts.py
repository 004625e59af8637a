"""Semantic textual similarity: does the cosine of two sentences rank pairs as people do?

The score of a task is the correlation between cos(a, b) and the gold scores, over the test pairs
and without a regressor on top. A task made of subsets has three readings (Gao et al. 2021,
appendix B): `all` concatenates the pairs, then correlates (SimCSE and its successors, the headline
here); `mean` averages the subsets' correlations; `wmean` weights them by size (whitening papers).
"""

from collections.abc import Callable, Mapping

import numpy as np
from torch import Tensor

from cse_cli.data.sts import Pairs
from cse_cli.finite import require_finite
from cse_cli.maths import paired_cosine, spearman_groups
from cse_cli.results import Table

Encode = Callable[[list[str]], Tensor]
Tasks = Mapping[str, Mapping[str, Pairs]]  # task -> subset -> pairs
Scored = dict[str, tuple[Tensor, np.ndarray]]  # subset -> (cosines, gold), both (P,)

AGGREGATIONS = ("all", "mean", "wmean")
METRICS = tuple(f"{name}_{way}" for name in ("spearman", "pearson") for way in AGGREGATIONS)


def evaluate_sts(
    encode: Encode,
    tasks: Tasks,
    *,
    model: str,
    split: str = "test",
    pooler: str | None = None,
    detail: bool = False,
) -> Table:
    """Correlations of one model on `tasks`, and their average over the tasks.

    `encode` maps n texts to (n, D) vectors; it is called once, with every distinct sentence of all
    tasks. Rows, per task and as `Avg`: `spearman_all`, `spearman_mean`, `spearman_wmean` and
    `pearson_…` likewise, in [-1, 1]. `detail` adds `spearman` and `pearson` of the subsets (key
    subset) of tasks that have several. Raises InputError for vectors that are not finite.
    """

    def checked(texts: list[str]) -> Tensor:
        return require_finite(encode(texts), texts, model)

    table = Table()
    for task, scored in _similarities(checked, tasks).items():
        metrics = {
            f"{correlation}_{aggregation}": value
            for aggregation, values in spearman_groups(scored).items()
            for correlation, value in values.items()
        }
        pairs = sum(len(gold) for _, gold in scored.values())
        for metric, value in sorted(metrics.items(), key=lambda item: METRICS.index(item[0])):
            table.add(model, task, split, metric, value, pairs, pooler=pooler)
        for subset, alone in scored.items() if detail and len(scored) > 1 else ():
            for metric, value in spearman_groups({subset: alone})["all"].items():
                keys = {"subset": subset, "pooler": pooler}
                table.add(model, task, split, metric, value, len(alone[1]), **keys)
    for metric in METRICS:
        table.add_average(model, metric, tasks, pooler=pooler)
    return table


def sts_dev(encode: Encode, pairs: Pairs) -> float:
    """Spearman of one set of pairs: what training selects its best step by, the same evaluator.

    A cosine that is NaN counts as 0: that training diverges is told by its loss.
    """
    scored = _similarities(encode, {"dev": {"dev": pairs}})["dev"]
    return spearman_groups(scored)["all"]["spearman"]


def _similarities(encode: Encode, tasks: Tasks) -> dict[str, Scored]:
    """Cosines in double precision beside the gold scores; each sentence is encoded once."""
    place: dict[str, int] = {}
    rows = {
        task: {
            name: [[place.setdefault(text, len(place)) for text in side] for side in (p.a, p.b)]
            for name, p in subsets.items()
        }
        for task, subsets in tasks.items()
    }
    vectors = encode(list(place)).double()
    return {
        task: {
            name: (paired_cosine(vectors[a], vectors[b]), tasks[task][name].gold)
            for name, (a, b) in subsets.items()
        }
        for task, subsets in rows.items()
    }
