"""What every ingredient keeps to, over all of them; a new one in INGREDIENTS joins by itself."""

import itertools
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cse_cli.errors import UsageError
from cse_cli.methods import CHANGE_LOGITS, INGREDIENTS
from cse_cli.methods.base import draw
from cse_cli.training.step import diagnostics
from tests.trainer import Trainer, make_trainer, write_triplets

NAMES = list(INGREDIENTS)
# Weights, not sizes: at 0 the run is the run without the ingredient.
WEIGHTS = {
    "gaussian-noise": "noise_weight",
    "dcl": "dcl_weight",
    "barlow-twins": "bt_weight",
    "replaced-tokens": "rtd_weight",
    "masked-lm": "mlm_weight",
}


DIAGNOSTICS = {
    "layer-negatives": {"layer_cosine", "layer_negative_cosine"},
    "word-repetition": {"tokens_added"},
    "momentum-queue": {"queue_fill"},
    "gaussian-noise": {"noise_logit"},
    "dcl": {"dcl"},
    "barlow-twins": {"barlow_twins"},
    "hard-negatives": {"hard_cosine"},
    "replaced-tokens": {"rtd_accuracy_replaced", "rtd_accuracy_kept", "replaced_share"},
    "masked-lm": {"mlm_accuracy"},
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, sentences: list[str]) -> dict[bool, Path]:
    """A corpus of sentences (False) and of triplets (True), every fourth sentence one token."""
    some = [s.split()[0] if i % 4 == 0 else s for i, s in enumerate(sentences[:64])]
    folder = tmp_path_factory.mktemp("contract")
    plain = folder / "plain.txt"
    plain.write_text("\n".join(some) + "\n", encoding="utf-8")
    return {False: plain, True: write_triplets(folder / "triplets.tsv", some)}


@pytest.fixture
def trainer(tiny_bert: Path, files: dict[bool, Path]):
    """Makes a trainer with the named ingredients."""

    def make(*names: str, **settings: object) -> Trainer:
        return make_trainer(tiny_bert, files["hard-negatives" in names], names, **settings)

    return make


@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_a_finite_loss(name: str, trainer) -> None:
    t = trainer(name)
    for step in (1, 2):
        outcome = t.step(step)
        assert outcome.loss.shape == ()
        assert outcome.loss.isfinite()
        assert all(term.isfinite() for term in outcome.terms.values())
    views, (part,) = outcome.views, t.parts
    s = torch.zeros(8, 8)
    assert part.logits(views, s).shape == (8, 8)
    columns = part.negatives(views)
    assert columns is None or (columns.ndim == 2 and len(columns) == 8)
    term = part.loss(views, s)
    assert term is None or term.shape == ()


@pytest.mark.parametrize("name", NAMES)
def test_gradient_reaches_what_is_trained_and_nothing_else(name: str, trainer) -> None:
    t = trainer(name)
    t.step(1)
    before = {key: value.clone() for key, value in t.parts[0].state_dict().items()}
    t.measure(2)
    for module in (t.encoder, *t.parts):
        for key, parameter in module.named_parameters():
            if parameter.requires_grad:
                assert parameter.grad is not None, key
                assert parameter.grad.isfinite().all(), key
            else:
                assert parameter.grad is None, key
        assert not any(buffer.requires_grad for buffer in module.buffers())
    reached = [p.grad.abs().sum() > 0 for p in t.encoder.backbone.encoder.parameters()]
    assert all(reached[:-1])
    after = t.parts[0].state_dict()
    frozen = [k for k, v in before.items() if k not in dict(t.parts[0].named_parameters())]
    # Running statistics apart, a forward and backward pass changes no state.
    assert all(
        torch.equal(before[k], after[k])
        for k in frozen
        if "running" not in k and "num_batches" not in k
    )


@pytest.mark.parametrize("name", NAMES)
def test_modes_and_random_state_are_restored(name: str, trainer) -> None:
    t = trainer(name)
    modes = {key: m.training for key, m in t.encoder.named_modules()}
    outcome = t.step(1)
    assert {key: m.training for key, m in t.encoder.named_modules()} == modes
    state = torch.get_rng_state()
    t.batch(2)
    t.parts[0].after_step(outcome.views)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_a_pure_function_of_tokens_and_generator(name: str, trainer) -> None:
    t = trainer(name)
    tokens = t.corpus.batch(torch.arange(16), 0)
    ids = tokens.ids.clone()
    for hook in (t.parts[0].positive, t.parts[0].further):
        first, again = hook(tokens, draw(1, 1, "a")), hook(tokens, draw(1, 1, "a"))
        assert torch.equal(tokens.ids, ids)
        if first is not None:
            assert torch.equal(first.ids, again.ids)
            assert torch.equal(first.lengths, again.lengths)
            assert len(first) == len(tokens)


@pytest.mark.parametrize("name", NAMES)
def test_one_token_sentences(name: str, tiny_bert: Path, tmp_path: Path) -> None:
    words = ["dog", "cat", "man", "woman", "child", "street", "ball", "house"]
    file = tmp_path / "words.txt"
    file.write_text("\n".join(words) + "\n", encoding="utf-8")
    if name == "hard-negatives":
        file = write_triplets(tmp_path / "words.tsv", words)
    t = make_trainer(tiny_bert, file, [name])
    for step in (1, 2):
        assert t.step(step).loss.isfinite()


@pytest.mark.parametrize("name", NAMES)
def test_state_survives_save_and_load(name: str, trainer, tmp_path: Path) -> None:
    ran, fresh = trainer(name), trainer(name, seed=0)
    for step in (1, 2):
        ran.step(step)
    for key, module in (("encoder", ran.encoder), ("part", ran.parts[0])):
        tensors = {k: v.contiguous().clone() for k, v in module.state_dict().items()}
        save_file(tensors, tmp_path / key)
    fresh.encoder.load_state_dict(load_file(tmp_path / "encoder"))
    fresh.parts[0].load_state_dict(load_file(tmp_path / "part"))
    assert torch.equal(ran.measure(3).loss, fresh.measure(3).loss)
    outcome = ran.measure(3)
    ran.parts[0].after_step(outcome.views)
    fresh.parts[0].after_step(outcome.views)
    for key, value in ran.parts[0].state_dict().items():
        assert torch.equal(value, fresh.parts[0].state_dict()[key]), key


@pytest.mark.parametrize("name", NAMES)
def test_diagnostics_are_finite_numbers(name: str, trainer) -> None:
    t = trainer(name)
    t.step(1)
    seen = diagnostics(t.parts)
    assert set(seen) == DIAGNOSTICS.get(name, set())
    assert all(math.isfinite(float(value)) for value in seen.values())


@pytest.mark.parametrize(("first", "second"), itertools.combinations(NAMES, 2))
def test_every_pair_trains(first: str, second: str, trainer) -> None:
    if {first, second} <= CHANGE_LOGITS:
        with pytest.raises(UsageError, match="leave one out"):
            trainer(first, second)
        return
    t = trainer(first, second)
    for step in (1, 2):
        assert t.step(step).loss.isfinite()


@pytest.mark.parametrize(("name", "weight"), WEIGHTS.items())
def test_weight_0_is_the_run_without(name: str, weight: str, trainer) -> None:
    plain, zero = trainer(), trainer(name, **{weight: 0.0})
    assert torch.equal(plain.measure().loss, zero.measure().loss)
    pairs = zip(plain.encoder.parameters(), zero.encoder.parameters(), strict=True)
    assert all(torch.equal(a.grad, b.grad) for a, b in pairs)
