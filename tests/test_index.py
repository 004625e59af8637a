"""The index as it is searched: exact search against brute force, every kind against exact."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cse_cli.errors import InputError, UsageError
from cse_cli.index import (
    KINDS,
    Corpus,
    Hits,
    Index,
    Searcher,
    build_index,
    exact,
    kinds,
    rescored,
    ties,
)
from cse_cli.index.exact import top_k
from cse_cli.index.shard import VECTORS

from .fake_encoder import FakeEncoder, Numbers, near_copies, sentences, write


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return write(tmp_path / "corpus.txt", sentences(300))


@pytest.fixture
def folder(tmp_path: Path, corpus: Corpus) -> Path:
    assert build_index(tmp_path / "index", corpus, FakeEncoder())
    return tmp_path / "index"


def brute_force(queries: torch.Tensor, vectors: np.ndarray, k: int) -> tuple[np.ndarray, ...]:
    scores = queries.double().numpy() @ vectors.astype(np.float64).T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, 1), order


# ------------------------------------------------------------------------------------- exact search


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 700),
    q=st.integers(1, 9),
    k=st.integers(1, 80),
    seed=st.integers(0, 99),
    order=st.sampled_from(["random", "rising", "falling"]),
)
def test_top_k_is_brute_force(n: int, q: int, k: int, seed: int, order: str) -> None:
    """In blocks of 64 vectors and passes of 4 queries, however the scores rise or fall."""
    draw = np.random.default_rng(seed)
    vectors = draw.standard_normal((n, 8)).astype(np.float32)
    queries = torch.from_numpy(draw.standard_normal((q, 8)).astype(np.float32))
    if order != "random":
        by_first = np.argsort(vectors @ queries[0].numpy())
        vectors = vectors[by_first if order == "rising" else by_first[::-1]].copy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "VECTORS", 64)
        patch.setattr(exact, "QUERIES", 4)
        scores, places = top_k(queries, vectors, k)
    wanted, rows = brute_force(queries, vectors, k)
    np.testing.assert_allclose(scores.numpy(), wanted, atol=1e-5)
    assert (places.numpy() == rows).mean() > 0.99  # a tie in single precision may swap


def test_scores_are_those_of_the_vectors_and_sorted(folder: Path) -> None:
    index = Index.open(folder)
    queries = FakeEncoder().encode(["red dog runs", "blue bird sings"])
    hits = Searcher(index).search(queries, 7)
    unit = torch.nn.functional.normalize(queries, dim=1)
    wanted, rows = brute_force(unit, index.shards[0].vectors, 7)
    np.testing.assert_array_equal(hits.rows, rows)
    np.testing.assert_allclose(hits.scores, wanted, atol=1e-6)


def test_rows_and_texts_are_the_corpus(folder: Path, corpus: Corpus) -> None:
    index = Index.open(folder)
    assert [index.text(row) for row in range(len(index))] == list(corpus.texts())
    wanted = torch.nn.functional.normalize(FakeEncoder().encode([index.text(41)]), dim=1)
    np.testing.assert_allclose(index.shards[0].vectors[41], wanted[0].numpy(), atol=1e-6)


def test_texts_of_any_script_and_length_come_back(tmp_path: Path) -> None:
    texts = ["caf\u00e9 \u2028 street", "\u72d7\u5728\u8dd1", "x", "\U0001f415 runs", "a " * 5000]
    source = tmp_path / "texts.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in [*texts, "two\nlines"]))
    build_index(tmp_path / "index", Corpus.scan(str(source)), FakeEncoder())
    index = Index.open(tmp_path / "index")
    assert [index.text(row) for row in range(len(index))] == [*texts, "two\nlines"]


@pytest.mark.parametrize("k", [1, 3, 10, 120, 250])
def test_equal_scores_are_ordered_by_row_however_many_there_are(tmp_path: Path, k: int) -> None:
    """200 equal vectors between two nearer ones and others; the same in one shard and in three."""
    matrix = near_copies(300, 1, 16)
    matrix[40:240] = matrix[0]
    queries = torch.from_numpy(matrix[[0, 0, 7, 260]].copy())
    queries[0] += 0.01 * queries[3]  # no row is equal to it
    names = [str(i) for i in range(300)]
    build_index(tmp_path / "one", write(tmp_path / "c.txt", names), Numbers(matrix))
    for start in (0, 100, 200):
        part = write(tmp_path / f"{start}.txt", names[start : start + 100])
        build_index(tmp_path / "three", part, Numbers(matrix), extend=True)
    with pytest.MonkeyPatch.context() as patch:
        for module in (exact, ties):
            patch.setattr(module, "VECTORS", 64)
        one = Searcher(Index.open(tmp_path / "one")).search(queries, k)
        three = Searcher(Index.open(tmp_path / "three")).search(queries, k)
    np.testing.assert_array_equal(three.rows, one.rows)
    np.testing.assert_array_equal(three.scores, one.scores)
    equal = [0, *range(40, 240)]
    assert one.rows[1].tolist()[: min(k, 201)] == equal[:k]
    vectors = Index.open(tmp_path / "one").shards[0].vectors
    for place in (0, 2, 3):
        scores = vectors.astype(np.float64) @ queries[place].double().numpy()
        scores[equal] = scores[0]
        order = np.argsort(-scores, kind="stable")
        assert one.rows[place].tolist() == order[:k].tolist()


def test_a_query_must_fit_and_be_finite(folder: Path) -> None:
    searcher = Searcher(Index.open(folder))
    with pytest.raises(InputError, match="8 dimensions"):
        searcher.search(torch.ones(1, 8), 3)
    with pytest.raises(InputError, match="not finite"):
        searcher.search(torch.full((1, 16), torch.nan), 3)


# ---------------------------------------------------------------------------------- different texts


def test_distinct_ranks_each_string_once_by_its_best_row(tmp_path: Path) -> None:
    texts = ["red dog", "red dog", "red cat", "red dog", "blue bird", "red cat", "green tree"]
    corpus = write(tmp_path / "corpus.txt", texts)
    build_index(tmp_path / "index", corpus, FakeEncoder())
    searcher = Searcher(Index.open(tmp_path / "index"))
    queries = FakeEncoder().encode(["red dog", "red cat"])
    found = searcher.distinct(queries, 4)
    assert [hit.text for hit in found[0]][:2] == ["red dog", "red cat"]
    assert [hit.row for hit in found[0]][:2] == [0, 2]
    assert len(found[0]) == 4 == len({hit.text for hit in found[0]})
    without = searcher.distinct(queries, 4, leave_out=["red dog", "red cat"])
    assert "red dog" not in [hit.text for hit in without[0]]
    assert len(without[1]) == 3  # only three other strings are there
    every = searcher.every(queries, 7)
    assert [hit.row for hit in every[0]][:3] == [0, 1, 3]


def test_a_corpus_of_one_string_gives_one_hit(tmp_path: Path) -> None:
    build_index(tmp_path / "i", write(tmp_path / "c.txt", ["same words"] * 100), FakeEncoder())
    found = Searcher(Index.open(tmp_path / "i")).distinct(FakeEncoder().encode(["same"]), 5)
    assert [hit.text for hit in found[0]] == ["same words"]


@pytest.mark.parametrize("k", [1, 3, 8])
def test_different_sentences_are_found_in_bounded_memory(
    tmp_path: Path, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where many rows are the same: the same hits, and never all scores of all queries at once."""
    draw = np.random.default_rng(1)
    texts = [*["red dog"] * 300, *draw.choice(["red cat", "blue dog", "red tree", "a"], 200)]
    for start in (0, 250):
        part = write(tmp_path / f"{start}.txt", texts[start : start + 250])
        build_index(tmp_path / "i", part, FakeEncoder(), extend=True)
    searcher = Searcher(Index.open(tmp_path / "i"))
    asked = ["red dog", "red cat", "blue tree"]
    queries = FakeEncoder().encode(asked)
    wanted = [searcher.distinct(queries, k), searcher.distinct(queries, k, leave_out=asked)]
    fetched: list[int] = []
    search = Searcher.search

    def watched(self: Searcher, some: torch.Tensor, count: int) -> Hits:
        fetched.append(len(some) * count)
        return search(self, some, count)

    monkeypatch.setattr(Searcher, "search", watched)
    monkeypatch.setattr("cse_cli.index.search.HELD", 100)
    monkeypatch.setattr("cse_cli.index.search.BLOCK", 64)
    found = [searcher.distinct(queries, k), searcher.distinct(queries, k, leave_out=asked)]
    assert found == wanted
    assert max(fetched) <= 100
    assert [len(hits) for hits in found[0]] == [min(k, 5)] * 3


