"""The built-in demo: a sound grammar, gold by meaning, files as the script makes them."""

import importlib
import sys
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from cse_cli.data.builtin import DEMO_NOTICE, demo_corpus, demo_model, demo_pairs
from cse_cli.errors import InputError, UsageError
from tests.runs import train

SCRIPTS = Path(__file__).parents[1] / "scripts"
sys.path.insert(0, str(SCRIPTS))
demo = {
    name: importlib.import_module(f"demo.{name}")
    for name in ("corpus", "edits", "grammar", "lexicon", "similarity")
}
LEXICON = demo["lexicon"].load_lexicon()


def meanings(count: int):
    random = Random("meanings")
    return [demo["grammar"].imagine(LEXICON, random) for _ in range(count)]


def scores(kind: str, count: int = 300) -> list[float]:
    """Gold scores of an edit, over the drawn meanings that it applies to."""
    random = Random(kind)
    edited = [(m, demo["edits"].edit(kind, m, LEXICON, random)) for m in meanings(count)]
    return [demo["similarity"].similarity(m, e) for m, e in edited if e is not None]


def test_a_wording_belongs_to_one_concept():
    concepts = {concept for act in LEXICON.acts for concept in (*act.agents, *act.patients)}
    for modifiers in LEXICON.modifiers.values():
        concepts |= {concept for known in modifiers.values() for concept in known}
    concepts |= {tuple(verb.base for verb in act.verbs) for act in LEXICON.acts}
    wordings = [wording for concept in concepts for wording in concept]
    assert len(wordings) == len(set(wordings))


@pytest.mark.parametrize(
    ("said", "forms"),
    [
        ("slice", ("slice", "sliced", "sliced")),
        ("carry", ("carry", "carried", "carried")),
        ("play", ("play", "played", "played")),
        ("dish up", ("dish up", "dished up", "dished up")),
        ("find/found", ("find", "found", "found")),
        ("run/ran/run after", ("run after", "ran after", "run after")),
    ],
)
def test_verbs_inflect(said, forms):
    verb = demo["lexicon"]._verb(said)
    assert (verb.base, verb.past, verb.participle) == forms


def test_gold_follows_meaning_not_words():
    same, modified = scores("paraphrase"), scores("change modifier")
    swapped, negated = scores("swap roles"), scores("negate")
    others = scores("anything")
    assert set(same) == {5.0}
    assert max(modified) < 5
    assert min(modified) > max(swapped + negated)
    assert min(swapped + negated) > np.quantile(others, 0.8)
    assert np.mean(scores("same act")) > np.mean(scores("same domain")) > np.mean(others) + 0.3


def test_gold_is_symmetric_and_bounded():
    drawn = meanings(200)
    for a, b in pairwise(drawn):
        score = demo["similarity"].similarity(a, b)
        assert score == demo["similarity"].similarity(b, a)
        assert 0 <= score <= 5


def test_a_sentence_says_what_it_means():
    random = Random(0)
    for meaning in meanings(200):
        sentence = demo["grammar"].say(meaning, random)
        said = [meaning.agent, meaning.patient, meaning.place, meaning.time, meaning.quality]
        for concept in filter(None, said):
            assert sum(f" {wording} " in f" {sentence} " for wording in concept) >= 1
        assert (" not " in sentence) == meaning.negated
        assert sentence.endswith("?") == meaning.asked


def test_the_script_makes_the_packaged_text_again(tmp_path):
    script = importlib.import_module("make_demo")
    script.write_text(tmp_path)
    for name in ("README.md", "sentences.txt", "similarity.tsv"):
        assert (tmp_path / name).read_bytes() == demo_corpus().with_name(name).read_bytes()


def test_sentences_are_many_distinct_and_of_all_lengths():
    sentences = demo_corpus().read_text(encoding="utf-8").splitlines()
    lengths = {len(sentence.split()) for sentence in sentences}
    assert 4000 <= len(sentences) == len(set(sentences)) <= 6000
    assert min(lengths) <= 6
    assert max(lengths) >= 20
    assert not any("  " in sentence or sentence != sentence.lower() for sentence in sentences)


def test_pairs_are_spread_and_share_nothing_with_training_or_one_another():
    dev, test = demo_pairs("dev"), demo_pairs("test")
    for pairs in (dev, test):
        assert len(pairs) == 400
        assert pairs.gold.dtype == np.float64
        assert pairs.gold.min() < 0.5
        assert pairs.gold.max() == 5
        assert pairs.gold.std() > 1.2
        assert (pairs.gold > 4).sum() >= 50  # enough for alignment, which counts only these
    held_out = [*dev.a, *dev.b, *test.a, *test.b]
    assert len(held_out) == len(set(held_out))
    assert not set(held_out) & set(demo_corpus().read_text(encoding="utf-8").splitlines())


def test_everything_stays_within_six_megabytes():
    files = [path for path in demo_corpus().parent.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 6_000_000


def test_the_model_is_a_sound_twelve_layer_bert():
    model, loading = AutoModelForMaskedLM.from_pretrained(
        demo_model(), dtype=torch.float32, output_loading_info=True
    )
    assert not loading["missing_keys"]
    assert model.config.num_hidden_layers == 12
    assert model.config.hidden_dropout_prob == model.config.attention_probs_dropout_prob == 0.1
    _, loading = AutoModel.from_pretrained(demo_model(), output_loading_info=True)
    assert {key.split(".")[0] for key in loading["missing_keys"]} == {"pooler"}


def test_the_model_has_learnt_its_language():
    tokenizer = AutoTokenizer.from_pretrained(demo_model())
    model = AutoModelForMaskedLM.from_pretrained(demo_model(), dtype=torch.float32).eval()
    batch = tokenizer("the nurse [MASK] the wound in the hospital .", return_tensors="pt")
    with torch.inference_mode():
        scores = model(**batch).logits[0, 3]
    likely = tokenizer.convert_ids_to_tokens(scores.topk(6).indices.tolist())
    verbs = {verb.past for act in LEXICON.acts for verb in act.verbs}
    assert set(likely) <= verbs  # what stands between "the nurse" and "the wound" did something


def test_the_vocabulary_spells_any_english_word():
    tokenizer = AutoTokenizer.from_pretrained(demo_model())
    ids = tokenizer("Jacuzzi xylophones, 2049 Quiz!")["input_ids"]
    assert ids[0] == tokenizer.cls_token_id
    assert ids[-1] == tokenizer.sep_token_id
    words = tokenizer.tokenize("Jacuzzi xylophones 2049 Quiz")
    assert tokenizer.unk_token not in words


def test_a_demo_run_does_not_doubt_its_own_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("--max-steps", 1, "--batch-size", 4, "--threads", 1, "--select", "last")
    result = train(*words, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.stderr
    assert DEMO_NOTICE in result.stderr
    assert "pooled" not in result.stderr


def test_the_notice_says_that_it_is_no_benchmark():
    assert "demo" in DEMO_NOTICE
    assert "NOT a benchmark" in DEMO_NOTICE


def test_an_unknown_split_is_refused():
    with pytest.raises(UsageError, match="no split 'tset': did you mean 'test'"):
        demo_pairs("tset")


def test_a_package_without_its_demo_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr("cse_cli.data.builtin._DEMO", tmp_path)
    with pytest.raises(InputError, match="built-in demo is missing"):
        demo_model()
