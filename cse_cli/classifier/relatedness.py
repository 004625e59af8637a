"""SentEval's regression of relatedness scores (Tai, Socher & Manning 2015).

A score between 1 and 5 is spread over its two neighbouring whole numbers; a softmax over five
outputs is fitted to that by mean squared error, and its expectation is the prediction:

    p = softmax(W x + b),   loss = mean (p - t)^2,   score = sum_k k p_k,  k = 1..5

Adam, lr 1e-3, no penalty, batches of 64. Every 50 epochs Pearson's correlation on the dev split is
taken; the fit ends at the miss after three, or after 1000 epochs, and the best layer is kept.
Scores below 1, which STS-B has, put their fraction on the first output and nothing else, as there.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import pearsonr, spearmanr
from torch import Tensor

from cse_cli.classifier.senteval import initial_layer
from cse_cli.classifier.updates import adam

OUTPUTS = 5
BATCH = 64
ROUND = 50  # epochs between two looks at the dev split
EPOCHS = 1000
TENACITY = 3

Scored = tuple[Tensor, np.ndarray]  # rows (n, d) float32 and their scores (n,)


@dataclass(frozen=True)
class Relatedness:
    """Correlations of predicted and gold scores on the test split, and Pearson's on dev."""

    pearson: float
    spearman: float
    dev_pearson: float


def regress(train: Scored, dev: Scored, test: Scored, seed: int = 1111) -> Relatedness:
    """Fit on `train`, stop on `dev`, score `test`."""
    weight = initial_layer(train[0].shape[1], OUTPUTS, seed)  # (5, d+1)
    inputs, targets = _with_ones(train[0]), _spread(train[1])
    generator = np.random.RandomState(seed)
    moments = [torch.zeros_like(weight), torch.zeros_like(weight)]
    best, kept, misses, steps = -1.0, weight.clone(), 0, 0
    for _ in range(EPOCHS // ROUND + 1):
        for _ in range(ROUND):
            order = torch.from_numpy(generator.permutation(len(inputs)))
            for rows in order.split(BATCH):
                steps += 1
                gradient = _gradient(weight, inputs[rows], targets[rows])
                adam(weight, gradient, moments, torch.empty_like(weight), steps)
        pearson = float(pearsonr(_predict(weight, dev[0]), dev[1])[0])
        pearson = 0.0 if math.isnan(pearson) else pearson
        if pearson > best:
            best, kept = pearson, weight.clone()
        elif misses >= TENACITY:
            break
        else:
            misses += 1
    predicted = _predict(kept, test[0])
    return Relatedness(
        float(pearsonr(predicted, test[1])[0]), float(spearmanr(predicted, test[1])[0]), best
    )


def _with_ones(X: Tensor) -> Tensor:
    return torch.cat([X.float(), torch.ones(len(X), 1)], dim=1)


def _spread(scores: np.ndarray) -> Tensor:
    """Scores (n,) as weights (n, 5) of the whole numbers around them."""
    whole = np.arange(1, OUTPUTS + 1)
    near = np.maximum(0.0, 1 - np.abs(scores[:, None] - whole))
    return torch.from_numpy(near).float()


def _gradient(weight: Tensor, x: Tensor, target: Tensor) -> Tensor:
    """Of the loss (5, d+1), for a batch x (b, d+1) and its targets (b, 5)."""
    p = (x @ weight.T).softmax(dim=1)
    slope = 2 * (p - target) / target.numel()
    return (p * (slope - (slope * p).sum(dim=1, keepdim=True))).T @ x


def _predict(weight: Tensor, X: Tensor) -> np.ndarray:
    p = (_with_ones(X) @ weight.T).softmax(dim=1)
    return (p.double() @ torch.arange(1.0, OUTPUTS + 1, dtype=torch.float64)).numpy()