def test_rescoring_many_candidates_is_rescoring_them_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vectors = near_copies(50, 1, 16)
    queries = torch.from_numpy(near_copies(3, 1, 16))
    places = np.tile(np.arange(-1, 49), (3, 1))
    wanted = rescored.rescore(queries, vectors, places)
    monkeypatch.setattr(rescored, "RESCORED", 7 * 16)
    np.testing.assert_array_equal(rescored.rescore(queries, vectors, places), wanted)
    assert (wanted[:, 0] == -np.inf).all()


# -------------------------------------------------------------------------------------- other kinds


def shared_rows(hits: Hits, wanted: Hits) -> float:
    """Recall of `wanted` in `hits`."""
    pairs = zip(hits.rows.tolist(), wanted.rows.tolist(), strict=True)
    return float(np.mean([len(set(a) & set(b)) / len(b) for a, b in pairs]))


@pytest.mark.parametrize(("kind", "least"), [(kind, 0.95) for kind in KINDS])
def test_every_kind_finds_nearly_what_exact_finds(
    tmp_path: Path, kind: str, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind in ("hnsw", "ivfpq"):
        pytest.importorskip("faiss")
    monkeypatch.setattr(kinds, "FEW", 1000)
    matrix = near_copies(1000, 12, 33)  # 33: no multiple of a byte's bits
    corpus = write(tmp_path / "c.txt", [str(i) for i in range(len(matrix))])
    encoder = Numbers(matrix)
    assert build_index(tmp_path / "i", corpus, encoder, kind=kind)
    index = Index.open(tmp_path / "i")
    assert index.kind == kind
    queries = torch.from_numpy(near_copies(1000, 12, 33)[::60].copy())
    queries += 0.1 * torch.randn(queries.shape, generator=torch.Generator().manual_seed(0))
    wanted = Searcher(index, kind="exact").search(queries, 10)
    hits = Searcher(index).search(queries, 10)
    recall = shared_rows(hits, wanted)
    assert recall >= least
    both = hits.rows[:, 0] == wanted.rows[:, 0]
    np.testing.assert_array_equal(hits.scores[both, 0], wanted.scores[both, 0])
    more = Searcher(index, candidates=2000).search(queries, 10)
    assert shared_rows(more, wanted) >= recall


@pytest.mark.parametrize("kind", ["int8", "binary", "hnsw"])
def test_a_kind_can_be_added_to_an_index_and_few_rows_need_none(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "hnsw":
        pytest.importorskip("faiss")
    queries = FakeEncoder().encode(["red dog runs"])
    wanted = Searcher(Index.open(folder)).search(queries, 5)
    few = Searcher(Index.open(folder), kind=kind).search(queries, 5)
    assert not (folder / "shard-00000" / f"{kind}.bin").exists()
    np.testing.assert_array_equal(few.rows, wanted.rows)
    monkeypatch.setattr(kinds, "FEW", 0)
    derived = Searcher(Index.open(folder), kind=kind).search(queries, 5)
    assert (folder / "shard-00000" / f"{kind}.bin").exists()
    np.testing.assert_array_equal(derived.rows, wanted.rows)


def test_codes_are_as_small_as_promised(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "FEW", 0)
    size = (folder / "shard-00000" / VECTORS).stat().st_size
    for kind, times in (("int8", 4), ("binary", 32)):
        Searcher(Index.open(folder), kind=kind)
        assert (folder / "shard-00000" / f"{kind}.bin").stat().st_size == size // times


def test_without_faiss_the_remedy_is_named(
    folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    for kind in ("hnsw", "ivfpq"):
        with pytest.raises(UsageError, match=r"pip install 'cse-cli\[faiss\]'"):
            Searcher(Index.open(folder), kind=kind)
    with pytest.raises(UsageError, match="did you mean 'hnsw'"):
        Searcher(Index.open(folder), kind="hnws")
