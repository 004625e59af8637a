"""GS-InfoNCE (Wu et al. 2022): Gaussian vectors as negatives that are surely negative.

    l_i = -log e^{s(h_i,h_i+)} / ( sum_j e^{s(h_i,h_j+)} + lambda sum_{k=1..M} e^{s(g_k,h_i)} )
    g_k ~ N(mu, sigma^2 I_D)

g (M, D) is drawn anew at every step, is shared by all anchors, does not pass through the head, and
gets no gradient. Eq. 2 prints h_j for the in-batch negatives; the paper's Listing 1, which the
equation above follows, uses h_j+. At mu = 0 the cosine removes sigma altogether. The released code
declares lambda and never uses it.
"""

from typing import Any

import torch
from torch import Tensor

from cse_cli.config.fields import row_count
from cse_cli.config.ingredients import GaussianNoiseConfig
from cse_cli.encoder import Encoder
from cse_cli.maths import gaussian_negatives
from cse_cli.methods.base import Ingredient, Views


class GaussianNoise(Ingredient):
    """M noise vectors as negatives of every anchor: (N, M) columns."""

    def __init__(self, config: GaussianNoiseConfig, encoder: Encoder):
        super().__init__()
        self.config = config
        self._top = torch.tensor(float("nan"))

    def negatives(self, z: Views) -> Tensor:
        """(N, M) logits; (N, 0) at weight 0."""
        count = row_count("noise_count", self.config.noise_count, len(z.h))
        drawn = torch.randn(count, z.h.shape[1], generator=z.rng("gaussian-noise")).to(z.h)
        noise = self.config.noise_mean + self.config.noise_std * drawn  # (M, D)
        columns = gaussian_negatives(z.h, noise, z.temperature, self.config.noise_weight)
        if columns.shape[1]:
            self._top = columns.detach().amax(1).mean()
        return columns

    def diagnostics(self) -> dict[str, Any]:
        """`noise_logit`: mean over anchors of the largest noise logit."""
        return {"noise_logit": self._top}
