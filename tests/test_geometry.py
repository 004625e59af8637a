"""Every view of a space against its definition, its limits, and the command around them."""

import json
import math
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor

from cse_cli.data.sts import Pairs, load_sts
from cse_cli.errors import InputError
from cse_cli.maths import top_similarities
from cse_cli.results import Table
from cse_cli.tasks.geometry import BIN_WIDTH, VIEWS, cross_correlation_rank, geometry
from tests.conftest import WORDS
from tests.probe_data import cse, is_figure, one_line, rows
from tests.sts_tree import write_sts_tree

WIDTH = 12


def vectors(texts: list[str]) -> Tensor:
    """Random vectors with a common direction; a text alone decides its own."""

    def one(text: str) -> Tensor:
        generator = torch.Generator().manual_seed(zlib.crc32(text.encode()))
        return torch.randn(WIDTH, generator=generator) + 0.5

    return torch.stack([one(text) for text in texts])


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    draw = np.random.default_rng(0)
    a = [f"a {i % 50}" for i in range(60)]  # some sentences occur twice
    b = [f"b {i}" for i in range(60)]
    return Pairs(a, b, np.round(draw.uniform(0, 5, 60), 1))


def measure(pairs: Pairs, *views: str, encode: object = vectors, **options: object) -> Table:
    given = {"model": "m", "task": "t", "views": views, **options}
    return geometry(encode, pairs, **given)  # type: ignore[arg-type]


def unit(x: Tensor) -> np.ndarray:
    return torch.nn.functional.normalize(x.double(), dim=1).numpy()


def cosines(pairs: Pairs) -> np.ndarray:
    return (unit(vectors(pairs.a)) * unit(vectors(pairs.b))).sum(axis=1)


def distinct(pairs: Pairs) -> list[str]:
    return list(dict.fromkeys([*pairs.a, *pairs.b]))


# ---------------------------------------------------------------------------- plane


@pytest.mark.parametrize(("threshold", "over"), [(">4", np.greater), (">=4", np.greater_equal)])
def test_plane_is_alignment_and_uniformity(threshold: str, over: object) -> None:
    gold = np.array([5.0, 4.0, 4.5, 1.0, 3.9])
    few = Pairs(list("abcde"), list("fghij"), gold)
    table = measure(few, "plane", threshold=threshold)
    a, b = unit(vectors(few.a)), unit(vectors(few.b))
    chosen = over(gold, 4)  # type: ignore[operator]
    row = table.where(metric="alignment").rows[0]
    assert row.value == pytest.approx(((a - b)[chosen] ** 2).sum(axis=1).mean(), abs=1e-6)
    assert (row.n, row.keys["threshold"]) == (chosen.sum(), threshold)
    both = np.concatenate([a, b])
    apart = [
        math.exp(-2 * ((both[i] - both[j]) ** 2).sum())
        for i in range(len(both))
        for j in range(i + 1, len(both))
    ]
    found = table.value(metric="uniformity")
    assert found == pytest.approx(math.log(np.mean(apart)), abs=1e-5)
    expected = spearmanr(cosines(few), gold).statistic
    assert table.value(metric="spearman_all") == pytest.approx(expected, abs=1e-9)


def test_uniformity_takes_sentences_as_they_occur(pairs: Pairs) -> None:
    assert measure(pairs, "plane").where(metric="uniformity").rows[0].n == 2 * len(pairs)


def test_no_positive_pair_is_an_error(pairs: Pairs) -> None:
    low = Pairs(pairs.a, pairs.b, np.linspace(0, 4, len(pairs)))
    with pytest.raises(InputError, match=">4"):
        measure(low, "plane")
    assert measure(low, "plane", threshold=">=4").where(metric="alignment").rows[0].n == 1


def test_published_counts_of_stsb(assets: Path) -> None:
    found = load_sts(assets / "data" / "senteval", "STS-B")["STS-B"]
    for threshold, n in ((">4", 231), (">=4", 338)):
        table = measure(found, "plane", threshold=threshold)
        assert table.where(metric="alignment").rows[0].n == n
    assert measure(found, "spectrum").where(metric="mean_cosine").rows[0].n == 2551


# ---------------------------------------------------------------------------- distribution


