"""Supervised SimCSE (Gao et al. 2021): the third column of triplets as negatives.

    l_i = -log e^{s(h_i,h_i+)} / sum_j ( e^{s(h_i,h_j+)} + w_ij e^{s(h_i,h_j-)} )

h- (N, D) are the hard negatives, through encoder and head with gradient. w_ij is 1 but for a
sentence's own hard negative (j = i), where it is `hard_weight` times the row's weight, if the file
has a column of weights.
"""

from typing import Any

import torch
from torch import Tensor

from cse_cli.config.ingredients import HardNegativesConfig
from cse_cli.encoder import Encoder
from cse_cli.maths import cosine
from cse_cli.methods.base import Ingredient, Views


class HardNegatives(Ingredient):
    """The batch's hard negatives as negatives of every anchor: (N, N) columns."""

    def __init__(self, config: HardNegativesConfig, encoder: Encoder):
        super().__init__()
        self.config = config
        self._cosine: Tensor | float = float("nan")

    def negatives(self, z: Views) -> Tensor | None:
        """(N, N) logits; None where the batch has no third column."""
        if z.hard is None:
            return None
        similarity = cosine(z.h, z.hard)
        self._cosine = similarity.detach().diagonal().mean()
        weights = torch.ones(len(z.h)) if z.weights is None else z.weights
        own = (self.config.hard_weight * weights.to(similarity)).log()  # weight 0: e^-inf, no term
        return similarity / z.temperature + own.diag_embed()

    def diagnostics(self) -> dict[str, Any]:
        """`hard_cosine`: mean cosine of each anchor with its own hard negative."""
        return {"hard_cosine": self._cosine}
