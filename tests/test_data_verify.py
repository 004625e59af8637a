"""`cse data verify`: a made-up SentEval folder with the right counts, then one thing wrong."""

import csv
import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cse_cli.data.checks import FAILED, NOTE, OK, failures
from cse_cli.data.sts import STS_COUNTS, sts_files
from cse_cli.data.verify import verify
from cse_cli.data.verify_corpus import verify_corpus
from cse_cli.errors import InputError

REAL = Path(os.environ.get("CSE_ASSETS", "../shared")) / "data"
STSB_TEST = "STS/STSBenchmark/sts-test.csv"
TRANSFER = {
    "MR/rt-polarity.pos": ("good .", 5331),
    "MR/rt-polarity.neg": ("bad .", 5331),
    "CR/custrev.pos": ("good .", 2407),
    "CR/custrev.neg": ("bad .", 1368),
    "SUBJ/subj.objective": ("a fact .", 5000),
    "SUBJ/subj.subjective": ("a view .", 5000),
    "MPQA/mpqa.pos": ("fine", 3312),
    "MPQA/mpqa.neg": ("poor", 7294),
    "SST/binary/sentiment-train": ("a film \t1", 67_349),
    "SST/binary/sentiment-dev": ("a film \t0", 872),
    "SST/binary/sentiment-test": ("a film \t1", 1821),
    "TREC/train_5500.label": ("NUM:dist How far is it ?", 5452),
    "TREC/TREC_10.label": ("LOC:city Where is it ?", 500),
}
PARAPHRASES = {"MRPC/msr_paraphrase_train.txt": 4076, "MRPC/msr_paraphrase_test.txt": 1725}


