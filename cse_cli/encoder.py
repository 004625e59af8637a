"""The one encoder: backbone, pooler and head, from texts or token rows to sentence vectors.

Two ways in. `encode` and `stream` take texts and run without gradient: every distinct sentence
once, grouped by length under a token budget, results in input order. `pooled` takes token rows
and keeps the graph: it is what a training step is built on, and returns vectors *before* the head.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from cse_cli.backbone import block_output, find_blocks, find_final_norm
from cse_cli.batching import budget_groups, step_groups
from cse_cli.data.tokens import Tokens
from cse_cli.dropout import dropout_off, first_token_only
from cse_cli.errors import UsageError
from cse_cli.pooling import POOLER_LAYERS, pool_layer
from cse_cli.progress import track, warn

WINDOW = 65536  # texts tokenised and grouped at a time, so that memory stays bounded
LAUNCH = {"cpu": 96, "cuda": 1 << 20}  # what one more group costs, in tokens (see step_groups)
BATCH_TOKENS = {"cpu": 1024, "cuda": 1 << 15}  # a forward pass: what stays in a core's cache
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass
class Pooled:
    """Vectors before the head: the last layer's (R, D) and, by block number, the layers' (R, D)."""

    last: Tensor
    layers: dict[int, Tensor] = field(default_factory=dict)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Pooled":
        """The same function applied to every tensor."""
        layers = {layer: change(rows) for layer, rows in self.layers.items()}
        return Pooled(change(self.last), layers)


@dataclass
class LayerBatch:
    """One group of texts with all its hidden states.

    `index` are the rows' positions in the texts, `ids` and `mask` (B, T), `states` the L + 1
    hidden states (B, T, D), embedding output first.
    """

    index: np.ndarray
    ids: Tensor
    mask: Tensor
    states: tuple[Tensor, ...]


class Encoder(nn.Module):
    """A transformer encoder with its pooler and head.

    `head` stands behind the pooled vector in training; at evaluation it is applied only where
    `keep_head` says so. `max_length` counts tokens with the special ones, `normalize` scales
    evaluation vectors to unit length, `batch_tokens` bounds one forward pass of `encode`.
    """

    def __init__(
        self,
        backbone: Any,
        tokenizer: Any,
        *,
        name: str,
        pooler: str,
        max_length: int,
        head: nn.Module | None = None,
        keep_head: bool = False,
        normalize: bool = False,
        batch_tokens: int | None = None,
    ):
        super().__init__()
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.name = name
        self.pooler = pooler
        self.max_length = max_length
        self.head = head if head is not None else nn.Identity()
        self.keep_head = keep_head
        self.normalize = normalize
        self.batch_tokens = batch_tokens
        self._fingerprint: str | None = None
        self.compiled: Callable[[Tokens, Sequence[int]], Pooled] | None = None  # see compiled.py

    @classmethod
    def load(cls, name_or_path: str, **options: Any) -> "Encoder":
        """Load a hub id, a model folder, a sentence-transformers folder or a checkpoint.

        Options and errors are those of `cse_cli.loading.load_encoder`.
        """
        from cse_cli.loading import load_encoder

        return load_encoder(name_or_path, **options)

    @property
    def num_layers(self) -> int:
        """L, the number of transformer blocks."""
        return int(self.backbone.config.num_hidden_layers)

    @property
    def width(self) -> int:
        """D of the hidden states."""
        return int(self.backbone.config.hidden_size)

    @property
    def dimension(self) -> int:
        """D of the vectors that `encode` returns."""
        if self.keep_head:
            linears = [m for m in self.head.modules() if isinstance(m, nn.Linear)]
            if linears:
                return linears[-1].out_features
        return self.width

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.backbone.parameters()).device

    @property
    def fingerprint(self) -> str:
        """SHA-256 over pooling and all evaluation weights: equal encoders have equal ones.

        Computed at the first use; an encoder that is trained further keeps its first value.
        """
        if self._fingerprint is None:
            digest = hashlib.sha256(f"{self.pooler} {self.normalize} {self.keep_head}".encode())
            modules = [self.backbone, self.head] if self.keep_head else [self.backbone]
            for module in modules:
                for key, value in module.state_dict().items():
                    digest.update(key.encode())
                    digest.update(value.detach().float().cpu().contiguous().numpy().data)
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    # ------------------------------------------------------------------ training: rows to vectors

    def pooled(self, tokens: Tokens, layers: Sequence[int] = ()) -> Pooled:
        """Pooled vectors of token rows (R, T), before the head, with the graph.

        Rows are grouped by length inside, and returned in their order. `layers` names the blocks
        (1 … L) whose pooled states are wanted too; no other state is kept.
        """
        if self.compiled is not None:
            return self.compiled(tokens, layers)
        launch = LAUNCH.get(self.device.type, LAUNCH["cuda"])
        groups = step_groups(tokens.lengths.tolist(), launch)
        if len(groups) == 1:
            return self._pool_rows(tokens, layers)
        parts = [self._pool_rows(tokens.select(torch.from_numpy(g)), layers) for g in groups]
        order = torch.from_numpy(np.argsort(np.concatenate(groups))).to(self.device)
        return Pooled(
            torch.cat([part.last for part in parts])[order],
            {layer: torch.cat([part.layers[layer] for part in parts])[order] for layer in layers},
        )

    def _pool_rows(self, tokens: Tokens, layers: Sequence[int]) -> Pooled:
        """`pooled` for one group, trimmed to its longest row."""
        longest = int(tokens.lengths.max())
        ids, mask = tokens.narrowed(longest).on(self.device)
        full = bool((tokens.lengths == longest).all())
        own = {layer % (self.num_layers + 1) for layer in POOLER_LAYERS[self.pooler]}
        with self._captured({*own, *layers}, mask) as found, self._shortcut():
            output = self.backbone(ids, attention_mask=None if full else mask.long())
        last = output.last_hidden_state
        found[self.num_layers] = pool_layer(last, mask, self.pooler)
        vectors = [found[layer] for layer in sorted(own)]
        pooled = vectors[0] if len(vectors) == 1 else torch.stack(vectors).mean(dim=0)
        return Pooled(pooled, {layer: found[layer] for layer in layers})

    def _shortcut(self) -> contextlib.AbstractContextManager[None]:
        """What the last block may skip: all but [CLS], where that is all the pooler reads."""
        if self.pooler != "cls":
            return contextlib.nullcontext()
        return first_token_only(find_blocks(self.backbone)[-1])

    @contextlib.contextmanager
    def _captured(self, layers: set[int], mask: Tensor) -> Iterator[dict[int, Tensor]]:
        """Pool the hidden states of `layers` as they are made; nothing else is kept.

        hs[0] is what the first block is given, hs[l] what block l returns (normed in pre-norm
        encoders, as their last state is). hs[L] is not captured: the backbone returns it.
        """
        found: dict[int, Tensor] = {}
        inner = sorted(layers - {self.num_layers})
        if not inner:
            yield found
            return
        blocks = find_blocks(self.backbone)
        norm = find_final_norm(self.backbone) or nn.Identity()

        def keep(layer: int, states: Tensor) -> None:
            found[layer] = pool_layer(states if layer == 0 else norm(states), mask, self.pooler)

        def first(_: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            keep(0, args[0] if args else kwargs["hidden_states"])

        def after(layer: int) -> Callable[..., None]:
            return lambda _module, _args, output: keep(layer, block_output(output))

        hooks = [
            blocks[0].register_forward_pre_hook(first, with_kwargs=True)
            if layer == 0
            else blocks[layer - 1].register_forward_hook(after(layer))
            for layer in inner
        ]
        try:
            yield found
        finally:
            for hook in hooks:
                hook.remove()

    # ---------------------------------------------------------------- evaluation: texts to vectors

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Tensor:
        """Sentence vectors (n, dimension), float32 on the CPU, in the order of `texts`.

        Identical texts are encoded once. Dropout is off and the encoder's mode is restored.
        """
        place: dict[str, int] = {}
        rows = [place.setdefault(text, len(place)) for text in texts]
        distinct = list(place)
        vectors = torch.empty(len(distinct), self.dimension)
        with self._evaluating():
            for index, tokens in self._groups(distinct, progress=progress):
                found = self._pool_rows(tokens, ()).last
                vectors[index] = self.finish(found).float().cpu()
        return vectors if len(distinct) == len(texts) else vectors[torch.tensor(rows)]

    def finish(self, pooled: Tensor) -> Tensor:
        """What evaluation does behind the pooler: the kept head and normalisation, (R, D)."""
        vectors = self.head(pooled) if self.keep_head else pooled
        return normalize(vectors.float(), dim=1) if self.normalize else vectors

    @torch.inference_mode()
    def stream(self, texts: Sequence[str], *, progress: bool = False) -> Iterator[LayerBatch]:
        """All hidden states of `texts`, one length group at a time; duplicates are not merged."""
        norm = find_final_norm(self.backbone) or nn.Identity()
        with self._evaluating():
            for index, tokens in self._groups(texts, progress=progress):
                ids, mask = tokens.ids.to(self.device), tokens.mask.to(self.device)
                full = bool(mask.all())
                states = self.backbone(
                    ids, attention_mask=None if full else mask.long(), output_hidden_states=True
                ).hidden_states
                middle = tuple(norm(state) for state in states[1:-1])
                yield LayerBatch(index, ids, mask, (states[0], *middle, states[-1]))

    def tokenize(self, texts: Sequence[str]) -> tuple[list[list[int]], int]:
        """Token ids of each text, cut at `max_length`, and how many texts were cut."""
        encoded = self.tokenizer(
            list(texts),
            truncation=True,
            max_length=self.max_length,
            return_attention_mask=False,
            return_token_type_ids=False,
        )
        ids = encoded["input_ids"]
        cut = sum(
            1
            for row, one in zip(ids, encoded.encodings, strict=True)
            if len(row) >= self.max_length and one.overflowing
        )
        return ids, cut

    def _groups(
        self, texts: Sequence[str], *, progress: bool
    ) -> Iterator[tuple[np.ndarray, Tokens]]:
        """Groups of token rows with their positions in `texts`; warns of truncation at the end."""
        truncated = 0
        pad = self.tokenizer.pad_token_id
        budget = self.batch_tokens or BATCH_TOKENS.get(self.device.type, BATCH_TOKENS["cuda"])
        for start in range(0, len(texts), WINDOW):
            ids, cut = self.tokenize(texts[start : start + WINDOW])
            truncated += cut
            groups = budget_groups([len(row) for row in ids], budget)
            label = f"encoding with {self.name}"
            for group in track(groups, len(groups), label) if progress else groups:
                yield group + start, Tokens.from_rows([ids[i] for i in group], pad)
        if truncated:
            warn(
                f"{truncated} of {len(texts)} texts ({truncated / len(texts):.1%}) were cut at "
                f"{self.max_length} tokens; --max-length sets it"
            )

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Dropout off in the whole encoder, and every module's mode put back afterwards."""
        with dropout_off(self):
            yield


def check_layer(layer: int | str, num_layers: int) -> int:
    """A block number for `--neg-layer`: 1 … L-1, or `penultimate` for L-1.

    Raises UsageError with the valid range for 0, L, negatives and anything else.
    """
    if layer == "penultimate":
        layer = num_layers - 1
    try:
        number = int(layer)
    except ValueError:
        number = 0
    if not 1 <= number <= num_layers - 1:
        raise UsageError(
            f"--neg-layer {layer}: an encoder of {num_layers} blocks takes 1 … {num_layers - 1} "
            "or 'penultimate'"
        )
    return number
