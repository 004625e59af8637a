"""The frozen generator: what it fills in, what it may be, and what is refused."""

from pathlib import Path

import pytest
import torch

from cse_cli.data.tokens import Tokens
from cse_cli.encoder import Encoder
from cse_cli.errors import InputError, UsageError
from cse_cli.methods.base import draw
from cse_cli.methods.edits import Vocabulary, mask
from cse_cli.methods.generator import Generator, check_vocabulary
from tests.conftest import make_tiny_bert
from tests.families import FAMILIES, make_family
from tests.masked_models import other_words, without_head
from tests.runs import train
from tests.trainer import Trainer, make_trainer


@pytest.fixture
def diffcse(tiny_bert: Path, corpus_file: Path):
    """Makes a trainer of DiffCSE on the tiny BERT."""

    def make(**settings: object) -> Trainer:
        return make_trainer(tiny_bert, corpus_file, method="diffcse", **settings)

    return make


def generator(folder: Path, encoder: Encoder) -> Generator:
    return Generator.load(str(folder), encoder.tokenizer, torch.device("cpu"), named=True)


def test_the_generator_is_frozen_without_dropout_and_in_no_state(diffcse) -> None:
    t = diffcse()
    model = t.parts[0].editor.generator.model
    assert not any(module.training for module in model.modules())  # after part.train()
    assert all(key.startswith("discriminator.") for key in t.parts[0].state_dict())


@pytest.mark.parametrize("family", FAMILIES)
def test_masks_are_filled_by_the_whole_models_own_logits(family: str, tmp_path: Path) -> None:
    folder = make_family(family, tmp_path / family)
    encoder = Encoder.load(str(folder), pooler="cls")
    g = generator(folder, encoder)
    ids = [[2, 6, 7, 8, 3], [2, 9, 3], [2, 10, 11, 12, 13, 14, 3]]
    tokens = Tokens.from_rows(ids, encoder.tokenizer.pad_token_id)
    edit = mask(tokens, 0.5, Vocabulary.of(encoder.tokenizer), draw(0, 1, "edit"))
    found = g.fill(edit, None)
    with torch.no_grad():
        logits = g.model(edit.tokens.ids, attention_mask=tokens.mask.long()).logits
    best = torch.where(edit.fill, logits[..., : g.size].argmax(-1), edit.tokens.ids)
    assert found.equal(best)
    assert found[~edit.fill].equal(tokens.ids[~edit.fill])


def test_a_token_drawn_does_not_depend_on_the_other_rows(diffcse) -> None:
    t = diffcse()
    editor = t.parts[0].editor
    tokens = t.batch(1).tokens
    edit, lots = editor.draw(tokens, draw(0, 1, "a"))
    whole = editor.fill(edit, lots).ids
    some = torch.tensor([5, 2])
    assert editor.fill(edit.select(some), lots[some]).ids.equal(whole[some])
    assert not editor.fill(edit, lots.flip(0)).ids.equal(whole)


def test_released_replaces_even_the_separator(diffcse) -> None:
    t = diffcse(edit="released", decode="argmax")
    editor = t.parts[0].editor
    tokens = t.batch(1).tokens
    edit, lots = editor.draw(tokens, draw(0, 1, "a"))
    filled = editor.fill(edit, lots)
    replaced = edit.replaced(filled.ids)
    ends = tokens.lengths - 1
    assert replaced[torch.arange(len(ends)), ends].any()
    assert filled.ids[:, 0].equal(tokens.ids[:, 0])
    assert not replaced[~tokens.mask].any()


def test_another_family_width_and_depth_can_be_the_generator(diffcse, tmp_path: Path) -> None:
    other = make_family("distilbert", tmp_path / "distilbert")
    t = diffcse(generator=str(other))
    assert t.parts[0].editor.generator.model.config.model_type == "distilbert"
    assert t.step(1).loss.isfinite()


def test_deletions_need_no_generator(diffcse) -> None:
    t = diffcse(edit="delete")
    assert t.parts[0].editor.generator is None
    assert t.step(1).loss.isfinite()


def test_ids_beyond_the_tokenizer_are_never_given(tiny_bert: Path) -> None:
    encoder = Encoder.load(str(tiny_bert), pooler="cls")
    g = generator(tiny_bert, encoder)
    tokens = Tokens.from_rows([[2, 6, 7, 3]], 0)
    edit = mask(tokens, 1.0, Vocabulary.of(encoder.tokenizer), draw(0, 1, "edit"))
    bias = g.model.get_output_embeddings().bias
    bias[-1] = 1e9
    assert (g.fill(edit, None)[edit.fill] == len(bias) - 1).all()
    g.size -= 1
    assert (g.fill(edit, None)[edit.fill] < len(bias) - 1).all()


def test_another_vocabulary_is_refused_before_any_weights_are_read(
    tmp_path: Path, corpus_file: Path
) -> None:
    start, other = make_tiny_bert(tmp_path / "start"), other_words(tmp_path / "other")
    for folder in (start, other):
        (folder / "model.safetensors").write_bytes(b"no weights")
    words = ("--method", "diffcse", "--model", start, "--train-file", corpus_file)
    result = train(*words, "--generator", other, "--select", "last", "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert f"--generator {other}: its vocabulary is not that of" in result.stderr


def test_a_generator_that_is_no_masked_language_model_is_told(
    tiny_bert: Path, tmp_path: Path
) -> None:
    tokenizer = Encoder.load(str(tiny_bert), pooler="cls").tokenizer
    with pytest.raises(InputError, match="no such folder"):
        check_vocabulary("start", tokenizer, str(tmp_path / "absent"))
    folder = make_tiny_bert(tmp_path / "other")
    (folder / "config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(InputError, match="a vit model is no masked language model"):
        check_vocabulary("start", tokenizer, str(folder))


def test_a_tokenizer_without_a_mask_is_refused(tiny_bert: Path) -> None:
    tokenizer = Encoder.load(str(tiny_bert), pooler="cls").tokenizer
    tokenizer.mask_token = None
    with pytest.raises(UsageError, match="no mask token"):
        check_vocabulary("start", tokenizer, None)


def test_models_without_a_head_are_told_apart(
    tiny_bert: Path, corpus_file: Path, tmp_path: Path
) -> None:
    bare = without_head(tmp_path / "bare", tiny_bert)
    with pytest.raises(InputError, match="lack a masked-language-model head"):
        make_trainer(tiny_bert, corpus_file, method="diffcse", generator=str(bare))
    with pytest.raises(UsageError, match="name a model that has one with --generator"):
        make_trainer(bare, corpus_file, method="diffcse")
    t = make_trainer(bare, corpus_file, method="diffcse", generator=str(tiny_bert))
    assert t.step(1).loss.isfinite()


def test_albert_is_refused(tmp_path: Path, corpus_file: Path) -> None:
    from transformers import AlbertConfig, AlbertForMaskedLM

    folder = make_tiny_bert(tmp_path / "albert")
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    config = AlbertConfig(vocab_size=80, embedding_size=16, num_hidden_layers=2, **sizes)
    AlbertForMaskedLM(config).save_pretrained(folder)
    words = ("--method", "diffcse", "--model", folder, "--train-file", corpus_file)
    result = train(*words, "--select", "last", "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "albert" in result.stderr
