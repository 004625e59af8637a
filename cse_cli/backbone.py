"""Backbones: any transformer encoder that transformers' auto classes load.

Loading is strict where silence has burnt people: weights that the checkpoint lacks are an error
(the unused BERT pooler apart, which is never built), pickled weights are refused, code that a model
brings along is never run, and the dtype is always float32, whatever precision the folder was
stored in.
"""

import inspect
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from cse_cli.errors import InputError, UsageError, first_line

# Where pre-norm encoders keep the norm that follows their last block: beside the blocks, or (as
# RoBERTa-PreLayerNorm) one level above.
_FINAL_NORMS = (
    "final_norm",
    "final_layer_norm",
    "emb_layer_norm_after",
    "ln_f",
    "ln",
    "norm",
    "LayerNorm",
)
_NORM_ABOVE = "LayerNorm"
_DROPOUT_KEYS = ("dropout", "drop")


def load_backbone(
    source: str, *, num_layers: int | None = None, dropout: float | None = None
) -> tuple[Any, Any]:
    """(model, tokenizer) of a hub id or folder, in float32, in evaluation mode.

    `num_layers` keeps the lowest blocks only; `dropout` sets every dropout rate of the
    configuration. Raises InputError for anything missing or unusable, UsageError for a
    `num_layers` out of range.
    """
    from transformers import AutoModel

    config = configure(source, num_layers=num_layers, dropout=dropout)
    pooling = {"add_pooling_layer": False} if _has_pooler(AutoModel, config) else {}
    model, report = load_weights(AutoModel, source, config, **pooling)
    missing = [key for key in report["missing_keys"] if not key.startswith("pooler.")]
    if missing:
        raise InputError(
            f"{source}: the weights lack {missing[0]} and {len(missing) - 1} more of what "
            "its config.json describes"
        )
    return model.eval(), load_tokenizer(source)


def configure(source: str, *, num_layers: int | None = None, dropout: float | None = None) -> Any:
    """The configuration that `load_backbone` builds; it raises the same errors but for weights."""
    config = load_config(source)
    if num_layers is not None:
        depth = config.num_hidden_layers
        if not 1 <= num_layers <= depth:
            raise UsageError(f"--num-layers {num_layers}: the encoder has blocks 1 … {depth}")
        config.num_hidden_layers = num_layers
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:num_layers]
    if dropout is not None:
        set_dropout(config, dropout)
    return config


def outline(config: Any) -> Any:
    """The encoder that `config` describes, its weights without memory or values."""
    from transformers import AutoModel

    def build() -> Any:
        with torch.device("meta"):
            return AutoModel.from_config(config, trust_remote_code=False)

    return _guarded(config.name_or_path, build)


def load_config(source: str) -> Any:
    """The configuration of a hub id or folder; InputError where there is none, or no encoder.

    All hidden states are returned only where a call asks for them, whatever the folder says.
    """
    from transformers import AutoConfig, AutoModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    _check_local(source)
    config = _guarded(source, lambda: AutoConfig.from_pretrained(source, trust_remote_code=False))
    known = type(config) in AutoModel._model_mapping
    deep = getattr(config, "num_hidden_layers", 0) > 0
    decodes = config.is_encoder_decoder or getattr(config, "is_decoder", False)
    if decodes or not (known and deep):
        raise InputError(f"{source}: a {config.model_type} model is not a transformer encoder")
    config.output_hidden_states = False
    return config


def load_tokenizer(source: str) -> Any:
    """The fast tokenizer of a hub id or folder; InputError where it has none or no padding.

    It pads on the right, as our rows are.
    """
    from transformers import AutoTokenizer

    tokenizer = _guarded(
        source, lambda: AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    )
    if not tokenizer.is_fast:
        raise InputError(f"{source}: only a slow tokenizer; a tokenizer.json is needed")
    if tokenizer.pad_token_id is None:
        raise InputError(f"{source}: the tokenizer has no padding token")
    tokenizer.padding_side = "right"
    return tokenizer


def load_weights(auto: Any, source: str, config: Any, **options: Any) -> tuple[Any, dict[str, Any]]:
    """(model, loading report) by `auto.from_pretrained`, safetensors only, float32."""
    return _guarded(
        source,
        lambda: auto.from_pretrained(
            source,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            **options,
        ),
    )


def _has_pooler(auto: Any, config: Any) -> bool:
    """Whether the model class takes `add_pooling_layer` (BERT, RoBERTa, MPNet … do)."""
    model_class = auto._model_mapping[type(config)]
    if isinstance(model_class, tuple):
        model_class = model_class[0]
    return "add_pooling_layer" in inspect.signature(model_class.__init__).parameters


