"""Every evaluator refuses a model whose vectors are no numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from cse_cli.data.sts import Pairs
from cse_cli.errors import InputError
from cse_cli.finite import require_finite
from cse_cli.tasks.geometry import VIEWS, geometry
from cse_cli.tasks.length_bias import length_bias
from cse_cli.tasks.sts import evaluate_sts

PAIRS = Pairs([f"a {i}" for i in range(30)], [f"b {i}" for i in range(30)], np.arange(30) / 6)
TASKS = {"t": {"t": PAIRS}}


def broken(bad: float) -> Callable[[list[str]], torch.Tensor]:
    def encode(texts: list[str]) -> torch.Tensor:
        vectors = torch.randn(len(texts), 4, generator=torch.Generator().manual_seed(0))
        vectors[texts.index("b 7"), 2] = bad
        return vectors

    return encode


def lengths(texts: list[str]) -> list[int]:
    return [len(text) for text in texts]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "measure",
    [
        lambda encode: evaluate_sts(encode, TASKS, model="m"),
        lambda encode: length_bias(encode, lengths, TASKS, model="m", resamples=2),
        *(
            lambda encode, view=view: geometry(encode, PAIRS, model="m", task="t", views=[view])
            for view in VIEWS
        ),
    ],
    ids=["sts", "length-bias", *VIEWS],
)
def test_a_model_with_one_broken_vector_is_told(measure: Any, bad: float) -> None:
    with pytest.raises(InputError, match=r"m gives NaN .* for 1 of 60 texts, .*b 7"):
        measure(broken(bad))


def test_finite_vectors_pass() -> None:
    vectors = torch.tensor([[0.0, 1e30]])
    assert require_finite(vectors, ["x"], "m") is vectors
