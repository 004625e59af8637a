"""The memory that a dry run foretells."""

from types import SimpleNamespace

import pytest

from cse_cli.methods.resolve import resolve
from cse_cli.training.dry_run import MIB, memory_estimate

BERT = SimpleNamespace(
    hidden_size=768,
    num_hidden_layers=12,
    num_attention_heads=12,
    intermediate_size=3072,
    vocab_size=30522,
)
WEIGHTS = 30522 * 768 + 12 * 12 * 768 * 768  # without biases, norms and positions


def estimate(**values: object) -> int:
    return memory_estimate(resolve({"precision": "bf16", **values}), BERT)


def test_weights_and_activations_of_simcse() -> None:
    activations = 12 * 32 * 128 * 768 * (34 + 5 * 12 * 32 / 768)
    assert estimate() == round((16 * WEIGHTS + activations) / MIB)


@pytest.mark.parametrize(
    ("values", "weights"), [({"method": "esimcse"}, 4), ({"method": "diffcse"}, 20)]
)
def test_models_beside_the_encoder_are_counted(values: dict[str, object], weights: int) -> None:
    further = estimate(**values) - estimate()
    twice = estimate(batch_size=128, **values) - estimate(batch_size=128)
    fixed = 2 * further - twice  # what does not grow with the batch
    assert fixed == pytest.approx(weights * WEIGHTS / MIB, abs=3)


def test_further_passes_are_counted() -> None:
    one_batch = estimate(batch_size=128) - estimate()
    assert estimate(with_=("off-dropout",)) - estimate() == pytest.approx(one_batch / 2, abs=2)
    assert estimate(with_=("masked-lm",)) - estimate() == pytest.approx(one_batch, abs=2)
    calm = estimate(with_=("noise-study",), noise_passes=3) - estimate()
    assert calm == pytest.approx(3 * one_batch, abs=2)
    assert estimate(with_=("noise-study",), noise_study="pos+") == estimate()
    columns = {"train_file": ("x.csv",), "triplet_columns": "a,b,c"}
    assert estimate(**columns) - estimate() == pytest.approx(one_batch / 2, abs=2)


def test_edited_views_need_no_discriminator() -> None:
    one_batch = estimate(batch_size=128) - estimate()
    further = estimate(method="diffcse", edited_as="positive") - estimate()
    assert further == pytest.approx(4 * WEIGHTS / MIB + one_batch / 2, abs=3)
