"""Training on text and models as they come: broken ones end with 3, odd ones train."""

from pathlib import Path

import pytest

from tests.conftest import WORDS
from tests.runs import SMALL, rows, started, train


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # no pyproject.toml here


def train_on(model: Path, text: bytes) -> tuple[int, str]:
    """(exit code, standard error) of two steps on a file of `text`."""
    Path("text.txt").write_bytes(text)
    words = ("--select", "last", "--max-steps", 2, "--out", "run")
    result = train("--model", model, "--train-file", "text.txt", *SMALL, *words)
    return result.exit_code, result.stderr


def lines(n: int) -> list[str]:
    """`n` different sentences."""
    return [f"{WORDS[i % 10]} {WORDS[i // 10]} runs" for i in range(n)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "text.txt"),
        (b"\n\n  \n", "text.txt"),
        ("\n".join(lines(15)).encode(), "15 sentences are fewer than a batch of 16"),
        ("\n".join(lines(40)).encode() + b"\ncaf\xe9 noir\n", "text.txt, line 41"),
        (b"the dog runs\n" * 40 + b"a \0 cat\n", "text.txt, line 41: holds a NUL byte"),
    ],
    ids=["empty", "blank", "few", "latin-1", "nul"],
)
def test_unusable_text_ends_with_3_and_names_the_file(
    tiny_bert: Path, text: bytes, message: str
) -> None:
    code, told = train_on(tiny_bert, text)
    assert code == 3, told
    assert message in told
    assert told.count("error:") == 1
    assert not Path("run", "cse.json").exists()


@pytest.mark.parametrize(
    "text",
    [
        "\r\n".join(lines(40)).encode(),
        "\n\n".join(lines(40)).encode(),
        b"dog " * 250_000 + b"\n" + "\n".join(lines(40)).encode(),
        b"\xef\xbb\xbf" + "\n".join(lines(40)).encode(),
    ],
    ids=["crlf", "blank-lines", "long-line", "bom"],
)
def test_odd_text_trains(tiny_bert: Path, text: bytes) -> None:
    code, told = train_on(tiny_bert, text)
    assert code == 0, told
    assert len(rows(Path("run"))) == 2


@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["run", "dry-run"])
def test_a_corpus_that_repeats_itself_is_told_of(tiny_bert: Path, more: tuple[str, ...]) -> None:
    Path("text.txt").write_text("\n".join(lines(20) * 2) + "\n", encoding="utf-8")
    words = ("--select", "last", "--max-steps", 1, "--out", "run", *more)
    result = train("--model", tiny_bert, "--train-file", "text.txt", *SMALL, *words)
    assert result.exit_code == 0, result.stderr
    assert "20 of 40 rows (50.0%) repeat an earlier one" in result.stderr


def test_a_failed_start_leaves_a_folder_that_can_be_used_again(tiny_bert: Path) -> None:
    assert train_on(tiny_bert, b"")[0] == 3
    code, told = train_on(tiny_bert, "\n".join(lines(40)).encode())
    assert code == 0, told


def test_an_overwriting_run_that_cannot_start_costs_no_checkpoint(tiny_bert: Path) -> None:
    good = "\n".join(lines(40)).encode()
    assert train_on(tiny_bert, good)[0] == 0
    before = Path("run", "cse.json").read_bytes()
    words = ("--select", "last", "--max-steps", 2, "--out", "run", "--overwrite")
    assert train("--model", tiny_bert, "--train-file", "no.txt", *SMALL, *words).exit_code == 3
    assert Path("run", "cse.json").read_bytes() == before


@pytest.mark.parametrize("file", ["nowhere.txt", "."])
def test_a_missing_file_ends_with_3(tiny_bert: Path, file: str) -> None:
    words = ("--select", "last", "--out", "run")
    result = train("--model", tiny_bert, "--train-file", file, *SMALL, *words)
    assert result.exit_code == 3
    assert not Path("run").exists()


def test_a_missing_model_ends_with_3(corpus_file: Path) -> None:
    result = train("--model", "./nowhere", "--train-file", corpus_file, "--select", "last")
    assert result.exit_code == 3
    assert "no such folder" in result.stderr


def test_offline_a_hub_name_ends_with_3(corpus_file: Path, tmp_path: Path) -> None:
    words = ("--model", "nobody/no-model", "--train-file", corpus_file, "--select", "last")
    run = started(*words, "--out", "run", HF_HOME=str(tmp_path / "hub"), HF_HUB_OFFLINE="1")
    out, err = run.communicate(timeout=120)
    assert (run.returncode, out) == (3, "")
    assert "HF_HUB_OFFLINE" in err
    assert err.count("\n") == 1, err


def test_missing_dev_pairs_end_with_3(tiny_bert: Path, corpus_file: Path, tmp_path: Path) -> None:
    words = ("--model", tiny_bert, "--train-file", corpus_file, *SMALL)
    assert train(*words, "--select", "pairs.tsv").exit_code == 3
    missing = train(*words, "--select", "stsb", "--data-dir", tmp_path / "senteval")
    assert missing.exit_code == 3
    assert str(tmp_path / "senteval") in missing.stderr
    assert not list(tmp_path.glob("runs/*"))
