"""`cse train --seeds`: one folder a seed, a table of mean and spread, and going on."""

import json
import signal
import statistics
import sys
import threading
from pathlib import Path

import pytest

from cse_cli import checkpoint
from cse_cli.cli.group import Interrupted
from cse_cli.cli.seeds import parse_seeds, places, run_beside
from cse_cli.errors import UsageError
from tests.runs import SMALL, rows, same_checkpoint, train


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # no pyproject.toml here
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("0-4", [0, 1, 2, 3, 4]), ("0,3,5", [0, 3, 5]), ("7", [7]), ("0-1, 9", [0, 1, 9])],
)
def test_seeds_are_read(text: str, seeds: list[int]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "4-0", "a", "1,,2", "-1", "1-2-3", "1,0-2"])
def test_wrong_seeds_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--seeds"):
        parse_seeds(text)


def test_seeds_make_a_folder_each_and_a_table_and_go_on(
    tiny_bert: Path, corpus_file: Path, tmp_path: Path
) -> None:
    given = ("--model", tiny_bert, "--train-file", corpus_file, *SMALL, "--max-steps", 3)
    given = (*given, "--select", "uniformity", "--with", "layer-negatives", "--neg-layer", 1)
    out = tmp_path / "runs"
    result = train(*given, "--seeds", "0,2", "--jobs", 2, "--out", out)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{out}\n"
    assert sorted(path.name for path in out.iterdir()) == ["seed-0", "seed-2", "summary.json"]

    found = json.loads((out / "summary.json").read_text())
    assert (found["schema"], found["command"]) == (1, "train --seeds")
    values = {row["seed"]: row["value"] for row in found["rows"]}
    scores = [checkpoint.manifest(out / f"seed-{seed}")["dev_score"] for seed in (0, 2)]
    assert [values["0"], values["2"]] == scores
    assert values["mean"] == pytest.approx(statistics.fmean(scores))
    assert values["sd"] == pytest.approx(statistics.stdev(scores))
    assert scores[0] != scores[1]

    assert train(*given, "--seed", 2, "--out", "alone").exit_code == 0
    assert same_checkpoint(Path("alone"), out / "seed-2")

    before = (out / "seed-0" / "cse.json").read_bytes()
    assert train(*given, "--seeds", "0,2", "--out", out).exit_code == 2
    result = train(*given, "--seeds", "0,2,4", "--out", out, "--resume", "--json")
    assert result.exit_code == 0, result.stderr
    assert (out / "seed-0" / "cse.json").read_bytes() == before
    assert len(rows(out / "seed-4")) == 3
    document = json.loads(result.stdout)
    assert [row["seed"] for row in document["rows"]] == ["0", "2", "4", "mean", "sd"]


def test_a_failing_seed_gives_its_exit_code(tiny_bert: Path, tmp_path: Path) -> None:
    few = tmp_path / "few.txt"
    few.write_text("a dog runs\n", encoding="utf-8")
    words = ("--model", tiny_bert, "--train-file", few, *SMALL, "--seeds", "1")
    result = train(*words, "--select", "last", "--out", "runs")
    assert result.exit_code == 3
    assert "runs/seed-1 failed" in result.stderr


def test_a_folder_of_other_files_is_refused(tiny_bert: Path, corpus_file: Path) -> None:
    Path("home").mkdir()
    Path("home", "letter.txt").write_text("dear")
    given = ("--model", tiny_bert, "--train-file", corpus_file, "--seeds", "0-1", "--overwrite")
    assert train(*given, "--out", "home").exit_code == 2


def test_a_signal_reaches_every_seed_and_starts_no_further_one(tmp_path: Path) -> None:
    wait = (
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path(sys.argv[2]).touch(), exit()))\n"
        "pathlib.Path(sys.argv[1]).touch()\ntime.sleep(60)\n"
    )
    commands = [[sys.executable, "-c", wait, f"begun-{i}", f"saved-{i}"] for i in range(3)]

    def interrupt() -> None:
        while len(list(tmp_path.glob("begun-*"))) < 2:
            stopped.wait(0.05)
        signal.raise_signal(signal.SIGTERM)

    stopped = threading.Event()
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(Interrupted) as stop:
        run_beside(commands, [{}, {}])
    thread.join()
    assert stop.value.code == 143
    assert {path.name for path in tmp_path.glob("*-*")} == {
        "begun-0",
        "begun-1",
        "saved-0",
        "saved-1",
    }


def test_jobs_beside_each_other_get_a_gpu_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert places("cuda", 3) == [{"CUDA_VISIBLE_DEVICES": card} for card in ("2", "5", "2")]
    assert places("cpu", 2) == [{}, {}]
    assert places("cuda", 1) == [{}]
