"""Which arithmetic training takes, and that bf16 ends where fp32 ends."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from cse_cli.errors import UsageError
from cse_cli.training import precision
from cse_cli.training.precision import autocast, choose_device, choose_precision, make_deterministic
from tests.runs import SMALL, rows, train


def test_auto_follows_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    for has, expected in ((True, "bf16"), (False, "fp32")):
        monkeypatch.setattr(precision, "cpu_has_bf16", lambda has=has: has)
        assert choose_precision("auto", "cpu") == expected
    assert choose_precision("fp32", "cpu") == "fp32"
    with pytest.raises(UsageError, match="needs a GPU"):
        choose_precision("fp16", "cpu")


def test_auto_follows_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for has, expected in ((True, "bf16"), (False, "fp16")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda has=has: has)
        assert choose_precision("auto", "cuda:0") == expected


def test_each_process_of_torchrun_takes_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert choose_device("auto") == "cuda"
    assert choose_device("cuda:1") == "cuda:1"
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert choose_device("auto") == "cuda:3"
    assert choose_device("cuda:0") == "cuda:3"  # what process 0 of an earlier run has recorded
    assert choose_device("cpu") == "cpu"
    with pytest.raises(UsageError, match="auto, cpu, cuda"):
        choose_device("gpu")


def test_only_matrix_products_run_in_bf16() -> None:
    x = torch.randn(4, 4)
    with autocast("bf16", "cpu")():
        assert (x @ x).dtype == torch.bfloat16
        assert x.softmax(0).dtype == torch.float32
    with autocast("fp32", "cpu")():
        assert (x @ x).dtype == torch.float32


def test_deterministic_kernels_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    try:
        make_deterministic()
        assert torch.are_deterministic_algorithms_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    finally:
        torch.use_deterministic_algorithms(False)
        os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)


def test_bf16_tracks_fp32(
    tiny_bert: Path, corpus_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same draws in both: losses stay together, and so does the score on the corpus."""
    monkeypatch.chdir(tmp_path)
    given = ("--model", tiny_bert, "--train-file", corpus_file, *SMALL, "--learning-rate", 3e-4)
    given = (*given, "--max-steps", 40, "--eval-steps", 40, "--select", "uniformity")
    for kind in ("fp32", "bf16"):
        assert train(*given, "--precision", kind, "--out", kind).exit_code == 0
    fp32, bf16 = (rows(Path(kind)) for kind in ("fp32", "bf16"))
    losses = [np.array([row["loss"] for row in found]) for found in (fp32, bf16)]
    assert not np.array_equal(*losses)
    assert np.abs(losses[0] - losses[1]).max() < 0.05 * losses[0].mean()
    assert bf16[-1]["dev"] == pytest.approx(fp32[-1]["dev"], abs=0.05)


def test_a_deterministic_run_is_the_same_twice(
    tiny_bert: Path, corpus_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ("--model", tiny_bert, "--train-file", corpus_file, *SMALL, "--max-steps", 2)
    try:
        for out in ("a", "b"):
            words = (*given, "--select", "last", "--deterministic", "--out", out)
            assert train(*words).exit_code == 0
    finally:
        torch.use_deterministic_algorithms(False)
        os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
    assert [r["loss"] for r in rows(Path("a"))] == [r["loss"] for r in rows(Path("b"))]
