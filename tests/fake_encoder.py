"""Encoders without a model, and sentences for them."""

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cse_cli.index import Corpus

WORDS = "red green blue small large dog cat bird tree house runs sleeps sings falls"


class FakeEncoder:
    """The vector of a text is the sum of one fixed random vector for each of its words.

    `seen` counts the texts encoded, `delay` is slept before each call.
    """

    name, pooler, max_length = "fake", "mean", 32

    def __init__(self, dimension: int = 16, seed: int = 0, delay: float = 0.0):
        self.dimension, self.seed, self.delay, self.seen = dimension, seed, delay, 0

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self.dimension} {self.seed}".encode()).hexdigest()

    def encode(self, texts: Sequence[str]) -> Tensor:
        time.sleep(self.delay)
        self.seen += len(texts)
        return torch.stack([sum(map(self._word, text.split())) for text in texts])

    def _word(self, word: str) -> Tensor:
        digest = hashlib.sha256(f"{self.seed} {word}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        return torch.randn(self.dimension, generator=generator)


class Numbers(FakeEncoder):
    """Texts are row numbers of a matrix."""

    def __init__(self, matrix: np.ndarray):
        super().__init__(dimension=matrix.shape[1])
        self.matrix = torch.from_numpy(matrix)

    def encode(self, texts: Sequence[str]) -> Tensor:
        return self.matrix[[int(text) for text in texts]]


def near_copies(count: int, copies: int, dimension: int) -> np.ndarray:
    """Points with near neighbours, as unit vectors (count * copies, dimension)."""
    draw = np.random.default_rng(0)
    points = np.repeat(draw.standard_normal((count, dimension)), copies, axis=0)
    points += 0.3 * draw.standard_normal(points.shape)
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)


def sentences(count: int, seed: int = 0) -> list[str]:
    """Different sentences of four words and a number."""
    draw = np.random.default_rng(seed)
    return [f"{' '.join(draw.choice(WORDS.split(), 4))} {seed}-{i}" for i in range(count)]


def write(path: Path, texts: list[str]) -> Corpus:
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return Corpus.scan(str(path))
