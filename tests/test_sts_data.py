"""The STS readers: the published counts, SentEval's quirks, and every fault told by its line."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from cse_cli.data.sts import (
    STS_COUNTS,
    STS_TASKS,
    load_pairs_file,
    load_sts,
    sts_files,
)
from cse_cli.errors import InputError, UsageError
from tests.conftest import WORDS
from tests.sts_tree import PAIRS, write_sts_tree

PUBLISHED = {  # SentEval's scored test pairs; STS13 without SMT
    "STS12": 3108,
    "STS13": 1500,
    "STS14": 3750,
    "STS15": 3000,
    "STS16": 1186,
    "STS-B": 1379,
    "SICK-R": 4927,
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_sts_tree(tmp_path / "senteval", WORDS)


def _edit(path: Path, line: int, new: str) -> Path:
    lines = path.read_text(encoding="utf-8").split("\n")
    lines[line - 1] = new
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def _file(tree: Path, task: str, split: str = "test", which: int = 0) -> Path:
    return tree / sts_files(task, split)[which]


@pytest.mark.parametrize("task", STS_TASKS)
def test_real_data_has_the_published_counts(assets: Path, task: str) -> None:
    for split, count in STS_COUNTS[task].items():
        subsets = load_sts(assets / "data/senteval", task, split)
        assert sum(map(len, subsets.values())) == count
        for pairs in subsets.values():
            assert len(pairs.a) == len(pairs.b) == len(pairs.gold)
            assert all(pairs.a)
            assert all(pairs.b)
            assert pairs.gold.dtype == np.float64
            assert 0 <= pairs.gold.min() < pairs.gold.max() <= 5
    assert STS_COUNTS[task]["test"] == PUBLISHED[task]


def test_known_pairs_are_read_as_they_stand(assets: Path) -> None:
    data = assets / "data/senteval"
    stsb = load_sts(data, "STS-B", "dev")["STS-B"]
    assert (stsb.a[0], stsb.b[0], stsb.gold[0]) == (
        "a man with a hard hat is dancing .",
        "a man wearing a hard hat is dancing .",
        5.0,
    )
    sick = load_sts(data, "SICK-R", "dev")["SICK-R"]
    assert sick.a[0] == "The young boys are playing outdoors and the man is smiling nearby"
    assert sick.b[0] == "There is no boy playing outdoors and there is no man smiling"
    assert sick.gold[0] == 3.6
    assert list(load_sts(data, "STS13")) == ["FNWN", "headlines", "OnWN"]


def test_every_task_of_a_small_tree_is_read(tree: Path) -> None:
    for task in STS_TASKS:
        for split in STS_COUNTS[task]:
            for pairs in load_sts(tree, task, split).values():
                assert len(pairs) == PAIRS


def test_quotes_are_text(tree: Path) -> None:
    row = 'news\tx\ty\t1\t2.500\t" he said\tshe said "'
    _edit(_file(tree, "STS-B"), 3, row)
    pairs = load_sts(tree, "STS-B")["STS-B"]
    assert len(pairs) == PAIRS
    assert (pairs.a[2], pairs.b[2], pairs.gold[2]) == ('" he said', 'she said "', 2.5)


def test_unscored_pairs_are_dropped(tree: Path) -> None:
    first = load_sts(tree, "STS16")["answer-answer"]
    _edit(_file(tree, "STS16", which=1), 2, "")
    left = load_sts(tree, "STS16")["answer-answer"]
    assert left.a == first.a[:1] + first.a[2:]
    assert left.gold.tolist() == first.gold.tolist()[:1] + first.gold.tolist()[2:]


def test_line_ends_and_blanks_are_senteval_s(tree: Path) -> None:
    path = _file(tree, "STS12")
    _edit(path, 1, "\ufeffa  dog\x85runs\tthe\u2028cat \r")
    pairs = load_sts(tree, "STS12")["MSRpar"]
    assert len(pairs) == PAIRS
    assert (pairs.a[0], pairs.b[0]) == ("a dog runs", "the cat")


def test_absent_task_names_the_file_looked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"STS\.input\.MSRpar\.txt.*--data-dir"):
        load_sts(tmp_path, "STS12")


def test_half_present_task_is_named(tree: Path) -> None:
    missing = _file(tree, "STS14", which=3)
    missing.unlink()
    with pytest.raises(InputError, match="STS14 is incomplete") as caught:
        load_sts(tree, "STS14")
    assert str(missing) in str(caught.value)


def test_parallel_files_of_unlike_length_are_refused(tree: Path) -> None:
    path = _file(tree, "STS15", which=1)
    path.write_text(path.read_text() + "3.0\n")
    with pytest.raises(InputError, match=f"{PAIRS + 1} lines.*has {PAIRS}"):
        load_sts(tree, "STS15")


@pytest.mark.parametrize(
    ("which", "new", "told"),
    [
        (1, "high", "line 4: 'high' is not a score"),
        (1, "nan", "line 4: 'nan' is not a score"),
        (0, "one sentence only", "line 4: expected two sentences"),
    ],
)
def test_broken_subset_line_is_told(tree: Path, which: int, new: str, told: str) -> None:
    path = _edit(_file(tree, "STS12", which=which), 4, new)
    with pytest.raises(InputError, match=told) as caught:
        load_sts(tree, "STS12")
    assert str(path) in str(caught.value)


def test_short_sheet_row_is_told(tree: Path) -> None:
    _edit(_file(tree, "STS-B"), 5, "news\tx\ty\t1\t2.5\tonly one")
    with pytest.raises(InputError, match="line 5: 6 tab-separated columns, expected at least 7"):
        load_sts(tree, "STS-B")


def test_bytes_that_are_not_utf8_are_told_by_line(tree: Path) -> None:
    path = _file(tree, "SICK-R")
    path.write_bytes(path.read_bytes() + b"99\tcaf\xe9\tb\t1.0\tNEUTRAL\n")
    with pytest.raises(InputError, match=f"line {PAIRS + 2}: not UTF-8"):
        load_sts(tree, "SICK-R")


def test_task_without_any_score_is_refused(tree: Path) -> None:
    _file(tree, "STS13", which=1).write_text("\n" * PAIRS)
    with pytest.raises(InputError, match=r"STS13, subset FNWN.*no pair has a score"):
        load_sts(tree, "STS13")


def test_unknown_names_get_a_suggestion(tree: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'SICK-R'"):
        load_sts(tree, "SICKR")
    with pytest.raises(UsageError, match="STS12 has no split 'dev', only test"):
        load_sts(tree, "STS12", "dev")


@pytest.mark.parametrize(
    "text",
    [
        "4.5\ta dog\ta cat\n1\tx\ty\n",
        "score\ta\tb\n4.5\ta dog\ta cat\n1\tx\ty\n",
        "b\tScore\tnote\ta\na cat\t4.5\t-\ta dog\ny\t1\t-\tx\n",
        "sentence1\tsentence2\tscore\r\na dog\ta cat\t4.5\r\nx\ty\t1\r\n\r\n",
    ],
)
def test_own_pairs(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_bytes(text.encode())
    pairs = load_pairs_file(path)
    assert (pairs.a, pairs.b, pairs.gold.tolist()) == (["a dog", "x"], ["a cat", "y"], [4.5, 1.0])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("3\ta\tb\n3\tc\td\n", "two different scores"),
        ("score\tleft\tright\n3\ta\tb\n", "line 1: the header names no sentence columns"),
        ("3\ta\tb\nfour\tc\td\n", "line 2: 'four' is not a score"),
        ("3\ta\n", "line 1: 2 tab-separated columns, expected at least 3"),
    ],
)
def test_own_pairs_that_cannot_be_used(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(text)
    with pytest.raises(InputError, match=told):
        load_pairs_file(path)


def test_own_pairs_must_exist(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*none\.tsv: No such file"):
        load_pairs_file(tmp_path / "none.tsv")


def test_own_pairs_may_be_packed(tmp_path: Path) -> None:
    path, text = tmp_path / "p.tsv.gz", b"1\ta\tb\n2\tc\td\n"
    path.write_bytes(gzip.compress(text))
    assert load_pairs_file(path).a == ["a", "c"]
    for broken in (gzip.compress(text)[:-9], text, b""):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=r"p\.tsv\.gz"):
            load_pairs_file(path)
