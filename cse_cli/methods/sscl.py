"""SSCL (Chen et al. 2023): pooled states of intermediate blocks as negatives.

    l_i = -log e^{s(h_i,h_i+)} / sum_j [ e^{s(h_i,h_j+)} + sum_{M in S} e^{s(h_i,h_j^M)} ]

h, h+, h^M: (N, D), the layers' vectors through the same head, gradient flowing into them. S is one
block (the penultimate is best) or several (progressive SSCL). Eq. 4 prints the own vector h_i^-
inside the sum over j; B.2 says the negatives grow from N to 2N, so the default takes h_j^- for all
j. `literal` is Eq. 4 as printed; `released` is the authors' code, which uses both views' layers and
averages with plain SimCSE.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from cse_cli.config.ingredients import LayerNegativesConfig
from cse_cli.encoder import Encoder, check_layers
from cse_cli.maths import info_nce, layer_negatives, sscl_literal_negatives
from cse_cli.methods.base import Ingredient, Needs, Views


class LayerNegatives(Ingredient):
    """The layers in `config.neg_layer` as negatives of every anchor: (N, K N) columns."""

    def __init__(self, config: LayerNegativesConfig, encoder: Encoder):
        super().__init__()
        self.config = config
        self.blocks = check_layers(config.neg_layer, encoder.num_layers)
        wanted = frozenset(self.blocks)
        both = wanted if config.variant == "released" else frozenset()
        self.needs = Needs(layers=wanted, positive_layers=both)
        self._seen: dict[str, Any] = {}

    def negatives(self, z: Views) -> Tensor:
        """(N, K N) logits; `literal` (N, K); `released` (N, 2 K N)."""
        states = torch.stack([z.layers[block] for block in self.blocks])  # (K, N, D)
        own = cosine_similarity(z.h.detach(), states.detach(), dim=-1).mean()
        self._seen = {"layer_cosine": own, "layer_negative_cosine": own}
        if self.config.variant == "literal":
            return sscl_literal_negatives(z.h, states, z.temperature)
        if self.config.variant == "released":
            others = torch.stack([z.positive_layers[block] for block in self.blocks])
            states = torch.cat([states, others])  # (2K, N, D)
        columns = layer_negatives(z.h, states, z.temperature)
        self._seen["layer_negative_cosine"] = columns.detach().mean() * z.temperature
        return columns

    def loss(self, z: Views, s: Tensor) -> Tensor | None:
        """`released` only: what turns the main term into (L_neg + L_simcse) / 2."""
        if self.config.variant != "released":
            return None
        with_layers = info_nce(torch.cat([s, self.negatives(z)], dim=1))
        return z.contrastive_weight * (info_nce(s) - with_layers) / 2

    def diagnostics(self) -> dict[str, Any]:
        """Mean cosine of an anchor with its own layers' vectors, and with all its negatives."""
        return self._seen
