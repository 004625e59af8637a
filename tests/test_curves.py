"""Training runs side by side: the log they leave, several seeds, damaged files, the picture."""

import json
from pathlib import Path

import pytest

from cse_cli.errors import InputError
from cse_cli.tasks.curves import training_curves
from tests.probe_data import cse, is_figure, one_line, rows


def write_run(folder: Path, *, steps: int = 40, lift: float = 0.0, every: int = 10) -> Path:
    """A run as `cse train` logs it: a line a step, `dev` where it was evaluated."""
    lines = []
    for step in range(1, steps + 1):
        row = {
            "step": step, "loss": 2 / step + lift, "loss/infonce": 2 / step, "lr": 1e-5 * step,
            "alignment": 0.2, "negative_cosine": None, "sentences_per_second": 100.0,
        }  # fmt: skip
        if step % every == 0:
            row["dev"] = 0.7 + lift + (step == 20) / 10
        lines.append(json.dumps(row) + "\n")
    (folder / "train").mkdir(parents=True)
    (folder / "train" / "metrics.jsonl").write_text("".join(lines))
    return folder


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_number_of_the_log_comes_back(tmp_path: Path) -> None:
    table = training_curves(write_run(tmp_path / "run"), model="m")
    loss = table.where(metric="loss").rows
    assert [row.keys["k"] for row in loss] == list(range(1, 41))
    assert loss[3].value == 0.5
    assert [row.keys["k"] for row in table.where(metric="dev")] == [10, 20, 30, 40]
    assert len(table.where(metric="loss/infonce")) == 40
    assert not table.where(metric="negative_cosine").rows  # null: not finite in training
    assert not table.where(metric="loss_low").rows  # one seed has no band


def test_best_dev_is_the_first_step_that_reached_it(tmp_path: Path) -> None:
    best = training_curves(write_run(tmp_path / "run"), model="m").where(metric="dev_best").rows[0]
    assert (best.value, best.keys["k"]) == (pytest.approx(0.8), 20)
    flat = tmp_path / "flat" / "train"
    flat.mkdir(parents=True)
    (flat / "metrics.jsonl").write_text('{"step": 5, "dev": 0.5}\n{"step": 10, "dev": 0.5}\n')
    best = training_curves(tmp_path / "flat", model="m").where(metric="dev_best").rows[0]
    assert best.keys["k"] == 5


def test_several_seeds_are_a_mean_with_a_band(tmp_path: Path) -> None:
    for seed, lift in ((0, 0.0), (1, 0.1), (10, 0.5)):
        write_run(tmp_path / "x" / f"seed-{seed}", lift=lift, steps=30 + seed)
    table = training_curves(tmp_path / "x", model="x")
    steps = [row.keys["k"] for row in table.where(metric="loss")]
    assert steps == list(range(1, 31))  # those that every seed reached
    for metric, value in (("dev_low", 0.7), ("dev", 0.9), ("dev_high", 1.2)):
        row = table.where(metric=metric, k=10).rows[0]
        assert row.value == pytest.approx(value)
        assert row.n == 3


def test_a_run_without_evaluations_has_only_its_loss(tmp_path: Path) -> None:
    write_run(tmp_path / "run", every=1000)
    result = cse("curves", "run", "--out", "c.png")
    assert result.exit_code == 0, result.stderr
    assert is_figure(Path("c.png"))


def test_runs_side_by_side(tmp_path: Path) -> None:
    write_run(tmp_path / "simcse")
    write_run(tmp_path / "sscl", lift=0.05)
    words = ["curves", "simcse", "sscl", "--out", "c.svg"]
    result = cse(*words)
    assert result.exit_code == 0, result.stderr
    assert "80.00" in result.stdout
    assert "85.00" in result.stdout
    svg = Path("c.svg").read_text()
    assert is_figure(Path("c.svg"))
    for text in ("simcse", "sscl", "Training step", "Development score"):
        assert f"<!-- {text} -->" in svg
    found = rows(*words, "--label", "A", "--label", "B")
    assert {row["model"] for row in found} == {"A", "B"}
    best = {row["model"]: row for row in found if row["metric"] == "dev_best"}
    assert best["B"]["value"] == pytest.approx(0.85)
    assert best["B"]["k"] == 20


@pytest.mark.parametrize("metric", ["alignment", "loss/infonce", "lr,sentences_per_second"])
def test_any_logged_metric_can_be_drawn(tmp_path: Path, metric: str) -> None:
    write_run(tmp_path / "run")
    result = cse("curves", "run", "--metric", metric, "--out", "c.pdf")
    assert result.exit_code == 0, result.stderr
    assert is_figure(Path("c.pdf"))


def test_the_line_being_written_is_left_out(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run") / "train" / "metrics.jsonl"
    path.write_text(path.read_text() + '{"step": 41, "lo')
    result = cse("curves", "run", "--json")
    assert result.exit_code == 0
    assert "not complete" in result.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no step yet"),
        ('{"step": 1, "loss": 2}\nnot json\n', "line 2"),
        ('{"loss": 2}\n', "line 1"),
        ("[1]\n", "line 1"),
        ('{"step": 1, "loss": null}\n', "holds no step yet"),
        ("\n", "line 1"),
    ],
)
def test_a_damaged_log_is_named(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "run" / "train").mkdir(parents=True)
    (tmp_path / "run" / "train" / "metrics.jsonl").write_text(text)
    with pytest.raises(InputError, match=told):
        training_curves(tmp_path / "run", model="m")
    assert "metrics.jsonl" in one_line(cse("curves", "run"), 3)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["missing"], 3, "no such folder"),
        (["empty"], 3, "no train/metrics.jsonl"),
        (["run", "--metric", "los"], 2, "did you mean 'loss'?"),
        (["run", "run"], 2, "--label"),
        (["run", "--out", "c.jpeg"], 2, ".png"),
        (["run", "--out", "no/c.png"], 5, "no folder"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, words: list[str], code: int, told: str) -> None:
    write_run(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    assert told in one_line(cse("curves", *words), code)
    assert not list(tmp_path.glob("*.png"))
