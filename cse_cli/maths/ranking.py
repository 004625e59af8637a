"""Rank correlation with human scores: the STS metric and its reading by length difference.

Follows SentEval: similarities that are NaN count as 0, ties share their average rank, and the
correlation with a constant is 0.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from scipy.stats import pearsonr, spearmanr

Scores = torch.Tensor | np.ndarray | Sequence[float]


def spearman_groups(pairs: Mapping[str, tuple[Scores, Scores]]) -> dict[str, dict[str, float]]:
    """Spearman and Pearson correlation of a task made of subsets.

    `pairs` maps a subset's name to (system, gold), both (P,). The result reads
    `result["all"]["spearman"]`, with

    - "all": the subsets' pairs concatenated, then one correlation (the field's setting);
    - "mean": the mean of the subsets' correlations;
    - "wmean": that mean weighted by the subsets' sizes.

    Correlations are in [-1, 1]; 0 where a side is constant, NaN for fewer than two pairs.
    """
    systems = [_system(system) for system, _ in pairs.values()]
    golds = [_array(gold) for _, gold in pairs.values()]
    sizes = [len(gold) for gold in golds]
    result: dict[str, dict[str, float]] = {"all": {}, "mean": {}, "wmean": {}}
    for name, correlate in (("spearman", _spearman), ("pearson", _pearson)):
        each = [correlate(system, gold) for system, gold in zip(systems, golds, strict=True)]
        result["all"][name] = correlate(np.concatenate(systems), np.concatenate(golds))
        result["mean"][name] = float(np.mean(each))
        result["wmean"][name] = float(np.average(each, weights=sizes))
    return result


def length_bias(
    system: Scores, gold: Scores, difference: Scores, threshold: float = 3
) -> dict[str, float]:
    """Spearman where the two sentences' lengths differ by at most `threshold`, and by more.

    All (P,); `difference` is the absolute difference of the lengths, in whatever unit `threshold`
    has (ESimCSE: 3 words). Returns `spearman_le`, `spearman_gt` (NaN for fewer than two pairs) and
    the counts `n_le`, `n_gt`.
    """
    scores, truth = _system(system), _array(gold)
    near = _array(difference) <= threshold
    return {
        "spearman_le": _spearman(scores[near], truth[near]),
        "spearman_gt": _spearman(scores[~near], truth[~near]),
        "n_le": int(near.sum()),
        "n_gt": int((~near).sum()),
    }


def _spearman(system: np.ndarray, gold: np.ndarray) -> float:
    known = _undefined(system, gold)
    return float(spearmanr(system, gold).statistic) if known is None else known


def _pearson(system: np.ndarray, gold: np.ndarray) -> float:
    known = _undefined(system, gold)
    return float(pearsonr(system, gold).statistic) if known is None else known


def _undefined(system: np.ndarray, gold: np.ndarray) -> float | None:
    """What stands for a correlation that has no value; None where it has one."""
    if len(system) < 2:
        return float("nan")
    return 0.0 if np.ptp(system) == 0 or np.ptp(gold) == 0 else None


def _array(values: Scores) -> np.ndarray:
    if isinstance(values, torch.Tensor):
        values = values.detach().double().cpu().numpy()
    return np.asarray(values, dtype=np.float64)


def _system(values: Scores) -> np.ndarray:
    scores = _array(values)
    return np.where(np.isnan(scores), 0.0, scores)
