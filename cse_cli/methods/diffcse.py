"""DiffCSE (Chuang et al. 2022): sentence vectors that tell what an edit has changed.

    x'  = x with tokens masked,   x'' = G(x'),   y_t = [x''_t != x_t]
    l   = InfoNCE + lambda RTD,   RTD = mean over tokens of CE(D(x'', h)_t, y_t)

G is a frozen masked language model. The discriminator D starts from the encoder's checkpoint, is
trained, and is conditioned on h: the embedding of x'' at position 0 is replaced by h, the sentence
vector of x behind the head, with gradient. Both views of all N sentences are edited, each on its
own: 2N rows. The paper prints a sum over tokens and batch; its lambda belongs to the mean.
"""

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from cse_cli.backbone import find_blocks
from cse_cli.config.generative import ReplacedTokensConfig
from cse_cli.data.tokens import Tokens
from cse_cli.encoder import Encoder
from cse_cli.errors import UsageError
from cse_cli.maths import replaced_token_detection
from cse_cli.methods.base import Ingredient, Share, Views
from cse_cli.methods.edited_views import EditedViews
from cse_cli.methods.editor import Editor
from cse_cli.methods.passes import both_views, bounded
from cse_cli.rows import Rows, in_groups

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
def conditioned(backbone: nn.Module) -> Iterator[Callable[..., Tensor]]:
    """A function of vectors (B, D) and inputs: the last states (B, T, D), given the vectors.

    The input of the first transformer block is the embedding output, behind its norm and dropout;
    the vector takes the place of position 0 there and carries no position. Each thread has its own.
    """
    given = threading.local()

    def states(vectors: Tensor, **inputs: Any) -> Tensor:
        given.vectors = vectors
        found: Tensor = backbone(**inputs).last_hidden_state
        return found

    def condition(
        _block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """The first block's input with the sentence vector in place of [CLS]'s state."""
        x = args[0] if args else kwargs["hidden_states"]  # (B, T, D)
        changed = torch.cat([given.vectors.to(x.dtype)[:, None], x[:, 1:]], dim=1)
        if args:
            return (changed, *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": changed}

    hook = find_blocks(backbone)[0].register_forward_pre_hook(condition, with_kwargs=True)
    try:
        yield states
    finally:
        hook.remove()


class Discriminator(nn.Module):
    """A copy of the encoder's backbone and Linear(D, 2): is each token replaced?"""

    def __init__(self, encoder: Encoder):
        super().__init__()
        self.backbone = copy.deepcopy(encoder.backbone)
        self.output = nn.Linear(encoder.width, 2)

    def forward(
        self, tokens: Tokens, vectors: Tensor, *, lanes: int = 1, padding: bool = False
    ) -> Tensor:
        """Scores (R, T, 2) of token rows (R, T), given the sentence vectors (R, D).

        Padding has scores of its own where `padding` asks for them, else 0.
        """
        words = self.backbone.get_input_embeddings()  # type: ignore[operator]
        ids, mask = tokens.on(vectors.device)
        given = words(ids)  # (R, T, E); the word at 0 is not read
        width, embedded = vectors.shape[-1], given.shape[-1]  # they differ in some of ELECTRA's
        wide = max(width, embedded)
        x = torch.cat([_widened(vectors[:, None], wide), _widened(given[:, 1:], wide)], dim=1)
        with conditioned(self.backbone) as states:

            def score(x: Tensor, mask: Tensor, full: bool) -> tuple[Tensor]:
                """Scores (n, T, 2) of rows x (n, t, wide) that begin with their vectors."""
                attention_mask = None if full else mask.long()
                inputs = x[..., :embedded]
                found = states(x[:, 0, :width], inputs_embeds=inputs, attention_mask=attention_mask)
                return (pad(self.output(found), (0, 0, 0, ids.shape[1] - x.shape[1])),)

            rows = Rows(x, mask, tokens.lengths, torch.zeros(len(x), dtype=torch.bool))
            (scores,) = in_groups(score, rows, self, lanes, narrow=not padding)
        return scores


class ReplacedTokens(Ingredient):
    """Replaced-token detection, weighted by `config.rtd_weight`."""

    def __init__(self, config: ReplacedTokensConfig, encoder: Encoder):
        super().__init__()
        check_family(encoder.backbone.config.model_type)
        self.config = config
        self.editor = Editor(config, encoder)
        self.discriminator = Discriminator(encoder).to(encoder.device)
        self.lanes = encoder.lanes
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
        padding = self.config.rtd_reduction == "released"  # padding has a score there, too
        chunked = z.chunk_size is not None
        compute = partial(self.discriminator, lanes=1 if chunked else self.lanes, padding=padding)
        with z.autocast():
            scores = torch.cat(
                [
                    bounded(compute, edited.select(rows), vectors[rows], chunked=chunked)
                    for rows in torch.arange(len(edited)).split(z.chunk_size or len(edited))
                ]
            ).float()
        labels, mask = replaced.to(vectors.device), edited.mask.to(vectors.device)
        right = scores.argmax(-1) == labels
        self._seen = {
            "rtd_accuracy_replaced": _share(right, mask & labels),
            "rtd_accuracy_kept": _share(right, mask & ~labels),
            "replaced_share": _share(labels, mask),
        }
        scored = torch.ones_like(mask) if padding else mask
        return replaced_token_detection(scores, labels, scored, "sum")

    def diagnostics(self) -> dict[str, Any]:
        """The discriminator's accuracy on replaced and on kept tokens, and the replaced share."""
        return self._seen


def _widened(rows: Tensor, wide: int) -> Tensor:
    """(..., D) with zeros behind, (..., wide)."""
    return pad(rows, (0, wide - rows.shape[-1])) if rows.shape[-1] < wide else rows


def _share(hits: Tensor, among: Tensor) -> Share:
    """How many of the places `among` are `hits`, both boolean and of one shape."""
    return Share((hits & among).sum(), among.sum())


def check_vector_width(project_dim: int | None, width: int) -> None:
    """Refuse vectors that are not as wide as the token's state they stand in for."""
    if project_dim not in (None, width):
        raise UsageError(
            f"--project-dim {project_dim}: replaced-tokens puts the sentence vector in place of a "
            f"token's state, so it must be {width} wide"
        )
