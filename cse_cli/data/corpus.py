"""A training corpus: text files, tokenised once and then mapped from the cache.

The store is found by content (the files' bytes, the tokenizer, the length, the columns), so a
second run starts at once, a changed file is tokenised anew, and a training loop never tokenises.
Opening one maps files: the private memory of a run does not grow with the corpus.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cse_cli.data.build import Plan, Progress, build_store, locked
from cse_cli.data.locate import cache_folder
from cse_cli.data.readers import DEFAULT_COLUMN, Row, Tally, iter_rows
from cse_cli.data.sources import Source, check_unchanged, digest, find_source, spooled
from cse_cli.data.store import SCHEMA, Meta, Store, open_store
from cse_cli.data.tokenise import BatchTokenizer
from cse_cli.data.tokens import Tokens
from cse_cli.errors import OutputError


def open_corpus(
    paths: Sequence[str],
    tokenizer: Any,
    *,
    max_length: int,
    text_column: str | None = None,
    triplet_columns: Sequence[str] | None = None,
    weight_column: str | None = None,
    encoding: str = "utf-8",
    progress: Progress | None = None,
) -> "Corpus":
    """The corpus of all `paths` in order (`-` is standard input), tokenised now or before.

    `triplet_columns` (such as sent0, sent1, hard_neg) gives rows of several sequences, and
    `weight_column` a weight >= 0 for each. `max_length` counts special tokens. `progress` is called
    with (rows, input bytes) so far while a store is made.
    Raises InputError, UsageError (see `readers`) and OutputError where the cache cannot be written.
    """
    cache = cache_folder() / "tokens"
    sources = [spooled(find_source(path), cache) for path in paths]
    stamps = [source.stamp for source in sources]
    cutter = BatchTokenizer(tokenizer, max_length)
    texts = tuple(triplet_columns) if triplet_columns else (text_column or DEFAULT_COLUMN,)
    wanted = [*triplet_columns] if triplet_columns else [text_column] if text_column else []
    if weight_column:
        wanted = [*(wanted or texts), weight_column]
    digests = [digest(source, cache / "digests") for source in sources]
    fingerprint = _fingerprint(sources, digests, wanted, bool(weight_column), encoding)
    plan = Plan(texts, bool(weight_column), fingerprint)

    folder = cache / _sha256([SCHEMA, fingerprint, cutter.fingerprint, max_length])[:40]
    store = open_store(folder)
    if store is None:
        with locked(folder):
            store = open_store(folder)  # made by another process while this one waited
            if store is None:
                tally = Tally()
                rows = iter_rows(sources, wanted or None, encoding=encoding, tally=tally)
                build_store(folder, _guarded(rows, sources, stamps), cutter, plan, tally, progress)
                store = open_store(folder)
    if store is None:
        raise OutputError(f"the token store {folder} was damaged while it was written")
    pad_id = getattr(tokenizer, "pad_token_id", None)
    return Corpus(folder, store, pad_id if pad_id is not None else 0)


class Corpus:
    """N rows of C token sequences, mapped from a store.

    `columns` are the C names, `fingerprint` tells the contents apart, `weights` is (N,) float32 or
    None, `meta` has the counts that `corpus_report` prints. A tokenizer without a padding token is
    padded with id 0, which the mask hides.
    """

    def __init__(self, folder: Path, store: Store, pad_id: int):
        self.folder = folder
        self.pad_id = pad_id
        self.weights = store.weights
        self._store = store

    def __len__(self) -> int:
        return self.meta.rows

    @property
    def meta(self) -> Meta:
        """What the store says about itself."""
        return self._store.meta

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the texts of a row."""
        return self.meta.columns

    @property
    def fingerprint(self) -> str:
        """sha256 of the files' contents and of how they are read; not of the tokenizer."""
        return self.meta.fingerprint

    @property
    def truncated(self) -> int:
        """Sequences that were cut at the maximum length."""
        return self.meta.truncated

    @cached_property
    def lengths(self) -> np.ndarray:
        """(N, C) int32 tokens of every sequence, special ones included. Computed when asked for."""
        offsets = self._store.offsets
        lengths = np.empty(len(offsets) - 1, np.int32)
        np.subtract(offsets[1:], offsets[:-1], out=lengths, casting="unsafe")
        return lengths.reshape(-1, len(self.columns))

    def batch(
        self, rows: np.ndarray | Tensor, column: int = 0, *, width: int | None = None
    ) -> Tokens:
        """The given rows of one column, padded to the longest of them or to `width`.

        Raises IndexError for a row or column that is not there.
        """
        rows = np.asarray(rows)
        if not 0 <= column < len(self.columns):
            raise IndexError(f"column {column} of {len(self.columns)}")
        if rows.size and (rows.min() < 0 or rows.max() >= len(self)):
            raise IndexError(f"a row outside 0 … {len(self) - 1}")
        sequence = rows * len(self.columns) + column
        first = self._store.offsets[sequence]
        lengths = self._store.offsets[sequence + 1] - first
        longest = int(lengths.max(initial=0))
        if width is not None and width < longest:
            raise ValueError(f"a row of {longest} tokens does not fit a width of {width}")
        place = np.arange(width or longest)
        inside = place < lengths[:, None]  # (B, T)
        at = np.where(inside, first[:, None] + place, first[:, None])
        ids = np.where(inside, self._store.ids[at], self.pad_id).astype(np.int64)
        starts = inside & (self._store.starts[at >> 3] >> (at & 7) & 1).astype(bool)
        return Tokens(
            torch.from_numpy(ids), torch.from_numpy(lengths), torch.from_numpy(starts), self.pad_id
        )


def _guarded(
    rows: Iterator[Row], sources: Sequence[Source], stamps: Sequence[Any]
) -> Iterator[Row]:
    """`rows`, and at their end a check that no file was changed since it was hashed."""
    yield from rows
    for source, stamp in zip(sources, stamps, strict=True):
        check_unchanged(source, stamp)


def _fingerprint(
    sources: Sequence[Source],
    digests: Sequence[str],
    wanted: Sequence[str],
    weighted: bool,
    encoding: str,
) -> str:
    files = [
        [source.kind, source.compressed, sha256]
        for source, sha256 in zip(sources, digests, strict=True)
    ]
    return _sha256([files, list(wanted), weighted, encoding.lower()])


def _sha256(record: list[Any]) -> str:
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()
