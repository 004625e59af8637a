"""`cse probe-linguistic` and `cse data make-probing`: files, sets made from a corpus, layers."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer import Typer
from typer.testing import CliRunner

from cse_cli.cli.group import CseGroup
from cse_cli.cli.make_probing import make_probing as make_probing_command
from cse_cli.cli.probe_linguistic import probe_linguistic
from cse_cli.data.make_probing import BUILDERS, invert_clauses, make_probing, sentence_pool
from cse_cli.data.probing import PROBING_TASKS, load_probing, probing_task
from cse_cli.encoder import Encoder
from cse_cli.errors import InputError, UsageError
from tests.conftest import WORDS
from tests.transfer_tree import write_probing

app = Typer(cls=CseGroup)
app.command("probe-linguistic")(probe_linguistic)
app.command("make-probing")(make_probing_command)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_probing(tmp_path_factory.mktemp("data"), WORDS)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # no pyproject.toml here


@pytest.fixture(scope="module")
def corpus() -> list[str]:
    """Sentences of 3 to 30 of 400 made-up words, frequent and rare, and some of two clauses."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=5)) for _ in range(400)]
    weights = [1 / (rank + 10) for rank in range(400)]
    plain = [
        " ".join(draw.choices(words, weights, k=draw.randint(3, 30))).capitalize() + "."
        for _ in range(3000)
    ]
    clauses = [
        f"She was {' '.join(draw.choices(words, k=3))}, and the {draw.choice(words)} had "
        f"{' '.join(draw.choices(words, k=3))}."
        for _ in range(100)
    ]
    return [*plain, *clauses, *plain[:50], *(text.upper() for text in plain[:50])]


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def rows(*words: object) -> list[dict[str, Any]]:
    result = run("probe-linguistic", *words, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)["rows"]


# ------------------------------------------------------------------------------------------ files


def test_files_are_read_in_sentevals_order(data: Path) -> None:
    found = load_probing(data, "TreeDepth")
    assert found.classes == ("11", "5", "6"), "labels are sorted as text"
    assert {name: len(split) for name, split in found.splits.items()} == {
        "train": 60,
        "dev": 20,
        "test": 20,
    }
    train = found.splits["train"]
    keys = [(len(a.split()), y) for a, y in zip(train.a, train.y, strict=True)]
    assert keys == sorted(keys)
    assert load_probing(data / "probing", "TreeDepth").classes == found.classes


def test_names_of_the_paper_and_of_senteval() -> None:
    assert len(PROBING_TASKS) == 10
    assert probing_task("CoordinationInversion") == "CoordInv"
    assert probing_task("somo") == "OddManOut"
    assert probing_task("depth") == "TreeDepth"
    with pytest.raises(UsageError, match="did you mean 'SentLen'"):
        probing_task("SentLenn")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("tr\t1\ta\ntr\t2\tb\nva\t1\tc\n", "has no test row"),
        ("tr\t1\ta\ntr\t1\tb\nva\t1\tc\nte\t1\td\n", "all training rows have the label '1'"),
        ("tr\t1\ta\ntr\t2\tb\nva\t1\tc\nte\t3\td\n", "line 4: no training row has the label '3'"),
        ("tr\t1\ta\nxx\t2\tb\n", "line 2: not `tr|va|te<TAB>label<TAB>text`"),
        ("tr\t1\n", "line 1: not `tr"),
    ],
)
def test_broken_files_are_one_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "probing").mkdir()
    (tmp_path / "probing/past_present.txt").write_text(content)
    with pytest.raises(InputError) as caught:
        load_probing(tmp_path, "Tense")
    assert message in str(caught.value)


# ----------------------------------------------------------------------------- sets from a corpus


@pytest.mark.parametrize("task", BUILDERS)
def test_sets_are_balanced_and_no_sentence_is_in_two_splits(task: str, corpus: list[str]) -> None:
    made = make_probing(sentence_pool(corpus), task, size=600, seed=1)
    assert 24 <= len(made) <= 600
    for split in ("tr", "va", "te"):
        counts = Counter(row.label for row in made if row.split == split)
        assert len(set(counts.values())) == 1, counts
        assert set(counts) == {row.label for row in made}
    assert len({row.text.lower() for row in made}) == len(made)
    assert sum(row.split == "va" for row in made) == pytest.approx(len(made) / 12, rel=0.35)


def test_labels_say_what_is_true(corpus: list[str]) -> None:
    pool = sentence_pool(corpus)
    known = set(pool)
    bins = ((5, 8), (9, 12), (13, 16), (17, 20), (21, 25), (26, 28))
    for row in make_probing(pool, "SentLen", size=300, seed=0):
        low, top = bins[int(row.label)]
        assert low <= len(row.text.split()) <= top
    content = make_probing(pool, "WordContent", size=300, seed=0)
    targets = {row.label for row in content}
    for row in content:
        assert targets & set(row.text.lower().split()) == {row.label}
    for row in make_probing(pool, "BigramShift", size=300, seed=0):
        assert (row.text in known) == (row.label == "O")
        same = [s for s in known if sorted(s.split()) == sorted(row.text.split())]
        (source,) = same
        moved = sum(a != b for a, b in zip(source.split(), row.text.split(), strict=True))
        assert moved == (2 if row.label == "I" else 0)
        assert row.text.split()[0] == source.split()[0]
    for row in make_probing(pool, "CoordInv", size=300, seed=0):
        assert (row.text in known) == (row.label == "O")
        assert row.label == "O" or invert_clauses(row.text) in known


