"""What tests of training share: `cse train` as typed, in this process or in one of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import Result
from safetensors.numpy import load_file
from typer.testing import CliRunner

from cse_cli.cli.app import app

SMALL = ("--batch-size", 16, "--threads", 1, "--precision", "fp32", "--learning-rate", 1e-3)


def train(*words: object) -> Result:
    """`cse train …` in this process; it leaves a run folder of small steps."""
    return CliRunner().invoke(app, ["train", *map(str, words)])


def command(*words: object) -> list[str]:
    """The same as a command line for a process of its own."""
    return [sys.executable, "-m", "cse_cli", "train", *map(str, words)]


def environment(**more: str) -> dict[str, str]:
    """One thread and no network for a child process."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **more}


def started(*words: object, **more: str) -> "subprocess.Popen[str]":
    """`cse train …` as a process of its own, its output kept."""
    return subprocess.Popen(
        command(*words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**more),
    )


def rows(out: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl."""
    text = (out / "train" / "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def weights(folder: Path) -> dict[str, np.ndarray]:
    """The backbone's tensors in a checkpoint folder."""
    return load_file(folder / "model.safetensors")


def last_state(out: Path) -> Path:
    """The newest resume state of a run."""
    found = (out / "train" / "state").glob("step-*")
    return max(found, key=lambda path: int(path.name.split("-")[1]))


def same_state(one: Path, other: Path) -> bool:
    """Whether two runs ended with equal resume states: every tensor, bit for bit."""
    first, second = last_state(one), last_state(other)
    names = sorted(path.name for path in first.glob("*.safetensors"))
    return (
        first.name == second.name
        and names == sorted(path.name for path in second.glob("*.safetensors"))
        and all((first / name).read_bytes() == (second / name).read_bytes() for name in names)
    )


def same_checkpoint(one: Path, other: Path) -> bool:
    """Whether the published weights of two runs are equal bit for bit."""
    return (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
