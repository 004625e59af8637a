"""Edits of token rows, as pure functions of the rows and a random generator.

`mask`      some tokens become [MASK], for a generator to fill (DiffCSE, Chuang et al. 2022).
`insert`    [MASK]s are put into gaps, for a generator to fill (its Section 5, "insert").
`delete`    some tokens are dropped ("delete").
`released`  the authors' code: BERT's 80/10/10 corruption, and a generator that fills *every*
            position but the first; padding becomes id 0.

An edit of a row with n tokens of content touches max(1, round(ratio * n)) of them. Special tokens
are never chosen. Every draw is made for all rows of a batch, so that the result does not depend on
how many processes share it.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from cse_cli.data.tokens import Tokens

NOTHING = -1  # the original of a token that has none: it differs from every id


@dataclass(frozen=True)
class Vocabulary:
    """What an edit must know of the tokenizer: `special` ids, the [MASK] id, and its size."""

    special: Tensor
    mask_id: int
    size: int

    @staticmethod
    def of(tokenizer: Any) -> "Vocabulary":
        """The vocabulary of a tokenizer, which must have a mask token."""
        names = ("cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id", "pad_token_id")
        found = {getattr(tokenizer, name, None) for name in names} - {None}
        return Vocabulary(torch.tensor(sorted(found)), tokenizer.mask_token_id, len(tokenizer))

    def content(self, tokens: Tokens) -> Tensor:
        """(R, T) bool: the tokens that are neither special nor padding."""
        return tokens.mask & ~torch.isin(tokens.ids, self.special)


@dataclass(frozen=True)
class Edit:
    """Edited rows before the generator has filled them.

    `tokens` are the R rows x' of width T; `fill` (R, T) bool where the generator's token goes;
    `original` (R, T) the id that stood there, or `NOTHING` where the edit itself is the change.
    """

    tokens: Tokens
    fill: Tensor
    original: Tensor

    def select(self, rows: Tensor) -> "Edit":
        """The given rows."""
        return Edit(self.tokens.select(rows), self.fill[rows], self.original[rows])

    def replaced(self, ids: Tensor) -> Tensor:
        """y_t = [x''_t != x_t] of the filled rows x'' (R, T), bool; False on padding.

        A token that the generator recovered counts as original, an inserted one as replaced, and
        so does one whose predecessor was deleted.
        """
        return (ids != self.original) & self.tokens.mask


def edit_counts(content: Tensor, ratio: float) -> Tensor:
    """How many tokens are edited where there are `content` (R,) of them: max(1, round(ratio n))."""
    return (ratio * content.double()).round().long().clamp_min(1).minimum(content)


def choose(eligible: Tensor, counts: Tensor, rng: torch.Generator) -> Tensor:
    """(R, T) bool: `counts` (R,) distinct positions of each row, uniform over its `eligible`."""
    keys = torch.rand(eligible.shape, generator=rng).masked_fill(~eligible, 2.0)
    rank = keys.argsort(dim=1).argsort(dim=1)
    return (rank < counts[:, None]) & eligible


def corrupt(ids: Tensor, chosen: Tensor, words: Vocabulary, rng: torch.Generator) -> Tensor:
    """BERT's corruption (Devlin et al. 2019) of the `chosen` ids (R, T).

    80% become [MASK], 10% a random id of the vocabulary, 10% stay as they are.
    """
    lot = torch.rand(ids.shape, generator=rng)
    strange = torch.randint(words.size, ids.shape, generator=rng)
    changed = ids.masked_fill(chosen & (lot < 0.8), words.mask_id)
    return torch.where(chosen & (lot >= 0.9), strange, changed)


def mask(tokens: Tokens, ratio: float, words: Vocabulary, rng: torch.Generator) -> Edit:
    """Chosen tokens become [MASK], all of them."""
    content = words.content(tokens)
    chosen = choose(content, edit_counts(content.sum(1), ratio), rng)
    ids = tokens.ids.masked_fill(chosen, words.mask_id)
    return Edit(_with_ids(tokens, ids), chosen, tokens.ids)


def released(tokens: Tokens, ratio: float, words: Vocabulary, rng: torch.Generator) -> Edit:
    """The authors' code: corrupted tokens in, the generator's token out at every position."""
    content = words.content(tokens)
    chosen = choose(content, edit_counts(content.sum(1), ratio), rng)
    ids = corrupt(tokens.ids, chosen, words, rng).masked_fill(~tokens.mask, 0)
    fill = tokens.mask.clone()
    fill[:, 0] = False
    return Edit(Tokens(ids, tokens.lengths, tokens.starts, pad_id=0), fill, tokens.ids)


def insert(
    tokens: Tokens,
    ratio: float,
    words: Vocabulary,
    rng: torch.Generator,
    limit: int | None = None,
) -> Edit:
    """[MASK]s in distinct gaps between [CLS] and [SEP]; no row grows beyond `limit` tokens."""
    content = words.content(tokens)
    counts = edit_counts(content.sum(1), ratio)
    if limit is not None:
        counts = counts.minimum((limit - tokens.lengths).clamp_min(0))
    gaps = content.clone()  # a gap is named by the token before it
    gaps[:, 0] = True
    chosen = choose(gaps, counts, rng)
    moved, _, inserted = _spread(tokens, tokens.mask.long() + chosen)
    ids = moved.ids.masked_fill(inserted, words.mask_id)
    return Edit(_with_ids(moved, ids), inserted, ids.masked_fill(inserted, NOTHING))


def delete(tokens: Tokens, ratio: float, words: Vocabulary, rng: torch.Generator) -> Edit:
    """Chosen tokens are dropped; the change shows on the token behind a dropped one."""
    content = words.content(tokens)
    chosen = choose(content, edit_counts(content.sum(1), ratio), rng)
    moved, source, _ = _spread(tokens, (tokens.mask & ~chosen).long())
    behind = pad(chosen[:, :-1], (1, 0))
    original = moved.ids.masked_fill(behind.flatten()[source] & moved.mask, NOTHING)
    return Edit(moved, torch.zeros_like(moved.mask), original)


def kind_of_edit(name: str, rng: torch.Generator) -> str:
    """The edit that `name` stands for: `all` draws mask, insert or delete for the whole batch."""
    if name == "all":
        return ("mask", "insert", "delete")[int(torch.randint(3, (), generator=rng))]
    return name


def edit(
    kind: str,
    tokens: Tokens,
    ratio: float,
    words: Vocabulary,
    rng: torch.Generator,
    limit: int | None = None,
) -> Edit:
    """The edit named `kind`: mask, insert, delete or released."""
    if kind == "insert":
        return insert(tokens, ratio, words, rng, limit)
    return {"mask": mask, "delete": delete, "released": released}[kind](tokens, ratio, words, rng)


def _with_ids(tokens: Tokens, ids: Tensor) -> Tokens:
    return Tokens(ids, tokens.lengths, tokens.starts, tokens.pad_id)


def _spread(tokens: Tokens, copies: Tensor) -> tuple[Tokens, Tensor, Tensor]:
    """Each token `copies` (R, T) times, 0 to 2, rows closed up again.

    Returns the rows (R, W), where in the flattened `tokens` each position came from (R, W), and
    which positions are second copies (R, W).
    """
    flat = torch.arange(copies.numel()).repeat_interleave(copies.flatten())
    lengths = copies.sum(1)
    inside = torch.arange(int(lengths.max())) < lengths[:, None]  # (R, W)
    source = torch.zeros(inside.shape, dtype=torch.long)
    source[inside] = flat
    second = torch.zeros_like(inside)
    second[inside] = pad(flat[1:] == flat[:-1], (1, 0))
    ids = tokens.ids.flatten()[source].masked_fill(~inside, tokens.pad_id)
    starts = tokens.starts.flatten()[source] & inside & ~second
    return Tokens(ids, lengths, starts, tokens.pad_id), source, second