def test_distribution_by_gold_score(pairs: Pairs) -> None:
    gold = np.array([0.0, 0.5, 1.0, 2.9, 3.0, 4.0, 5.0] + [5.0] * 53)
    table = measure(Pairs(pairs.a, pairs.b, gold), "distribution")
    expected = cosines(pairs)
    groups = {"0-1": [0, 1], "1-2": [2], "2-3": [3], "3-4": [4], "4-5": [*range(5, 60)]}
    for name, members in groups.items():
        mean = table.where(metric="cosine_mean", subset=name).rows[0]
        assert mean.n == len(members)
        assert mean.value == pytest.approx(expected[members].mean(), abs=1e-6)
        sd = table.value(metric="cosine_sd", subset=name)
        assert sd == pytest.approx(expected[members].std(), abs=1e-6)
        density = table.where(metric="cosine_density", subset=name).rows
        assert sum(row.value for row in density) * BIN_WIDTH == pytest.approx(1)
        centre = sum(row.value * row.keys["threshold"] for row in density) * BIN_WIDTH
        assert centre == pytest.approx(expected[members].mean(), abs=BIN_WIDTH / 2)


def test_a_group_without_pairs_has_no_rows(pairs: Pairs) -> None:
    table = measure(Pairs(pairs.a, pairs.b, np.full(60, 4.5)), "distribution")
    assert {row.keys["subset"] for row in table} == {"4-5"}


# ---------------------------------------------------------------------------- spectrum


def test_spectrum_against_numpy(pairs: Pairs) -> None:
    x = unit(vectors(distinct(pairs)))
    values = np.linalg.svd(x, compute_uv=False)
    table = measure(pairs, "spectrum")
    found = table.where(metric="singular_value").rows
    assert [row.keys["k"] for row in found] == list(range(1, WIDTH + 1))
    assert [row.value for row in found] == pytest.approx(values / values[0], abs=1e-6)
    shares = values / values.sum()
    rank = math.exp(-sum(p * math.log(p) for p in shares))
    assert table.value(metric="effective_rank") == pytest.approx(rank, abs=1e-5)
    n = len(x)
    mean = np.mean([x[i] @ x[j] for i in range(n) for j in range(n) if i != j])
    assert table.value(metric="mean_cosine") == pytest.approx(mean, abs=1e-6)


def test_limits_of_the_spectrum(pairs: Pairs) -> None:
    even = measure(pairs, "spectrum", encode=lambda t: torch.eye(WIDTH).repeat(20, 1)[: len(t)])
    assert even.value(metric="effective_rank") == pytest.approx(WIDTH, rel=0.01)
    line = measure(pairs, "spectrum", encode=lambda t: torch.ones(len(t), WIDTH))
    assert line.value(metric="effective_rank") == pytest.approx(1, abs=1e-6)
    assert line.value(metric="mean_cosine") == pytest.approx(1, abs=1e-6)


# ---------------------------------------------------------------------------- correlation


def test_correlation_against_numpy(pairs: Pairs) -> None:
    x = vectors(distinct(pairs)).double().numpy()
    r = np.abs(np.corrcoef(x.T)[np.triu_indices(WIDTH, 1)])
    table = measure(pairs, "correlation")
    assert table.value(metric="dimension_correlation") == pytest.approx(r.mean(), abs=1e-9)
    for row in table.where(metric="correlation_share"):
        assert row.value == pytest.approx((r > row.keys["threshold"]).mean(), abs=1e-9)


def test_copied_and_constant_dimensions(pairs: Pairs) -> None:
    def copied(texts: list[str]) -> Tensor:
        return vectors(texts)[:, :1].repeat(1, 4)

    def constant(texts: list[str]) -> Tensor:
        return torch.cat([vectors(texts)[:, :1], torch.ones(len(texts), 1)], dim=1)

    one = measure(pairs, "correlation", encode=copied).value(metric="dimension_correlation")
    assert one == pytest.approx(1)
    none = measure(pairs, "correlation", encode=constant).value(metric="dimension_correlation")
    assert none == 0


# ---------------------------------------------------------------------------- rank


