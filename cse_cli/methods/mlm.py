"""SimCSE's auxiliary (Gao et al. 2021): the encoder goes on with masked language modelling.

    l = InfoNCE + lambda CE,   lambda = .1

BERT's corruption of 15% of the tokens (80% [MASK], 10% a random token, 10% kept), drawn separately
for all 2N rows, in a pass of its own through the encoder; cross-entropy averaged over the chosen
tokens.
"""

from typing import Any

import torch
from torch import Tensor, nn

from cse_cli.config.generative import MaskedLMConfig
from cse_cli.data.tokens import Tokens
from cse_cli.encoder import Encoder
from cse_cli.errors import UsageError
from cse_cli.maths import masked_lm
from cse_cli.methods.base import Ingredient, Share, Views
from cse_cli.methods.edits import Vocabulary, choose, corrupt, edit_counts
from cse_cli.methods.generator import load_masked_lm
from cse_cli.methods.passes import both_views, bounded, length_groups, logits_at, model_inputs
from cse_cli.progress import warn


def masked_lm_on(encoder: Encoder) -> Any:
    """The masked language model of the encoder's checkpoint, its body replaced by the encoder's.

    Where the checkpoint has no head a fresh one is tied to the embeddings, with a warning.
    """
    source = encoder.backbone.name_or_path
    model, whole = load_masked_lm(source)
    if not whole:
        warn(f"{source} has no masked-language-model head: a fresh one is trained")
    setattr(model, model.base_model_prefix, encoder.backbone)
    if model.config.tie_word_embeddings:
        model.get_output_embeddings().weight = encoder.backbone.get_input_embeddings().weight
    return model.to(encoder.device)


class MaskedLM(Ingredient):
    """Masked language modelling of both views' rows, weighted by `config.mlm_weight`."""

    def __init__(self, config: MaskedLMConfig, encoder: Encoder):
        super().__init__()
        if encoder.tokenizer.mask_token_id is None:
            raise UsageError(f"{encoder.name}: its tokenizer has no mask token for masked-lm")
        self.config = config
        self.words = Vocabulary.of(encoder.tokenizer)
        model = masked_lm_on(encoder)
        # Only the head is this ingredient's own: the body is the encoder's, trained and saved there
        self.head = nn.ModuleList(
            part for name, part in model.named_children() if name != model.base_model_prefix
        )
        self._model = (model,)
        self._seen: dict[str, Any] = {}

    def loss(self, z: Views, s: Tensor) -> Tensor | None:
        """The weighted loss of this process's rows, so that the mean over processes is that of
        the whole batch; None for a weight of 0."""
        if not self.config.mlm_weight:
            return None
        rng = z.rng("masked-lm")
        rows, own = both_views(z)
        content = self.words.content(rows)
        chosen = choose(content, edit_counts(content.sum(1), self.config.mlm_ratio), rng)
        ids = corrupt(rows.ids, chosen, self.words, rng)
        corrupted = Tokens(ids, rows.lengths, rows.starts, rows.pad_id)
        total = self._predict(z, corrupted.select(own), rows.ids[own], chosen[own])
        share = len(own) / len(rows)
        return self.config.mlm_weight * total / (share * chosen.sum().clamp_min(1))

    def _predict(self, z: Views, corrupted: Tokens, ids: Tensor, chosen: Tensor) -> Tensor:
        """Sum of the cross-entropy over the `chosen` (R, T) tokens, whose true ids are `ids`."""
        (model,) = self._model
        device = z.h.device
        total = z.h.new_zeros(())
        right = torch.zeros((), dtype=torch.long, device=device)
        for rows, width in length_groups(corrupted, device, z.chunk_size):
            where = chosen[rows, :width]
            labels = ids[rows, :width][where].to(device)
            with z.autocast():
                logits = bounded(
                    logits_at,
                    model,
                    model_inputs(corrupted, rows, width, device),
                    where.to(device),
                    chunked=z.chunk_size is not None,
                ).float()
            total = total + len(labels) * masked_lm(logits, labels)
            right += (logits.argmax(-1) == labels).sum()
        self._seen = {"mlm_accuracy": Share(right, chosen.sum().to(device))}
        return total

    def diagnostics(self) -> dict[str, Any]:
        """The share of masked tokens that the encoder predicts."""
        return self._seen
