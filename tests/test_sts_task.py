"""The STS evaluator against a loop written from the definition, and what it asks of `encode`."""

import math
import random
from collections import Counter

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr

from cse_cli.data.sts import Pairs
from cse_cli.tasks.sts import METRICS, evaluate_sts, sts_dev

SIZES = {"STS12": {"x": 30, "y": 11, "z": 50}, "STS-B": {"STS-B": 40}}


class Vectors:
    """A fixed random vector a sentence; counts what it is asked to encode."""

    def __init__(self, width: int = 6) -> None:
        self.width = width
        self.calls: list[list[str]] = []
        self.zero: set[str] = set()

    def __call__(self, texts: list[str]) -> torch.Tensor:
        self.calls.append(list(texts))
        return torch.stack([torch.tensor(self.of(text)) for text in texts])

    def of(self, text: str) -> np.ndarray:
        if text in self.zero:
            return np.zeros(self.width, dtype=np.float32)
        seed = sum(ord(character) * 31**i for i, character in enumerate(text)) % 2**32
        return np.random.default_rng(seed).normal(size=self.width).astype(np.float32)


@pytest.fixture
def tasks() -> dict[str, dict[str, Pairs]]:
    draw = random.Random(0)
    pool = [f"sentence {i}" for i in range(45)]  # few, so that many occur in several pairs

    def pairs(size: int) -> Pairs:
        # Two different sentences: cos(x, x) is 1 but for rounding, and rounding must not rank.
        drawn = [draw.sample(pool, 2) for _ in range(size)]
        gold = np.array([draw.randint(0, 10) / 2 for _ in range(size)])
        return Pairs([a for a, _ in drawn], [b for _, b in drawn], gold)

    return {
        task: {name: pairs(size) for name, size in subsets.items()}
        for task, subsets in SIZES.items()
    }


def naive_cosine(a: np.ndarray, b: np.ndarray) -> float:
    dot = sum(float(x) * float(y) for x, y in zip(a, b, strict=True))
    length = math.sqrt(sum(float(x) ** 2 for x in a)) * math.sqrt(sum(float(x) ** 2 for x in b))
    return dot / length if length else 0.0


def naive(vectors: Vectors, subsets: dict[str, Pairs]) -> dict[str, float]:
    """The six metrics, pair by pair and subset by subset."""
    parts = []
    for pairs in subsets.values():
        cosines = [
            naive_cosine(vectors.of(a), vectors.of(b))
            for a, b in zip(pairs.a, pairs.b, strict=True)
        ]
        parts.append((cosines, list(pairs.gold)))
    result = {}
    for name, correlate in (("spearman", spearmanr), ("pearson", pearsonr)):
        each = [float(correlate(cosines, gold)[0]) for cosines, gold in parts]
        sizes = [len(gold) for _, gold in parts]
        together = [[value for part in parts for value in part[side]] for side in (0, 1)]
        result[f"{name}_all"] = float(correlate(*together)[0])
        result[f"{name}_mean"] = sum(each) / len(each)
        weighted = sum(value * size for value, size in zip(each, sizes, strict=True))
        result[f"{name}_wmean"] = weighted / sum(sizes)
    return result


def test_every_metric_equals_the_naive_loop(tasks: dict[str, dict[str, Pairs]]) -> None:
    vectors = Vectors()
    table = evaluate_sts(vectors, tasks, model="m", pooler="cls")
    for task, subsets in tasks.items():
        for metric, value in naive(vectors, subsets).items():
            found = table.where(task=task, metric=metric).rows
            assert len(found) == 1
            assert found[0].value == pytest.approx(value, abs=1e-12)
            assert found[0].n == sum(map(len, subsets.values()))
            assert (found[0].model, found[0].split, found[0].keys) == (
                "m",
                "test",
                {"pooler": "cls"},
            )


def test_average_is_of_the_unrounded_values(tasks: dict[str, dict[str, Pairs]]) -> None:
    table = evaluate_sts(Vectors(), tasks, model="m")
    for metric in METRICS:
        values = [table.value(task=task, metric=metric) for task in tasks]
        assert table.value(task="Avg", metric=metric) == sum(values) / len(values)


def test_each_sentence_is_encoded_once_in_one_call(tasks: dict[str, dict[str, Pairs]]) -> None:
    vectors = Vectors()
    evaluate_sts(vectors, tasks, model="m", detail=True)
    (texts,) = vectors.calls
    wanted = {t for s in tasks.values() for p in s.values() for t in (*p.a, *p.b)}
    assert set(texts) == wanted
    assert max(Counter(texts).values()) == 1


def test_subset_rows_come_with_detail_only(tasks: dict[str, dict[str, Pairs]]) -> None:
    vectors = Vectors()
    plain = evaluate_sts(vectors, tasks, model="m")
    assert not any("subset" in row.keys for row in plain)
    rows = [row for row in evaluate_sts(vectors, tasks, model="m", detail=True) if row.keys]
    assert [(row.task, row.keys["subset"], row.metric, row.n) for row in rows] == [
        ("STS12", name, metric, size)
        for name, size in SIZES["STS12"].items()
        for metric in ("spearman", "pearson")
    ]
    for row in rows:
        alone = naive(vectors, {"only": tasks["STS12"][row.keys["subset"]]})
        assert row.value == pytest.approx(alone[f"{row.metric}_all"], abs=1e-12)


def test_a_vector_without_direction_has_cosine_zero(tasks: dict[str, dict[str, Pairs]]) -> None:
    vectors = Vectors()
    vectors.zero = {"sentence 3", "sentence 4"}
    table = evaluate_sts(vectors, tasks, model="m")
    for task, subsets in tasks.items():
        value = naive(vectors, subsets)["spearman_all"]
        assert table.value(task=task, metric="spearman_all") == pytest.approx(value, abs=1e-12)


def test_cosines_are_taken_in_double_precision() -> None:
    """Cosines that single precision cannot tell apart are ranked right."""
    angles = np.array([3e-4, 1e-4, 4e-4, 2e-4])

    def encode(texts: list[str]) -> torch.Tensor:
        rows = [[1.0, 0.0] if t == "x" else [1.0, angles[int(t)]] for t in texts]
        return torch.tensor(rows, dtype=torch.float32)

    pairs = Pairs(["x"] * 4, ["0", "1", "2", "3"], -angles)
    assert sts_dev(encode, pairs) == pytest.approx(1.0)


def test_training_selects_by_the_same_number(tasks: dict[str, dict[str, Pairs]]) -> None:
    vectors = Vectors()
    pairs = tasks["STS-B"]["STS-B"]
    table = evaluate_sts(vectors, {"STS-B": {"STS-B": pairs}}, model="m", split="dev")
    assert sts_dev(vectors, pairs) == table.value(task="STS-B", metric="spearman_all")
    assert {row.split for row in table} == {"dev", ""}