def test_rank_is_bounded_by_the_batch(pairs: Pairs) -> None:
    wide = measure(pairs, "rank", encode=lambda t: torch.randn(len(t), 100))
    found = {(row.metric, row.keys["k"]): row.value for row in wide}
    assert found == {
        ("rank", 16): 16, ("rank_centred", 16): 15, ("rank", 32): 32, ("rank_centred", 32): 31,
        ("rank", 64): 64, ("rank_centred", 64): 63,
    }  # fmt: skip
    narrow = {(row.metric, row.keys["k"]): row.value for row in measure(pairs, "rank")}
    assert narrow["rank", 64] == WIDTH


def test_rank_of_a_low_rank_space() -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(40, 3, generator=generator) @ torch.randn(3, 20, generator=generator)
    assert cross_correlation_rank(z, z) == 3  # though float32 rounding makes the product full
    other = torch.randn(40, 20, generator=generator)
    assert cross_correlation_rank(z, other) == 3
    assert cross_correlation_rank(other, other) == 20


# ---------------------------------------------------------------------------- batch


def test_a_batch_of_all_sentences_is_exact() -> None:
    few = Pairs(list("abcde"), list("fghij"), np.arange(5.0))  # fewer than the smallest batch
    table = measure(few, "batch")
    expected = top_similarities(vectors(distinct(few)), 4)
    for place in range(4):
        found = table.value(metric="top_similarity", subset=str(place + 1), k=10)
        assert found == pytest.approx(float(expected[place]), abs=1e-6)
    mean = table.value(metric="top_similarity", subset="mean", k=10)
    assert mean == pytest.approx(float(expected.mean()), abs=1e-6)


def test_larger_batches_hold_nearer_pairs_and_noise_stays_away(pairs: Pairs) -> None:
    table = measure(pairs, "batch")
    tops = [row.value for row in table.where(metric="top_similarity", subset="mean")]
    assert len(tops) == 3
    assert tops == sorted(tops)
    far = measure(pairs, "batch", encode=lambda t: torch.ones(len(t), 300))
    assert far.value(metric="top_similarity", subset="4", k=64) == pytest.approx(1)
    assert far.value(metric="noise_similarity", subset="1", k=64) < 0.3


def test_seed_decides_the_draws(pairs: Pairs) -> None:
    first, again, other = (measure(pairs, "batch", "rank", seed=s) for s in (0, 0, 1))
    assert [r.value for r in first] == [r.value for r in again]
    assert [r.value for r in first] != [r.value for r in other]


# ---------------------------------------------------------------------------- dimension


def test_all_dimensions_give_the_full_score(pairs: Pairs) -> None:
    table = measure(pairs, "plane", "dimension")
    full = table.value(metric="spearman_all")
    assert table.value(metric="spearman_truncated", k=WIDTH) == pytest.approx(full)
    assert table.value(metric="spearman_pca", k=WIDTH) == pytest.approx(full)
    a, b = (unit(vectors(side)[:, :8]) for side in (pairs.a, pairs.b))
    expected = spearmanr((a * b).sum(axis=1), pairs.gold).statistic
    assert table.value(metric="spearman_truncated", k=8) == pytest.approx(expected)
    assert [row.keys["k"] for row in table.where(metric="spearman_pca")] == [8, WIDTH]


def test_principal_directions_find_what_matters(pairs: Pairs) -> None:
    """Eight strong dimensions placed last: directions find them, first coordinates do not."""

    def hidden(texts: list[str]) -> Tensor:
        weak = 1e-4 * torch.randn(len(texts), 24, generator=torch.Generator().manual_seed(1))
        return torch.cat([weak, vectors(texts)[:, :8]], dim=1)

    a, b = (unit(vectors(side)[:, :8]) for side in (pairs.a, pairs.b))
    judged = Pairs(pairs.a, pairs.b, 5 * (1 + (a * b).sum(axis=1)) / 2)  # people see those eight
    table = measure(judged, "dimension", encode=hidden)
    assert table.value(metric="spearman_pca", k=8) > 0.999
    assert table.value(metric="spearman_truncated", k=16) < 0.5


# ---------------------------------------------------------------------------- all of them


