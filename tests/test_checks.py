"""What a run refuses before it reads a corpus or a weight, by a dry run and by a real one."""

import re
from pathlib import Path

import pytest
import torch

from cse_cli.cli import training
from cse_cli.errors import UsageError
from cse_cli.memory import out_of_memory
from cse_cli.training.precision import choose_device
from tests.runs import SMALL, train
from tests.trainer import make_trainer


@pytest.fixture
def given(
    tiny_bert: Path, corpus_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[object, ...]:
    monkeypatch.chdir(tmp_path)
    return ("--model", tiny_bert, "--train-file", corpus_file, *SMALL, "--select", "last")


@pytest.mark.parametrize("dry", [True, False], ids=["dry-run", "run"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--max-length", 999), "--max-length 999: this encoder takes 3 …"),
        (("--eval-length", 999), "--eval-length 999: this encoder takes 3 …"),
        (("--num-layers", 99), "--num-layers 99: the encoder has blocks 1 … 2"),
        (("--method", "sscl", "--neg-layer", 2), "--neg-layer 2: an encoder of 2 blocks takes 1"),
        (("--method", "sscl", "--num-layers", 1), "one block has none below its last"),
        (
            ("--method", "sscl", "--neg-layer", 1, "--neg-layer", "penultimate"),
            "--neg-layer penultimate: block 1 is named twice",
        ),
        (("--method", "diffcse", "--project-dim", 8), "--project-dim 8: .* must be 32 wide"),
        (("--pooler", "cls_mean"), "--pooler 'cls_mean' is unknown"),
        (("--select", "stbs"), "--select stbs: .* did you mean 'stsb'"),
        (("--device", "mps"), "--device mps: auto, cpu, cuda or cuda:N is expected"),
        (("--seeds", "0,foo"), "--seeds 0,foo: a range such as 0-4"),
        (("--seeds", "0-1", "--train-file", "-"), "standard input can be read once"),
        (("--jobs", 2), "--jobs is the number of --seeds"),
        (("--resume", "--overwrite", "--out", "run"), "--resume goes on .* leave one out"),
    ],
)
def test_a_wrong_setting_costs_one_line_and_no_folder(
    given: tuple[object, ...], words: tuple[object, ...], message: str, dry: bool
) -> None:
    done = train(*given, *words, *(["--dry-run"] if dry else []))
    assert done.exit_code == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert re.search(message, line), line
    assert done.stdout == ""
    assert not list(Path().glob("runs/*/cse.json"))


@pytest.mark.parametrize("pooler", ["mean", "max", "first_last_mean"])
def test_other_poolers_train_without_a_head(
    pooler: str, tiny_bert: Path, corpus_file: Path
) -> None:
    assert isinstance(
        make_trainer(tiny_bert, corpus_file, pooler=pooler).encoder.head, torch.nn.Identity
    )
    asked = make_trainer(tiny_bert, corpus_file, pooler=pooler, head="tanh").encoder.head
    assert [p.shape for p in asked.parameters()]
    assert [p.shape for p in make_trainer(tiny_bert, corpus_file).encoder.head.parameters()]


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cuda:1") == "cuda:1"
    with pytest.raises(UsageError, match="CUDA devices 0 … 1"):
        choose_device("cuda:2")


def test_no_memory_is_told_in_one_line(
    given: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        torch.empty(1 << 60)

    monkeypatch.setattr("cse_cli.training.setup.build", full)
    done = train(*given, "--out", "run")
    assert done.exit_code == 2
    assert "out of memory: lower --batch-size" in done.stderr
    assert not out_of_memory(RuntimeError("another thing"))
    assert out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))


def test_names_are_checked_before_torch_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "on_this_machine", lambda _run: pytest.fail("too late"))
    assert train("--model", "x", "--train-file", "nowhere.txt").exit_code == 3
    assert train("--model", "x", "--select", "stbs").exit_code == 2
