"""Length bias: does a model take sentences of like length for sentences of like meaning?

ESimCSE Table 1 correlates cosine and gold score apart for pairs whose lengths differ by at most
three and by more. Two finer readings, over bins of the length difference d:

- the Spearman correlation inside each bin;
- the bias itself: the mean cosine at equal gold score. Pairs of unlike length are also less alike,
  so plain means would mix the two. The additive fit cos_i = a(gold level of i) + b(bin of i)
  separates them; b is reported around the mean cosine. `similarity_slope` is the same as one
  number: the change of the cosine for one more word of difference within a gold level.

Bands are 95 % percentile intervals over bootstrap resamples of the pairs (seeded). The average row
takes the mean over tasks in every resample; it covers the bins that every task has.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from scipy.stats import rankdata
from torch import Tensor

from cse_cli.data.sts import Pairs
from cse_cli.errors import InputError
from cse_cli.finite import require_finite
from cse_cli.maths import length_bias as spearman_by_length
from cse_cli.maths import paired_cosine
from cse_cli.results import AVERAGE, Table

BINS = (0, 1, 2, 3, 4, 6, 9)  # lowest difference of each bin
MIN_PAIRS = 20  # a rank correlation of fewer says nothing
GOLD_STEP = 0.5  # width of a gold level
LEVEL = 95.0

Encode = Callable[[list[str]], Tensor]
Lengths = Callable[[list[str]], list[int]]
Curves = dict[str, np.ndarray]  # metric -> (1 + resamples, bins), the first row without resampling


def length_bias(
    encode: Encode,
    lengths: Lengths,
    tasks: Mapping[str, Mapping[str, Pairs]],
    *,
    model: str,
    split: str = "test",
    threshold: int = 3,
    unit: str = "word",
    resamples: int = 1000,
    seed: int = 0,
) -> Table:
    """The length bias of one model on `tasks` (task -> subset -> pairs; subsets are concatenated).

    `lengths` counts each text in `unit`. All distinct sentences are encoded in one call. Rows, per
    task and for the average: `spearman_le`, `spearman_gt` (keys threshold, unit), and the curves
    `spearman` and `similarity` with `_low` and `_high` (keys subset = the bin, unit), as well as
    `similarity_slope` in cosine per unit. Raises InputError without a pair, or for vectors that
    are not finite.
    """
    merged = {task: _merge(task, subsets) for task, subsets in tasks.items()}
    texts = list(dict.fromkeys(t for pairs in merged.values() for t in (*pairs.a, *pairs.b)))
    place = {text: row for row, text in enumerate(texts)}
    vectors = require_finite(encode(texts), texts, model)
    sizes = np.asarray(lengths(texts))
    table, curves = Table(), {}
    random = np.random.default_rng(seed)
    for task, pairs in merged.items():
        a, b = [place[t] for t in pairs.a], [place[t] for t in pairs.b]
        cosines = paired_cosine(vectors[a], vectors[b]).double().numpy()
        difference = np.abs(sizes[a] - sizes[b])
        found = spearman_by_length(cosines, pairs.gold, difference, threshold)
        for side in ("le", "gt"):
            table.add(
                model, task, split, f"spearman_{side}", found[f"spearman_{side}"],
                int(found[f"n_{side}"]), threshold=threshold, unit=unit,
            )  # fmt: skip
        curves[task] = _curves(cosines, pairs.gold, difference, resamples, random)
        in_bin = np.bincount(_bin(difference), minlength=len(BINS)).tolist()
        counts = {"spearman": in_bin, "similarity": in_bin, "similarity_slope": [len(pairs)]}
        _add_curves(table, curves[task], counts, model=model, task=task, split=split, unit=unit)
    if len(merged) > 1:
        for side in ("le", "gt"):
            table.add_average(model, f"spearman_{side}", merged, threshold=threshold, unit=unit)
        mean = {m: np.mean([c[m] for c in curves.values()], axis=0) for m in curves[task]}
        several = dict.fromkeys(mean, [len(merged)] * len(BINS))
        _add_curves(table, mean, several, model=model, task=AVERAGE, split="", unit=unit)
    return table


def bin_labels() -> list[str]:
    """What the bins are called: `0`, `4-5`, and `9+` for the last."""
    spans = [(low, following - 1) for low, following in pairwise(BINS)]
    return [*(f"{low}-{top}" if top > low else f"{low}" for low, top in spans), f"{BINS[-1]}+"]


def _bin(difference: np.ndarray) -> np.ndarray:
    """The number of each difference's bin, (P,)."""
    return np.digitize(difference, BINS) - 1


def _merge(task: str, subsets: Mapping[str, Pairs]) -> Pairs:
    """All subsets' pairs as one, the literature's setting "all"."""
    pairs = Pairs(
        [text for part in subsets.values() for text in part.a],
        [text for part in subsets.values() for text in part.b],
        np.concatenate([part.gold for part in subsets.values()] or [np.zeros(0)]),
    )
    if not len(pairs):
        raise InputError(f"{task} holds no pair to measure")
    return pairs


