"""SIGKILL at chosen moments: every resumed run ends with the bits of the run never killed.

`tests/slow/test_kill.py` does the same at 30 random moments.
"""

from pathlib import Path

import pytest

from tests.kills import killed_run
from tests.runs import SMALL, same_checkpoint, same_state, train


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # no pyproject.toml here


def test_four_kills_and_the_run_ends_as_if_there_had_been_none(
    tiny_bert: Path, corpus_file: Path, tmp_path: Path
) -> None:
    run = ("--max-steps", 9, "--eval-steps", 2, "--save-steps", 3, "--select", "uniformity")
    given = ("--model", tiny_bert, "--train-file", corpus_file, *SMALL, *run)
    assert train(*given, "--out", "whole").exit_code == 0
    words = [str(word) for word in ("train", *given, "--out", "run")]
    # In the second step; between two files of the second state; while a checkpoint that is better
    # than the published one replaces it; in an evaluation.
    moments = [("optimiser", 2), ("state", 6), ("publish", 17), ("evaluation", 2)]
    kills = 0
    for place, number in moments:
        kills += killed_run(place, number, words, tmp_path)
        words = ["train", "--resume", "--out", "run"]
    assert kills == 4
    assert train(*words[1:]).exit_code == 0
    assert same_state(Path("run"), Path("whole"))
    assert same_checkpoint(Path("run"), Path("whole"))
