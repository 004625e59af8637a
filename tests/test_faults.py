"""What can go wrong in training: each ends with its exit code, and what was saved stays whole."""

import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cse_cli import checkpoint
from cse_cli.training import loop, step
from cse_cli.training.folder import RunFolder
from cse_cli.training.metrics import COLLAPSE_STEPS
from tests.runs import SMALL, last_state, rows, same_checkpoint, same_state, started, train, weights


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # no pyproject.toml here


@pytest.fixture
def given(tiny_bert: Path, corpus_file: Path) -> tuple[object, ...]:
    """A run of 8 steps that evaluates and saves at every other one."""
    run = ("--max-steps", 8, "--eval-steps", 2, "--save-steps", 2, "--select", "uniformity")
    return ("--model", tiny_bert, "--train-file", corpus_file, *SMALL, *run)


@contextmanager
def at_step(number: int, do: Any) -> Iterator[None]:
    """Call `do` when step `number` has been trained."""
    real = loop.training_step

    def spy(batch: Any, *rest: Any) -> Any:
        outcome = real(batch, *rest)
        if batch.step == number:
            do()
        return outcome

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "training_step", spy)
        yield


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_resuming_ends_as_if_there_had_been_none(
    given: tuple[object, ...], tmp_path: Path, number: int, code: int
) -> None:
    assert train(*given, "--out", "whole").exit_code == 0
    with at_step(5, lambda: os.kill(os.getpid(), number)):
        result = train(*given, "--out", "run")
    assert result.exit_code == code
    assert result.stdout == ""
    assert "--resume --out run" in result.stderr
    assert last_state(tmp_path / "run").name == "step-5"
    assert checkpoint.damage(Path("run"), hashes=True) is None

    again = train("--resume", "--out", "run")
    assert again.exit_code == 0, again.stderr
    assert again.stdout == "run\n"
    assert same_state(Path("run"), Path("whole"))
    assert same_checkpoint(Path("run"), Path("whole"))
    names = ("step", "loss", "gradient_norm", "dev")
    kept = [[{k: row.get(k) for k in names} for row in rows(Path(p))] for p in ("run", "whole")]
    assert kept[0] == kept[1]


def test_sigterm_to_a_process_of_its_own(given: tuple[object, ...], tmp_path: Path) -> None:
    words = ("--max-steps", 100000, "--eval-steps", 100000, "--save-steps", 0)
    run = started(*given, *words, "--out", "run")
    metrics = tmp_path / "run" / "train" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.is_file() and metrics.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    run.terminate()
    out, err = run.communicate(timeout=60)
    assert (run.returncode, out) == (143, "")
    assert "Traceback" not in err
    assert last_state(tmp_path / "run").is_dir()


def test_resuming_a_finished_run_changes_nothing(given: tuple[object, ...], tmp_path: Path) -> None:
    assert train(*given, "--out", "run").exit_code == 0
    before = (tmp_path / "run" / "cse.json").read_bytes()
    assert train("--resume", "--out", "run").stdout == "run\n"
    assert (tmp_path / "run" / "cse.json").read_bytes() == before
    assert len(rows(Path("run"))) == 8


def test_a_second_process_in_the_folder_is_refused(
    given: tuple[object, ...], tmp_path: Path
) -> None:
    assert train(*given, "--out", "run").exit_code == 0
    before = (tmp_path / "run" / "cse.json").read_bytes()
    first = RunFolder(tmp_path / "run")
    first.claim(overwrite=False, resume=True)
    try:
        for more in (("--overwrite",), ("--resume",)):
            words = given if more == ("--overwrite",) else ()
            result = train(*words, "--out", "run", *more)
            assert result.exit_code == 2
            assert "being written by another process" in result.stderr
    finally:
        first.release()
    assert (tmp_path / "run" / "cse.json").read_bytes() == before


