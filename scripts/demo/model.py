"""The demo's base: a 12-layer BERT of width 96, taught masked-language modelling by `pretrain`.

It is to the demo what bert-base-uncased is to the papers: twelve blocks (so that every
`--neg-layer` from 1 to 11 exists), [CLS] never trained to stand for its sentence.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
VOCABULARY = 1200
POSITIONS = 128
MASKED = 0.4  # not 0.15: three times as much to learn from in a step
BATCH = 64
LEARNING_RATE = 1e-3
IGNORED = -100  # the label that transformers' loss leaves out


def train_tokenizer(sentences: Sequence[str]) -> BertTokenizerFast:
    """A lower-casing WordPiece vocabulary of `sentences`; any ASCII word can be spelt in it."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=list(LETTERS),
        show_progress=False,
    )
    # The word of all letters puts each one into the vocabulary as a continuation too.
    tokenizer.train_from_iterator([*sentences, LETTERS], trainer)
    cls, sep = ((token, SPECIAL.index(token)) for token in ("[CLS]", "[SEP]"))
    tokenizer.post_processor = processors.BertProcessing(sep, cls)
    return BertTokenizerFast(tokenizer_object=tokenizer, model_max_length=POSITIONS)


def new_model(vocabulary: int, seed: int) -> BertForMaskedLM:
    """Random weights, BERT's shape at 1/8 of its width; dropout 0.1, as the methods need it."""
    torch.manual_seed(seed)
    return BertForMaskedLM(
        BertConfig(
            vocab_size=vocabulary,
            hidden_size=96,
            num_hidden_layers=12,
            num_attention_heads=4,
            intermediate_size=256,
            max_position_embeddings=POSITIONS,
            hidden_dropout_prob=0.1,
            attention_probs_dropout_prob=0.1,
        )
    )


def pretrain(
    model: BertForMaskedLM,
    tokenizer: BertTokenizerFast,
    sentences: Sequence[str],
    *,
    steps: int,
    seed: int,
) -> Iterator[tuple[int, float]]:
    """Train in place with AdamW, a tenth of warm-up, linear decay; yields (step, loss)."""
    torch.manual_seed(seed)
    encoded = tokenizer(list(sentences), truncation=True)["input_ids"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (0.1 * steps), (steps - step) / (0.9 * steps))
    )
    model.train()
    for step in range(1, steps + 1):
        rows = torch.randint(len(encoded), (BATCH,)).tolist()
        padded = tokenizer.pad({"input_ids": [encoded[row] for row in rows]}, return_tensors="pt")
        ids, labels = mask(padded["input_ids"], tokenizer)
        loss = model(ids, attention_mask=padded["attention_mask"], labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        yield step, loss.item()


def mask(ids: torch.Tensor, tokenizer: BertTokenizerFast) -> tuple[torch.Tensor, torch.Tensor]:
    """BERT's corruption of ids (B, T): 40% are predicted, of them 80% masked, 10% replaced."""
    special = torch.isin(ids, torch.tensor(tokenizer.all_special_ids))
    predicted = (torch.rand(ids.shape) < MASKED) & ~special
    labels = torch.where(predicted, ids, IGNORED)
    fate = torch.rand(ids.shape)
    anything = torch.randint(len(tokenizer), ids.shape)
    corrupted = torch.where(predicted & (fate < 0.8), tokenizer.mask_token_id, ids)
    return torch.where(predicted & (fate >= 0.9), anything, corrupted), labels


def save(model: BertForMaskedLM, tokenizer: BertTokenizerFast, folder: Path) -> None:
    """Write a transformers folder, with the vocab.txt that older readers of BERT look for."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    words = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    text = "".join(f"{word}\n" for word, _ in words)
    (folder / "vocab.txt").write_text(text, encoding="utf-8", newline="\n")