def test_a_corpus_is_measured_in_place_of_the_pairs(pairs: Pairs) -> None:
    corpus = ("wiki.txt", [f"c {i}" for i in range(30)] + ["c 1"])
    table = measure(pairs, *VIEWS, corpus=corpus)
    tasks = {row.metric: (row.task, row.n) for row in table}
    for metric in ("effective_rank", "dimension_correlation", "rank", "top_similarity"):
        assert tasks[metric] == ("wiki.txt", 30)
    for metric in ("alignment", "uniformity", "cosine_mean", "spearman_pca"):
        assert tasks[metric][0] == "t"


def test_each_sentence_is_encoded_once(pairs: Pairs) -> None:
    calls: list[list[str]] = []

    def encode(texts: list[str]) -> Tensor:
        calls.append(texts)
        return vectors(texts)

    measure(pairs, *VIEWS, encode=encode, corpus=("c", [*pairs.a, "another"]))
    assert len(calls) == 1
    assert len(calls[0]) == len(set(calls[0])) == len(distinct(pairs)) + 1


def test_one_sentence_is_no_space(pairs: Pairs) -> None:
    with pytest.raises(InputError, match="1 distinct"):
        measure(pairs, "spectrum", corpus=("one.txt", ["same", "same"]))


# ---------------------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sts_tree(tmp_path_factory.mktemp("data") / "senteval", WORDS)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_view_in_one_figure(tiny_bert: Path, data: Path) -> None:
    result = cse(
        "geometry", tiny_bert, "--data-dir", data, "--pooler", "mean", "--out", "g.png",
        "--align-threshold", ">=4", "--output", "g.csv",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert is_figure(Path("g.png"))
    for title in ("Alignment", "gold score", "Rank", "4 largest", "first coordinates"):
        assert title in result.stdout
    header, *lines = Path("g.csv").read_text().splitlines()
    assert header.startswith("model,task,split,metric,value,n")
    assert any(",singular_value," in line for line in lines)


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_alone(tiny_bert: Path, data: Path, view: str) -> None:
    words = ["geometry", tiny_bert, "--data-dir", data, "--pooler", "mean", "--view", view]
    found = rows(*words, "--align-threshold", ">=4", "--out", "v.svg")
    assert found
    assert is_figure(Path("v.svg"))
    people = cse(*words, "--align-threshold", ">=4")
    assert people.exit_code == 0, people.stderr
    if view != "correlation":
        assert people.stdout.strip()


def test_the_plane_of_several_checkpoints(tiny_bert: Path, data: Path) -> None:
    found = rows(
        "geometry", tiny_bert, tiny_bert, "--data-dir", data, "--pooler", "mean",
        "--label", "x", "--label", "y", "--view", "plane", "--align-threshold", ">=4",
    )  # fmt: skip
    assert [(row["model"], row["metric"]) for row in found] == [
        (model, metric) for model in "xy" for metric in ("alignment", "uniformity", "spearman_all")
    ]


def test_the_config_says_what_was_measured(
    tiny_bert: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CSE_DATA", str(data))
    done = cse("geometry", tiny_bert, "--pooler", "mean", "--view", "plane", "--json")
    config = json.loads(done.stdout)["config"]
    assert config["data_dir"] == str(data)
    (encoder,) = config["encoders"]
    assert (encoder["source"], encoder["pooler"]) == (str(tiny_bert), "mean")
    assert encoder["max_length"] == 64


@pytest.mark.parametrize(
    ("extra", "code", "told"),
    [
        (["--view", "plain"], 2, "did you mean 'plane'?"),
        (["--align-threshold", ">5"], 2, "--align-threshold"),
        (["--seed", "18446744073709551616"], 2, "--seed"),
        (["--corpus", "missing.txt"], 3, "missing.txt"),
        (["--corpus", "one.txt", "--view", "rank"], 3, "1 distinct"),
        (["--out", "g.bmp"], 2, ".png"),
        (["--data-dir", "missing"], 3, "missing"),
    ],
)
def test_bad_input_is_one_line(
    tiny_bert: Path, data: Path, extra: list[str], code: int, told: str
) -> None:
    Path("one.txt").write_text("a dog\na dog\n")
    where = [] if "--data-dir" in extra else ["--data-dir", data]
    words = ["geometry", tiny_bert, "--pooler", "mean", *where, *extra]
    assert told in one_line(cse(*words), code)
