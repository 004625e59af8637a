"""The sentence-transformers folder layout: what stands around a backbone, read and written.

`modules.json` lists the modules in order: a Transformer, optionally WeightedLayerPooling (here:
the two-layer poolers), Pooling, any number of Dense, optionally Normalize. Only stock modules are
written, under their long-standing class paths and with boolean pooling keys, which old and new
versions of sentence-transformers load without `trust_remote_code`.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from cse_cli.errors import InputError, first_line
from cse_cli.heads import DenseHead
from cse_cli.pooling import POOLER_LAYERS

_FLAGS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
}
_CLASS = "sentence_transformers.models."
_ORDER = re.compile("Transformer (WeightedLayerPooling )?Pooling (Dense )*(Normalize )?")


@dataclass
class Layout:
    """A sentence encoder around its backbone: pooler, kept dense layers, normalisation, length.

    `lower_case` asks for texts in lower case, which the tokenizer has to see to.
    """

    pooler: str
    normalize: bool = False
    max_length: int | None = None
    dense: list[DenseHead] = field(default_factory=list)
    backbone: str = ""  # the backbone's subfolder
    lower_case: bool = False


def is_layout(folder: Path) -> bool:
    """Whether `folder` is laid out as a sentence-transformers model."""
    return (folder / "modules.json").is_file()


def read_json(path: Path) -> Any:
    """The JSON of `path`; InputError names the file where it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def read_layout(folder: Path) -> Layout:
    """Read `modules.json` and the modules it names.

    InputError for a module that is not stock, for an order that is not the usual one, and for
    whatever is malformed.
    """
    layout = Layout(pooler="mean")
    weighted = None
    for kind, path in _modules(folder):
        place = folder / path
        if kind == "Transformer":
            layout.backbone = path
            _read_settings(place / "sentence_bert_config.json", layout)
        elif kind == "WeightedLayerPooling":
            weighted = _read_weighted(place)
        elif kind == "Pooling":
            layout.pooler = _read_pooling(place, weighted)
        elif kind == "Dense":
            layout.dense.append(_read_dense(place))
        else:
            layout.normalize = True
    return layout


