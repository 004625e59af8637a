"""Many texts at once to token sequences, with nothing but the tokenizer's own rules.

The Rust tokenizer works on all cores (unless `TOKENIZERS_PARALLELISM=false`); what it returns is
packed into flat arrays here, since Python lists of ten million sentences would fill the memory.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from tokenizers import Encoding, Tokenizer

from cse_cli.data.word_starts import word_starts
from cse_cli.errors import InputError, UsageError


@dataclass(frozen=True)
class Sequences:
    """N token sequences end to end, special tokens included.

    `ids` (K,) of an integer type that holds the vocabulary, `lengths` (N,) int64, `starts` (K,)
    bool (this token begins a whitespace word), `truncated` (N,) bool (this sequence was cut).
    """

    ids: np.ndarray
    lengths: np.ndarray
    starts: np.ndarray
    truncated: np.ndarray


class BatchTokenizer:
    """A private copy of a fast Hugging Face tokenizer, set to cut at `max_length` tokens.

    The copy is taken because truncation is a state of the tokenizer and others use the original.
    `special` is the number of special tokens before and after a sentence, `fingerprint` the sha256
    of everything that decides the ids except the length.
    Raises InputError for a tokenizer without a Rust core, UsageError for a length that leaves no
    room beside the special tokens.
    """

    def __init__(self, tokenizer: Any, max_length: int):
        core = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(core, Tokenizer):
            raise InputError(
                f"{type(tokenizer).__name__} has no fast tokenizer, which training needs; "
                "save the model with a tokenizer.json"
            )
        self.max_length = max_length
        self._core = Tokenizer.from_str(core.to_str())
        self._core.encode_special_tokens = core.encode_special_tokens
        self._core.no_padding()
        self._core.no_truncation()
        side = getattr(tokenizer, "truncation_side", "right")
        state = f"{self._core.to_str()}|{side}|{core.encode_special_tokens}"
        self.fingerprint = hashlib.sha256(state.encode()).hexdigest()
        self.special = self._count_special()
        if max_length <= sum(self.special):
            raise UsageError(
                f"--max-length {max_length} leaves no room for words beside the tokenizer's "
                f"{sum(self.special)} special tokens"
            )
        self._core.enable_truncation(max_length, direction=side)

    def dtype(self) -> np.dtype[Any]:
        """uint16 where every id fits, else int32."""
        largest = max(self._core.get_vocab(with_added_tokens=True).values())
        return np.dtype(np.uint16 if largest <= np.iinfo(np.uint16).max else np.int32)

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """The tokenizer's work, which runs on all cores and leaves Python free meanwhile."""
        return self._core.encode_batch(texts)

    def pack(
        self, texts: Sequence[str], encodings: Sequence[Encoding], dtype: np.dtype[Any]
    ) -> Sequences:
        """What `encode` made of `texts` as flat arrays."""
        lengths = np.fromiter(map(len, encodings), np.int64, len(encodings))
        total = int(lengths.sum())
        ids = np.fromiter(chain.from_iterable(e.ids for e in encodings), dtype, total)
        flat = chain.from_iterable(chain.from_iterable(e.offsets for e in encodings))
        spans = np.fromiter(flat, np.int64, 2 * total).reshape(-1, 2)

        before, after = self.special
        place = np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        own = (place >= before) & (place < np.repeat(lengths, lengths) - after)
        counts = lengths - before - after
        filled = [text for text, count in zip(texts, counts.tolist(), strict=True) if count]
        starts = np.zeros(total, bool)
        if filled:
            starts[own] = word_starts(filled, counts[counts > 0], spans[own])
        # A row of overflowing pieces is built by asking for it, so only full sequences are asked.
        cut = [len(e) == self.max_length and bool(e.overflowing) for e in encodings]
        truncated = np.array(cut, bool)
        return Sequences(ids, lengths, starts, truncated)

    def _count_special(self) -> tuple[int, int]:
        mask = self._core.encode("a").special_tokens_mask
        if 0 not in mask:
            raise InputError("the tokenizer makes no token of the letter 'a'")
        return mask.index(0), mask[::-1].index(0)
