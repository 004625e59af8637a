"""The shape of a sentence space, in seven views.

- plane: alignment and uniformity (Wang & Isola 2020; DiffCSE Table 11, SimCSE++ Figure 1);
- distribution: cosines by gold score (DiffCSE Figure 2);
- spectrum: singular values, effective rank, mean cosine (anisotropy);
- correlation: between the vectors' dimensions (feature corruption, SimCSE++ section 4);
- rank: of a batch's cross-correlation matrix (SimCSE++ section 4.2);
- batch: the four largest in-batch cosines, and those with noise (GS-InfoNCE Figure 1);
- dimension: the score of shortened vectors (the question of SSCL Table 5).

All on evaluation vectors. The first, second and last view need scored pairs, the others sentences.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cse_cli.data.sts import Pairs
from cse_cli.errors import InputError
from cse_cli.finite import require_finite
from cse_cli.maths import (
    alignment,
    cosine,
    paired_cosine,
    spearman_groups,
    top_similarities,
    uniformity,
    unit,
)
from cse_cli.results import Table

GROUPS = ("0-1", "1-2", "2-3", "3-4", "4-5")  # gold scores; the last includes 5
BIN_WIDTH = 0.05  # of the cosine histograms
THRESHOLDS = tuple(round(0.02 * step, 2) for step in range(51))  # of |correlation|
BATCHES = (16, 32, 64, 128, 256, 512)
TOP = 4
BATCH_DRAWS = 100  # random batches of each size, as in GS-InfoNCE
ROUNDING = 8 * torch.finfo(torch.float32).eps  # 1e-6
NOISE_PER_SENTENCE = 3  # Gaussian vectors a sentence, GS-InfoNCE's M = 3N

Encode = Callable[[list[str]], Tensor]


@dataclass(frozen=True)
class Space:
    """One model's vectors: of P scored pairs, and of N distinct sentences."""

    model: str
    task: str
    split: str
    a: Tensor  # (P, D)
    b: Tensor  # (P, D)
    gold: np.ndarray  # (P,)
    corpus: str
    x: Tensor  # (N, D)
    seed: int
    threshold: str

    def pair_row(self, table: Table, metric: str, value: float, n: int, **keys: object) -> None:
        """Add a row on the scored pairs."""
        table.add(self.model, self.task, self.split, metric, value, n, **keys)

    def text_row(self, table: Table, metric: str, value: float, **keys: object) -> None:
        """Add a row on the distinct sentences."""
        split = self.split if self.corpus == self.task else ""
        table.add(self.model, self.corpus, split, metric, value, len(self.x), **keys)


def geometry(
    encode: Encode,
    pairs: Pairs,
    *,
    model: str,
    task: str,
    split: str = "test",
    views: Sequence[str],
    corpus: tuple[str, Sequence[str]] | None = None,
    threshold: str = ">4",
    seed: int = 0,
) -> Table:
    """The rows of each of `views` (see `VIEWS`) for one model.

    `pairs` are scored 0-5; those over `threshold` (">4" or ">=4") are alignment's positives.
    `corpus` (name, sentences) is measured by the views on sentences in place of the pairs' own.
    Raises InputError for fewer than two distinct sentences, no positive pair, or vectors that are
    not finite.
    """
    named, sentences = corpus or (task, [*pairs.a, *pairs.b])
    distinct = list(dict.fromkeys(sentences))
    if len(distinct) < 2:
        raise InputError(f"{named} holds {len(distinct)} distinct sentences, at least 2 are needed")
    texts = list(dict.fromkeys([*pairs.a, *pairs.b, *distinct]))
    place = {text: row for row, text in enumerate(texts)}
    vectors = require_finite(encode(texts).float(), texts, model)
    a, b, x = (vectors[[place[t] for t in part]] for part in (pairs.a, pairs.b, distinct))
    space = Space(model, task, split, a, b, pairs.gold, named, x, seed, threshold)
    table = Table()
    for view in views:
        VIEWS[view](space, table)
    return table


def plane(space: Space, table: Table) -> None:
    """`alignment` of the positives (key threshold), `uniformity` of all sentences, `spearman_all`.

    Uniformity takes the pairs' 2P sentences as they occur: they are the data distribution.
    """
    positive = space.gold > 4 if space.threshold == ">4" else space.gold >= 4
    if not positive.any():
        raise InputError(f"{space.task} has no pair with a gold score {space.threshold}")
    chosen = torch.from_numpy(positive)
    close = float(alignment(space.a[chosen], space.b[chosen]))
    n = int(positive.sum())
    space.pair_row(table, "alignment", close, n, threshold=space.threshold)
    both = torch.cat([space.a, space.b])
    space.pair_row(table, "uniformity", float(uniformity(both)), len(both))
    cosines = paired_cosine(space.a, space.b)
    space.pair_row(table, "spearman_all", _spearman(cosines, space.gold), len(space.gold))


def distribution(space: Space, table: Table) -> None:
    """`cosine_mean`, `cosine_sd` and `cosine_density` of the pairs by gold score.

    The key subset is the group of gold scores, threshold the middle of a histogram bin.
    """
    cosines = paired_cosine(space.a, space.b).double().numpy().clip(-1, 1)
    group = np.clip(np.floor(space.gold), 0, len(GROUPS) - 1)
    edges = np.linspace(-1, 1, round(2 / BIN_WIDTH) + 1)
    for number, name in enumerate(GROUPS):
        members = cosines[group == number]
        if not len(members):
            continue
        space.pair_row(table, "cosine_mean", float(members.mean()), len(members), subset=name)
        space.pair_row(table, "cosine_sd", float(members.std()), len(members), subset=name)
        density, _ = np.histogram(members, edges, density=True)
        for middle, value in zip(edges[:-1] + BIN_WIDTH / 2, density, strict=True):
            space.pair_row(
                table, "cosine_density", value, len(members),
                subset=name, threshold=round(float(middle), 3),
            )  # fmt: skip


