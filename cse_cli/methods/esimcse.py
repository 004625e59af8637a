"""ESimCSE, first half (Wu et al. 2022): positives made longer by repeating sub-words or words.

    dup_len ~ U{0, …, max(2, int(dup_rate N))},   dup_set = dup_len distinct of the N sub-words

The positive x+ is x with each sub-word in dup_set twice, so that the lengths of a positive pair
differ and length stops giving it away. [CLS] and [SEP] are not among the N and are never repeated.
Repetition follows truncation, so x+ may be longer than the training length, but never longer than
the encoder's positions. Drawn anew at every step; the released code draws once, which is the same
for the one epoch it trains.

Ablations (Table 10): whole words instead of sub-words, or a random stop-word or [MASK] behind each
chosen word, nothing being repeated.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from cse_cli.config.ingredients import WordRepetitionConfig
from cse_cli.data.tokens import Tokens
from cse_cli.encoder import Encoder
from cse_cli.errors import UsageError
from cse_cli.loading import length_limit
from cse_cli.methods.base import Ingredient, Views
from cse_cli.methods.stop_words import STOP_WORDS

BOUNDARIES = ("cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id", "pad_token_id")


def repetition_limit(n_subwords: int, rate: float, rule: str = "paper") -> int:
    """The largest dup_len for a sentence of `n_subwords`, special tokens not counted.

    "paper": max(2, int(rate N)), at most N. "released": randrange(min(10, int(rate (N + 2)))),
    whose top is exclusive: at most 9, and nothing in short sentences.
    """
    if rule == "paper":
        return min(max(2, int(rate * n_subwords)), n_subwords)
    return min(max(0, min(10, int(rate * (n_subwords + 2))) - 1), n_subwords)


def word_limit(n_words: int, rate: float, rule: str = "paper") -> int:
    """`repetition_limit` for words; "released" is randrange(min(10, N, max(2, int(rate N))))."""
    if rule == "paper":
        return repetition_limit(n_words, rate)
    return max(0, min(10, n_words, max(2, int(rate * n_words))) - 1)


def repeat(ids: Sequence[int] | Tensor, positions: Iterable[int]) -> list[int] | Tensor:
    """`ids` (T,) with the token at each of `positions` (from 0) twice in a row.

    A list for a sequence, a tensor for a tensor.
    """
    row = torch.as_tensor(ids)
    times = torch.ones(len(row), dtype=torch.long)
    times[torch.tensor(sorted(positions), dtype=torch.long)] = 2
    repeated = row.repeat_interleave(times.to(row.device))
    return repeated if isinstance(ids, Tensor) else repeated.tolist()


class WordRepetition(Ingredient):
    """The positive with some of its sub-words or words repeated."""

    def __init__(self, config: WordRepetitionConfig, encoder: Encoder):
        super().__init__()
        self.config = config
        tokenizer = encoder.tokenizer
        found = {getattr(tokenizer, name, None) for name in BOUNDARIES} - {None}
        self.boundaries = torch.tensor(sorted(found))
        self.room = length_limit(encoder.backbone, tokenizer)
        self.inserted = _insertions(config.repeat, tokenizer)
        self._added = float("nan")

    def positive(self, tokens: Tokens, rng: torch.Generator) -> Tokens:
        """Rows with dup_len items repeated each; (N, T) -> (N, T'), T' >= T."""
        content = tokens.mask & ~torch.isin(tokens.ids, self.boundaries)  # (N, T)
        if self.config.repeat == "subword":
            firsts, ends = content, _columns(tokens).expand_as(content)
        else:
            firsts, ends = tokens.starts, _word_ends(tokens, content)
        sizes = ends - _columns(tokens) + 1 if self.inserted is None else torch.ones_like(ends)
        chosen = self._choose(firsts, rng)
        grown = tokens.lengths[:, None] + (sizes * chosen).cumsum(1)
        chosen &= grown <= self.room  # what the encoder has no position for is not added
        if self.inserted is not None:
            draw = torch.randint(len(self.inserted), tokens.ids.shape, generator=rng)
            return _spliced(tokens, chosen, ends, self.inserted[draw])
        return _spliced(tokens, _within(chosen, firsts, content), ends, tokens.ids)

    def _choose(self, items: Tensor, rng: torch.Generator) -> Tensor:
        """(N, T) bool: of the True `items` of each row, dup_len distinct ones, drawn evenly."""
        limit = repetition_limit if self.config.repeat == "subword" else word_limit
        rate, rule = self.config.dup_rate, self.config.dup_rule
        counts = items.sum(1)
        table = torch.tensor([limit(n, rate, rule) for n in range(items.shape[1] + 1)])
        uniform = torch.rand(len(items), generator=rng, dtype=torch.float64)
        dup_len = (uniform * (table[counts] + 1)).long()  # (N,), from 0 to the limit
        if self.config.repeat == "word" and rule == "released":
            last = items & (items.cumsum(1) == counts[:, None])
            items = items & ~last  # the released code never reaches the last word
        keys = torch.rand(items.shape, generator=rng).masked_fill(~items, 2.0)
        ranks = keys.argsort(1).argsort(1)
        return (ranks < dup_len[:, None]) & items

    def after_step(self, z: Views) -> None:
        """Note by how much the positives were longer."""
        self._added = (z.moved.lengths - z.tokens.lengths).float().mean().item()

    def diagnostics(self) -> dict[str, Any]:
        """`tokens_added`: mean number of tokens that positives have more than their anchors."""
        return {"tokens_added": self._added}


def _columns(tokens: Tokens) -> Tensor:
    return torch.arange(tokens.ids.shape[1])


def _word_ends(tokens: Tokens, content: Tensor) -> Tensor:
    """(N, T): at the first token of each word, the column of its last token."""
    width = tokens.ids.shape[1]
    number = tokens.starts.cumsum(1) * content  # which word a token belongs to, from 1
    ends = torch.zeros(len(tokens), width + 1, dtype=torch.long)
    ends.scatter_reduce_(1, number, _columns(tokens).expand_as(number), "amax")
    return ends.gather(1, number)


def _within(chosen: Tensor, firsts: Tensor, content: Tensor) -> Tensor:
    """(N, T) bool: every token of the items whose first tokens are `chosen`."""
    number = firsts.cumsum(1) * content
    marks = torch.zeros(len(chosen), chosen.shape[1] + 1, dtype=torch.bool)
    marks.scatter_(1, number * firsts, chosen)
    marks[:, 0] = False
    return marks.gather(1, number)


def _spliced(tokens: Tokens, added: Tensor, ends: Tensor, ids: Tensor) -> Tokens:
    """The rows with `ids` at the `added` places put in, each behind column `ends` of its row.

    Where several share an end they keep their order. All but `tokens` are (N, T).
    """
    width = tokens.ids.shape[1]
    row, column = tokens.mask.nonzero(as_tuple=True)
    new_row, new_column = added.nonzero(as_tuple=True)
    behind = ends[new_row, new_column]
    # Sort key: row, then the column stood behind, then originals (0) before additions (1 …).
    step = width + 1
    keys = torch.cat(
        [(row * width + column) * step, (new_row * width + behind) * step + 1 + new_column]
    )
    order = keys.argsort()
    values = torch.cat([tokens.ids[row, column], ids[new_row, new_column]])[order]
    starts = torch.cat([tokens.starts[row, column], tokens.starts[new_row, new_column]])[order]
    lengths = tokens.lengths + added.sum(1)
    inside = torch.arange(int(lengths.max())) < lengths[:, None]  # (N, T')
    filled = torch.full(inside.shape, tokens.pad_id).masked_scatter(inside, values)
    marks = torch.zeros_like(inside).masked_scatter(inside, starts)
    return Tokens(filled, lengths, marks, tokens.pad_id)


def _insertions(kind: str, tokenizer: Any) -> Tensor | None:
    """The tokens that may be inserted: None where items are repeated instead."""
    if kind in ("subword", "word"):
        return None
    if kind == "mask":
        if tokenizer.mask_token_id is None:
            raise UsageError("--repeat mask: the model's tokenizer has no mask token")
        return torch.tensor([tokenizer.mask_token_id])
    # A stop-word of several tokens would not be one insertion; the space makes it a word of its
    # own where the tokenizer tells the two apart.
    rows = [tokenizer(f" {word}", add_special_tokens=False)["input_ids"] for word in STOP_WORDS]
    single = sorted({row[0] for row in rows if len(row) == 1} - {tokenizer.unk_token_id})
    if not single:
        raise UsageError("--repeat stop-word: the model's tokenizer knows no English stop-word")
    return torch.tensor(single)
