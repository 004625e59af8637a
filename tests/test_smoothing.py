"""SetSim and TokSim against loops over all pairs, on any grouping, and the command around them."""

import gc
import json
import math
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from cse_cli.encoder import Encoder
from cse_cli.errors import InputError
from cse_cli.results import Table
from cse_cli.tasks.smoothing import RunningMean, smoothing, token_matrix
from tests.conftest import WORDS
from tests.probe_data import FakeStream, cse, is_figure, one_line, rows
from tests.sts_tree import write_sts_tree

TEXTS = ["abcd", "ab", "hello there", "x y", "abcd", "zebra", "ab", "abcd", "longer than others"]


def naive_cos(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))


def naive_toksim(states: np.ndarray) -> float:
    m = len(states)
    pairs = [naive_cos(states[u], states[v]) for u in range(m) for v in range(m) if u != v]
    return sum(pairs) / len(pairs)


def measure(stream: FakeStream, texts: list[str] = TEXTS, **options: object) -> Table:
    given = {"poolers": ["mean"], "model": "m", "task": "t", **options}
    return smoothing(stream, texts, **given)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------- the measures


def test_toksim_is_the_mean_over_all_ordered_pairs_of_tokens() -> None:
    stream = FakeStream()
    table = measure(stream)
    for layer in range(stream.layers + 1):
        expected = np.mean([naive_toksim(stream.of(text)[layer]) for text in TEXTS])
        assert table.value(metric="toksim", layer=layer) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("pooler", "pooled"),
    [
        ("mean", lambda h: h.mean(axis=0)),
        ("cls", lambda h: h[0]),
        ("max", lambda h: h.max(axis=0)),
        ("first_last_mean", lambda h: h.mean(axis=0)),
    ],
)
def test_setsim_compares_consecutive_layers_pooled_alike(pooler: str, pooled: object) -> None:
    stream = FakeStream()
    table = measure(stream, poolers=[pooler])
    for layer in range(stream.layers):
        each = []
        for text in TEXTS:
            states = stream.of(text)
            each.append(naive_cos(pooled(states[layer]), pooled(states[layer + 1])))  # type: ignore[operator]
        found = table.value(metric="setsim", layer=layer, pooler=pooler)
        assert found == pytest.approx(np.mean(each), abs=1e-6)


def test_each_pooler_has_its_own_curve_from_one_pass() -> None:
    stream = FakeStream()
    table = measure(stream, poolers=["mean", "cls"])
    assert len(table.where(metric="setsim", pooler="mean")) == stream.layers
    assert len(table.where(metric="setsim", pooler="cls")) == stream.layers
    assert len(table.where(metric="toksim")) == stream.layers + 1
    assert len(stream.seen) == len(set(TEXTS))  # once, and repeated sentences once


def test_the_band_is_the_95_percent_interval_of_the_mean() -> None:
    stream = FakeStream()
    table = measure(stream)
    each = np.array([naive_toksim(stream.of(text)[1]) for text in TEXTS])
    half = 1.959964 * each.std(ddof=1) / math.sqrt(len(each))
    low, high = (table.value(metric=f"toksim_{end}", layer=1) for end in ("low", "high"))
    assert (low, high) == pytest.approx((each.mean() - half, each.mean() + half), abs=1e-6)


@pytest.mark.parametrize("group", [1, 2, 100])
def test_grouping_changes_nothing(group: int) -> None:
    first, second = measure(FakeStream()), measure(FakeStream(group=group))
    for a, b in zip(first, second, strict=True):
        assert (a.metric, a.n, a.keys) == (b.metric, b.n, b.keys)
        assert a.value == pytest.approx(b.value, abs=1e-6)


def test_one_token_has_no_toksim_and_is_counted() -> None:
    stream = FakeStream()
    table = measure(stream, ["a", "abc", "abcd", "b"])
    assert {row.n for row in table.where(metric="setsim")} == {4}
    assert {row.n for row in table.where(metric="toksim")} == {2}
    expected = np.mean([naive_toksim(stream.of(text)[2]) for text in ("abc", "abcd")])
    assert table.value(metric="toksim", layer=2) == pytest.approx(expected, abs=1e-6)


