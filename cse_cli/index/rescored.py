"""The scores of candidates, computed from the vectors themselves, a bounded number at a time."""

import numpy as np
import torch
from torch import Tensor

RESCORED = 1 << 18  # vector entries rescored at a time: 2 MiB, which stay in the cache


def rescore(queries: Tensor, vectors: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Inner products (Q, C) float64 of queries (Q, D) with their candidates; -inf for place -1.

    Row by row: unlike a matrix product's, a score is the same wherever the row stands.
    """
    known, source = torch.from_numpy(np.maximum(places, 0)), torch.from_numpy(vectors)
    width = max(1, RESCORED // vectors.shape[1])
    height = max(1, width // known.shape[1])

    def scored(part: Tensor, some: Tensor) -> Tensor:
        found = source.index_select(0, some.flatten()).view(*some.shape, -1)
        return found.double().mul_(part.double()[:, None]).sum(-1)

    parts = [
        torch.cat([scored(part, columns) for columns in some.split(width, dim=1)], dim=1)
        for part, some in zip(queries.split(height), known.split(height), strict=True)
    ]
    return np.where(places < 0, -np.inf, torch.cat(parts).numpy())
