"""The checkpoint directory: opened by others, whole or not at all, and never trusted blindly."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from cse_cli import checkpoint
from cse_cli.encoder import Encoder
from cse_cli.errors import InputError, OutputError
from cse_cli.heads import build_head
from cse_cli.pooling import POOLER_LAYERS

TEXTS = ["the dog runs", "a", "the small old man sees a red ball", "woman eats"]


def saved(
    folder: Path, model: Path, *, pooler: str = "cls", head: str = "none", **more: Any
) -> Encoder:
    encoder = Encoder.load(str(model), pooler=pooler)
    torch.manual_seed(3)
    encoder.head = build_head(head, encoder.width, more.pop("project_dim", None))
    encoder.keep_head = more.pop("keep_head", False)
    encoder.normalize = more.pop("normalize", False)
    checkpoint.save(folder, encoder, {"step": 7, "method": "simcse"} | more, "# card\n")
    return encoder


CASES = [
    *({"pooler": pooler} for pooler in POOLER_LAYERS),
    {"pooler": "cls", "head": "tanh", "keep_head": True},
    {"pooler": "mean", "head": "linear", "project_dim": 12, "keep_head": True},
    {"pooler": "cls", "head": "tanh", "keep_head": False},
    {"pooler": "mean", "normalize": True},
    {"pooler": "first_last_mean", "head": "linear", "keep_head": True, "normalize": True},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sentence_transformers_gives_the_same_embeddings(
    tiny_bert: Path, tmp_path: Path, case: dict[str, Any]
) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    ours = saved(tmp_path / "ckpt", tiny_bert, **case).encode(TEXTS)
    peer = sentence_transformers.SentenceTransformer(str(tmp_path / "ckpt"), device="cpu")
    theirs = peer.encode(TEXTS, convert_to_tensor=True)
    assert (ours - theirs).abs().max() <= 1e-5
    again = Encoder.load(str(tmp_path / "ckpt")).encode(TEXTS)
    assert (ours - again).abs().max() <= 1e-6


def test_auto_model_opens_it(tiny_bert: Path, tmp_path: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    ours = saved(tmp_path / "ckpt", tiny_bert).encode(TEXTS)
    model = AutoModel.from_pretrained(tmp_path / "ckpt").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ckpt")
    with torch.no_grad():
        states = model(**tokenizer(TEXTS, padding=True, return_tensors="pt")).last_hidden_state
    assert (ours - states[:, 0]).abs().max() <= 1e-5


def test_what_the_run_was_comes_back(tiny_bert: Path, tmp_path: Path) -> None:
    saved(tmp_path / "ckpt", tiny_bert, pooler="first_last_mean", seed=5)
    record = checkpoint.manifest(tmp_path / "ckpt")
    assert (record["schema"], record["step"], record["seed"]) == (1, 7, 5)
    assert checkpoint.damage(tmp_path / "ckpt", hashes=True) is None
    assert Encoder.load(str(tmp_path / "ckpt")).pooler == "first_last_mean"


def test_a_pooler_override_is_told(
    tiny_bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(tmp_path / "ckpt", tiny_bert, pooler="cls")
    assert Encoder.load(str(tmp_path / "ckpt"), pooler="mean").pooler == "mean"
    assert "was made for the pooler 'cls'; --pooler mean overrides it" in capsys.readouterr().err


def test_a_truncated_file_is_refused_by_name(tiny_bert: Path, tmp_path: Path) -> None:
    saved(tmp_path / "ckpt", tiny_bert)
    weights = tmp_path / "ckpt" / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 1)
    with pytest.raises(InputError, match=r"model\.safetensors has \d+ bytes instead of"):
        Encoder.load(str(tmp_path / "ckpt"))


def test_a_flipped_byte_is_found_by_the_hash(tiny_bert: Path, tmp_path: Path) -> None:
    saved(tmp_path / "ckpt", tiny_bert)
    weights = tmp_path / "ckpt" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert checkpoint.damage(tmp_path / "ckpt") is None
    found = checkpoint.damage(tmp_path / "ckpt", hashes=True)
    assert found is not None
    assert "model.safetensors" in found


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "1_Pooling/config.json"])
def test_a_missing_file_is_refused_by_name(tiny_bert: Path, tmp_path: Path, name: str) -> None:
    saved(tmp_path / "ckpt", tiny_bert)
    (tmp_path / "ckpt" / name).unlink()
    with pytest.raises(InputError, match=f"{name} is missing"):
        Encoder.load(str(tmp_path / "ckpt"))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1}'])
def test_a_damaged_manifest_is_refused(tiny_bert: Path, tmp_path: Path, text: str) -> None:
    saved(tmp_path / "ckpt", tiny_bert)
    (tmp_path / "ckpt" / "cse.json").write_text(text)
    with pytest.raises(InputError, match=r"cse\.json"):
        Encoder.load(str(tmp_path / "ckpt"))


@pytest.mark.parametrize(
    "changed",
    [
        {"files": []},
        {"files": {"README.md": 3}},
        {"files": {"README.md": {"sha256": "0"}}},
        {"files": {"README.md": {"bytes": 3}}},
        {"schema": "x"},
        {"schema": None},
    ],
    ids=str,
)
def test_a_malformed_manifest_is_refused(
    tiny_bert: Path, tmp_path: Path, changed: dict[str, Any]
) -> None:
    saved(tmp_path / "ckpt", tiny_bert)
    path = tmp_path / "ckpt" / "cse.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(InputError, match=r"cse\.json is damaged"):
        checkpoint.resolve(tmp_path / "ckpt")


def test_a_two_layer_checkpoint_starts_without_all_hidden_states(
    tiny_bert: Path, tmp_path: Path
) -> None:
    saved(tmp_path / "ckpt", tiny_bert, pooler="top2_mean")
    encoder = Encoder.load(str(tmp_path / "ckpt"))
    assert encoder.backbone(torch.tensor([[2, 3]])).hidden_states is None
    checkpoint.save(tmp_path / "again", encoder, {"step": 8}, "# card\n")
    config = json.loads((tmp_path / "again" / "config.json").read_text())
    assert config["output_hidden_states"] is True  # sentence-transformers needs them


def test_a_newer_schema_is_refused(tiny_bert: Path, tmp_path: Path) -> None:
    saved(tmp_path / "ckpt", tiny_bert)
    path = tmp_path / "ckpt" / "cse.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": 99}))
    with pytest.raises(InputError, match="schema 99 needs a newer cse"):
        Encoder.load(str(tmp_path / "ckpt"))


def two_steps(root: Path, model: Path) -> tuple[Path, Path]:
    """Two whole steps with different weights of equal size; the first is published at `root`."""
    first, second = root / "train" / "step-1", root / "train" / "step-2"
    saved(first, model, step=1)
    encoder = Encoder.load(str(first))
    with torch.no_grad():
        for parameter in encoder.backbone.parameters():
            parameter.mul_(1.5)
    checkpoint.save(second, encoder, {"step": 2}, "# card\n")
    checkpoint.publish(first, root)
    return first, second


def test_publishing_replaces_the_root(tiny_bert: Path, tmp_path: Path) -> None:
    first, second = two_steps(tmp_path / "run", tiny_bert)
    root = tmp_path / "run"
    assert Encoder.load(str(root)).encode(TEXTS).equal(Encoder.load(str(first)).encode(TEXTS))
    checkpoint.publish(second, root)
    assert Encoder.load(str(root)).encode(TEXTS).equal(Encoder.load(str(second)).encode(TEXTS))
    assert checkpoint.damage(root, hashes=True) is None


@pytest.mark.parametrize("copied", range(8))
def test_a_kill_while_publishing_falls_back_to_a_whole_step(
    tiny_bert: Path,
    tmp_path: Path,
    copied: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = two_steps(tmp_path / "run", tiny_bert)
    calls = 0
    copy = shutil.copyfile

    def killed(source: Path, target: Path) -> None:
        nonlocal calls
        if calls == copied:
            raise KeyboardInterrupt
        calls += 1
        copy(source, target)

    monkeypatch.setattr(shutil, "copyfile", killed)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.publish(second, tmp_path / "run")
    monkeypatch.setattr(shutil, "copyfile", copy)
    vectors = Encoder.load(str(tmp_path / "run")).encode(TEXTS)
    assert vectors.equal(Encoder.load(str(first)).encode(TEXTS))
    changed = (tmp_path / "run" / "model.safetensors").read_bytes() != (
        first / "model.safetensors"
    ).read_bytes()
    assert ("step-1 instead" in capsys.readouterr().err) == changed


def test_nothing_is_left_where_writing_fails(tmp_path: Path) -> None:
    def write(place: Path) -> None:
        (place / "half").write_text("x")
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match="No space left"):
        checkpoint.write_whole(tmp_path / "ckpt", write)
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_a_checkpoint_says_so(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    with pytest.raises(InputError, match="no checkpoint yet"):
        checkpoint.resolve(tmp_path)
