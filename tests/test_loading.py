"""What can be opened, and the one line for what cannot."""

import json
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cse_cli.backbone import load_config
from cse_cli.encoder import Encoder
from cse_cli.errors import InputError, UsageError
from cse_cli.loading import display_name
from tests.conftest import make_tiny_bert
from tests.hub_server import hub  # noqa: F401


def test_a_bare_model_gets_cls_and_says_so(
    tiny_bert: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Encoder.load(str(tiny_bert)).pooler == "cls"
    assert "does not say how it is pooled: using 'cls'" in capsys.readouterr().err


def test_shared_encoder_equals_sentence_transformers(assets: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = str(assets / "models" / "all-MiniLM-L6-v2")
    texts = ["A man is playing a flute.", "Two dogs run through the snow.", "Stocks fell."]
    encoder = Encoder.load(folder)
    peer = sentence_transformers.SentenceTransformer(
        folder, device="cpu", model_kwargs={"dtype": torch.float32}
    )
    assert (encoder.pooler, encoder.max_length, encoder.normalize) == ("mean", 256, True)
    difference = encoder.encode(texts) - peer.encode(texts, convert_to_tensor=True)
    assert difference.abs().max() <= 1e-5


def test_an_unknown_pooler_names_the_nearest(tiny_bert: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'mean'"):
        Encoder.load(str(tiny_bert), pooler="maen")


@pytest.mark.parametrize("length", [2, 65])
def test_a_length_out_of_range_is_refused(tiny_bert: Path, length: int) -> None:
    with pytest.raises(UsageError, match="3 … 64"):
        Encoder.load(str(tiny_bert), pooler="cls", max_length=length)


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        Encoder.load(str(tmp_path / "nothing"))


@pytest.mark.parametrize("name", ["~nosuchuser/x", "a" * 300])
def test_a_name_that_no_file_can_have_is_told_in_one_line(name: str) -> None:
    for load in (Encoder.load, load_config, display_name):
        with pytest.raises(InputError, match=f"^{name}") as told:
            load(name)
        assert len(str(told.value).splitlines()) == 1


def test_a_folder_without_config(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no config\.json"):
        Encoder.load(str(tmp_path))


def test_a_folder_without_weights(tmp_path: Path) -> None:
    folder = make_tiny_bert(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"no weights \(model\.safetensors\)"):
        Encoder.load(str(folder))


def test_pickled_weights_are_refused_with_the_way_out(tmp_path: Path) -> None:
    folder = make_tiny_bert(tmp_path / "model")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"pickled weights only \(\.bin\).*save_pretrained"):
        Encoder.load(str(folder))


def test_weights_that_lack_a_part_are_refused(tmp_path: Path) -> None:
    folder = make_tiny_bert(tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    gone = "bert.encoder.layer.1.output.dense.weight"
    tensors.pop(gone)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=r"the weights lack encoder\.layer\.1"):
        Encoder.load(str(folder))


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    folder = make_tiny_bert(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 48}))
    with pytest.raises(InputError, match=str(folder)):
        Encoder.load(str(folder))


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    folder = make_tiny_bert(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(b"not weights at all")
    with pytest.raises(InputError, match=r"model\.safetensors is damaged"):
        Encoder.load(str(folder))


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("config.json", 3),
        ("config.json", {"hidden_size": "x"}),
        ("config.json", {"num_attention_heads": 0}),
        ("config.json", {"num_hidden_layers": 0}),
        ("config.json", {"auto_map": 3}),
        ("tokenizer_config.json", []),
        ("tokenizer_config.json", {"pad_token": 3}),
        ("tokenizer.json", []),
    ],
    ids=str,
)
def test_a_malformed_file_of_the_model_is_refused(
    tmp_path: Path, name: str, changed: object
) -> None:
    path = make_tiny_bert(tmp_path / "model") / name
    whole = json.loads(path.read_text())
    path.write_text(json.dumps(whole | changed if isinstance(changed, dict) else changed))
    with pytest.raises(InputError, match=f"^{tmp_path}") as told:
        Encoder.load(str(tmp_path / "model"), pooler="cls")
    assert len(str(told.value).splitlines()) == 1


def test_an_encoder_decoder_is_refused(tmp_path: Path) -> None:
    folder = make_tiny_bert(tmp_path / "model")
    (folder / "config.json").write_text(json.dumps({"model_type": "t5"}))
    with pytest.raises(InputError, match="not a transformer encoder"):
        Encoder.load(str(folder))


def test_num_layers_keeps_the_lowest_blocks(tiny_bert: Path) -> None:
    encoder = Encoder.load(str(tiny_bert), pooler="cls", num_layers=1)
    full = Encoder.load(str(tiny_bert), pooler="cls")
    assert encoder.num_layers == 1
    (batch,) = full.stream(["the dog runs"], lambda batch: batch)
    torch.testing.assert_close(encoder.encode(["the dog runs"]), batch.states[1][:, 0])
    with pytest.raises(UsageError, match="blocks 1 … 2"):
        Encoder.load(str(tiny_bert), pooler="cls", num_layers=3)


