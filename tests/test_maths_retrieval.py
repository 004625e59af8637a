"""Retrieval against a sort of all candidates, and the cases duplicates make."""

import pytest
import torch

from cse_cli.errors import InputError, UsageError
from cse_cli.maths import mean_reciprocal_rank, recall_at_k, retrieval
from tests.naive import cos, draw

TEXTS = ["a", "b", "c", "a", "d", "e", "b", "f", "c", "g"]
PAIRS = [(0, 1), (1, 0), (3, 6), (2, 4), (4, 2), (5, 8), (7, 9), (9, 7)]


def corpus_of(texts):
    """One vector a string, as an encoder gives."""
    vectors = draw(26, 3)
    return torch.stack([vectors[ord(text) - ord("a")] for text in texts])


def naive_rank(query, corpus, texts, own, partner, match):
    """The partner's place among the candidates, most similar first; None if it is not there."""
    candidates = []
    for row, text in enumerate(texts):
        if match == "index" and row != own:
            candidates.append((row, row == partner))
        if match == "text" and text != texts[own] and text not in texts[:row]:
            candidates.append((row, text == texts[partner]))
    candidates.sort(key=lambda candidate: -cos(query, corpus[candidate[0]]))
    hits = [place for place, (_, hit) in enumerate(candidates, start=1) if hit]
    return hits[0] if hits else None


@pytest.mark.parametrize("match", ["text", "index"])
@pytest.mark.parametrize("block", [1, 2**22])
def test_recall_and_reciprocal_rank_equal_a_sort_of_all_candidates(match, block, monkeypatch):
    monkeypatch.setattr(retrieval, "_BLOCK", block)
    corpus = draw(len(TEXTS), 3, seed=1)
    queries = draw(len(PAIRS), 3, seed=2)
    ranks = [
        naive_rank(queries[p], corpus, TEXTS, own, partner, match)
        for p, (own, partner) in enumerate(PAIRS)
    ]
    recall = recall_at_k(queries, corpus, PAIRS, TEXTS, ks=(1, 2, 5, 9), match=match)
    assert recall == {
        k: pytest.approx(sum(rank <= k for rank in ranks) / len(ranks)) for k in (1, 2, 5, 9)
    }
    expected = sum(1 / rank for rank in ranks) / len(ranks)
    result = mean_reciprocal_rank(queries, corpus, PAIRS, TEXTS, match=match)
    assert result == pytest.approx(expected, rel=1e-7)


def test_a_copy_of_the_query_competes_only_by_index():
    texts = ["q", "q", "p"]
    corpus = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.5]])
    pairs = [(0, 2)]
    by_text = recall_at_k(corpus[:1], corpus, pairs, texts, ks=(1,))
    by_index = recall_at_k(corpus[:1], corpus, pairs, texts, ks=(1, 2), match="index")
    assert by_text == {1: 1.0}
    assert by_index == {1: 0.0, 2: 1.0}


def test_copies_of_another_sentence_take_one_place_by_text():
    texts = ["q", "x", "x", "x", "p"]
    corpus = torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, 0.1], [1.0, 0.1], [1.0, 0.5]])
    args = (corpus[:1], corpus, [(0, 4)], texts)
    assert mean_reciprocal_rank(*args) == pytest.approx(1 / 2)
    assert mean_reciprocal_rank(*args, match="index") == pytest.approx(1 / 4)


def test_any_copy_of_the_partner_is_a_hit_by_text():
    texts = ["q", "p", "x", "p"]
    corpus = corpus_of(texts)
    first, last = ([(0, partner)] for partner in (1, 3))
    assert recall_at_k(corpus[:1], corpus, first, texts) == recall_at_k(
        corpus[:1], corpus, last, texts
    )


def test_a_partner_with_the_query_s_own_string_is_never_found():
    texts = ["q", "q", "x"]
    corpus = corpus_of(texts)
    args = (corpus[:1], corpus, [(0, 1)], texts)
    assert recall_at_k(*args, ks=(1, 100)) == {1: 0.0, 100: 0.0}
    assert mean_reciprocal_rank(*args) == 0
    assert recall_at_k(*args, ks=(1,), match="index") == {1: 1.0}


def test_a_collapsed_space_is_ranked_in_corpus_order_not_rewarded():
    texts = list("abcde")
    corpus = torch.ones(5, 3)
    pairs = [(0, 4), (4, 0), (2, 3)]
    result = mean_reciprocal_rank(corpus[:3], corpus, pairs, texts)
    assert result == pytest.approx((1 / 4 + 1 + 1 / 3) / 3)


def test_pairs_may_be_a_tensor_and_ks_beyond_the_corpus_count_every_candidate():
    corpus = corpus_of(TEXTS)
    pairs = torch.tensor(PAIRS)
    assert recall_at_k(corpus[pairs[:, 0]], corpus, pairs, TEXTS, ks=(100,)) == {100: 1.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"texts": TEXTS[:-1]}, "10 vectors for 9 texts"),
        ({"pairs": PAIRS[:-1]}, r"one \(query, partner\) pair of row numbers per query"),
        ({"queries": draw(0, 3), "pairs": []}, "at least one"),
        ({"pairs": [*PAIRS[:-1], (0, 10)]}, "outside the corpus, 0 to 9"),
        ({"pairs": [*PAIRS[:-1], (-1, 0)]}, "outside the corpus, 0 to 9"),
        ({"queries": torch.full((len(PAIRS), 3), float("nan"))}, "not finite"),
    ],
)
def test_unusable_inputs_are_refused(change, message):
    given = {"queries": draw(len(PAIRS), 3), "corpus": corpus_of(TEXTS), "pairs": PAIRS}
    with pytest.raises(InputError, match=message):
        recall_at_k(**{**given, "texts": TEXTS, **change})


def test_an_unknown_match_is_refused():
    with pytest.raises(UsageError, match="did you mean 'text'"):
        recall_at_k(draw(1, 3), draw(2, 3), [(0, 1)], ["a", "b"], match="texts")