def test_the_seed_decides_and_tasks_do_not_disturb_each_other(corpus: list[str]) -> None:
    pool = sentence_pool(corpus)
    first = make_probing(pool, "BigramShift", size=200, seed=3)
    make_probing(pool, "SentLen", size=200, seed=3)
    assert make_probing(pool, "BigramShift", size=200, seed=3) == first
    assert make_probing(pool, "BigramShift", size=200, seed=4) != first


@pytest.mark.parametrize(
    ("text", "inverted"),
    [
        (
            "It was closed in 2009, but the owners reopened it.",
            "The owners reopened it, but it was closed in 2009.",
        ),
        ("I was there , and she left me .", "She left me , and I was there ."),
        ("It was red, white, and it was blue.", None),  # two commas
        ("He ran and fell, but he got up.", None),  # two conjunctions
        ("It was a red, and blue house.", None),  # no clause behind
        ("Houses were sold, and they left it.", None),  # might be a name or not
    ],
)
def test_clauses_are_exchanged(text: str, inverted: str | None) -> None:
    assert invert_clauses(text) == inverted


def test_names_keep_their_capitals() -> None:
    text = "Paris was lost, and Rome was won."
    assert invert_clauses(text) is None
    assert invert_clauses(text, {"Paris", "Rome"}) == "Rome was won, and Paris was lost."


def test_made_sets_can_be_probed(tiny_bert: Path, corpus: list[str], tmp_path: Path) -> None:
    """From a corpus to a table by the two commands; excluded sentences stay out."""
    (tmp_path / "corpus.txt").write_text("\n".join(corpus), encoding="utf-8")
    (tmp_path / "mine.txt").write_text("\n".join(corpus[:1000]), encoding="utf-8")
    words = ("--out", "made", "--size", "240", "--exclude", "mine.txt")
    result = run("make-probing", "corpus.txt", *words, "--json")
    assert result.exit_code == 0, result.stderr
    assert {row["task"] for row in json.loads(result.stdout)["rows"]} == set(BUILDERS)
    excluded = {text.lower() for text in corpus[:1000]}
    for path in Path("made/probing").iterdir():
        texts = [line.split("\t")[2] for line in path.read_text().splitlines()]
        assert not {text.lower() for text in texts} & excluded
    assert [p.name for p in Path("made").iterdir()] == ["probing"]
    again = run("make-probing", "corpus.txt", *words)
    assert again.exit_code == 2
    assert "already" in again.stderr
    words = ("--data-dir", "made", "--pooler", "mean", "--classifier", "lbfgs")
    found = rows(tiny_bert, *words)
    assert {row["task"] for row in found} == {*BUILDERS, "Avg"}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--tasks", "TreeDepth"), 2, "needs a parser"),
        (("--tasks", "CoordInv"), 3, "too few sentences for CoordInv"),
        ((), 3, "too few sentences for any"),
        (("--size", "3"), 2, "24"),
    ],
)
def test_bad_corpora_leave_nothing(
    tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    (tmp_path / "few.txt").write_text("a b c d e f\n" * 9)
    result = run("make-probing", "few.txt", "--out", "made", *words)
    assert result.exit_code == code, result.stderr
    assert message in result.stderr
    assert not Path("made").exists()


# ----------------------------------------------------------------------------------------- layers


def test_layers_come_from_one_pass(
    tiny_bert: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = []
    stream = Encoder.stream

    def counted(self: Encoder, texts: Any, *reduce: Any, **options: Any) -> Any:
        passes.append(len(texts))
        return stream(self, texts, *reduce, **options)

    monkeypatch.setattr(Encoder, "stream", counted)
    words = (tiny_bert, "--data-dir", data, "--pooler", "mean", "--classifier", "lbfgs")
    found = rows(*words, "--layers", "all", "--no-cache")
    assert passes == [100, 100], "one pass a task"
    assert {row["layer"] for row in found} == {0, 1, 2}
    assert {row["task"] for row in found} == {"TreeDepth", "Tense", "Avg"}
    last = {(row["task"], row["metric"]): row["value"] for row in found if row["layer"] == 2}
    plain = rows(*words)
    assert {(row["task"], row["metric"]): row["value"] for row in plain} == last
    averages = [r["value"] for r in found if (r["task"], r["metric"]) == ("Avg", "accuracy")]
    assert len(averages) == 3


def test_layers_are_drawn(tiny_bert: Path, data: Path) -> None:
    words = (tiny_bert, "--data-dir", data, "--pooler", "mean", "--classifier", "lbfgs")
    result = run("probe-linguistic", *words, "--layers", "0,2", "--out", "layers.svg")
    assert result.exit_code == 0, result.stderr
    drawn = Path("layers.svg").read_text()
    assert drawn.startswith("<?xml")
    assert "layers.svg: drawn" in result.stderr


def test_no_file_at_all_is_told(tiny_bert: Path, tmp_path: Path) -> None:
    result = run("probe-linguistic", tiny_bert, "--data-dir", tmp_path)
    assert result.exit_code == 3
    assert "make-probing" in result.stderr