def _curves(
    cosines: np.ndarray,
    gold: np.ndarray,
    difference: np.ndarray,
    resamples: int,
    random: np.random.Generator,
) -> Curves:
    """Each curve on the pairs as they are (row 0) and on resamples; NaN in bins too small."""
    bins = _bin(difference)
    counts = random.multinomial(len(gold), np.full(len(gold), 1 / len(gold)), size=resamples)
    weights = np.vstack([np.ones((1, len(gold))), counts])  # (1 + R, P)
    spearman = np.full((len(weights), len(BINS)), np.nan)
    kept = [b for b in range(len(BINS)) if (bins == b).sum() >= MIN_PAIRS]
    for b in kept:
        rows = bins == b
        spearman[:, b] = weighted_spearman(cosines[rows], gold[rows], weights[:, rows])
    similarity, slope = _equal_gold(cosines, gold, difference, bins, weights)
    similarity[:, [b for b in range(len(BINS)) if b not in kept]] = np.nan
    return {"spearman": spearman, "similarity": similarity, "similarity_slope": slope[:, None]}


def weighted_spearman(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Spearman of x and y (P,) under each row of integer `weights` (R, P): (R,).

    A weight is how often a pair was drawn. Ranks of a resample follow from the counts alone:
    a value's mean rank is the count below it plus half of (its own count + 1). NaN where a side
    is constant.
    """
    centred = []
    total = np.maximum(weights.sum(axis=1, keepdims=True), 1)
    for values in (x, y):
        level = rankdata(values, method="dense") - 1  # (P,)
        order = np.argsort(level, kind="stable")
        starts = np.searchsorted(level[order], np.arange(level.max() + 1))
        counts = np.add.reduceat(weights[:, order], starts, axis=1)  # (R, levels)
        ranks = (np.cumsum(counts, axis=1) - counts + (counts + 1) / 2)[:, level]
        centred.append(ranks - (weights * ranks).sum(axis=1, keepdims=True) / total)
    u, v = centred
    scale = np.sqrt((weights * u * u).sum(axis=1) * (weights * v * v).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(scale > 0, (weights * u * v).sum(axis=1) / scale, np.nan)


def _equal_gold(
    cosines: np.ndarray,
    gold: np.ndarray,
    difference: np.ndarray,
    bins: np.ndarray,
    weights: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The additive fit and the slope, under each row of `weights` (R, P): (R, bins) and (R,).

    Ordinary least squares on indicator columns. Gold levels are eliminated first (Frisch-Waugh):
    what is left is each bin's indicator, the difference and the cosine, centred in their level.
    """
    _, level = np.unique(np.floor(gold / GOLD_STEP), return_inverse=True)
    inside = np.eye(level.max() + 1)[level]  # (P, levels)
    columns = np.column_stack([np.eye(len(BINS))[bins], difference, cosines])  # (P, K)
    sizes = np.maximum(weights @ inside, 1e-12)  # (R, levels)
    products = columns[:, :, None] * columns[:, None, :]  # (P, K, K)
    squares = np.einsum("rp,pkl->rkl", weights, products, optimize=True)
    sums = np.einsum("rp,pg,pk->rgk", weights, inside, columns, optimize=True)
    within = squares - np.einsum("rgk,rgl,rg->rkl", sums, sums, 1 / sizes, optimize=True)
    last = len(BINS)
    spread = within[:, last, last]
    slope = np.where(spread > 1e-9, within[:, last, -1] / np.maximum(spread, 1e-9), np.nan)
    effect = (np.linalg.pinv(within[:, :last, :last]) @ within[:, :last, -1:])[..., 0]  # (R, bins)
    share = weights @ columns[:, :last] / weights.sum(axis=1, keepdims=True)
    mean = (weights @ cosines / weights.sum(axis=1))[:, None]
    return mean + effect - (share * effect).sum(axis=1, keepdims=True), slope


def _add_curves(
    table: Table,
    curves: Curves,
    counts: Mapping[str, Sequence[int]],
    *,
    model: str,
    task: str,
    split: str,
    unit: str,
) -> None:
    """The points of each curve with their bands; bins without enough pairs are left out."""
    tails = ((100 - LEVEL) / 2, (100 + LEVEL) / 2)
    for metric, values in curves.items():
        for b, (value, *drawn) in enumerate(values.T):
            if np.isnan(value):
                continue
            label = bin_labels()[b] if values.shape[1] > 1 else None
            n = counts[metric][b]
            ends = np.nanpercentile(drawn, tails) if len(drawn) else (np.nan, np.nan)
            names = (metric, f"{metric}_low", f"{metric}_high")
            for name, number in zip(names, (value, *ends), strict=True):
                table.add(model, task, split, name, number, n, subset=label, unit=unit)