def test_a_loss_that_is_not_a_number_ends_with_4_and_the_best_stays(
    given: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [0]
    real = step.info_nce

    def poisoned(logits: Any) -> Any:
        calls[0] += 1
        return real(logits) * (float("nan") if calls[0] == 5 else 1)

    monkeypatch.setattr(step, "info_nce", poisoned)
    result = train(*given, "--out", "run")
    assert result.exit_code == 4
    assert "step 5: the loss is not finite" in result.stderr
    assert checkpoint.damage(Path("run"), hashes=True) is None
    assert checkpoint.manifest(Path("run"))["step"] in (2, 4)
    assert all((abs(value) < 1e9).all() for value in weights(Path("run")).values())
    assert rows(Path("run"))[-1]["step"] == 5
    assert rows(Path("run"))[-1]["loss"] is None
    assert last_state(Path("run")).name == "step-4"


def test_a_collapsed_space_ends_with_4(tiny_bert: Path, tmp_path: Path) -> None:
    text = tmp_path / "same.txt"
    text.write_text("the dog runs\n" * 600, encoding="utf-8")
    words = ("--model", tiny_bert, "--train-file", text, *SMALL, "--dropout", 0.001)
    result = train(*words, "--select", "last", "--out", "run")
    assert result.exit_code == 4
    assert "collapsed" in result.stderr
    assert len(rows(Path("run"))) == COLLAPSE_STEPS


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A file system of `size` bytes; skips where this user may not mount one."""
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    try:
        done = subprocess.run(words, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no mount command here")
    if done.returncode:
        pytest.skip("only root may mount a small file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_ends_with_5_and_the_state_before_is_whole(
    given: tuple[object, ...], tmp_path: Path
) -> None:
    assert train(*given, "--out", "whole").exit_code == 0
    with small_disk(tmp_path / "disk", "4m") as disk:
        out = disk / "run"
        filler = disk / "filler"
        free = [0]

        def fill() -> None:
            room = os.statvfs(disk)
            free[0] = room.f_bavail * room.f_frsize
            filler.write_bytes(b"x" * (free[0] - 100_000))

        with at_step(6, fill):
            result = train(*given, "--out", out)
        assert result.exit_code == 5, (result.stderr, free)
        assert "cannot be written" in result.stderr
        assert last_state(out).name == "step-4"
        filler.unlink()
        assert train("--resume", "--out", out).exit_code == 0
        assert same_state(out, tmp_path / "whole")


def test_a_limit_on_file_sizes_ends_with_5_and_the_state_before_is_whole(
    given: tuple[object, ...], tmp_path: Path
) -> None:
    assert train(*given, "--out", "whole").exit_code == 0
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, hard))

    try:
        with at_step(6, limit):
            result = train(*given, "--out", "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert result.exit_code == 5, result.stderr
    assert last_state(Path("run")).name == "step-4"
    assert train("--resume", "--out", "run").exit_code == 0
    assert same_state(Path("run"), Path("whole"))


def test_a_read_only_disk_ends_with_5(given: tuple[object, ...], tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4m") as disk:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        result = train(*given, "--out", disk / "run")
    assert result.exit_code == 5
    assert "cannot be written" in result.stderr


def test_a_path_below_a_file_ends_with_5(given: tuple[object, ...], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out in ("file", "file/run"):
        result = train(*given, "--out", out)
        assert result.exit_code == 5, result.stderr


def damage_truncate(state: Path) -> None:
    path = state / "optimizer.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def damage_flip(state: Path) -> None:
    path = state / "encoder.safetensors"
    data = bytearray(path.read_bytes())
    data[-7] ^= 1
    path.write_bytes(bytes(data))


def damage_remove(state: Path) -> None:
    (state / "random.safetensors").unlink()


def damage_index(state: Path) -> None:
    (state / "state.json").write_text('{"step": 8')


@pytest.mark.parametrize("harm", [damage_truncate, damage_flip, damage_remove, damage_index])
def test_a_damaged_state_is_recognised_and_the_one_before_it_used(
    given: tuple[object, ...], tmp_path: Path, harm: Any
) -> None:
    assert train(*given, "--out", "whole").exit_code == 0
    assert train(*given, "--out", "run").exit_code == 0
    harm(last_state(tmp_path / "run"))
    result = train("--resume", "--out", "run")
    assert result.exit_code == 0, result.stderr
    assert "trying the state before it" in result.stderr
    assert "resuming after step 6" in result.stderr
    assert same_state(Path("run"), Path("whole"))


def test_with_every_state_damaged_resuming_is_refused(
    given: tuple[object, ...], tmp_path: Path
) -> None:
    assert train(*given, "--out", "run").exit_code == 0
    for state in (tmp_path / "run" / "train" / "state").iterdir():
        damage_remove(state)
    result = train("--resume", "--out", "run")
    assert result.exit_code == 3
    assert "every resume state is damaged" in result.stderr