def test_no_sentence_with_two_tokens_gives_nan_of_none() -> None:
    row = measure(FakeStream(), ["a", "b"]).where(metric="toksim", layer=0).rows[0]
    assert math.isnan(row.value)
    assert row.n == 0


def test_ignored_tokens_do_not_count() -> None:
    stream = FakeStream()
    table = measure(stream, ["a-bc", "d-ef-g"], ignore=[ord("-")])
    kept = [np.delete(stream.of(text)[1], [i for i, c in enumerate(text) if c == "-"], axis=0)
            for text in ("a-bc", "d-ef-g")]  # fmt: skip
    expected = np.mean([naive_toksim(states) for states in kept])
    assert table.value(metric="toksim", layer=1) == pytest.approx(expected, abs=1e-6)


def test_nothing_to_measure_is_an_error() -> None:
    with pytest.raises(InputError, match="no sentence"):
        measure(FakeStream(), [])


def test_states_that_are_no_numbers_are_told() -> None:
    class Broken(FakeStream):
        def of(self, text: str) -> np.ndarray:
            return super().of(text) * (np.nan if text == "abc" else 1)

    with pytest.raises(InputError, match="NaN or infinite states"):
        measure(Broken(), ["ab", "abc"])


def test_states_are_let_go_group_by_group() -> None:
    alive: list[weakref.ref] = []

    def watched(texts: object, reduce: Callable[[object], object]) -> object:
        def looked_at(batch: object) -> object:
            gc.collect()
            assert sum(ref() is not None for ref in alive) <= 1
            alive.append(weakref.ref(batch))
            return reduce(batch)

        return FakeStream(group=2)(texts, looked_at)  # type: ignore[arg-type]

    measure(watched, [f"sentence {i}" for i in range(40)])  # type: ignore[arg-type]
    assert len(alive) == 20


def test_texts_are_drawn_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cse_cli.tasks.smoothing.CHUNK", 3)
    drawn = []

    def texts() -> object:
        for text in TEXTS:
            drawn.append(text)
            yield text

    class Lazy(FakeStream):
        def __call__(self, texts: object, reduce: object) -> object:  # type: ignore[override]
            assert len(drawn) <= len(self.seen) + 6  # a chunk, and the repeats before it
            return super().__call__(texts, reduce)  # type: ignore[arg-type]

    chunked = measure(Lazy(), texts())  # type: ignore[arg-type]
    for a, b in zip(chunked, measure(FakeStream()), strict=True):
        assert a.value == pytest.approx(b.value, abs=1e-6)


