"""DiffCSE (Chuang et al. 2022): sentence vectors that tell what an edit has changed.

    x'  = x with tokens masked,   x'' = G(x'),   y_t = [x''_t != x_t]
    l   = InfoNCE + lambda RTD,   RTD = mean over tokens of CE(D(x'', h)_t, y_t)

G is a frozen masked language model. The discriminator D starts from the encoder's checkpoint, is
trained, and is conditioned on h: the embedding of x'' at position 0 is replaced by h, the sentence
vector of x behind the head, with gradient. Both views of all N sentences are edited, each on its
own: 2N rows. The paper prints a sum over tokens and batch; its lambda belongs to the mean.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from cse_cli.backbone import find_blocks
from cse_cli.config.generative import ReplacedTokensConfig
from cse_cli.data.tokens import Tokens
from cse_cli.encoder import Encoder
from cse_cli.errors import UsageError
from cse_cli.maths import replaced_token_detection
from cse_cli.methods.base import Ingredient, Views
from cse_cli.methods.edited_views import EditedViews
from cse_cli.methods.editor import Editor
from cse_cli.methods.passes import both_views, bounded, length_groups, model_inputs

# Families whose first block is not given hs[0] as it is.
REFUSED = ("albert",)


def replaced_tokens(config: ReplacedTokensConfig, encoder: Encoder) -> Ingredient:
    """The ingredient that `config.edited_as` asks for."""
    if config.edited_as == "rtd":
        return ReplacedTokens(config, encoder)
    return EditedViews(config, encoder)


def check_family(model_type: str) -> None:
    """Refuse an encoder family that cannot be conditioned on a vector."""
    if model_type in REFUSED:
        raise UsageError(
            f"replaced-tokens cannot condition an encoder of the {model_type} family (its blocks "
            "are shared); take a BERT, RoBERTa, DistilBERT, XLM-R, MPNet, ELECTRA or ModernBERT"
        )


@contextmanager
def conditioned(backbone: nn.Module, vectors: Tensor) -> Iterator[None]:
    """Within, the embedding output at position 0 of row i is `vectors[i]` (B, D).

    The input of the first transformer block is the embedding output, behind its norm and dropout;
    the vector takes its place there and carries no position.
    """

    def condition(
        _block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """The first block's input with the sentence vector in place of [CLS]'s state."""
        states = args[0] if args else kwargs["hidden_states"]  # (B, T, D)
        changed = torch.cat([vectors.to(states.dtype)[:, None], states[:, 1:]], dim=1)
        if args:
            return (changed, *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": changed}

    hook = find_blocks(backbone)[0].register_forward_pre_hook(condition, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


class Discriminator(nn.Module):
    """A copy of the encoder's backbone and Linear(D, 2): is each token replaced?"""

    def __init__(self, encoder: Encoder):
        super().__init__()
        self.backbone = copy.deepcopy(encoder.backbone)
        self.output = nn.Linear(encoder.width, 2)

    def forward(self, inputs: dict[str, Any], vectors: Tensor) -> Tensor:
        """Scores (B, T, 2) of the rows in `inputs`, given the sentence vectors (B, D)."""
        with conditioned(self.backbone, vectors):
            states = self.backbone(**inputs).last_hidden_state
        scores: Tensor = self.output(states)
        return scores


class ReplacedTokens(Ingredient):
    """Replaced-token detection, weighted by `config.rtd_weight`."""

    def __init__(self, config: ReplacedTokensConfig, encoder: Encoder):
        super().__init__()
        check_family(encoder.backbone.config.model_type)
        check_vector_width(encoder)
        self.config = config
        self.editor = Editor(config, encoder)
        self.discriminator = Discriminator(encoder).to(encoder.device)
        self._seen: dict[str, Any] = {}

    def loss(self, z: Views, s: Tensor) -> Tensor | None:
        """The weighted loss of this process's rows, so that the mean over processes is that of
        the whole batch; None for a weight of 0."""
        if not self.config.rtd_weight:
            return None
        rows, own = both_views(z)
        drawn, lots = self.editor.draw(rows, z.rng("replaced-tokens"))
        count = self._count(drawn.tokens)
        edit = drawn.select(own)
        edited = self.editor.fill(edit, lots[own], z.autocast)
        vectors = torch.cat([z.h[z.mine], z.p[z.mine]])
        total = self._detect(z, edited, edit.replaced(edited.ids), vectors)
        return self.config.rtd_weight * (len(rows) / len(own)) * total / count

    def _count(self, tokens: Tokens) -> int:
        """What the sum over all rows' tokens is divided by."""
        if self.config.rtd_reduction == "released":
            return tokens.ids.numel()
        return int(tokens.lengths.sum()) if self.config.rtd_reduction == "mean" else 1

    def _detect(self, z: Views, edited: Tokens, replaced: Tensor, vectors: Tensor) -> Tensor:
        """Sum of the cross-entropy over the rows `edited`, given their `vectors` (R, D)."""
        device = vectors.device
        padding = self.config.rtd_reduction == "released"  # padding has a score there, too
        total = vectors.new_zeros(())
        right, counted = torch.zeros(2, 2, device=device)
        for rows, width in length_groups(edited, device, z.chunk_size):
            width = edited.ids.shape[1] if padding else width
            labels = replaced[rows, :width].to(device)
            mask = edited.mask[rows, :width].to(device)
            with z.autocast():
                scores = bounded(
                    self.discriminator,
                    model_inputs(edited, rows, width, device),
                    vectors[rows.to(device)],
                    chunked=z.chunk_size is not None,
                ).float()
            scored = torch.ones_like(mask) if padding else mask
            total = total + replaced_token_detection(scores, labels, scored, "sum")
            found = scores.argmax(-1) == labels
            for kind in (0, 1):
                of_kind = mask & (labels == bool(kind))
                right[kind] += (found & of_kind).sum()
                counted[kind] += of_kind.sum()
        self._seen = {
            "rtd_accuracy_replaced": right[1] / counted[1],
            "rtd_accuracy_kept": right[0] / counted[0],
            "replaced_share": counted[1] / counted.sum(),
        }
        return total

    def diagnostics(self) -> dict[str, Any]:
        """The discriminator's accuracy on replaced and on kept tokens, and the replaced share."""
        return self._seen


def check_vector_width(encoder: Encoder) -> None:
    """Refuse a head whose vectors are not as wide as the token embeddings they stand in for."""
    linears = [module for module in encoder.head.modules() if isinstance(module, nn.Linear)]
    if linears and linears[-1].out_features != encoder.width:
        raise UsageError(
            f"--project-dim {linears[-1].out_features}: replaced-tokens puts the sentence vector "
            f"in place of a token's embedding, so it must be {encoder.width} wide"
        )
