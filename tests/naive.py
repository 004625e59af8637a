"""The slow side of the mathematics tests: plain Python floats, straight from the definitions."""

import math

import torch


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    """Standard normal float64, the same for the same shape and seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dot(a, b):
    return sum(float(x) * float(y) for x, y in zip(a, b, strict=True))


def cos(a, b):
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def direction(a):
    length = math.sqrt(dot(a, a))
    return [float(x) / length for x in a]


def squared_distance(a, b):
    return sum((x - y) ** 2 for x, y in zip(a, b, strict=True))


def columns(z):
    return [[float(row[c]) for row in z] for c in range(z.shape[1])]


def mean(values):
    return sum(values) / len(values)


def log_softmax_at(scores, index):
    return float(scores[index]) - math.log(sum(math.exp(float(score)) for score in scores))
