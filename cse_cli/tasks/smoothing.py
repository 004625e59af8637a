"""Over-smoothing, layer by layer: SetSim and TokSim of SSCL (Figures 1, 4 and 5).

    SetSim_l = mean over sentences of cos(s_l, s_{l+1})                    l = 0 .. L-1
    TokSim_l = mean over sentences of 1/(m(m-1)) sum_{u != v} cos(x_u, x_v)   l = 0 .. L

s_l is the sentence vector of layer l, all layers pooled alike and without a head; x_u are the m
tokens of layer l, [CLS] and [SEP] among them, padding not. Layer 0 is the embedding output.

One pass over the sentences: each group's hidden states are reduced to one number a sentence and
layer, and those to a running mean and variance, so memory does not grow with the corpus. Repeated
sentences go through the encoder once and count as often as they occur.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from cse_cli.errors import InputError
from cse_cli.maths import cosine, paired_cosine, token_similarity
from cse_cli.pooling import check_pooler, pool_layer
from cse_cli.results import Table

Result = TypeVar("Result")
Measured = tuple[np.ndarray, Tensor, list[Tensor]]  # places (B,), TokSim (B, L+1), SetSims (B, L)
CHUNK = 1 << 11  # texts held at a time
Z95 = 1.959964  # half-width of a 95 % interval in standard errors


class Layers(Protocol):
    """What the encoder gives for a group of texts (`cse_cli.encoder.LayerBatch`)."""

    index: np.ndarray
    ids: Tensor
    mask: Tensor
    states: tuple[Tensor, ...]


class Stream(Protocol):
    """What reduces the hidden states of texts, a group at a time (`Encoder.stream`)."""

    def __call__(
        self, texts: Sequence[str], reduce: Callable[[Layers], Result], /
    ) -> Iterable[Result]:
        """What `reduce` makes of each group."""
        ...


class RunningMean:
    """Weighted mean of K quantities and its standard error, in one pass and float64.

    NaN entries do not count, each quantity on its own. Groups are merged as in Chan et al. (1983),
    which loses no digits to subtraction.
    """

    def __init__(self) -> None:
        self.count: np.ndarray = np.zeros(0)
        self.mean: np.ndarray = np.zeros(0)
        self._squares: np.ndarray = np.zeros(0)

    def add(self, values: Tensor, weights: Tensor) -> None:
        """Add a group: `values` (B, K), each row `weights` (B,) times."""
        x = values.double().cpu().numpy()
        valid = ~np.isnan(x)
        w = weights.double().cpu().numpy()[:, None] * valid
        x = np.where(valid, x, 0.0)
        count = w.sum(axis=0)
        mean = (w * x).sum(axis=0) / np.maximum(count, 1)
        squares = (w * (x - mean) ** 2).sum(axis=0)
        if not len(self.count):
            self.count, self.mean, self._squares = count, mean, squares
            return
        total = self.count + count
        step = (mean - self.mean) * count / np.maximum(total, 1)
        self._squares = self._squares + squares + (mean - self.mean) * step * self.count
        self.mean = self.mean + step
        self.count = total

    def result(self) -> Iterator[tuple[float, float, float, int]]:
        """Mean, low and high end of its 95 % interval, and count of each quantity; NaN without."""
        for mean, squares, count in zip(self.mean, self._squares, self.count, strict=True):
            if count == 0:
                yield math.nan, math.nan, math.nan, 0
                continue
            error = math.sqrt(squares / (count - 1) / count) if count > 1 else math.nan
            yield float(mean), float(mean - Z95 * error), float(mean + Z95 * error), int(count)


def smoothing(
    stream: Stream,
    texts: Iterable[str],
    *,
    poolers: Sequence[str],
    model: str,
    task: str,
    split: str = "",
    ignore: Iterable[int] = (),
) -> Table:
    """SetSim of every pooler and TokSim over the layers, each with its 95 % interval.

    `stream` yields the hidden states of the texts it is given; tokens whose ids are in `ignore`
    do not count in TokSim. A sentence with fewer than two counted tokens has no TokSim and is left
    out of it: the `n` of the two metrics tells how many.

    Rows: `setsim` (keys pooler, layer = l of the pair l, l+1), `toksim` (layer), and the ends of
    their intervals as `setsim_low` and so on. Raises InputError without a text, or for states that
    are not finite.
    """
    kinds = {name: _per_layer(name) for name in poolers}
    toksim, setsim = RunningMean(), {name: RunningMean() for name in poolers}
    left_out = list(ignore)

    def measured(batch: Layers) -> Measured:
        """A group's places in the texts, its TokSim (B, L+1), and each pooler's SetSim (B, L)."""
        similarities = [_layer_similarities(batch, kind) for kind in kinds.values()]
        return batch.index, _token_similarities(batch, left_out), similarities

    for (index, tokens, sets), occurrences in _distinct(stream, texts, measured):
        weights = occurrences[torch.as_tensor(index)]
        toksim.add(tokens, weights)
        for name, values in zip(kinds, sets, strict=True):
            if not values.isfinite().all():
                raise InputError(f"{model} gives NaN or infinite states: the checkpoint is damaged")
            setsim[name].add(values, weights)
    if not len(toksim.count):
        raise InputError(f"{task} holds no sentence to measure")
    table = Table()
    for name, running in setsim.items():
        _add(table, "setsim", running, model=model, task=task, split=split, pooler=name)
    _add(table, "toksim", toksim, model=model, task=task, split=split)
    return table


def _distinct(
    stream: Stream, texts: Iterable[str], measured: Callable[[Layers], Measured]
) -> Iterator[tuple[Measured, Tensor]]:
    """`measured` of groups of distinct texts, with how often each text of the chunk occurs.

    `CHUNK` texts are held at a time.
    """
    source = iter(texts)
    while chunk := list(islice(source, CHUNK)):
        occurrences = Counter(chunk)
        weights = torch.tensor(list(occurrences.values()))
        for found in stream(list(occurrences), measured):
            yield found, weights


def _per_layer(pooler: str) -> str:
    """How one layer is pooled: the two-layer poolers take the mean of each."""
    return "mean" if check_pooler(pooler).endswith("_mean") else pooler


def _layer_similarities(batch: Layers, kind: str) -> Tensor:
    """(B, L): cosine of each sentence's vectors in consecutive layers."""
    pooled = [pool_layer(state, batch.mask, kind).float() for state in batch.states]
    pairs = [paired_cosine(lower, upper) for lower, upper in pairwise(pooled)]
    return torch.stack(pairs, dim=1)


