"""Opening an encoder by name: a hub id, a model folder, a sentence-transformers folder, our own.

Pooling, kept head, normalisation and length come from the folder where it says them; options
override, and an override that contradicts the folder is told.
"""

import sys
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import HTTPError
from torch import nn

from cse_cli.attention import use_short_attention
from cse_cli.backbone import exists, load_backbone, not_given
from cse_cli.checkpoint import resolve
from cse_cli.data.hub import in_hub_cache
from cse_cli.encoder import DTYPES, Encoder
from cse_cli.errors import InputError, UsageError
from cse_cli.layout import Layout, is_layout, read_layout
from cse_cli.pooling import check_pooler
from cse_cli.progress import warn

LENGTH_CAP = 512
HUB_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.md")


def load_encoder(
    name_or_path: str,
    *,
    pooler: str | None = None,
    device: str = "cpu",
    precision: str = "fp32",
    max_length: int | None = None,
    normalize: bool | None = None,
    batch_tokens: int | None = None,
    num_layers: int | None = None,
    dropout: float | None = None,
) -> Encoder:
    """An `Encoder` in evaluation mode on `device`, its weights in `precision`.

    `pooler`, `max_length` and `normalize` default to what the folder says; a bare model has no
    pooler and gets `cls`, with a warning. Raises InputError for what is missing or damaged,
    UsageError for an unknown pooler or a length the model cannot take.
    """
    if pooler is not None:
        check_pooler(pooler)
    folder = resolve(locate(name_or_path))
    layout = read_layout(folder) if is_layout(folder) else None
    source = str(folder / layout.backbone) if layout else _source(name_or_path, folder)
    backbone, tokenizer = load_backbone(source, num_layers=num_layers, dropout=dropout)
    if layout:
        _check_fit(folder, layout, tokenizer, backbone.config.hidden_size)
    encoder = Encoder(
        backbone,
        tokenizer,
        name=display_name(name_or_path),
        pooler=_choose_pooler(name_or_path, pooler, layout),
        max_length=choose_length(backbone, tokenizer, max_length, layout),
        head=nn.Sequential(*layout.dense) if layout and layout.dense else None,
        keep_head=bool(layout and layout.dense),
        normalize=bool(layout and layout.normalize) if normalize is None else normalize,
    )
    if batch_tokens:
        encoder.batch_tokens = batch_tokens
    if device == "cpu" and precision == "bf16":
        use_short_attention(backbone)
    return encoder.to(device=torch.device(device), dtype=DTYPES[precision]).eval()


def locate(name_or_path: str) -> Path:
    """The local folder of `name_or_path`; a hub repository laid out as sentence-transformers
    is downloaded whole (its safetensors and text files), any other name is returned as it is."""
    path = _expanded(name_or_path)
    if exists(path) or name_or_path.startswith((".", "/", "~")) or name_or_path.count("/") > 1:
        return path
    try:
        return _from_hub(name_or_path) or path
    except (HTTPError, OSError, ValueError) as error:
        raise not_given(name_or_path, error) from None


def _from_hub(repo: str) -> Path | None:
    """The local folder of a sentence-transformers repository; of a bare model only where the hub
    does not answer, else None: transformers downloads what it needs by itself."""
    from huggingface_hub import file_exists, snapshot_download
    from huggingface_hub.constants import HF_HUB_OFFLINE
    from huggingface_hub.utils import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    if not in_hub_cache(repo, "modules.json", "model"):
        try:
            if HF_HUB_OFFLINE or not file_exists(repo, "modules.json"):
                return None
        except (HTTPError, OSError):
            config = in_hub_cache(repo, "config.json", "model")
            if config is None:
                raise
            return config.parent  # transformers asks the hub again, slowly, for all but a folder
    return Path(snapshot_download(repo, allow_patterns=list(HUB_FILES)))


def _source(name: str, folder: Path) -> str:
    """What transformers is asked for: a folder where there is one, else the hub id."""
    return str(folder) if folder.exists() else name


def display_name(name_or_path: str) -> str:
    """The short name used in tables: a folder's last part, or the hub id as it is."""
    path = _expanded(name_or_path)
    return path.resolve().name if exists(path) else name_or_path


def _expanded(name: str) -> Path:
    """`name` as a path, a home folder spelled out."""
    try:
        return Path(name).expanduser()
    except RuntimeError:  # `~` and a user who is not there
        raise InputError(f"{name}: no such folder") from None


def _check_fit(folder: Path, layout: Layout, tokenizer: Any, width: int) -> None:
    """InputError where what stands around a backbone of `width` does not fit it."""
    for dense in layout.dense:
        if dense.linear.in_features != width:
            raise InputError(
                f"{folder}: a Dense module takes {dense.linear.in_features} dimensions, "
                f"but is given {width}"
            )
        width = dense.linear.out_features
    normalizer = tokenizer.backend_tokenizer.normalizer
    if layout.lower_case and (normalizer is None or "A" in normalizer.normalize_str("A")):
        raise InputError(
            f"{folder}: do_lower_case in sentence_bert_config.json is not supported where the "
            "tokenizer keeps capital letters; give it a normalizer that lower-cases"
        )


def _choose_pooler(name: str, asked: str | None, layout: Layout | None) -> str:
    if layout is None:
        if asked is None:
            warn(f"{name} does not say how it is pooled: using 'cls'; --pooler sets it")
        return asked or "cls"
    if asked is not None and asked != layout.pooler:
        warn(f"{name} was made for the pooler '{layout.pooler}'; --pooler {asked} overrides it")
    return asked or layout.pooler


def choose_length(
    backbone: Any, tokenizer: Any, asked: int | None, layout: Layout | None = None
) -> int:
    """Evaluation length in tokens: asked, else the folder's, else the model's, at most 512."""
    limit = length_limit(backbone, tokenizer)
    if asked is not None:
        return check_length("--max-length", asked, limit)
    return min(layout.max_length if layout and layout.max_length else LENGTH_CAP, limit)


def check_length(option: str, asked: int, limit: int) -> int:
    """The length that `option` asks for; UsageError where the encoder takes `limit` at most."""
    if not 3 <= asked <= limit:
        raise UsageError(f"{option} {asked}: this encoder takes 3 … {limit} tokens")
    return asked


def length_limit(backbone: Any, tokenizer: Any) -> int:
    """The most tokens the encoder has positions for (RoBERTa's first ones are taken by padding)."""
    positions = getattr(backbone.config, "max_position_embeddings", None) or LENGTH_CAP
    for name, module in backbone.named_modules():
        if (
            name.endswith("position_embeddings")
            and getattr(module, "padding_idx", None) is not None
        ):
            positions -= module.padding_idx + 1
    return int(min(positions, tokenizer.model_max_length))