def spectrum(space: Space, table: Table) -> None:
    """`singular_value` (key k, relative to the largest), `effective_rank`, `mean_cosine`.

    Of the matrix of unit vectors, not centred: a direction that all sentences share is the
    anisotropy looked for. Effective rank: e to the entropy of the singular values as shares
    (Roy & Vetterli 2007). Mean cosine: over all pairs of different sentences.
    """
    x = unit(space.x.double())
    values = torch.linalg.svdvals(x)
    shares = values / values.sum()
    space.text_row(table, "effective_rank", float(torch.special.entr(shares).sum().exp()))
    n = len(x)
    pairs = x.sum(dim=0).square().sum() - x.square().sum()  # |sum|^2 holds every ordered pair once
    space.text_row(table, "mean_cosine", float(pairs) / (n * (n - 1)))
    for k, value in enumerate(values / values[0], start=1):
        space.text_row(table, "singular_value", float(value), k=k)


def correlation(space: Space, table: Table) -> None:
    """`dimension_correlation`: mean |r| over pairs of dimensions; `correlation_share`: of those
    pairs, how many have |r| over the key threshold. A constant dimension correlates with none."""
    x = space.x.double()
    columns = unit(x - x.mean(dim=0), dim=0)
    r = (columns.T @ columns).abs()
    pairs = r[torch.triu(torch.ones_like(r, dtype=torch.bool), diagonal=1)]
    if not len(pairs):
        raise InputError(f"{space.model} has vectors of one dimension: no pair to correlate")
    space.text_row(table, "dimension_correlation", float(pairs.mean()))
    for threshold in THRESHOLDS:
        share = float((pairs > threshold).double().mean())
        space.text_row(table, "correlation_share", share, threshold=threshold)


def rank(space: Space, table: Table) -> None:
    """`rank` and `rank_centred` of a random batch's cross-correlation matrix (key k: batch size).

    Both views are the evaluation vectors; dropout would not change the bound min(N, D), or
    min(N - 1, D) centred as the released code's BatchNorm does.
    """
    generator = torch.Generator().manual_seed(space.seed)
    for size in _batch_sizes(space.x):
        batch = space.x[torch.randperm(len(space.x), generator=generator)[:size]].double()
        found = cross_correlation_rank(batch, batch)
        centred = batch - batch.mean(dim=0)
        space.text_row(table, "rank", found, k=size)
        space.text_row(table, "rank_centred", cross_correlation_rank(centred, centred), k=size)


def cross_correlation_rank(z1: Tensor, z2: Tensor) -> int:
    """Rank of C_cd = sum_i z1_ic z2_id / (|z1_.c| |z2_.d|), for z1, z2 (N, D): at most min(N, D).

    The vectors are float32: singular values under `ROUNDING` of the largest are its rounding.
    """
    c = unit(z1.double(), dim=0).T @ unit(z2.double(), dim=0)  # (D, D)
    return int(torch.linalg.matrix_rank(c, rtol=ROUNDING))


def batch(space: Space, table: Table) -> None:
    """`top_similarity`: the largest cosines of a random batch, averaged over the draws, by batch
    size (key k) and place (subset 1 … 4, and `mean`); `noise_similarity`: the same between the
    sentences and 3N standard normal vectors."""
    generator = torch.Generator().manual_seed(space.seed)
    x, names = unit(space.x), [*map(str, range(1, TOP + 1)), "mean"]
    for size in _batch_sizes(x):
        tops, noises = [], []
        for _ in range(BATCH_DRAWS):
            chosen = x[torch.randperm(len(x), generator=generator)[:size]]
            tops.append(top_similarities(chosen, TOP))
            noise = torch.randn(NOISE_PER_SENTENCE * size, x.shape[1], generator=generator)
            noises.append(cosine(chosen, noise).flatten().topk(TOP).values)
        for metric, drawn in (("top_similarity", tops), ("noise_similarity", noises)):
            places = torch.stack(drawn).double().mean(dim=0)
            for name, value in zip(names, [*places, places.mean()], strict=True):
                space.text_row(table, metric, float(value), subset=name, k=size)


def dimension(space: Space, table: Table) -> None:
    """Spearman of the pairs with vectors cut to k dimensions (key k).

    `spearman_truncated` keeps the first k coordinates, `spearman_pca` the k directions that carry
    most of the sentences (uncentred, so all D of them give the full score again).
    """
    directions = torch.linalg.svd(space.x.double(), full_matrices=False).Vh.T  # (D, min(N, D))
    width = space.x.shape[1]
    for k in sorted({2**p for p in range(3, int(math.log2(width)) + 1)} | {width}):
        for metric, basis in (("truncated", torch.eye(width)[:, :k]), ("pca", directions[:, :k])):
            a, b = (side.double() @ basis.double() for side in (space.a, space.b))
            score = _spearman(paired_cosine(a, b), space.gold)
            space.pair_row(table, f"spearman_{metric}", score, len(space.gold), k=k)


VIEWS: dict[str, Callable[[Space, Table], None]] = {
    "plane": plane,
    "distribution": distribution,
    "spectrum": spectrum,
    "correlation": correlation,
    "rank": rank,
    "batch": batch,
    "dimension": dimension,
}


def _batch_sizes(x: Tensor) -> list[int]:
    """The batch sizes that the sentences suffice for, or all sentences as one batch."""
    return [size for size in BATCHES if size <= len(x)] or [len(x)]


def _spearman(cosines: Tensor, gold: np.ndarray) -> float:
    return spearman_groups({"": (cosines, gold)})["all"]["spearman"]
