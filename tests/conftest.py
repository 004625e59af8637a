"""Fixtures that tests share: a random 2-layer BERT with its tokenizer, and the shared assets."""

import os
from pathlib import Path

import pytest
import torch

ASSETS = Path(os.environ.get("CSE_ASSETS", Path(__file__).parents[1] / ".." / "shared")).resolve()
_TEXT = "a the dog cat man woman child runs sleeps eats sees red big small old house street ball"
WORDS = _TEXT.split()

needs_assets = pytest.mark.skipif(
    not (ASSETS / "models").is_dir(), reason=f"shared assets are not at {ASSETS} (CSE_ASSETS)"
)


@pytest.fixture(scope="session")
def assets() -> Path:
    """The shared models and data; skips where they are absent."""
    if not (ASSETS / "models").is_dir():
        pytest.skip(f"shared assets are not at {ASSETS} (CSE_ASSETS)")
    return ASSETS


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has a cache folder of its own, and no settings from outside."""
    for name in list(os.environ):
        if name.startswith("CSE_") and name != "CSE_ASSETS":
            monkeypatch.delenv(name)
    monkeypatch.setenv("CSE_CACHE", str(tmp_path_factory.mktemp("cache")))


def make_tiny_bert(folder: Path, *, layers: int = 2, dropout: float = 0.1, seed: int = 0) -> Path:
    """A random BERT of `layers` blocks, 32 wide, that knows WORDS; saved as a model folder."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = list("abcdefghijklmnopqrstuvwxyz.,")
    entries = dict.fromkeys([*specials, *WORDS, *letters, *(f"##{c}" for c in letters)])
    vocab = {word: i for i, word in enumerate(entries)}
    inner = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
    )
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocab),
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder: a random BERT of 2 blocks."""
    return make_tiny_bert(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    """200 sentences of 2 to 12 of WORDS, no two alike."""
    import random

    draw = random.Random(0)
    made: dict[str, None] = {}
    while len(made) < 200:
        made[" ".join(draw.choices(WORDS, k=draw.randint(2, 12)))] = None
    return list(made)


@pytest.fixture(scope="session")
def corpus_file(tmp_path_factory: pytest.TempPathFactory, sentences: list[str]) -> Path:
    """The sentences, one a line."""
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    path.write_text("\n".join(sentences) + "\n", encoding="utf-8")
    return path