def write(path: Path, line: str, rows: int, header: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{header}\n" * bool(header) + f"{line}\n" * rows)


def edit(path: Path, change) -> None:
    path.write_bytes(change(path.read_bytes()))


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """A SentEval folder in which every count is right and every sentence the same."""
    root = tmp_path_factory.mktemp("senteval")
    tasks = root / "downstream"
    for name, (line, rows) in TRANSFER.items():
        write(tasks / name, line, rows)
    for name, rows in PARAPHRASES.items():
        write(tasks / name, "1\t11\t12\tHe said so .\tSo he said .", rows, header="Quality\t...")
    for task, splits in STS_COUNTS.items():
        for split, rows in splits.items():
            files = [root / name for name in sts_files(task, split)]
            if task == "STS-B":
                write(files[0], "g\tf\t2012\t1\t2.5\tone .\ttwo .", rows)
            elif task == "SICK-R":
                write(files[0], "1\tone\ttwo\t4.5\tNEUTRAL", rows, header="pair_ID\t...")
            else:
                others = len(files) // 2 - 1  # subsets of one pair; the first has the rest
                for place, path in enumerate(files):
                    scored = 1 if place > 1 else rows - others
                    unscored = "\n" * 7 if "gs" in path.name else "one .\ttwo .\n" * 7
                    write(path, "3.2" if "gs" in path.name else "one .\ttwo .", scored)
                    edit(path, lambda data, more=unscored: data + more.encode())
    return root


@pytest.fixture
def senteval(made, tmp_path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(made, tmp_path / "senteval"))


def failed(path: Path) -> dict[tuple[str, str], str]:
    return {(check.task, check.part): check.problem for check in failures(verify(path))}


def cse(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "cse_cli", "data", "verify", *arguments]
    surroundings = {k: v for k, v in os.environ.items() if not k.startswith("CSE_")}
    return subprocess.run(
        command, env={**surroundings, **env}, capture_output=True, text=True, timeout=60
    )


@pytest.mark.skipif(not (REAL / "senteval").is_dir(), reason="needs $CSE_ASSETS/data/senteval")
def test_the_real_senteval_folder_passes():
    checks = list(verify(REAL / "senteval"))
    assert failures(checks) == []
    counted = {(check.task, check.part): check.found for check in checks}
    assert [counted[f"STS{year}", "test"] for year in range(12, 17)] == [
        3108,
        1500,
        3750,
        3000,
        1186,
    ]
    assert [counted["STS-B", split] for split in ("train", "dev", "test")] == [5749, 1500, 1379]
    assert [counted["SICK-R", split] for split in ("train", "dev", "test")] == [4500, 500, 4927]
    assert [counted[task, "all"] for task in ("MR", "CR", "SUBJ", "MPQA")] == [
        10_662,
        3775,
        10_000,
        10_606,
    ]
    assert [counted["SST2", split] for split in ("train", "dev", "test")] == [67_349, 872, 1821]
    assert [counted[task, "test"] for task in ("TREC", "MRPC")] == [500, 1725]


def test_a_folder_with_the_right_counts_passes(senteval):
    checks = list(verify(senteval))
    assert failures(checks) == []
    absent = {check.task for check in checks if check.status == "absent"}
    assert absent == {"SST5", "SNLI"}
    assert {c.status for c in verify(senteval / "downstream")} == {c.status for c in checks}


@pytest.mark.parametrize(
    ("file", "task", "split"),
    [
        ("STS/STS14-en-test/STS.gs.images.txt", "STS14", "test"),
        (STSB_TEST, "STS-B", "test"),
        ("MR/rt-polarity.neg", "MR", "all"),
        ("SST/binary/sentiment-dev", "SST2", "dev"),
        ("MRPC/msr_paraphrase_train.txt", "MRPC", "train"),
    ],
)
def test_a_missing_file_is_named(senteval, file, task, split):
    (senteval / "downstream" / file).unlink()
    ((where, problem),) = failed(senteval).items()
    assert where == (task, split)
    assert Path(file).name in problem


def test_lost_and_added_rows_are_counted(senteval):
    edit(senteval / "downstream" / STSB_TEST, lambda data: data[: -len(data) // 1379])
    edit(senteval / "downstream/CR/custrev.pos", lambda data: data + b"one more\n")
    assert failed(senteval) == {("STS-B", "test"): "-1 rows", ("CR", "all"): "+1 rows"}


def test_an_empty_file_is_no_row(senteval):
    (senteval / "downstream/TREC/TREC_10.label").write_bytes(b"")
    assert failed(senteval) == {("TREC", "test"): "-500 rows"}


@pytest.mark.parametrize(
    ("file", "line", "task"),
    [
        ("TREC/TREC_10.label", b"Where is it ?", "TREC"),
        ("SST/binary/sentiment-dev", b"a film\t2", "SST2"),
        ("SST/binary/sentiment-dev", b"a film", "SST2"),
        ("MRPC/msr_paraphrase_test.txt", b"1\t11\t12\tonly one", "MRPC"),
        (STSB_TEST, b"g\tf\t2012\t1\thigh\tone\ttwo", "STS-B"),
        ("SICK/SICK_trial.txt", b"1\tone\ttwo\t4.5\tMAYBE", "SICK-E"),
    ],
)
def test_a_malformed_line_is_found_by_number(senteval, file, line, task):
    def replace_third(data: bytes) -> bytes:
        lines = data.split(b"\n")
        lines[2] = line
        return b"\n".join(lines)

    edit(senteval / "downstream" / file, replace_third)
    ((where, problem),) = failed(senteval).items()
    assert where[0] == task
    assert f"{Path(file).name}, line 3" in problem


def test_quotes_are_text_latin_1_is_fine_and_so_is_crlf(senteval):
    quoted = b'g\tf\t2012\t1\t2.5\t"one .\ttwo .'
    edit(senteval / "downstream" / STSB_TEST, lambda d: quoted + b"\n" + d.split(b"\n", 1)[1])
    trec = senteval / "downstream/TREC/train_5500.label"
    edit(trec, lambda data: data.replace(b"far", b"f\xe9r", 1))
    sick = senteval / "downstream/SICK/SICK_train.txt"
    edit(sick, lambda data: data.replace(b"\n", b"\r\n"))
    assert failed(senteval) == {}


def test_parallel_files_are_counted_one_by_one(senteval):
    for part in ("s1", "s2", "labels"):
        write(senteval / "downstream" / "SNLI" / f"{part}.dev", "neutral", 9842)
    assert failed(senteval) == {}
    edit(senteval / "downstream/SNLI/s2.dev", lambda data: data[8:])
    assert failed(senteval) == {("SNLI", "dev"): "-1 rows"}


@pytest.mark.parametrize("what", ["gone", "."])
def test_nothing_known_is_an_input_error(tmp_path, what):
    with pytest.raises(InputError, match=str(tmp_path)):
        list(verify(tmp_path / what))


def corpus(tmp_path: Path, data: bytes, name: str = "corpus.txt") -> dict[str, tuple]:
    path = tmp_path / name
    path.write_bytes(data)
    return {c.part: (c.found, c.status, c.problem) for c in verify_corpus(path)}


def test_a_clean_corpus_passes_also_with_crlf_and_without_a_last_newline(tmp_path):
    for data in (b"one\ntwo\n", b"one\r\ntwo\r\n", b"one\ntwo", "één\nzwei\n".encode()):
        found = corpus(tmp_path, data)
        assert found["sentences"] == (2, OK, "")
        assert {status for _, status, _ in found.values()} == {OK}


def test_blemishes_are_counted_as_notes(tmp_path):
    found = corpus(tmp_path, b"one\n\n  \none\ntwo\none\n" + b"x" * 20_000 + b"\n")
    assert found["sentences"] == (5, OK, "")
    assert found["blank"] == (2, NOTE, "")
    assert found["duplicates"] == (2, NOTE, "")
    assert found["over 10000 bytes"] == (1, NOTE, "")


def test_lines_that_cannot_be_read_fail_with_the_first_number(tmp_path):
    found = corpus(tmp_path, b"one\ncaf\xe9\nnul\0\ncaf\xe9 2\n")
    assert found["not UTF-8"] == (2, FAILED, "first in line 2")
    assert found["with NUL bytes"] == (1, FAILED, "first in line 3")


@pytest.mark.parametrize("data", [b"", b"\n\n \n"])
def test_an_empty_corpus_fails(tmp_path, data):
    assert corpus(tmp_path, data)["sentences"] == (0, FAILED, "it is empty")


def test_compressed_corpora_are_read_and_cut_ones_refused(tmp_path):
    data = gzip.compress(b"one\ntwo\n" * 1000)
    assert corpus(tmp_path, data, "corpus.txt.gz")["sentences"] == (2000, OK, "")
    with pytest.raises(InputError, match=r"corpus\.txt\.gz"):
        corpus(tmp_path, data[:-20], "corpus.txt.gz")
    with pytest.raises(InputError, match=r"corpus\.txt\.gz"):
        corpus(tmp_path, b"plain text\n", "corpus.txt.gz")
    with pytest.raises(InputError, match=r"corpus\.txt\.gz"):
        corpus(tmp_path, data[:20] + b"\xff" * 20 + data[40:], "corpus.txt.gz")


def test_csv_rows_are_counted_by_a_csv_reader(tmp_path):
    path = tmp_path / "triplets.csv"
    with path.open("w", newline="") as handle:
        rows = [["sent0", "sent1", "hard_neg"], ["a", 'say "hi", then\ngo', "c"], ["a", "b", "c"]]
        csv.writer(handle).writerows(rows)
    assert corpus(tmp_path, path.read_bytes(), "triplets.csv")["rows"] == (2, OK, "")
    blanks = corpus(tmp_path, b"sent0,sent1\r\na\rb,c\r\n\r\nd,e\r\n\r\n", "triplets.csv")
    assert blanks["rows"] == (2, OK, "")
    broken = corpus(tmp_path, b"sent0,sent1\na,b\nc\n", "triplets.csv")["rows"]
    assert broken == (2, FAILED, "line 3: 1 columns where the header has 2")


def test_the_papers_corpora_have_known_sizes(tmp_path):
    short = corpus(tmp_path, b"one\n" * 999, "wiki1m_for_simcse.txt")["sentences"]
    assert short == (999, FAILED, "-999001 rows")
    assert corpus(tmp_path, b"one\n" * 1_000_000, "wiki1m_for_simcse.txt")["sentences"] == (
        1_000_000,
        OK,
        "",
    )
    triplets = corpus(tmp_path, b"sent0,sent1,hard_neg\na,b,c\n", "nli_for_simcse.csv")["rows"]
    assert triplets == (1, FAILED, "-275600 rows")


def test_fetched_corpora_in_a_folder_are_found(tmp_path):
    (tmp_path / "wiki1m_for_simcse.txt").write_text("one\n")
    assert failed(tmp_path) == {("wiki1m_for_simcse.txt", "sentences"): "-999999 rows"}


def test_the_command_prints_the_table_then_one_line_and_exits_3(senteval):
    (senteval / "downstream" / STSB_TEST).unlink()
    run = cse(str(senteval), "--json")
    assert run.returncode == 3
    assert run.stderr.count("\n") == 1
    assert "1 of" in run.stderr
    assert "STS-B test" in run.stderr
    assert "sts-test.csv" in run.stderr
    document = json.loads(run.stdout)
    assert (document["schema"], document["command"]) == (1, "data verify")
    rows = {(row["task"], row["part"]): row for row in document["rows"]}
    assert rows["STS12", "test"] | {"problem": ""} == {
        "task": "STS12",
        "part": "test",
        "found": 3108,
        "expected": 3108,
        "status": "ok",
        "problem": "",
    }
    assert (rows["STS-B", "test"]["found"], rows["STS-B", "test"]["status"]) == (None, "FAILED")


def test_the_command_takes_the_folder_of_the_variable(senteval, tmp_path):
    run = cse(CSE_DATA=str(senteval))
    assert (run.returncode, run.stderr) == (0, "")
    assert "STS12" in run.stdout
    nothing = cse(CSE_CACHE=str(tmp_path / "empty"))
    assert (nothing.returncode, nothing.stdout) == (3, "")
    assert nothing.stderr.count("\n") == 1


def test_the_command_takes_the_folder_of_the_project(senteval, tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text(f'[tool.cse]\ndata_dir = "{senteval}"\n')
    monkeypatch.chdir(tmp_path)
    run = cse()
    assert (run.returncode, run.stderr) == (0, "")
    assert "STS12" in run.stdout
