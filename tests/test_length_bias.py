"""Length bias: the split correlations, the bootstrap without sorting, the bias at equal gold."""

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from cse_cli.data.sts import Pairs, load_sts
from cse_cli.errors import InputError
from cse_cli.results import Table
from cse_cli.tasks.length_bias import (
    BINS,
    MIN_PAIRS,
    bin_labels,
    length_bias,
    weighted_spearman,
)
from tests.conftest import WORDS
from tests.probe_data import cse, is_figure, one_line, rows
from tests.sts_tree import write_sts_tree

Tasks = dict[str, dict[str, Pairs]]


def words(texts: list[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def random_pairs(count: int, seed: int) -> Pairs:
    draw = np.random.default_rng(seed)

    def sentence(i: int, longest: int) -> str:
        return " ".join([f"s{seed}n{i}", *["w"] * int(draw.integers(0, longest))])

    a = [sentence(i, 4) for i in range(count)]
    b = [sentence(i + count, 16) for i in range(count)]
    return Pairs(a, b, draw.integers(0, 11, count) / 2)


def random_vectors(texts: list[str]) -> torch.Tensor:
    def one(text: str) -> torch.Tensor:
        generator = torch.Generator().manual_seed(sum(map(ord, text)) * 7919 + len(text))
        return torch.randn(6, generator=generator)

    return torch.stack([one(text) for text in texts])


@pytest.fixture
def tasks() -> Tasks:
    return {
        "first": {"x": random_pairs(120, 0), "y": random_pairs(80, 1)},
        "second": {"second": random_pairs(150, 2)},
    }


def measure(tasks: Tasks, **options: object) -> Table:
    given = {"model": "m", "resamples": 50, **options}
    return length_bias(random_vectors, words, tasks, **given)  # type: ignore[arg-type]


def cosines(pairs: list[Pairs]) -> np.ndarray:
    a, b = (random_vectors([t for p in pairs for t in getattr(p, side)]) for side in "ab")
    return torch.nn.functional.cosine_similarity(a.double(), b.double()).numpy()


def differences(pairs: list[Pairs]) -> np.ndarray:
    return np.array([abs(len(a.split()) - len(b.split())) for p in pairs
                     for a, b in zip(p.a, p.b, strict=True)])  # fmt: skip


# ---------------------------------------------------------------------------- the correlations


@pytest.mark.parametrize("threshold", [0, 3, 7])
def test_near_and_far_pairs_are_correlated_apart(tasks: Tasks, threshold: int) -> None:
    table = measure(tasks, threshold=threshold)
    for task, subsets in tasks.items():
        parts = list(subsets.values())
        near = differences(parts) <= threshold
        gold = np.concatenate([p.gold for p in parts])
        for side, members in (("le", near), ("gt", ~near)):
            row = table.where(task=task, metric=f"spearman_{side}").rows[0]
            expected = spearmanr(cosines(parts)[members], gold[members]).statistic
            assert row.value == pytest.approx(expected, abs=1e-9)
            assert row.n == members.sum()
            assert dict(row.keys) == {"threshold": threshold, "unit": "word"}


def test_average_is_that_of_the_tasks(tasks: Tasks) -> None:
    table = measure(tasks)
    each = [table.value(task=task, metric="spearman_le") for task in tasks]
    assert table.value(task="Avg", metric="spearman_le") == pytest.approx(np.mean(each))
    for label in bin_labels():
        per_task = [
            row.value for row in table.where(metric="similarity", subset=label) if row.task != "Avg"
        ]
        average = table.where(task="Avg", metric="similarity", subset=label).rows
        assert len(average) == (len(per_task) == len(tasks))
        if average:
            assert average[0].value == pytest.approx(np.mean(per_task))


def test_a_single_task_has_no_average(tasks: Tasks) -> None:
    assert not measure({"second": tasks["second"]}).where(task="Avg").rows


def test_bins_cover_every_difference_once() -> None:
    assert bin_labels() == ["0", "1", "2", "3", "4-5", "6-8", "9+"]
    assert len(bin_labels()) == len(BINS)


def test_each_bin_is_correlated_by_itself_and_small_ones_left_out(tasks: Tasks) -> None:
    parts = list(tasks["first"].values())
    difference, gold = differences(parts), np.concatenate([p.gold for p in parts])
    spans = dict(zip(bin_labels(), zip(BINS, [*BINS[1:], math.inf], strict=True), strict=True))
    table = measure({"first": tasks["first"]})
    found = {row.keys["subset"]: row for row in table.where(metric="spearman")}
    for label, (low, high) in spans.items():
        members = (difference >= low) & (difference < high)
        if members.sum() < MIN_PAIRS:
            assert label not in found
            continue
        expected = spearmanr(cosines(parts)[members], gold[members]).statistic
        assert found[label].value == pytest.approx(expected, abs=1e-9)
        assert found[label].n == members.sum()
    assert 0 < len(found) < len(BINS)  # the drawn pairs have both kinds


@pytest.mark.parametrize("seed", range(5))
def test_weighted_spearman_is_that_of_repeated_pairs(seed: int) -> None:
    draw = np.random.default_rng(seed)
    x, y = draw.integers(0, 6, 30) / 2, draw.normal(size=30)
    weights = draw.multinomial(30, np.full(30, 1 / 30), size=20)
    found = weighted_spearman(x, y, weights.astype(float))
    for value, times in zip(found, weights, strict=True):
        expected = spearmanr(np.repeat(x, times), np.repeat(y, times)).statistic
        assert value == pytest.approx(expected, abs=1e-9)


def test_weighted_spearman_of_a_constant_is_undefined() -> None:
    assert np.isnan(weighted_spearman(np.ones(5), np.arange(5.0), np.ones((1, 5)))).all()


def test_bands_hold_the_value_and_shrink_with_the_pairs() -> None:
    widths = []
    for count in (200, 3200):
        table = measure({"t": {"t": random_pairs(count, 3)}}, resamples=200)
        low, value, high = (
            table.value(metric=name, subset="4-5")
            for name in ("spearman_low", "spearman", "spearman_high")
        )
        assert low < value < high
        widths.append(high - low)
    assert widths[1] < widths[0] / 2


def test_seed_decides_the_bands_and_nothing_else(tasks: Tasks) -> None:
    first, again, other = (measure(tasks, seed=seed) for seed in (1, 1, 2))
    assert [r.value for r in first] == [r.value for r in again]
    assert [r.value for r in first] != [r.value for r in other]
    for a, b in zip(first, other, strict=True):
        if not a.metric.endswith(("_low", "_high")):
            assert a.value == b.value


# ---------------------------------------------------------------------------- the bias itself


def biased(per_word: float, per_gold: float) -> tuple[Tasks, object]:
    """Pairs whose cosine is exactly 0.1 + per_gold x gold - per_word x difference.

    Less alike pairs differ more in length, so that plain means would confound the two.
    """
    draw = np.random.default_rng(0)
    gold = draw.integers(0, 6, 600).astype(float)
    gap = draw.integers(0, 4, 600) + (gold < 3) * draw.integers(0, 9, 600)
    cosine = {
        f"b{i} " + "w " * int(d): 0.1 + per_gold * g - per_word * d
        for i, (g, d) in enumerate(zip(gold, gap, strict=True))
    }
    pairs = Pairs(["a"] * 600, list(cosine), gold)

    def encode(texts: list[str]) -> torch.Tensor:
        angles = torch.tensor([math.acos(cosine.get(text, 1.0)) for text in texts])
        return torch.stack([angles.cos(), angles.sin()], dim=1).double()

    return {"t": {"t": pairs}}, encode


def test_the_bias_is_found_at_equal_gold_score() -> None:
    tasks, encode = biased(per_word=0.01, per_gold=0.15)
    table = length_bias(encode, words, tasks, model="m", resamples=50)  # type: ignore[arg-type]
    for end in ("", "_low", "_high"):
        found = table.value(metric=f"similarity_slope{end}")
        assert found == pytest.approx(-0.01, abs=1e-6)
    curve = {row.keys["subset"]: row.value for row in table.where(metric="similarity")}
    assert curve["1"] - curve["3"] == pytest.approx(0.02, abs=5e-4)  # wide bins bend the fit


def test_no_bias_is_no_bias_though_length_and_gold_go_together() -> None:
    tasks, encode = biased(per_word=0.0, per_gold=0.15)
    table = length_bias(encode, words, tasks, model="m", resamples=50)  # type: ignore[arg-type]
    assert table.value(metric="similarity_slope") == pytest.approx(0, abs=1e-9)
    curve = [row.value for row in table.where(metric="similarity")]
    assert max(curve) - min(curve) < 1e-9
    pairs = tasks["t"]["t"]
    cosine = np.array([0.1 + 0.15 * g for g in pairs.gold])
    gaps = np.array(words(pairs.b)) - 1
    assert cosine[gaps <= 3].mean() - cosine[gaps > 3].mean() > 0.1  # what plain means would say
    mean = cosine.mean()
    assert np.mean(curve) == pytest.approx(mean, abs=1e-6)  # drawn around the mean cosine


def test_the_additive_fit_is_least_squares(tasks: Tasks) -> None:
    parts = list(tasks["first"].values())
    cos, gap = cosines(parts), differences(parts)
    gold = np.concatenate([p.gold for p in parts])
    bins = np.digitize(gap, BINS) - 1
    design = np.hstack([np.eye(len(BINS))[bins], np.eye(12)[(gold * 2).astype(int)]])
    effect = np.linalg.lstsq(design, cos, rcond=None)[0][: len(BINS)]
    effect += cos.mean() - (np.bincount(bins, minlength=len(BINS)) / len(bins)) @ effect
    table = measure({"first": tasks["first"]})
    for label, expected in zip(bin_labels(), effect, strict=True):
        for row in table.where(metric="similarity", subset=label):
            assert row.value == pytest.approx(expected, abs=1e-6)


def test_each_sentence_is_encoded_once(tasks: Tasks) -> None:
    seen: Counter[str] = Counter()

    def encode(texts: list[str]) -> torch.Tensor:
        seen.update(texts)
        return random_vectors(texts)

    length_bias(encode, words, {**tasks, "again": tasks["first"]}, model="m", resamples=5)
    assert set(seen.values()) == {1}


def test_no_pair_is_an_error() -> None:
    with pytest.raises(InputError, match="no pair"):
        measure({"t": {}})


def test_published_counts_of_stsb(assets: Path) -> None:
    tasks = {"STS-B": load_sts(assets / "data" / "senteval", "STS-B")}
    table = measure(tasks, resamples=2)
    assert table.where(metric="spearman_le").rows[0].n == 1096
    assert table.where(metric="spearman_gt").rows[0].n == 283


# ---------------------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sts_tree(tmp_path_factory.mktemp("data") / "senteval", WORDS)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_all_tasks_two_models_and_a_figure(tiny_bert: Path, data: Path) -> None:
    result = cse(
        "length-bias", tiny_bert, tiny_bert, "--data-dir", data, "--pooler", "mean",
        "--label", "one", "--label", "two", "--out", "l.pdf", "--bootstrap", 20,
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert is_figure(Path("l.pdf"))
    assert "3 or less" in result.stdout
    assert "SICK-R" in result.stdout
    assert "Avg" in result.stdout


def test_json_names_threshold_and_unit(tiny_bert: Path, data: Path) -> None:
    words = ["length-bias", tiny_bert, "--data-dir", data, "--pooler", "mean", "--bootstrap", 5]
    found = rows(*words, "--tasks", "STS12,sts-b", "--threshold", 2)
    sides = [row for row in found if row["metric"] in ("spearman_le", "spearman_gt")]
    assert {row["task"] for row in sides} == {"STS12", "STS-B", "Avg"}
    assert {(row["threshold"], row["unit"]) for row in sides} == {(2, "word")}
    in_tokens = rows(*words, "--tasks", "STS-B", "--unit", "token")
    assert {row["unit"] for row in in_tokens} == {"token"}


def test_the_config_says_what_was_measured(
    tiny_bert: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CSE_DATA", str(data))
    done = cse("length-bias", tiny_bert, "--tasks", "STS-B,", "--bootstrap", 2, "--json",
               "--pooler", "cls", "--label", "x")  # fmt: skip
    config = json.loads(done.stdout)["config"]
    assert (config["data_dir"], config["tasks"]) == (str(data), ["STS-B"])
    (encoder,) = config["encoders"]
    assert (encoder["model"], encoder["source"]) == ("x", str(tiny_bert))
    assert (encoder["pooler"], encoder["max_length"]) == ("cls", 64)


def test_tokens_are_the_models_own(tiny_bert: Path, tmp_path: Path) -> None:
    lines = ["dog\tzq", "red dog\tzqzqzq", "cat\tcat"]  # unknown words fall into letters
    path = tmp_path / "senteval" / "downstream" / "STS" / "STSBenchmark" / "sts-test.csv"
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"g\tf\ty\t{i}\t{i}\t{line}\n" for i, line in enumerate(lines)))
    words = ["length-bias", tiny_bert, "--data-dir", tmp_path / "senteval", "--tasks", "STS-B"]
    counted = {}
    for unit in ("word", "token"):
        found = rows(*words, "--pooler", "mean", "--threshold", 0, "--unit", unit)
        counted[unit] = {row["metric"]: row["n"] for row in found if "threshold" in row}
    assert counted["word"] == {"spearman_le": 2, "spearman_gt": 1}
    assert counted["token"] == {"spearman_le": 1, "spearman_gt": 2}


@pytest.mark.parametrize(
    ("extra", "code", "told"),
    [
        (["--tasks", "STS17"], 2, "unknown task 'STS17'"),
        (["--unit", "letter"], 2, "--unit"),
        (["--threshold", "-1"], 2, "--threshold"),
        (["--bootstrap", "0"], 2, "--bootstrap"),
        (["--bootstrap", "1000000000000"], 2, "--bootstrap"),
        (["--out", "x.txt"], 2, ".png"),
        (["--data-dir", "missing"], 3, "missing"),
    ],
)
def test_bad_input_is_one_line(
    tiny_bert: Path, data: Path, extra: list[str], code: int, told: str
) -> None:
    where = [] if "--data-dir" in extra else ["--data-dir", data]
    assert told in one_line(cse("length-bias", tiny_bert, *where, *extra), code)


def test_published_tasks_need_data(tiny_bert: Path) -> None:
    line = one_line(cse("length-bias", tiny_bert, "--tasks", "STS-B"), 3)
    assert "--data-dir" in line
