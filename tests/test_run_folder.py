"""Whose files a run may touch, and what a resumed one goes on with."""

import json
import os
from pathlib import Path

import pytest

from cse_cli.cli import training
from cse_cli.errors import DivergedError, UsageError
from cse_cli.training.folder import RunFolder
from cse_cli.training.metrics import COLLAPSE_STEPS, Guard
from tests.runs import SMALL, last_state, rows, train


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # no pyproject.toml here


@pytest.fixture
def given(tiny_bert: Path, corpus_file: Path) -> tuple[object, ...]:
    """A run of two steps that takes the last."""
    words = ("--max-steps", 2, "--eval-steps", 1, "--save-steps", 1, "--select", "last")
    return ("--model", tiny_bert, "--train-file", corpus_file, *SMALL, *words)


def tree(folder: Path) -> dict[str, str]:
    """Every file below `folder` with its text."""
    return {str(p): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_folder_with_a_train_folder_of_its_own_is_no_run(given: tuple[object, ...]) -> None:
    for name in ("letter.txt", "notes/a.md", "train/data.csv", "train/images/1.png"):
        Path("home", name).parent.mkdir(parents=True, exist_ok=True)
        Path("home", name).write_text("mine")
    before = tree(Path("home"))
    for more in ((), ("--overwrite",)):
        result = train(*given, "--out", "home", *more)
        assert result.exit_code == 2
        assert "not a run" in result.stderr
    assert tree(Path("home")) == before


def test_overwriting_a_run_leaves_what_is_not_its_own(given: tuple[object, ...]) -> None:
    assert train(*given, "--out", "run").exit_code == 0
    own = ("sts.csv", "figures/a.svg", "train/notes.txt")
    for name in own:
        Path("run", name).parent.mkdir(exist_ok=True)
        Path("run", name).write_text("mine")
    assert train(*given, "--out", "run", "--overwrite", "--max-steps", 1).exit_code == 0
    assert [Path("run", name).read_text() for name in own] == ["mine"] * 3
    assert len(rows(Path("run"))) == 1
    assert [path.name for path in Path("run/train/state").iterdir()] == ["step-1"]


def test_a_process_killed_before_its_run_began_leaves_a_free_folder(
    given: tuple[object, ...],
) -> None:
    Path("run/train").mkdir(parents=True)
    Path("run/train/lock").touch()
    result = train(*given, "--out", "run")
    assert result.exit_code == 0, result.stderr


def test_a_refused_second_process_leaves_the_first_its_claim(given: tuple[object, ...]) -> None:
    first = RunFolder(Path("run"))
    first.claim(overwrite=False, resume=False)  # still building: there is no config.toml yet
    assert train(*given, "--out", "run", "--overwrite").exit_code == 2
    first.begin("seed = 1\n")
    assert first.config.read_text() == "seed = 1\n"
    first.release()


def test_what_killed_writes_left_is_removed(given: tuple[object, ...]) -> None:
    assert train(*given, "--out", "run").exit_code == 0
    left = [Path("run/train/.step-1.123"), Path("run/train/state/.step-2.old")]
    for folder in left:
        folder.mkdir()
    assert train("--resume", "--out", "run").exit_code == 0
    assert not any(folder.exists() for folder in left)


def test_another_text_is_not_gone_on_with(
    given: tuple[object, ...], corpus_file: Path, tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    lines = corpus_file.read_text().splitlines()
    text.write_text("\n".join(lines) + "\n")
    assert train(*given, "--train-file", text, "--out", "run").exit_code == 0
    text.write_text("\n".join([*lines[1:], lines[0]]) + "\n")
    result = train("--resume", "--out", "run")
    assert result.exit_code == 3
    assert "the training text is not that of the run to --resume" in result.stderr


def test_a_resumed_run_selects_by_what_it_began_with(
    given: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (*given, "--select", "stsb")
    assert train(*words, "--out", "run").exit_code == 0
    monkeypatch.setenv("CSE_DATA", str(Path("run")))  # no STS-B there: asking for it would fail
    result = train("--resume", "--out", "run")
    assert result.exit_code == 0, result.stderr


def test_settings_that_were_cut_off_are_not_gone_on_with(given: tuple[object, ...]) -> None:
    assert train(*given, "--out", "run").exit_code == 0
    Path("run/train/config.toml").write_text("")
    result = train("--resume", "--out", "run")
    assert result.exit_code == 3
    assert "names no method" in result.stderr


def test_seeds_go_on_with_their_own_settings(given: tuple[object, ...]) -> None:
    words = (*given, "--method", "sscl", "--neg-layer", 1)
    assert train(*words, "--seeds", "3", "--out", "runs").exit_code == 0
    result = train("--seeds", "3,4", "--resume", "--out", "runs")
    assert result.exit_code == 0, result.stderr
    old, new = (Path(f"runs/seed-{n}/train/config.toml").read_text() for n in (3, 4))
    assert new == old.replace("seed = 3", "seed = 4")
    other = train("--seeds", "3,5", "--resume", "--out", "runs", "--temperature", 0.1)
    assert other.exit_code == 2
    assert "leave --temperature out" in other.stderr
    assert not Path("runs/seed-5").exists()


def test_a_seed_beside_seeds_is_refused(given: tuple[object, ...]) -> None:
    result = train(*given, "--seeds", "0-1", "--seed", 3)
    assert result.exit_code == 2
    assert "leave --seed out" in result.stderr


def test_standard_input_is_for_one_process(
    given: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "process", lambda: (0, 2))
    result = train(*given, "--train-file", "-")
    assert result.exit_code == 2
    assert "by one process" in result.stderr


def test_steps_on_the_way_to_a_collapse_are_remembered(given: tuple[object, ...]) -> None:
    near = {"step": 7, "loss": 0.1, "gradient_norm": 1.0, "negative_cosine": 0.999}
    Guard(close_steps=COLLAPSE_STEPS - 2).check(near)
    with pytest.raises(DivergedError, match="collapsed"):
        Guard(close_steps=COLLAPSE_STEPS - 1).check(near)
    assert train(*given, "--out", "run").exit_code == 0
    saved = json.loads((last_state(Path("run")) / "state.json").read_text())
    assert saved["progress"]["close_steps"] == 0


def test_the_card_of_a_step_says_whether_it_is_the_best(given: tuple[object, ...]) -> None:
    words = (*given, "--select", "uniformity", "--learning-rate", 1e-3, "--max-steps", 6)
    assert train(*words, "--out", "run").exit_code == 0
    best = json.loads(Path("run/cse.json").read_text())["step"]
    assert (
        f"this is the best of the evaluated steps, step {best}."
        in Path("run/README.md").read_text()
    )
    for card in Path("run/train").glob("step-*/README.md"):
        text = card.read_text()
        assert ("this is the best" in text) == (card.parent.name == f"step-{best}")
        assert ("not the best step" in text) == (card.parent.name != f"step-{best}")


def test_a_folder_that_cannot_be_cleared_ends_with_5(
    given: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train(*given, "--out", "run").exit_code == 0

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("cse_cli.training.folder.shutil.rmtree", refused)
    result = train(*given, "--out", "run", "--overwrite")
    assert result.exit_code == 5
    assert "cannot be cleared: Permission denied" in result.stderr
    assert os.path.isfile("run/train/config.toml")


def test_one_gpu_by_number_is_not_shared_out() -> None:
    from cse_cli.cli.seeds import places

    with pytest.raises(UsageError, match="take --device cuda"):
        places("cuda:1", 2)