@contextmanager
def _sound(path: Path) -> Iterator[None]:
    """Within, what does not have the form it should have is told as the fault of `path`."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as e:
        raise InputError(f"{path} is malformed ({type(e).__name__}: {first_line(e)})") from None


def _modules(folder: Path) -> list[tuple[str, str]]:
    """(kind, subfolder) of each module in `modules.json`, in their order."""
    path = folder / "modules.json"
    entries = read_json(path)
    with _sound(path):
        modules = [(_kind(entry["type"]), str(entry.get("path", ""))) for entry in entries]
    kinds = "".join(f"{kind} " for kind, _ in modules)
    if not _ORDER.fullmatch(kinds):
        raise InputError(
            f"{path}: the modules {kinds or 'none '}are not supported; they have to be "
            "Transformer, Pooling, any number of Dense, and Normalize or not, in this order"
        )
    return modules


def _kind(path: str) -> str:
    """The name of a stock module's class, by its class path; any other's path as it is."""
    stock = path.startswith("sentence_transformers.")
    return path.rsplit(".", 1)[-1] if stock else path


def _read_settings(path: Path, layout: Layout) -> None:
    """Put the length and the lower case of a Transformer module, where it has any, in `layout`."""
    if not path.is_file():
        return
    settings = read_json(path)
    with _sound(path):
        length = settings.get("max_seq_length")
        layout.max_length = None if length is None else int(length)
        layout.lower_case = bool(settings.get("do_lower_case"))
        if layout.max_length is not None and layout.max_length < 3:
            raise ValueError(f"max_seq_length {length}")


def _read_pooling(place: Path, weighted: str | None) -> str:
    """The pooler of a Pooling module; behind weighted layers it has to be the mean."""
    with _sound(place / "config.json"):
        pooler = _pooling_mode(place)
    if weighted and pooler != "mean":
        raise InputError(f"{place}: pooling {pooler} of weighted layers is not supported")
    return weighted or pooler


def _pooling_mode(place: Path) -> str:
    """`cls`, `mean` or `max`, by the one flag that is true or by the newer `pooling_mode`."""
    config = read_json(place / "config.json")
    flags = [key for key, value in config.items() if key.startswith("pooling_mode_") and value]
    named = {flag: kind for kind, flag in _FLAGS.items()}
    found = named.get(flags[0]) if len(flags) == 1 else config.get("pooling_mode")
    if found not in _FLAGS:
        raise InputError(f"{place / 'config.json'}: pooling {flags or found} is not supported")
    return str(found)


def _read_weighted(place: Path) -> str:
    """The two-layer pooler that a WeightedLayerPooling spells out with zero and equal weights."""
    config, tensors = read_json(place / "config.json"), _tensors(place)
    with _sound(place):
        start, weights = int(config["layer_start"]), tensors["layer_weights"]
        last = start + len(weights) - 1
        used = tuple(start + i for i, w in enumerate(weights.tolist()) if w != 0)
        alike = len(set(weights[weights != 0].tolist())) == 1
        for kind, layers in POOLER_LAYERS.items():
            wanted = tuple(layer % (last + 1) for layer in layers)
            if len(layers) == 2 and used == wanted and alike:
                return kind
    raise InputError(f"{place}: layers {used} are weighted in a way that no pooler here stands for")


def _read_dense(place: Path) -> DenseHead:
    config, state = read_json(place / "config.json"), _tensors(place)
    with _sound(place / "config.json"):
        activation = config.get("activation_function", "").rsplit(".", 1)[-1]
        if activation not in ("Tanh", "Identity") or config.get("use_residual"):
            raise InputError(f"{place}: Dense with activation '{activation}' is not supported")
        dense = DenseHead(config["in_features"], config["out_features"], tanh=activation == "Tanh")
        if not config.get("bias", True):
            state["linear.bias"] = torch.zeros(config["out_features"])
    try:
        dense.load_state_dict({key: value.float() for key, value in state.items()})
    except RuntimeError:
        raise InputError(
            f"{place / 'model.safetensors'}: its tensors are not those of the Dense module in "
            "config.json"
        ) from None
    return dense


def _tensors(place: Path) -> dict[str, torch.Tensor]:
    path = place / "model.safetensors"
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def write_layout(folder: Path, layout: Layout, *, width: int, num_layers: int) -> None:
    """Write the modules of `layout` into `folder`, whose backbone is at its root.

    `width` is the backbone's hidden size, `num_layers` its number of blocks L.
    """
    modules: list[dict[str, Any]] = []

    def module(kind: str, config: dict[str, Any] | None) -> Path:
        """Name one more module in modules.json, and make its folder."""
        name = "" if kind == "Transformer" else f"{len(modules)}_{kind}"
        modules.append(
            {"idx": len(modules), "name": str(len(modules)), "path": name, "type": _CLASS + kind}
        )
        (folder / name).mkdir(exist_ok=True)
        if config is not None:
            _write_json(folder / name / "config.json", config)
        return folder / name

    module("Transformer", None)
    settings = {"max_seq_length": layout.max_length, "do_lower_case": False}
    _write_json(folder / "sentence_bert_config.json", settings)
    layers = [layer % (num_layers + 1) for layer in POOLER_LAYERS[layout.pooler]]
    if len(layers) == 2:
        place = module(
            "WeightedLayerPooling",
            {"word_embedding_dimension": width, "layer_start": 0, "num_hidden_layers": num_layers},
        )
        weights = torch.zeros(num_layers + 1)
        weights[layers] = 1.0
        save_file({"layer_weights": weights}, place / "model.safetensors")
    flag = _FLAGS.get(layout.pooler, _FLAGS["mean"])
    module(
        "Pooling",
        {"word_embedding_dimension": width} | {key: key == flag for key in _FLAGS.values()},
    )
    for dense in layout.dense:
        place = module(
            "Dense",
            {
                "in_features": dense.linear.in_features,
                "out_features": dense.linear.out_features,
                "bias": True,
                "activation_function": f"torch.nn.modules.{_activation_path(dense)}",
            },
        )
        state = {key: value.detach().cpu().float() for key, value in dense.state_dict().items()}
        save_file(state, place / "model.safetensors")
    if layout.normalize:
        module("Normalize", None)
    _write_json(folder / "modules.json", modules)


def _activation_path(dense: DenseHead) -> str:
    return "activation.Tanh" if isinstance(dense.activation, torch.nn.Tanh) else "linear.Identity"


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