def exists(path: Path) -> bool:
    """Whether `path` is there; InputError where the system does not say (too long, forbidden)."""
    try:
        return path.exists()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _check_local(source: str) -> None:
    """Refuse a folder that cannot hold a model before transformers goes looking on the hub."""
    folder = Path(source)
    looks_local = source.startswith((".", "/", "~")) or source.count("/") != 1
    if not exists(folder):
        if looks_local and "/" in source:
            raise InputError(f"{source}: no such folder")
        return
    if not folder.is_dir():
        raise InputError(f"{source} is a file, not a model folder")
    if not (folder / "config.json").is_file():
        raise InputError(f"{source} holds no config.json: not a model folder")
    if not list(folder.glob("*.safetensors")):
        if list(folder.glob("*.bin")):
            raise InputError(
                f"{source} holds pickled weights only (.bin), which can run code when loaded; "
                "convert them where you trust them: AutoModel.from_pretrained(old)"
                ".save_pretrained(new)"
            )
        raise InputError(f"{source} holds no weights (model.safetensors)")


def _guarded(source: str, load: Any) -> Any:
    """Run `load`, telling whatever goes wrong in one line."""
    try:
        return load()
    except SafetensorError as error:
        raise InputError(f"{source}/model.safetensors is damaged: {error}") from None
    except Exception as error:  # a malformed file makes transformers stumble in any way
        if "trust_remote_code" in str(error):
            raise InputError(
                f"{source}: this model needs code of its own, which is never run; use a model that "
                "transformers itself knows"
            ) from None
        if not Path(source).exists():
            raise not_given(source, error) from None
        raise InputError(f"{source}: {first_line(error)}") from None


def not_given(name: str, error: Exception) -> InputError:
    """What to tell where `name` is no folder and the hub, by `error`, did not give it."""
    return InputError(
        f"{name}: neither a folder nor in the local hub cache, and the hub did not give it "
        f"({first_line(error)}); check the name, HF_ENDPOINT and HF_HUB_OFFLINE, or download it "
        "where there is a network and pass its folder"
    )


def set_dropout(config: Any, rate: float) -> None:
    """Set every dropout rate of a configuration; families name them differently."""
    for key, value in config.to_dict().items():
        named = any(word in key for word in _DROPOUT_KEYS)
        if named and "classifier" not in key and isinstance(value, (int, float)):
            setattr(config, key, rate)


def dropout_rates(config: Any) -> dict[str, float]:
    """The dropout rates a configuration names, classification heads' apart."""
    return {
        key: float(value)
        for key, value in config.to_dict().items()
        if any(word in key for word in _DROPOUT_KEYS)
        and "classifier" not in key
        and isinstance(value, (int, float))
        and not isinstance(value, bool)
    }


def known_blocks(model: nn.Module) -> nn.ModuleList | None:
    """The transformer blocks: the one list of modules as long as the encoder is deep, or None."""
    depth = model.config.num_hidden_layers  # type: ignore[union-attr]
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == depth:
            return module
    return None


def find_blocks(model: nn.Module) -> nn.ModuleList:
    """The transformer blocks; InputError where they cannot be told apart (as in ALBERT)."""
    blocks = known_blocks(model)
    if blocks is not None:
        return blocks
    kind = model.config.model_type  # type: ignore[union-attr]
    raise InputError(f"the blocks of a {kind} encoder cannot be told apart; use another encoder")


def find_final_norm(model: nn.Module) -> nn.Module | None:
    """The norm behind the last block of a pre-norm encoder, None in a post-norm one."""
    blocks = find_blocks(model)
    path = next(name for name, module in model.named_modules() if module is blocks)
    inside, _, _ = path.rpartition(".")
    beside, above = (model.get_submodule(name) for name in (inside, inside.rpartition(".")[0]))
    if hasattr(beside, "rel_embeddings"):  # DeBERTa is post-norm, its `LayerNorm` is for these
        return None
    places = [(beside, name) for name in _FINAL_NORMS] + [(above, _NORM_ABOVE)]
    norms = (getattr(module, name, None) for module, name in places)
    return next((norm for norm in norms if isinstance(norm, nn.Module)), None)


def block_output(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    """The hidden states (B, T, D) in what a block returned; some families return a tuple."""
    return output if isinstance(output, Tensor) else output[0]
