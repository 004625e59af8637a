"""`cse eval-transfer`: its files, its rows, its cache, its errors, and SentEval's own numbers."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import Result
from sklearn.metrics import f1_score
from typer import Typer
from typer.testing import CliRunner

from cse_cli import embedding_cache as cache
from cse_cli.classifier import solver
from cse_cli.cli.eval_transfer import eval_transfer
from cse_cli.cli.group import CseGroup
from cse_cli.data.transfer import (
    EXTRA_TASKS,
    TRANSFER_COUNTS,
    TRANSFER_TASKS,
    load_transfer,
)
from cse_cli.encoder import Encoder
from cse_cli.errors import InputError, UsageError
from cse_cli.tasks.transfer import evaluate_transfer, load_all, transfer_dev
from tests.conftest import WORDS
from tests.transfer_tree import ROWS, write_transfer_tree

app = Typer(cls=CseGroup)
app.command("eval-transfer")(eval_transfer)
app.callback()(lambda: None)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_transfer_tree(tmp_path_factory.mktemp("data") / "senteval", WORDS)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # no pyproject.toml here


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["eval-transfer", *map(str, words)])


def document(*words: object) -> dict[str, Any]:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def copy_of(data: Path, folder: Path) -> Path:
    return Path(shutil.copytree(data, folder / "copy"))


def bag_of_words(texts: Any) -> torch.Tensor:
    """An encoder that is quick and good enough to learn from."""
    return torch.tensor([[float(text.split().count(word)) for word in WORDS] for text in texts])


# ------------------------------------------------------------------------------------------ files


def test_rows_are_in_the_order_of_the_protocol(data: Path) -> None:
    for task in TRANSFER_TASKS:
        for split in load_transfer(data, task).splits.values():
            second = [len(b.split()) for b in split.b] or [0] * len(split)
            keys = list(zip(map(len, map(str.split, split.a)), second, split.y, strict=True))
            assert keys == sorted(keys)


def test_counts_of_the_real_files(assets: Path) -> None:
    for task in (*TRANSFER_TASKS, *EXTRA_TASKS):
        found = load_transfer(assets / "data/senteval", task)
        assert {name: len(split) for name, split in found.splits.items()} == TRANSFER_COUNTS[task]


def test_latin_1_is_read_and_blanks_are_single(data: Path) -> None:
    texts = load_transfer(data, "MPQA").splits["all"].a
    assert all(text.startswith("café ") and "  " not in text for text in texts)


def test_trec_drops_the_fine_class_only(tmp_path: Path, data: Path) -> None:
    folder = copy_of(data, tmp_path)
    path = folder / "downstream/TREC/TREC_10.label"
    path.write_text("NUM:dist How far : is it ?\n")
    assert load_transfer(folder, "TREC").splits["test"].a == ["How far : is it ?"]


@pytest.mark.parametrize(
    ("task", "file", "content", "message"),
    [
        ("SST2", "SST/binary/sentiment-dev", b"fine\t2\n", "line 1: '2' is no class"),
        ("TREC", "TREC/TREC_10.label", b"HUM:x a\nWHO:x b\n", "line 2: 'WHO' is no class"),
        ("MRPC", "MRPC/msr_paraphrase_test.txt", b"head\n1\t2\n", "line 2: 2 tab-separated"),
        ("SICK-E", "SICK/SICK_trial.txt", b"head\n1\ta\tb\t3\tMAYBE\n", "'MAYBE' is no class"),
        (
            "SST5",
            "SST/fine/sentiment-test",
            b"ok\n\xff\xfe\n",
            "line 1: 'ok' is no class|not utf-8",
        ),
        ("MRPC", "MRPC/msr_paraphrase_train.txt", b"head\n1\t1\t2\t\xe9\tb\n", "line 2: not utf-8"),
        ("MPQA", "MPQA/mpqa.neg", "bad\nworse\n".encode("utf-16"), "line 1: not latin-1"),
        ("CR", "CR/custrev.pos", b"", "is empty"),
        ("MRPC", "MRPC/msr_paraphrase_train.txt", b"head\n", "train.txt has no row"),
        ("SICK-E", "SICK/SICK_trial.txt", b"head\r\n", "trial.txt has no row"),
    ],
)
def test_a_broken_file_is_one_line(
    tmp_path: Path, data: Path, task: str, file: str, content: bytes, message: str
) -> None:
    folder = copy_of(data, tmp_path)
    (folder / "downstream" / file).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        load_transfer(folder, task)
    assert "\n" not in str(caught.value)


def test_missing_and_half_present_tasks(tmp_path: Path, data: Path) -> None:
    folder = copy_of(data, tmp_path)
    (folder / "downstream/CR/custrev.neg").unlink()
    with pytest.raises(InputError, match=r"CR is incomplete \(1 of 2 files\): no .*custrev\.neg"):
        load_transfer(folder, "CR")
    (folder / "downstream/CR/custrev.pos").unlink()
    with pytest.raises(InputError, match="CR is not in"):
        load_transfer(folder, "CR")
    with pytest.raises(UsageError, match="did you mean 'SST2'"):
        load_transfer(folder, "SST22")


def test_a_class_without_rows_is_told(tmp_path: Path, data: Path) -> None:
    folder = copy_of(data, tmp_path)
    path = folder / "downstream/TREC/train_5500.label"
    kept = [line for line in path.read_text("latin-1").splitlines() if line[:3] != "NUM"]
    path.write_text("\n".join(kept) + "\n", "latin-1")
    with pytest.raises(InputError, match="no train row is of class 'NUM'"):
        load_transfer(folder, "TREC")


# ------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize("classifier", ["senteval", "lbfgs"])
def test_all_tasks_are_learnt_and_averaged(data: Path, classifier: str) -> None:
    fit = solver(classifier, fast=classifier == "senteval")
    for task in (*TRANSFER_TASKS, "SST5", "SICK-E"):
        table = evaluate_transfer(bag_of_words, load_transfer(data, task), fit, model="bag")
        classes = {"TREC": 6, "SST5": 5, "SICK-E": 3}.get(task, 2)
        assert table.value(metric="accuracy") > 1.15 / classes
        assert 0 < table.value(metric="dev_accuracy") <= 1
        assert {row.keys["classifier"] for row in table} == {classifier}


def test_f1_and_confusion_are_scikit_learns(data: Path) -> None:
    found = load_transfer(data, "MRPC")
    table = evaluate_transfer(bag_of_words, found, solver("lbfgs"), model="bag", detail=True)
    counts = {r.keys["subset"]: r.value for r in table.where(metric="confusion")}
    truth = np.repeat([0, 0, 1, 1], list(map(int, counts.values())))
    guess = np.repeat([0, 1, 0, 1], list(map(int, counts.values())))
    assert len(truth) == 2 * ROWS
    assert table.value(metric="f1") == pytest.approx(f1_score(truth, guess))
    assert table.value(metric="accuracy") == pytest.approx((truth == guess).mean())
    assert [r.keys["subset"] for r in table.where(metric="penalty")] == ["refit"]


def test_relatedness_is_a_regression(data: Path) -> None:
    found = load_transfer(data, "SICK-R")
    table = evaluate_transfer(bag_of_words, found, solver("senteval"), model="bag")
    assert table.value(metric="spearman") > 0.3
    assert {row.keys["classifier"] for row in table} == {"regression"}


def test_vectors_that_are_not_finite_are_told(data: Path) -> None:
    def broken(texts: Any) -> torch.Tensor:
        return torch.full((len(texts), 4), float("nan"))

    with pytest.raises(InputError, match="bad gives NaN or infinite vectors for 80 of 80 texts"):
        evaluate_transfer(broken, load_transfer(data, "CR"), solver("lbfgs"), model="bad")


def test_the_selector_is_the_mean_fast_dev_accuracy(data: Path) -> None:
    fast = solver("senteval", fast=True)
    scores = [
        evaluate_transfer(bag_of_words, load_transfer(data, task), fast, model="", dev=True).value(
            metric="dev_accuracy"
        )
        for task in TRANSFER_TASKS
    ]
    assert transfer_dev(bag_of_words, load_all(data)) == pytest.approx(np.mean(scores))


# ---------------------------------------------------------------------------------------- command


def test_json_names_tasks_metrics_and_classifier(tiny_bert: Path, data: Path) -> None:
    found = document(tiny_bert, "--data-dir", data, "--pooler", "mean", "--fast")
    rows = [(row["task"], row["metric"]) for row in found["rows"]]
    wanted = [
        (task, metric)
        for task in TRANSFER_TASKS
        for metric in ("accuracy", "dev_accuracy", *(("f1",) if task == "MRPC" else ()))
    ]
    assert rows == [*wanted, ("Avg", "accuracy"), ("Avg", "dev_accuracy")]
    assert {row["classifier"] for row in found["rows"]} == {"senteval"}
    values = {row["task"]: row["value"] for row in found["rows"] if row["metric"] == "accuracy"}
    average = values.pop("Avg")
    assert average == pytest.approx(sum(values.values()) / 7)
    assert found["config"]["fast"] is True
    assert found["config"]["classifier"] == "senteval"


def test_dev_leaves_the_test_scores_out(tiny_bert: Path, data: Path) -> None:
    words = (tiny_bert, "--data-dir", data, "--pooler", "mean", "--fast", "--tasks", "CR,trec")
    found = document(*words, "--dev")
    assert {row["metric"] for row in found["rows"]} == {"dev_accuracy"}
    assert [row["task"] for row in found["rows"]] == ["CR", "TREC", "Avg"]


def test_table_and_detail_for_people(tiny_bert: Path, data: Path) -> None:
    words = (tiny_bert, "--data-dir", data, "--pooler", "mean", "--classifier", "lbfgs")
    shown = run(*words, "--tasks", "MRPC,SST-2", "--detail").stdout
    assert "by lbfgs, accuracy x 100" in shown
    assert "MRPC F1" in shown
    assert "Chosen penalties" in shown
    assert "Confusions: tiny, SST2" in shown
    assert "true \\ predicted" in shown


def test_another_classifier_encodes_nothing(
    tiny_bert: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (tiny_bert, "--data-dir", data, "--pooler", "mean", "--tasks", "CR,MRPC")
    first = run(*words, "--fast")
    assert "texts encoded in" in first.stderr

    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("encoded again")

    monkeypatch.setattr(Encoder, "encode", forbidden)
    again = run(*words, "--classifier", "lbfgs")
    assert again.exit_code == 0, again.stderr
    assert again.stderr.count("vectors from the cache") == 2
    for changed in (("--no-cache",), ("--max-length", "5"), ("--pooler", "cls")):
        assert "encoded again" in run(*words, *changed).stderr


def test_cached_vectors_are_those_of_the_encoder(tiny_bert: Path, tmp_path: Path) -> None:
    encoder = Encoder.load(str(tiny_bert), pooler="mean")
    texts = ["a dog runs", "the cat", "a dog runs", ""]
    cached = cache.CachedEncoder(encoder, tmp_path)
    plain = encoder.encode(texts)
    assert torch.equal(cached(texts), plain)
    assert torch.equal(cached(texts), plain)
    assert cached.encoded == 4
    torch.testing.assert_close(cached.layer(2)(texts), plain)
    assert cached.encoded == 8
    cached.layer(0)(texts)
    assert cached.encoded == 8, "all layers come from one pass"


def test_a_damaged_cache_file_is_told_and_replaced(
    tiny_bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cached = cache.CachedEncoder(Encoder.load(str(tiny_bert), pooler="mean"), tmp_path)
    plain = cached(["a dog", "a cat"])
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-7])
    assert torch.equal(cached(["a dog", "a cat"]), plain)
    assert "damaged" in capsys.readouterr().err
    assert cached.encoded == 4
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_the_cache_forgets_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CSE_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "LIMIT", 250)
    with cache.embedding_cache() as folder:
        for age in range(4):
            path = folder / f"{age}.npy"
            path.write_bytes(bytes(100))
            os.utime(path, (1000 - age, 1000 - age))
    assert sorted(p.name for p in folder.iterdir()) == ["0.npy", "1.npy"]


def test_gates(tiny_bert: Path, data: Path) -> None:
    words = (tiny_bert, "--data-dir", data, "--pooler", "mean", "--fast", "--tasks", "CR,SICK-R")
    assert run(*words, "--fail-under", "1").exit_code == 0
    missed = run(*words, "--fail-under", "CR=100.5")
    assert missed.exit_code == 1
    assert "CR" in missed.stdout
    assert run(*words, "--fail-under", "SICK-R=100.5").exit_code == 1
    assert run(*words, "--fail-under", "MR=1").exit_code == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--tasks", "SST5,SICK-E", "--fail-under", "75"), "no average"),
        (("--tasks", "SICK-E,SICK-R", "--fail-under", "75"), "no average"),
        (("--tasks", "SICK-R", "--layers", "all", "--out", "l.png"), "no task here has one"),
    ],
)
def test_what_cannot_end_well_is_told_before_a_model_is_loaded(
    data: Path, words: tuple[str, ...], message: str
) -> None:
    result = run("no/such/model", "--data-dir", data, *words)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--tasks", "TRECK"), 2, "did you mean 'TREC'"),
        (("--classifier", "lbgfs"), 2, "did you mean 'lbfgs'"),
        (("--threads", "3000000000"), 2, "--threads"),
        (("--layers", "two"), 2, "'all', or layer numbers"),
        (("--layers", "9", "--tasks", "CR", "--fast"), 2, "has the layers 0 … 2"),
        (("--out", "x.png"), 2, "give --layers all"),
        (("--layers", "all", "--out", "x.gif"), 2, "by its extension"),
        (("--output", "no/such/x.json"), 5, "no folder"),
        (("--data-dir", "nowhere"), 3, "is not a folder"),
    ],
)
def test_bad_options(
    tiny_bert: Path, data: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    given = () if "--data-dir" in words else ("--data-dir", data)
    result = run(tiny_bert, *given, *words)
    assert result.exit_code == code, result.stderr
    assert message in result.stderr
    assert result.stdout == ""


def test_without_data_the_demo_is_used_and_says_so(tiny_bert: Path) -> None:
    words = (tiny_bert, "--pooler", "mean", "--classifier", "lbfgs")
    result = run(*words)
    assert result.exit_code == 0, result.stderr
    assert "Built-in demo set, not a benchmark" in result.stdout
    assert "NOT a benchmark" in result.stderr
    refused = run(*words, "--tasks", "MR")
    assert refused.exit_code == 3
    assert "needs the SentEval data" in refused.stderr


# ---------------------------------------------------------------------------------- real numbers


def test_trec_is_sentevals_own(assets: Path) -> None:
    """What SentEval's PyTorch classifier gives on the same embeddings: 84.37 dev, 90.00 test."""
    model = assets / "models/all-MiniLM-L6-v2"
    words = ("--max-length", "128", "--tasks", "TREC", "--threads", "2")
    found = document(model, "--data-dir", assets / "data/senteval", *words)
    values = {row["metric"]: 100 * row["value"] for row in found["rows"] if row["task"] == "TREC"}
    assert values["dev_accuracy"] == pytest.approx(84.37, abs=0.1)
    assert values["accuracy"] == pytest.approx(90.00, abs=0.2)  # one of 500 rows


def test_all_is_every_task_whose_files_are_there(
    tiny_bert: Path, tmp_path: Path, data: Path
) -> None:
    folder = copy_of(data, tmp_path / "some")
    shutil.rmtree(folder / "downstream" / "SST" / "fine")
    words = ("--data-dir", folder, "--pooler", "mean", "--fast", "--tasks", "all")
    seven = ["MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC"]
    assert document(tiny_bert, *words)["config"]["tasks"] == [*seven, "SICK-E", "SICK-R"]
    (folder / "downstream" / "SICK" / "SICK_trial.txt").unlink()
    half = run(tiny_bert, *words)
    assert half.exit_code == 3
    assert "SICK-E is incomplete" in half.stderr
