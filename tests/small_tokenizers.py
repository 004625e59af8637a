"""Tiny fast tokenizers of the three great families, trained on a handful of sentences."""

from types import SimpleNamespace

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

SENTENCES = [
    "The cat doesn't sleep, it waits.",
    "A dog runs in the street 中文 near 2001.",
    "She said: nothing (at all) — café naïve.",
    "sleeping dogs and waiting cats run running runner",
]
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
FRAME = processors.TemplateProcessing(
    single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
)


def wrap(core: Tokenizer, side: str = "right") -> SimpleNamespace:
    """What `open_corpus` needs of a Hugging Face tokenizer."""
    return SimpleNamespace(backend_tokenizer=core, truncation_side=side, pad_token_id=0)


def wordpiece() -> Tokenizer:
    core = Tokenizer(models.WordPiece(unk_token="<unk>"))
    core.normalizer = normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=SPECIAL, show_progress=False)
    core.train_from_iterator(SENTENCES, trainer)
    core.post_processor = FRAME
    return core


def byte_level(*, trim: bool, prefix: bool) -> Tokenizer:
    """GPT-2's (no trimming, no prefix) or RoBERTa's (trimmed spans) kind."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(SENTENCES, trainer)
    core.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 1), trim_offsets=trim, add_prefix_space=prefix
    )
    return core


def unigram(scheme: str = "always") -> Tokenizer:
    core = Tokenizer(models.Unigram())
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
    )
    core.train_from_iterator(SENTENCES, trainer)
    core.post_processor = FRAME
    return core


FAMILIES = {
    "wordpiece": wordpiece,
    "byte-level": lambda: byte_level(trim=False, prefix=False),
    "byte-level-trimmed": lambda: byte_level(trim=True, prefix=True),
    "unigram": unigram,
    "unigram-unprefixed": lambda: unigram("never"),
}