def test_running_mean_keeps_its_digits_far_from_zero() -> None:
    values = torch.randn(5000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = values * 1e-3 + 1e6
    running = RunningMean()
    for part in values.split(37):
        running.add(part, torch.ones(len(part)))
    for column, (mean, low, high, n) in enumerate(running.result()):
        one = values[:, column].numpy()
        assert n == 5000
        assert mean == pytest.approx(one.mean(), rel=1e-15)
        half = 1.959964 * one.std(ddof=1) / math.sqrt(n)
        assert (high - low) / 2 == pytest.approx(half, rel=1e-4)


def test_weights_are_repetitions() -> None:
    values = torch.tensor([[1.0], [4.0], [2.0]])
    weighted, repeated = RunningMean(), RunningMean()
    weighted.add(values, torch.tensor([2, 1, 3]))
    repeated.add(torch.tensor([[1.0], [1.0], [4.0], [2.0], [2.0], [2.0]]), torch.ones(6))
    assert next(weighted.result()) == pytest.approx(next(repeated.result()))


def test_token_matrix_holds_every_cosine() -> None:
    stream = FakeStream()
    found = token_matrix(
        stream, "a-bcd", model="m", layer=-2, names=lambda ids: list(map(chr, ids)),
        ignore=[ord("-")],
    )  # fmt: skip
    assert found.tokens == list("abcd")
    assert found.layer == stream.layers - 1
    states = np.delete(stream.of("a-bcd")[-2], 1, axis=0)
    expected = [[naive_cos(a, b) for b in states] for a in states]
    assert found.cosines == pytest.approx(np.array(expected), abs=1e-6)
    table = found.rows()
    assert len(table) == 6
    pair = table.value(metric="token_cosine", subset="1:b 3:d")
    assert pair == pytest.approx(expected[1][3], abs=1e-6)


def test_token_matrix_of_one_token_is_an_error() -> None:
    with pytest.raises(InputError, match="fewer than two"):
        token_matrix(FakeStream(), "a", model="m", layer=0, names=lambda ids: [str(i) for i in ids])


# ---------------------------------------------------------------------------- on real models


def test_a_real_encoder_and_any_token_budget(tiny_bert: Path, sentences: list[str]) -> None:
    tables = []
    for budget in (40, 4096):
        encoder = Encoder.load(str(tiny_bert), pooler="mean", batch_tokens=budget)
        tables.append(measure(encoder.stream, sentences[:60], poolers=["mean", "cls"]))
    for a, b in zip(*tables, strict=True):
        assert a.value == pytest.approx(b.value, abs=1e-5)
    last = encoder.encode(sentences[:60])
    again = torch.empty_like(last)
    for batch in encoder.stream(sentences[:60], lambda batch: batch):
        weights = batch.mask[..., None].float()
        again[torch.as_tensor(batch.index)] = (batch.states[-1] * weights).sum(1) / weights.sum(1)
    assert torch.allclose(last, again, atol=1e-5)


def test_published_model_has_the_known_toksim(assets: Path) -> None:
    found = rows(
        "probe-smoothing", assets / "models" / "all-MiniLM-L6-v2",
        "--data-dir", assets / "data" / "senteval",
    )  # fmt: skip
    toksim = {row["layer"]: row["value"] for row in found if row["metric"] == "toksim"}
    assert toksim[0] == pytest.approx(0.0618, abs=5e-4)
    assert toksim[6] == pytest.approx(0.4056, abs=5e-4)
    assert {row["n"] for row in found} == {2758}
    assert {row["pooler"] for row in found if row["metric"] == "setsim"} == {"mean"}


# ---------------------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sts_tree(tmp_path_factory.mktemp("data") / "senteval", WORDS)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_json_names_metric_layer_and_pooler(tiny_bert: Path, data: Path) -> None:
    found = rows(
        "probe-smoothing", tiny_bert, "--data-dir", data, "--pooler", "mean,cls", "--label", "tiny"
    )
    setsim = [row for row in found if row["metric"] == "setsim"]
    assert [(row["pooler"], row["layer"]) for row in setsim] == [
        ("mean", 0), ("mean", 1), ("cls", 0), ("cls", 1),
    ]  # fmt: skip
    assert [row["layer"] for row in found if row["metric"] == "toksim"] == [0, 1, 2]
    assert {row["model"] for row in found} == {"tiny"}
    assert {(row["task"], row["split"]) for row in found} == {("STS-B", "test")}


def test_two_checkpoints_side_by_side_with_a_figure(tiny_bert: Path, data: Path) -> None:
    result = cse(
        "probe-smoothing", tiny_bert, tiny_bert, "--data-dir", data, "--pooler", "mean",
        "--label", "first", "--label", "second", "--out", "a.png", "--output", "a.csv",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert is_figure(Path("a.png"))
    assert "first" in result.stdout
    assert "second" in result.stdout
    assert "setsim_low" not in result.stdout
    assert "setsim_low" in Path("a.csv").read_text()  # every number behind the picture
    assert "a.png: drawn" in result.stderr


def test_any_text_file_and_one_token_lines(tiny_bert: Path) -> None:
    Path("some.txt").write_text("dog\nthe red dog runs\n\na cat sleeps\n")
    words = ["probe-smoothing", tiny_bert, "--pooler", "mean", "--file", "some.txt"]
    found = rows(*words)
    assert {row["n"] for row in found} == {3}  # [CLS] and [SEP] are tokens
    assert {row["task"] for row in found} == {"some.txt"}
    result = cse(*words, "--no-special", "--json")
    assert "1 of 3 sentences have no two tokens" in result.stderr
    found = rows(*words, "--no-special")
    assert {row["n"] for row in found if row["metric"] == "toksim"} == {2}


def test_a_file_serves_several_checkpoints_and_standard_input_too(tiny_bert: Path) -> None:
    Path("some.txt").write_text("dog\nthe red dog runs\na cat sleeps\n")
    words = ["probe-smoothing", tiny_bert, tiny_bert, "--label", "a", "--label", "b", "--json"]
    words += ["--pooler", "mean", "--file"]
    from_file = cse(*words, "some.txt")
    piped = cse(*words, "-", stdin=Path("some.txt").read_text())
    values = []
    for result in (from_file, piped):
        assert result.exit_code == 0, result.stderr
        values.append([row["value"] for row in json.loads(result.stdout)["rows"]])
    assert values[0] == values[1]
    half = len(values[0]) // 2
    assert values[0][:half] == values[0][half:]


def test_heatmap_draws_the_matrix(tiny_bert: Path) -> None:
    words = ["probe-smoothing", tiny_bert, "--heatmap", "the dog runs", "--pooler", "cls"]
    found = rows(*words, "--layer", "1", "--out", "h.svg")
    assert is_figure(Path("h.svg"))
    assert len(found) == 10  # five tokens
    assert {row["layer"] for row in found} == {1}
    assert found[0]["subset"] == "0:[CLS] 1:the"
    bare = rows(*words, "--no-special")
    assert [row["subset"] for row in bare] == ["0:the 1:dog", "0:the 2:runs", "1:dog 2:runs"]
    assert {row["layer"] for row in bare} == {2}
    text = cse(*words)
    assert "layer 2" in text.stdout
    assert "1.00" in text.stdout


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--heatmap", "  "], 2, "blank"),
        (["--heatmap", "the dog", "--layer", "3"], 2, "layers 0 … 2"),
        (["--layer", "1"], 2, "--heatmap"),
        (["--pooler", "meen"], 2, "did you mean 'mean'?"),
        (["--label", "a", "--label", "b"], 2, "2 times for 1"),
        (["--label", " "], 2, "blank"),
        (["--out", "a.gif"], 2, ".png, .svg, .pdf"),
        (["--out", "nowhere/a.png"], 5, "no folder nowhere"),
        (["--out", "folder.png"], 5, "is a folder"),
        (["--show"], 2, "--out"),
        (["--output", "a.xls"], 2, ".json"),
        (["--file", "empty.txt"], 3, "empty.txt"),
        (["--file", "blank.txt"], 3, "blank"),
        (["--file", "missing.txt"], 3, "missing.txt"),
        (["--data-dir", "missing"], 3, "missing"),
    ],
)
def test_bad_input_is_one_line(
    tiny_bert: Path, data: Path, words: list[str], code: int, told: str
) -> None:
    Path("empty.txt").write_text("")
    Path("blank.txt").write_text("\n  \n")
    Path("folder.png").mkdir()
    base = ["probe-smoothing", tiny_bert] + (
        ["--data-dir", data] if "--data-dir" not in words else []
    )
    assert told in one_line(cse(*base, *words), code)


def test_names_must_differ(tiny_bert: Path, data: Path) -> None:
    line = one_line(cse("probe-smoothing", tiny_bert, tiny_bert, "--data-dir", data), 2)
    assert "--label" in line


@pytest.mark.parametrize("command", ["probe-smoothing", "length-bias", "geometry"])
def test_without_data_the_demo_is_used_and_labelled(tiny_bert: Path, command: str) -> None:
    result = cse(command, tiny_bert, "--pooler", "mean", "--out", "d.svg")
    assert result.exit_code == 0, result.stderr
    assert "NOT a benchmark" in result.stderr
    assert "not a benchmark" in result.stdout
    assert "not a benchmark" in Path("d.svg").read_text()
    assert {row["task"] for row in rows(command, tiny_bert, "--pooler", "mean")} == {"Demo"}
