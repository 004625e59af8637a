"""Edited sentences as further positives or negatives (DiffCSE, Appendix B and Table 15).

    positive:  l + mean_i -log e^{s(h_i,e_i)} / sum_j e^{s(h_i,e_j)}
    negative:  columns s(h_i,e_j) for all j beside those of h+

e (N, D) are the vectors of the edited anchors through the same encoder and head, with gradient.
The paper shows that neither helps as much as telling the edits apart.
"""

import torch
from torch import Tensor

from cse_cli.config.generative import ReplacedTokensConfig
from cse_cli.data.tokens import Tokens
from cse_cli.encoder import Encoder
from cse_cli.maths import cosine, info_nce
from cse_cli.methods.base import Ingredient, Views
from cse_cli.methods.editor import Editor


class EditedViews(Ingredient):
    """One edited view of every anchor, used as `config.edited_as` says."""

    def __init__(self, config: ReplacedTokensConfig, encoder: Encoder):
        super().__init__()
        self.config = config
        self.editor = Editor(config, encoder)

    def further(self, tokens: Tokens, rng: torch.Generator) -> Tokens:
        """The edited anchors (N rows)."""
        return self.editor.fill(*self.editor.draw(tokens, rng))

    def negatives(self, z: Views) -> Tensor | None:
        """(N, N) logits of every anchor with every edited sentence, or None."""
        return self._logits(z) if self.config.edited_as == "negative" else None

    def loss(self, z: Views, s: Tensor) -> Tensor | None:
        """InfoNCE with the edited sentences as the positives, or None."""
        if self.config.edited_as != "positive":
            return None
        return z.contrastive_weight * info_nce(self._logits(z))

    def _logits(self, z: Views) -> Tensor:
        assert z.further is not None  # this ingredient's own rows
        return cosine(z.h, z.further) / z.temperature
