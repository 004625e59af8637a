"""SIGKILL at 30 random moments of short runs: each one, resumed, ends bit-identical."""

import random
from pathlib import Path

import pytest

from tests.kills import PLACES, killed_run
from tests.runs import SMALL, same_checkpoint, same_state, train

MOMENTS = 30
CALLS = {  # about how often each place is passed in a run of nine steps
    "step": 9,
    "optimiser": 9,
    "evaluation": 5,
    "state": 12,
    "index": 12,
    "checkpoint": 4,
    "publish": 60,
    "metrics": 9,
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # no pyproject.toml here


def moments() -> list[tuple[str, int]]:
    """Places in turn, so that each is hit, at random calls."""
    draw = random.Random(6)
    names = [name for _, name in zip(range(MOMENTS), 4 * list(PLACES), strict=False)]
    return [(name, draw.randint(1, CALLS[name])) for name in names]


def test_thirty_kills(
    tiny_bert: Path, corpus_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ("--max-steps", 9, "--eval-steps", 2, "--save-steps", 3, "--select", "uniformity")
    given = ("--model", tiny_bert, "--train-file", corpus_file, *SMALL, *run)
    assert train(*given, "--out", "whole").exit_code == 0
    killed = 0
    for i, (place, number) in enumerate(moments()):
        out = f"run-{i}"
        words = [str(word) for word in ("train", *given, "--out", out)]
        hit = killed_run(place, number, words, tmp_path)
        killed += hit
        begun = Path(out, "train", "config.toml").is_file()
        result = train("--resume", "--out", out) if begun else train(*given, "--out", out)
        assert result.exit_code == 0, (place, number, result.stderr)
        assert same_state(Path(out), Path("whole")), (place, number)
        assert same_checkpoint(Path(out), Path("whole")), (place, number)
    with capsys.disabled():
        print(f"\n{killed} kills in {MOMENTS} runs, every one bit-identical after --resume")
    assert killed >= 0.8 * MOMENTS