def load_in_subprocess(name: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys\nfrom cse_cli.encoder import Encoder\nfrom cse_cli.errors import CseError\n"
        f"try:\n    e = Encoder.load({name!r})\nexcept CseError as error:\n"
        "    print(error.exit_code, error)\n    sys.exit()\n"
        "print(e.pooler, e.name, e.encode(['the dog']).shape)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )


def max_pooled(model: Path, folder: Path) -> Path:
    """A checkpoint of the encoder `model` with the pooler max."""
    from cse_cli import checkpoint

    checkpoint.save(folder, Encoder.load(str(model), pooler="max"), {"step": 1}, "# card\n")
    return folder


def test_a_hub_model_is_loaded_by_its_id(tiny_bert: Path, tmp_path: Path, hub) -> None:  # noqa: F811
    hub.add("org/tiny", tiny_bert)
    result = load_in_subprocess("org/tiny", hub.environment(tmp_path))
    assert result.stdout.startswith("cls org/tiny torch.Size([1, 32])"), result.stderr


def test_a_sentence_transformers_repository_keeps_its_pooler(
    tiny_bert: Path,
    tmp_path: Path,
    hub,  # noqa: F811
) -> None:
    hub.add("org/pooled", max_pooled(tiny_bert, tmp_path / "st"))
    result = load_in_subprocess("org/pooled", hub.environment(tmp_path))
    assert result.stdout.startswith("max org/pooled"), result.stdout + result.stderr


def test_offline_and_not_cached_says_what_to_do(tmp_path: Path, hub) -> None:  # noqa: F811
    environment = hub.environment(tmp_path) | {"HF_HUB_OFFLINE": "1"}
    result = load_in_subprocess("org/absent", environment)
    assert result.stdout.startswith("3 org/absent"), result.stdout + result.stderr
    assert "HF_HUB_OFFLINE" in result.stdout
    assert len(result.stdout.strip().splitlines()) == 1


NO_NETWORK = "http://127.0.0.1:1"  # nobody listens there


@pytest.mark.parametrize("name", ["org/absent", "bert-base-uncasd", "no name"])
def test_without_network_a_hub_name_is_told_in_one_line(
    tmp_path: Path,
    hub,  # noqa: F811
    name: str,
) -> None:
    result = load_in_subprocess(name, hub.environment(tmp_path, HF_ENDPOINT=NO_NETWORK))
    assert result.stdout.startswith(f"3 {name}: neither a folder nor"), result.stderr
    assert len(result.stdout.strip().splitlines()) == 1


@pytest.fixture
def mute_hub() -> Iterator[str]:
    """The address of a server that hangs up on everybody."""
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_hub_that_hangs_up_is_told_in_one_line(
    tiny_bert: Path,
    tmp_path: Path,
    hub,  # noqa: F811
    mute_hub: str,
) -> None:
    environment = hub.environment(tmp_path, HF_ENDPOINT=mute_hub)
    result = load_in_subprocess("org/tiny", environment)
    assert result.stdout.startswith("3 org/tiny: neither a folder nor"), result.stderr
    assert len(result.stdout.strip().splitlines()) == 1

    hub.add("org/tiny", tiny_bert)
    assert load_in_subprocess("org/tiny", hub.environment(tmp_path)).stdout.startswith("cls")
    code = (  # a tokenizer has more to ask the hub for than its cached files
        "from cse_cli.backbone import load_tokenizer\nfrom cse_cli.errors import InputError\n"
        "try:\n    load_tokenizer('org/tiny')\nexcept InputError as error:\n    print(error)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert "the hub did not give it" in result.stdout, result.stderr


def test_without_network_what_is_cached_is_loaded(
    tiny_bert: Path,
    tmp_path: Path,
    hub,  # noqa: F811
) -> None:
    pooled = max_pooled(tiny_bert, tmp_path / "st")
    for name, folder, pooler in (("bare", tiny_bert, "cls"), ("pooled", pooled, "max")):
        hub.add(f"org/{name}", folder)
        online = load_in_subprocess(f"org/{name}", hub.environment(tmp_path))
        assert online.stdout.startswith(pooler), online.stdout + online.stderr
        environment = hub.environment(tmp_path, HF_ENDPOINT=NO_NETWORK)
        again = load_in_subprocess(f"org/{name}", environment)
        assert again.stdout == online.stdout, again.stdout + again.stderr


def test_a_name_the_hub_does_not_know(tmp_path: Path, hub) -> None:  # noqa: F811
    result = load_in_subprocess("org/absent", hub.environment(tmp_path))
    assert result.stdout.startswith("3 org/absent"), result.stdout + result.stderr
    assert len(result.stdout.strip().splitlines()) == 1
