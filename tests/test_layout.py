"""Folders of others: what is not laid out as usual, or malformed, is refused by name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from cse_cli import checkpoint
from cse_cli.encoder import Encoder
from cse_cli.errors import InputError
from cse_cli.heads import build_head

DENSE = "3_Dense"  # behind the weighted layers of a two-layer pooler


@pytest.fixture
def folder(tiny_bert: Path, tmp_path: Path) -> Path:
    """Transformer, WeightedLayerPooling, Pooling, Dense, Normalize; without `cse.json`."""
    encoder = Encoder.load(str(tiny_bert), pooler="first_last_mean")
    encoder.head, encoder.keep_head = nn.Sequential(build_head("tanh", encoder.width)), True
    encoder.normalize = True
    checkpoint.save(tmp_path / "st", encoder, {"step": 1}, "# card\n")
    (tmp_path / "st" / "cse.json").unlink()
    return tmp_path / "st"


def change(path: Path, edit: Callable[[Any], Any]) -> None:
    """Write back what `edit` makes of the JSON at `path`."""
    path.write_text(json.dumps(edit(json.loads(path.read_text()))))


def test_the_usual_order_is_read(folder: Path) -> None:
    encoder = Encoder.load(str(folder))
    assert (encoder.pooler, encoder.keep_head, encoder.normalize) == ("first_last_mean", True, True)


@pytest.mark.parametrize(
    "order",
    [[], [0], [2, 0], [0, 2, 4, 3], [0, 2, 1], [0, 2, 2], [0, 2, 3, 4, 4], [0, 0, 2], [0, 3, 2]],
    ids=str,
)
def test_another_order_of_modules_is_refused(folder: Path, order: list[int]) -> None:
    change(folder / "modules.json", lambda modules: [modules[i] for i in order])
    with pytest.raises(InputError, match=r"modules\.json: the modules .*are not supported"):
        Encoder.load(str(folder))


@pytest.mark.parametrize("kind", ["own_code.Transformer", "sentence_transformers.models.CNN"])
def test_a_module_that_is_not_stock_is_refused(folder: Path, kind: str) -> None:
    change(folder / "modules.json", lambda modules: [modules[0] | {"type": kind}, *modules[2:]])
    with pytest.raises(InputError, match=f"{kind.removeprefix('sentence_transformers.models.')} "):
        Encoder.load(str(folder))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("modules.json", None),
        ("modules.json", {"type": "x"}),
        ("modules.json", [{"path": ""}]),
        ("modules.json", [{"type": 3}]),
        ("sentence_bert_config.json", [1]),
        ("sentence_bert_config.json", {"max_seq_length": "many"}),
        ("sentence_bert_config.json", {"max_seq_length": 0}),
        ("1_WeightedLayerPooling/config.json", {}),
        ("1_WeightedLayerPooling/config.json", {"layer_start": -3}),
        ("2_Pooling/config.json", [1]),
        ("2_Pooling/config.json", {"pooling_mode_cls_token": True}),
        (f"{DENSE}/config.json", {}),
        (f"{DENSE}/config.json", {"activation_function": None}),
        (f"{DENSE}/config.json", {"activation_function": "Tanh", "in_features": 32}),
        (f"{DENSE}/config.json", {"activation_function": "Tanh", "in_features": "a"}),
    ],
    ids=str,
)
def test_a_malformed_file_is_refused_by_name(folder: Path, name: str, value: object) -> None:
    (folder / name).write_text(json.dumps(value))
    where = name.removesuffix("/config.json")
    with pytest.raises(InputError, match=where) as told:
        Encoder.load(str(folder))
    assert len(str(told.value).splitlines()) == 1


def without_layers(_: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """No tensor of the name that is looked for."""
    return {"other": torch.zeros(3)}


def narrower(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same tensors with another shape."""
    return {name: tensor[:-1].clone() for name, tensor in tensors.items()}


@pytest.mark.parametrize(
    ("place", "edit"),
    [("1_WeightedLayerPooling", without_layers), (DENSE, without_layers), (DENSE, narrower)],
)
def test_tensors_that_do_not_fit_are_refused_by_name(
    folder: Path, place: str, edit: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]
) -> None:
    path = folder / place / "model.safetensors"
    save_file(edit(load_file(path)), path)
    with pytest.raises(InputError, match=place):
        Encoder.load(str(folder))


def test_a_dense_module_of_another_width_than_the_backbone_is_refused(folder: Path) -> None:
    path = folder / DENSE / "model.safetensors"
    save_file({"linear.weight": torch.zeros(8, 16), "linear.bias": torch.zeros(8)}, path)
    change(folder / DENSE / "config.json", lambda c: c | {"in_features": 16, "out_features": 8})
    with pytest.raises(InputError, match="takes 16 dimensions, but is given 32"):
        Encoder.load(str(folder))


@pytest.mark.parametrize("lowers", [True, False])
def test_lower_case_is_taken_only_from_the_tokenizer(folder: Path, lowers: bool) -> None:
    change(folder / "sentence_bert_config.json", lambda c: c | {"do_lower_case": True})
    if lowers:
        assert (
            Encoder.load(str(folder))
            .encode(["A dog"])
            .equal(Encoder.load(str(folder)).encode(["a DOG"]))
        )
        return
    change(folder / "tokenizer.json", lambda tokenizer: tokenizer | {"normalizer": None})
    with pytest.raises(InputError, match="do_lower_case"):
        Encoder.load(str(folder))
