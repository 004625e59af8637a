"""A batch of token rows: what travels from the token store to the encoder and the ingredients.

Rows are padded on the right to a common width. `starts` marks the tokens that begin a whitespace
word, which is what word repetition needs to know and cannot be told from the ids alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True, eq=False)
class Tokens:
    """N token rows of width T, special tokens included.

    `ids` (N, T) int64, padded with `pad_id`; `lengths` (N,) int64, special tokens counted;
    `starts` (N, T) bool, False for special tokens and padding.
    """

    ids: Tensor
    lengths: Tensor
    starts: Tensor
    pad_id: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def mask(self) -> Tensor:
        """(N, T) bool: True for a token, False for padding."""
        columns = torch.arange(self.ids.shape[1], device=self.ids.device)
        return columns < self.lengths[:, None]

    def select(self, rows: Tensor | slice) -> "Tokens":
        """The given rows, in the given order, at this batch's width."""
        return Tokens(self.ids[rows], self.lengths[rows], self.starts[rows], self.pad_id)

    def on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """`ids` and `mask` on `device`; through pinned memory, so that no copy to a GPU waits."""
        if device.type != "cuda":
            return self.ids.to(device), self.mask.to(device)
        ids = self.ids.pin_memory().to(device, non_blocking=True)
        return ids, self.mask.pin_memory().to(device, non_blocking=True)

    def narrowed(self, width: int) -> "Tokens":
        """The first `width` columns; no row is longer."""
        return Tokens(self.ids[:, :width], self.lengths, self.starts[:, :width], self.pad_id)

    def widened(self, width: int) -> "Tokens":
        """The same rows padded to `width` tokens, which is not under the present width."""
        extra = width - self.ids.shape[1]
        if extra < 0:
            raise ValueError(f"cannot widen {self.ids.shape[1]} tokens to {width}")
        ids = pad(self.ids, (0, extra), value=self.pad_id)
        return Tokens(ids, self.lengths, pad(self.starts, (0, extra), value=False), self.pad_id)

    @staticmethod
    def cat(batches: Sequence["Tokens"]) -> "Tokens":
        """All rows of `batches` below each other, padded to the widest batch."""
        width = max(batch.ids.shape[1] for batch in batches)
        wide = [batch.widened(width) for batch in batches]
        return Tokens(
            torch.cat([batch.ids for batch in wide]),
            torch.cat([batch.lengths for batch in wide]),
            torch.cat([batch.starts for batch in wide]),
            batches[0].pad_id,
        )

    @staticmethod
    def from_rows(
        rows: Sequence[Sequence[int]],
        pad_id: int,
        starts: Sequence[Sequence[bool]] | None = None,
    ) -> "Tokens":
        """Rows of unequal length, padded to the longest; without `starts` no token is a start."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        inside = np.arange(lengths.max(initial=0)) < lengths[:, None]  # (N, T)
        ids = np.full(inside.shape, pad_id, np.int64)
        ids[inside] = [token for row in rows for token in row]
        marks = np.zeros(inside.shape, bool)
        if starts is not None:
            marks[inside] = [mark for row in starts for mark in row]
        return Tokens(
            torch.from_numpy(ids), torch.from_numpy(lengths), torch.from_numpy(marks), pad_id
        )