def _token_similarities(batch: Layers, ignore: list[int]) -> Tensor:
    """(B, L+1): TokSim of each sentence in each layer; NaN with fewer than two tokens."""
    mask = batch.mask.bool()
    if ignore:
        mask = mask & ~torch.isin(batch.ids, torch.tensor(ignore, device=batch.ids.device))
    return torch.stack([token_similarity(state.float(), mask) for state in batch.states], dim=1)


def _add(table: Table, metric: str, running: RunningMean, **keys: str) -> None:
    """One row a layer for the mean and one for each end of its interval."""
    model, task, split = keys.pop("model"), keys.pop("task"), keys.pop("split")
    for layer, (mean, low, high, n) in enumerate(running.result()):
        for name, value in ((metric, mean), (f"{metric}_low", low), (f"{metric}_high", high)):
            table.add(model, task, split, name, value, n, **keys, layer=layer)


@dataclass(frozen=True)
class TokenMatrix:
    """Cosines between the m tokens of one sentence in one layer: SSCL Figure 5."""

    model: str
    layer: int
    tokens: list[str]
    cosines: np.ndarray  # (m, m)

    def rows(self) -> Table:
        """The upper triangle as `token_cosine` rows; `subset` names the two tokens."""
        table = Table()
        for i in range(len(self.tokens)):
            for j in range(i + 1, len(self.tokens)):
                pair = f"{i}:{self.tokens[i]} {j}:{self.tokens[j]}"
                value = float(self.cosines[i, j])
                table.add(
                    self.model, "sentence", "", "token_cosine", value, 1,
                    subset=pair, layer=self.layer,
                )  # fmt: skip
        return table


def token_matrix(
    stream: Stream,
    sentence: str,
    *,
    model: str,
    layer: int,
    names: Callable[[list[int]], list[str]],
    ignore: Iterable[int] = (),
) -> TokenMatrix:
    """The token-by-token cosines of `sentence` in `layer` (0 .. L; negative from the last).

    `names` turns token ids into what is written on the axes. Raises InputError for a sentence with
    fewer than two counted tokens.
    """
    (batch,) = stream([sentence], lambda batch: batch)
    ids = [int(i) for i in batch.ids[0]]
    left_out = set(ignore)
    kept = [t for t, i in enumerate(ids) if batch.mask[0, t] and i not in left_out]
    if len(kept) < 2:
        raise InputError(f"--heatmap '{sentence}' has fewer than two tokens: nothing to compare")
    layer = layer % len(batch.states)
    tokens = batch.states[layer][0, kept].float()
    cosines = cosine(tokens, tokens).cpu().numpy()
    return TokenMatrix(model, layer, names([ids[t] for t in kept]), cosines)
