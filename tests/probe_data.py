"""What the probes' tests share: a small data folder, a run of a command, a fake layer stream."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import typer
from click.testing import Result
from torch import Tensor
from typer.testing import CliRunner

from cse_cli.cli.curves import curves
from cse_cli.cli.geometry import geometry
from cse_cli.cli.group import CseGroup
from cse_cli.cli.length_bias import length_bias
from cse_cli.cli.probe_smoothing import probe_smoothing

Reduced = TypeVar("Reduced")

app = typer.Typer(cls=CseGroup, rich_markup_mode="rich", pretty_exceptions_enable=False)
app.command("probe-smoothing")(probe_smoothing)
app.command("length-bias")(length_bias)
app.command("geometry")(geometry)
app.command("curves")(curves)


def cse(*words: object, stdin: str | None = None) -> Result:
    """Run a probing command as typed."""
    return CliRunner().invoke(app, list(map(str, words)), input=stdin)


def rows(*words: object) -> list[dict[str, Any]]:
    """The rows of a command's `--json`, which must succeed."""
    result = cse(*words, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)["rows"]


def one_line(result: Result, code: int) -> str:
    """The single error line of a command that must fail with `code`."""
    assert result.exit_code == code, (result.exit_code, result.stderr)
    lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    return lines[0]


def is_figure(path: Path) -> bool:
    """Whether the file holds what its extension says."""
    head = path.read_bytes()[:5]
    return {".png": b"\x89PNG\r", ".svg": b"<?xml", ".pdf": b"%PDF-"}[path.suffix] == head


@dataclass
class FakeBatch:
    """A group of texts with hidden states, as the encoder gives it."""

    index: np.ndarray
    ids: Tensor
    mask: Tensor
    states: tuple[Tensor, ...]


class FakeStream:
    """Random hidden states that depend on the text alone; a token a letter, padding is garbage."""

    def __init__(self, layers: int = 3, width: int = 5, group: int = 4) -> None:
        self.layers, self.width, self.group = layers, width, group
        self.seen: list[str] = []

    def of(self, text: str) -> np.ndarray:
        """The states of one text: (L + 1, T, D)."""
        seed = sum(ord(c) * 31**i for i, c in enumerate(text)) % 2**32
        shape = (self.layers + 1, len(text), self.width)
        return np.random.default_rng(seed).normal(size=shape) + 0.5

    def __call__(
        self, texts: Sequence[str], reduce: Callable[[FakeBatch], Reduced]
    ) -> Iterator[Reduced]:
        self.seen += texts
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for start in range(0, len(order), self.group):
            index = order[start : start + self.group]
            longest = max(len(texts[i]) for i in index)
            mask = torch.zeros(len(index), longest, dtype=torch.long)
            ids = torch.zeros(len(index), longest, dtype=torch.long)
            states = torch.full((self.layers + 1, len(index), longest, self.width), 1e6)
            for row, i in enumerate(index):
                size = len(texts[i])
                mask[row, :size] = 1
                ids[row, :size] = torch.tensor([ord(c) for c in texts[i]])
                states[:, row, :size] = torch.from_numpy(self.of(texts[i])).float()
            yield reduce(FakeBatch(np.array(index), ids, mask, tuple(states)))
