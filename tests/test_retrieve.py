"""Who should find whom, read from files; and the scores, against a plain loop."""

from pathlib import Path

import numpy as np
import pytest

from cse_cli.data.partners import Partners, load_groups, load_partners, partners_of_pairs
from cse_cli.data.sts import Pairs, load_sts
from cse_cli.errors import InputError
from cse_cli.tasks.retrieve import evaluate_retrieval

from .fake_encoder import FakeEncoder, sentences


def naive_rank(partners: Partners, own: int, other: int, match: str) -> float:
    """1 + how many candidates are nearer, by one cosine at a time."""
    texts = partners.texts
    vectors = [FakeEncoder().encode([text])[0].double().numpy() for text in texts]

    def cosine(row: int) -> float:
        a, b = vectors[own], vectors[row]
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    if match == "text":
        rows = [texts.index(text) for text in dict.fromkeys(texts) if text != texts[own]]
        other = texts.index(texts[other])
    else:
        rows = [row for row in range(len(texts)) if row != own]
    ordered = sorted(rows, key=lambda row: (-round(cosine(row), 6), row))
    return 1 + ordered.index(other)


@pytest.mark.parametrize("match", ["text", "index"])
def test_scores_are_those_of_a_plain_loop(match: str) -> None:
    texts = [*sentences(20), *sentences(20, seed=1), *sentences(6)]  # six strings occur twice
    pairs = [(i, i + 20) for i in range(20)] + [(i + 20, i) for i in range(20)]
    partners = Partners(texts, pairs)
    ranks = np.array([naive_rank(partners, own, other, match) for own, other in pairs])
    table = evaluate_retrieval(
        FakeEncoder().encode, partners, model="m", task="t", split="test", match=match
    )
    for k in (1, 5, 10):
        assert table.value(metric=f"recall@{k}") == pytest.approx((ranks <= k).mean())
    assert table.value(metric="mrr") == pytest.approx((1 / ranks).mean())
    assert {(row.model, row.task, row.split, row.n) for row in table} == {("m", "t", "test", 40)}


def test_a_partner_of_the_same_string_is_no_question(capsys: pytest.CaptureFixture[str]) -> None:
    partners = Partners(["a b", "a b", "c d", "c e"], [(0, 1), (1, 0), (2, 3), (3, 2)])
    table = evaluate_retrieval(FakeEncoder().encode, partners, model="m", task="t")
    assert table.value(metric="recall@5") == 1.0
    assert table.rows[0].n == 2
    assert "left out 2 queries" in capsys.readouterr().err
    rows = evaluate_retrieval(FakeEncoder().encode, partners, model="m", task="t", match="index")
    assert rows.rows[0].n == 4
    with pytest.raises(InputError, match="no two different sentences"):
        evaluate_retrieval(
            FakeEncoder().encode, Partners(["a", "a"], [(0, 1)]), model="m", task="t"
        )


def test_the_highest_gold_makes_partners_and_the_rest_fills_the_corpus() -> None:
    pairs = Pairs(["a", "b", "c"], ["d", "e", "f"], np.array([5.0, 2.0, 5.0]))
    partners = partners_of_pairs(pairs)
    assert partners.texts == ["a", "d", "b", "e", "c", "f"]
    assert partners.pairs == [(0, 1), (1, 0), (4, 5), (5, 4)]


def test_stsb_has_the_97_pairs_of_diffcse(assets: Path) -> None:
    pairs = load_sts(assets / "data" / "senteval", "STS-B")["STS-B"]
    partners = partners_of_pairs(pairs)
    assert (len(partners.texts), len(set(partners.texts)), len(partners.pairs)) == (2758, 2551, 194)
    recurring = [partners.texts.count(partners.texts[own]) > 1 for own, _ in partners.pairs]
    assert sum(recurring) == 39


@pytest.mark.parametrize("header", ["", "a\tb\n", "sentence1\tsentence2\n"])
def test_a_file_of_pairs(tmp_path: Path, header: str) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(f'{header}one dog\ta "quoted dog\n\ntwo cats\tcats\r\n')
    partners = load_partners(path)
    assert partners.texts == ["one dog", 'a "quoted dog', "two cats", "cats"]
    assert partners.pairs == [(0, 1), (1, 0), (2, 3), (3, 2)]


@pytest.mark.parametrize("header", ["", "score\ta\tb\n"])
def test_a_file_of_scored_pairs(tmp_path: Path, header: str) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(f"{header}1\tone\tdog\n4.5\ttwo\tcats\n")
    partners = load_partners(path)
    assert partners.texts == ["one", "dog", "two", "cats"]
    assert partners.pairs == [(2, 3), (3, 2)]


@pytest.mark.parametrize(
    ("text", "told"),
    [("one\ttwo\nthree\n", "line 2"), ("one\t\n", "line 1"), ("", "is empty")],
)
def test_broken_files_of_pairs(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(text)
    with pytest.raises(InputError, match=told):
        load_partners(path)


def test_groups_by_count_and_by_label(tmp_path: Path) -> None:
    path, labels = tmp_path / "texts.txt", tmp_path / "labels.txt"
    path.write_text("a\nb\nc\n\nd\ne\n")
    labels.write_text("x\ny\nx\nx\nx\nz\n")
    counted = load_groups(path, "3")  # the blank row is one of the second three
    assert counted.texts == list("abcde")
    assert counted.pairs == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1), (3, 4), (4, 3)]
    labelled = load_groups(path, str(labels))
    assert sorted(labelled.pairs) == [(0, 2), (0, 3), (2, 0), (2, 3), (3, 0), (3, 2)]


@pytest.mark.parametrize("groups", ["4", "1", "0"])
def test_rows_that_are_not_whole_groups_are_refused(tmp_path: Path, groups: str) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("a\nb\nc\n\nd\ne\n")
    with pytest.raises(InputError, match="not groups of"):
        load_groups(path, groups)


def test_labels_must_be_one_a_row_and_group_something(tmp_path: Path) -> None:
    path, labels = tmp_path / "texts.txt", tmp_path / "labels.txt"
    path.write_text("a\nb\n")
    labels.write_text("x\n")
    with pytest.raises(InputError, match=r"1 labels, but .* 2 rows"):
        load_groups(path, str(labels))
    labels.write_text("x\ny\n")
    with pytest.raises(InputError, match="no group"):
        load_groups(path, str(labels))
    with pytest.raises(InputError, match="no such file"):
        load_groups(path, str(tmp_path / "missing.txt"))
