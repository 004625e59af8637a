"""The one encoder: backbone, pooler and head, from texts or token rows to sentence vectors.

Two ways in. `encode` and `stream` take texts and run without gradient: every distinct sentence
once, grouped by length under a token budget, results in input order. `pooled` takes token rows
and keeps the graph: it is what a training step is built on, and returns vectors *before* the head.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from cse_cli.attention import has_short_attention
from cse_cli.backbone import find_final_norm
from cse_cli.batching import budget_groups
from cse_cli.data.tokens import Tokens
from cse_cli.dropout import dropout_off
from cse_cli.errors import UsageError
from cse_cli.lanes import beside
from cse_cli.linears import fast_linears
from cse_cli.progress import track, warn
from cse_cli.rows import Pooled, RowPooler, pool_rows

Result = TypeVar("Result")
WINDOW = 65536  # texts tokenised and grouped at a time, so that memory stays bounded
BATCH_TOKENS = {"cpu": 1024, "cuda": 1 << 15}  # a forward pass: what stays in a core's cache
# What a configuration says that its vectors do not depend on.
NOT_VECTORS = ("_name_or_path", "architectures", "auto_map", "dtype", "transformers_version")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


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
        self.lanes = 1  # of `pooled`; more where a processor trains with fast dropout
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
        """SHA-256 over pooling, configuration and evaluation weights: equal encoders, equal ones.

        Computed at the first use; an encoder that is trained further keeps its first value.
        """
        if self._fingerprint is None:
            digest = hashlib.sha256(f"{self.pooler} {self.normalize} {self.keep_head}".encode())
            config = self.backbone.config.to_diff_dict().items()
            known = {key: value for key, value in config if key not in NOT_VECTORS}
            digest.update(json.dumps(known, sort_keys=True, default=str).encode())
            if self.keep_head:
                digest.update(repr(self.head).encode())
            modules = [self.backbone, self.head] if self.keep_head else [self.backbone]
            for module in modules:
                for key, value in module.state_dict().items():
                    digest.update(key.encode())
                    digest.update(value.detach().float().cpu().contiguous().numpy().data)
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    # ------------------------------------------------------------------ training: rows to vectors

    def pooled(self, tokens: Tokens, layers: Sequence[int] = (), clean: int = 0) -> Pooled:
        """Pooled vectors of token rows (R, T), before the head, with the graph (see rows.py).

        `layers` names the blocks (1 … L) whose pooled states are wanted too; the last `clean` rows
        are encoded with dropout off.
        """
        together = not clean or has_short_attention(self.backbone)
        if self.compiled is None and self.lanes > 1 and together:
            return pool_rows(self.backbone, tokens, self.pooler, layers, self.lanes, clean)
        parts = []
        if clean < len(tokens):
            parts.append(self._plainly(tokens.select(slice(len(tokens) - clean)), layers))
        if clean:
            with dropout_off(self.backbone):
                rest = tokens.select(slice(len(tokens) - clean, None))
                parts.append(self._plainly(rest, layers))
        return parts[0] if len(parts) == 1 else Pooled.cat(parts)

    def _plainly(self, tokens: Tokens, layers: Sequence[int]) -> Pooled:
        """`pooled` for rows that are all alike."""
        if self.compiled is not None:
            return self.compiled(tokens, layers)
        return pool_rows(self.backbone, tokens, self.pooler, layers, self.lanes)

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
        pooling = RowPooler(self.backbone, self.pooler)
        with dropout_off(self), fast_linears(self.backbone), pooling as pool:

            def finished(group: tuple[np.ndarray, Tokens]) -> tuple[np.ndarray, Tensor]:
                """A group's places in the texts, and its vectors (B, dimension)."""
                index, tokens = group
                ids, mask = tokens.on(self.device)
                full = bool((tokens.lengths == ids.shape[1]).all())
                return index, self.finish(pool(mask, full, input_ids=ids).last).float().cpu()

            groups = self._groups(distinct, progress=progress)
            for index, found in beside(finished, groups, self._side_by_side):
                vectors[index] = found
        return vectors if len(distinct) == len(texts) else vectors[torch.tensor(rows)]

    def finish(self, pooled: Tensor) -> Tensor:
        """What evaluation does behind the pooler: the kept head and normalisation, (R, D)."""
        vectors = self.head(pooled) if self.keep_head else pooled
        return normalize(vectors.float(), dim=1) if self.normalize else vectors

    @torch.inference_mode()
    def stream(
        self,
        texts: Sequence[str],
        reduce: Callable[[LayerBatch], Result],
        *,
        progress: bool = False,
    ) -> Iterator[Result]:
        """`reduce` of all hidden states of `texts`, one length group at a time.

        Duplicates are not merged. On a processor groups go through beside each other, and are
        reduced there, so that no more than one group a core is held.
        """
        norm = find_final_norm(self.backbone) or nn.Identity()
        with dropout_off(self), fast_linears(self.backbone):

            def reduced(group: tuple[np.ndarray, Tokens]) -> Result:
                """One group put through the backbone, and what `reduce` makes of its states."""
                index, tokens = group
                ids, mask = tokens.on(self.device)
                full = bool((tokens.lengths == ids.shape[1]).all())
                states = self.backbone(
                    ids, attention_mask=None if full else mask.long(), output_hidden_states=True
                ).hidden_states
                middle = tuple(norm(state) for state in states[1:-1])
                return reduce(LayerBatch(index, ids, mask, (states[0], *middle, states[-1])))

            yield from beside(reduced, self._groups(texts, progress=progress), self._side_by_side)

    @property
    def _side_by_side(self) -> int:
        """How many groups of texts are encoded beside each other."""
        return torch.get_num_threads() if self.device.type == "cpu" else 1

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


def check_layers(layers: Sequence[int | str], num_layers: int) -> list[int]:
    """The blocks that `--neg-layer` names, each once; UsageError as in `check_layer`."""
    blocks = [check_layer(layer, num_layers) for layer in layers]
    for i, block in enumerate(blocks):
        if block in blocks[:i]:
            raise UsageError(f"--neg-layer {layers[i]}: block {block} is named twice")
    return blocks


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
    if num_layers < 2:
        raise UsageError("--neg-layer: an encoder of one block has none below its last")
    if not 1 <= number <= num_layers - 1:
        raise UsageError(
            f"--neg-layer {layer}: an encoder of {num_layers} blocks takes 1 … {num_layers - 1} "
            "or 'penultimate'"
        )
    return number
