"""`cse eval-sts` as typed: what it prints, how it exits, and the published scores."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from cse_cli.cli.app import app
from cse_cli.data.sts import STS_TASKS, sts_files
from cse_cli.encoder import Encoder
from cse_cli.tasks.sts import METRICS
from cse_cli.whitening import Whitening
from tests.conftest import WORDS, make_tiny_bert
from tests.sts_tree import PAIRS, write_sts_tree

PUBLISHED = {  # all-MiniLM-L6-v2, Spearman x 100, all
    "STS12": 72.37,
    "STS13": 80.60,
    "STS14": 75.59,
    "STS15": 85.39,
    "STS16": 78.99,
    "STS-B": 82.03,
    "SICK-R": 77.15,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sts_tree(tmp_path_factory.mktemp("data") / "senteval", WORDS)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # no pyproject.toml here


def eval_sts(*words: object) -> Result:
    return CliRunner().invoke(app, ["eval-sts", *map(str, words)])


def document(*words: object) -> dict[str, Any]:
    result = eval_sts(*words, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def scores(found: dict[str, Any], metric: str = "spearman_all") -> dict[tuple[str, str], float]:
    return {
        (row["model"], row["task"]): row["value"]
        for row in found["rows"]
        if row["metric"] == metric and "subset" not in row
    }


def test_published_scores_come_back(assets: Path) -> None:
    """Every task within 0.02 of what is printed for the model, through the whole command."""
    model = assets / "models/all-MiniLM-L6-v2"
    found = document(model, "--data-dir", assets / "data/senteval")
    measured = {task: 100 * value for (_, task), value in scores(found).items()}
    average = measured.pop("Avg")
    assert list(measured) == list(PUBLISHED)
    for task, value in PUBLISHED.items():
        assert measured[task] == pytest.approx(value, abs=0.02)
    assert average == pytest.approx(sum(measured.values()) / 7)
    counts = {row["task"]: row["n"] for row in found["rows"]}
    assert counts["STS12"] == 3108
    assert counts["SICK-R"] == 4927


def test_json_rows_and_config(tiny_bert: Path, data: Path) -> None:
    found = document(tiny_bert, "--data-dir", data, "--pooler", "mean")
    assert (found["schema"], found["command"]) == (1, "eval-sts")
    wanted = [(task, metric) for task in STS_TASKS for metric in METRICS]
    wanted += [("Avg", metric) for metric in METRICS]
    assert [(row["task"], row["metric"]) for row in found["rows"]] == wanted
    assert {(row["model"], row["pooler"]) for row in found["rows"]} == {("tiny", "mean")}
    config = found["config"]
    assert config["tasks"] == list(STS_TASKS)
    assert config["data_dir"] == str(data)
    assert (config["split"], config["aggregation"], config["pooler"]) == ("test", "all", "mean")
    assert config["encoders"][0]["source"] == str(tiny_bert)
    assert config["encoders"][0]["max_length"] == 64


def test_standard_output_is_the_table_alone(tiny_bert: Path, data: Path) -> None:
    result = eval_sts(tiny_bert, "--data-dir", data, "--pooler", "cls", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert len(rows) == len(METRICS) * (len(STS_TASKS) + 1)
    assert "tiny: pooler cls" in result.stderr


def test_table_shows_seven_tasks_and_the_average(tiny_bert: Path, data: Path) -> None:
    found = scores(document(tiny_bert, "--data-dir", data, "--pooler", "cls"))
    result = eval_sts(tiny_bert, "--data-dir", data, "--pooler", "cls")
    title, header, _, line = result.stdout.splitlines()
    assert title == "STS test, Spearman x 100 (all)"
    assert header.split() == ["Model", *STS_TASKS, "Avg"]
    values = [f"{100 * found['tiny', task]:.2f}" for task in (*STS_TASKS, "Avg")]
    assert line.split() == ["tiny", *values]


def test_detail_adds_the_subsets(tiny_bert: Path, data: Path) -> None:
    words = (tiny_bert, "--data-dir", data, "--pooler", "cls", "--tasks", "STS13,STS-B")
    rows = document(*words, "--detail")["rows"]
    subsets = [(r["task"], r["subset"], r["metric"], r["n"]) for r in rows if "subset" in r]
    assert subsets == [
        ("STS13", name, metric, PAIRS)
        for name in ("FNWN", "headlines", "OnWN")
        for metric in ("spearman", "pearson")
    ]
    assert "headlines" in eval_sts(*words, "--detail").stdout
    assert "headlines" not in eval_sts(*words).stdout


def test_tasks_split_and_aggregation(tiny_bert: Path, data: Path) -> None:
    words = (tiny_bert, "--data-dir", data, "--pooler", "cls")
    found = document(*words, "--tasks", "sick-r, sts12", "--tasks", "STS-B")
    assert found["config"]["tasks"] == ["STS12", "STS-B", "SICK-R"]
    dev = document(*words, "--split", "dev")
    assert dev["config"]["tasks"] == ["STS-B", "SICK-R"]
    assert {row["split"] for row in dev["rows"]} == {"dev", ""}
    mean = eval_sts(*words, "--tasks", "STS12", "--aggregation", "mean").stdout
    value = scores(found, "spearman_mean")["tiny", "STS12"]
    assert f"{100 * value:.2f}" in mean
    assert "(mean)" in mean


def test_several_checkpoints_give_one_table(tiny_bert: Path, data: Path, tmp_path: Path) -> None:
    twin = make_tiny_bert(tmp_path / "other" / tiny_bert.name, seed=1)
    third = make_tiny_bert(tmp_path / "third", seed=2)
    words = ("--data-dir", data, "--pooler", "cls", "--tasks", "STS-B")
    found = document(tiny_bert, third, twin, third, *words)
    models = list(dict.fromkeys(row["model"] for row in found["rows"]))
    assert models == [str(tiny_bert), "third", str(twin)]
    assert scores(found)["third", "STS-B"] == scores(document(third, *words))["third", "STS-B"]


def test_pooler_changes_the_score_and_a_wrong_one_is_told(tiny_bert: Path, data: Path) -> None:
    words = (tiny_bert, "--data-dir", data, "--tasks", "STS-B")
    values = {
        pooler: scores(document(*words, "--pooler", pooler), "pearson_all")["tiny", "STS-B"]
        for pooler in ("cls", "mean", "max", "first_last_mean", "top2_mean")
    }
    assert len(set(values.values())) == len(values)
    result = eval_sts(*words, "--pooler", "first_last")
    assert result.exit_code == 2
    assert "did you mean 'first_last_mean'" in result.stderr


def test_whitening_is_fitted_on_the_file(
    tiny_bert: Path, data: Path, corpus_file: Path, sentences: list[str]
) -> None:
    words = (tiny_bert, "--data-dir", data, "--tasks", "STS-B", "--pooler", "mean")
    found = scores(document(*words, "--whiten", 8, "--whiten-on", corpus_file))
    from cse_cli.data.sts import load_sts
    from cse_cli.tasks.sts import sts_dev

    encoder = Encoder.load(str(tiny_bert), pooler="mean")
    whitening = Whitening(8).fit(encoder.encode(sentences))
    pairs = load_sts(data, "STS-B")["STS-B"]
    wanted = sts_dev(lambda texts: whitening.transform(encoder.encode(texts)), pairs)
    assert found["tiny + whitening 8", "STS-B"] == pytest.approx(wanted, abs=1e-6)
    assert found["tiny + whitening 8", "STS-B"] != scores(document(*words))["tiny", "STS-B"]


@pytest.mark.parametrize("words", [("--whiten", 8), ("--whiten-on", "corpus.txt")])
def test_whitening_needs_both_options(tiny_bert: Path, data: Path, words: tuple[object]) -> None:
    result = eval_sts(tiny_bert, "--data-dir", data, *words)
    assert result.exit_code == 2
    assert "--whiten N and --whiten-on FILE go together" in result.stderr


@pytest.mark.parametrize("where", ["variable", "project"])
def test_data_from_the_environment_and_the_project(
    tiny_bert: Path, data: Path, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "variable":
        monkeypatch.setenv("CSE_DATA", str(data))
    else:
        (tmp_path / "pyproject.toml").write_text(f"[tool.cse]\ndata_dir = '{data}'\n")
    found = document(tiny_bert, "--pooler", "cls", "--tasks", "STS-B")
    assert found["config"]["data_dir"] == str(data)


def test_a_data_folder_that_is_no_text(tiny_bert: Path, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.cse]\ndata_dir = 3\n")
    result = eval_sts(tiny_bert, "--pooler", "cls")
    assert result.exit_code == 3
    assert "'3', which is not a folder" in result.stderr


def test_without_data_the_demo_is_loudly_labelled(tiny_bert: Path) -> None:
    result = eval_sts(tiny_bert, "--pooler", "cls")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("Built-in demo set, not a benchmark")
    assert result.stdout.splitlines()[1].split() == ["Model", "Demo"]
    assert "demo" in result.stderr.lower()
    found = document(tiny_bert, "--pooler", "cls")
    assert {row["task"] for row in found["rows"]} == {"Demo", "Avg"}
    assert found["config"]["data_dir"] is None


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--data-dir", "none"), 3, "'none', which is not a folder"),
        (("--tasks", "STS12"), 3, "--tasks STS12 needs the SentEval data"),
        (("--tasks", "STSB"), 2, "did you mean 'STS-B'"),
        (("--split", "dve"), 2, "did you mean 'dev'"),
        (("--aggregation", "al"), 2, "did you mean 'all'"),
        (("--format", "jsn"), 2, "did you mean 'json'"),
        (("--fail-under", "STS-B=80"), 2, "'STS-B' is not evaluated here"),
        (("--output", "x.xlsx"), 2, "the extension says the format"),
        (("--output", "none/x.csv"), 5, "there is no folder none"),
        (("--whiten", "0"), 2, "--whiten"),
        (("--no-such-option",), 2, "--no-such-option"),
    ],
)
def test_bad_options_are_one_line_and_the_right_code(
    tiny_bert: Path, words: tuple[str, ...], code: int, told: str
) -> None:
    result = eval_sts(tiny_bert, *words)
    assert result.exit_code == code
    assert told in result.stderr
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1


def test_bad_names_with_data(tiny_bert: Path, data: Path, tmp_path: Path) -> None:
    for words, code, told in (
        (("--tasks", "STS12", "--split", "dev"), 2, "STS12 has no split 'dev'"),
        (("--tasks", "Demo"), 2, "--tasks Demo is the built-in set"),
        (("--fail-under", "STS99=1"), 2, "'STS99' is not evaluated here"),
        (("--max-length", "65"), 2, "3 … 64 tokens"),
    ):
        result = eval_sts(tiny_bert, "--data-dir", data, "--pooler", "cls", *words)
        assert (result.exit_code, told in result.stderr) == (code, True), result.stderr
    result = eval_sts(tmp_path / "nothing", "--data-dir", data)
    assert result.exit_code == 3
    assert "nothing" in result.stderr


def test_missing_task_is_never_skipped(tiny_bert: Path, tmp_path: Path) -> None:
    tree = write_sts_tree(tmp_path / "senteval", WORDS)
    missing = tree / sts_files("STS14")[0]
    missing.unlink()
    result = eval_sts(tiny_bert, "--data-dir", tree)
    assert result.exit_code == 3
    assert str(missing) in result.stderr
    assert result.stdout == ""


def test_gates(tiny_bert: Path, data: Path) -> None:
    words = (tiny_bert, "--data-dir", data, "--pooler", "cls", "--tasks", "STS-B,SICK-R")
    assert eval_sts(*words, "--fail-under", "-100", "--fail-under", "STS-B=-100").exit_code == 0
    result = eval_sts(*words, "--fail-under", "SICK-R=101")
    assert result.exit_code == 1
    assert "tiny, SICK-R" in result.stderr
    assert "SICK-R" in result.stdout


def test_output_file_beside_standard_output(tiny_bert: Path, data: Path, tmp_path: Path) -> None:
    words = (tiny_bert, "--data-dir", data, "--pooler", "cls", "--tasks", "STS-B")
    path = tmp_path / "scores.json"
    result = eval_sts(*words, "--output", path, "--format", "markdown")
    assert result.stdout.startswith("**STS test")
    assert json.loads(path.read_text())["rows"] == document(*words)["rows"]


def test_unpublished_counts_are_warned_about(tiny_bert: Path, data: Path) -> None:
    result = eval_sts(tiny_bert, "--data-dir", data, "--pooler", "cls", "--tasks", "STS-B")
    assert f"STS-B test has {PAIRS} pairs here instead of 1379" in result.stderr
