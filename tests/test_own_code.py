"""Code that a model brings along is never run, whoever says yes to it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import save_file

from cse_cli.backbone import load_config, outline
from cse_cli.errors import InputError
from tests.conftest import make_tiny_bert

CODE = """from pathlib import Path
Path(__file__).with_name("ran").touch()
Path({folder!r}, "ran").touch()
from transformers import BertConfig, BertModel
class OwnConfig(BertConfig):
    model_type = "own-model"
class OwnModel(BertModel):
    config_class = OwnConfig
"""


def own_model(folder: Path, model_type: str) -> Path:
    """A model folder whose configuration names code of its own."""
    make_tiny_bert(folder)
    config = json.loads((folder / "config.json").read_text())
    names = {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"}
    config |= {"model_type": model_type, "auto_map": names}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(CODE.format(folder=str(folder)))
    return folder


def test_a_model_that_needs_its_own_code_is_refused_and_nobody_is_asked(tmp_path: Path) -> None:
    folder = own_model(tmp_path / "own", "own-model")
    (tmp_path / "texts.txt").write_text("the dog runs\n")
    command = [sys.executable, "-m", "cse_cli", "encode", str(folder), str(tmp_path / "texts.txt")]
    result = subprocess.run(
        [*command, "--out", str(tmp_path / "v.npy")], input="y\n", capture_output=True, text=True
    )
    assert (result.returncode, result.stdout) == (3, ""), result.stderr
    assert "needs code of its own, which is never run" in result.stderr
    assert not (folder / "ran").exists()


def test_a_known_architecture_is_loaded_without_the_code_beside_it(tmp_path: Path) -> None:
    folder = own_model(tmp_path / "own", "bert")
    outline(load_config(str(folder)))
    assert not (folder / "ran").exists()


def test_a_configuration_without_an_encoder_of_transformers_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    names = {"AutoModel": "own.OwnModel"}
    config = {"model_type": "siglip_text_model", "auto_map": names}
    (folder / "config.json").write_text(json.dumps(config))
    save_file({}, folder / "model.safetensors")
    with pytest.raises(InputError, match="is not a transformer encoder"):
        load_config(str(folder))
