"""`cse retrieve` as typed: searching, keeping an index, evaluating, and bad input."""

import csv
import io
import json
from pathlib import Path

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from cse_cli.cli.group import CseGroup
from cse_cli.cli.retrieve import retrieve as command
from cse_cli.encoder import Encoder

from .conftest import make_tiny_bert

app = typer.Typer(cls=CseGroup)
app.callback()(lambda: None)
app.command("retrieve")(command)


def retrieve(*words: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["retrieve", *map(str, words)], input=stdin)


def ok(*words: object, stdin: str | None = None) -> Result:
    result = retrieve(*words, stdin=stdin)
    assert result.exit_code == 0, result.stderr
    return result


def hits(result: Result) -> list[dict]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT that says how it is pooled."""
    folder = make_tiny_bert(tmp_path_factory.mktemp("model") / "tiny")
    kinds = {"Transformer": "", "Pooling": "1_Pooling"}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True})
    )
    return folder


# ------------------------------------------------------------------------------------ searching


def test_hits_are_the_nearest_by_cosine(
    model: Path, corpus_file: Path, sentences: list[str]
) -> None:
    query = "the dog runs"
    found = hits(ok(model, "--corpus", corpus_file, "--query", query, "-k", 5))
    encoder = Encoder.load(str(model))
    vectors = encoder.encode([query, *sentences]).double()
    vectors /= vectors.norm(dim=1, keepdim=True)
    scores = vectors[1:] @ vectors[0]
    wanted = scores.argsort(descending=True)[:5].tolist()
    assert [hit["row"] for hit in found] == wanted
    assert [hit["text"] for hit in found] == [sentences[row] for row in wanted]
    assert [hit["score"] for hit in found] == pytest.approx(scores[wanted].tolist(), abs=1e-6)
    assert [hit["rank"] for hit in found] == [1, 2, 3, 4, 5]
    assert {(hit["query"], hit["model"]) for hit in found} == {(query, "tiny")}


@pytest.mark.parametrize("way", ["file", "stdin"])
def test_queries_of_a_file_or_a_pipe(
    model: Path, corpus_file: Path, tmp_path: Path, way: str
) -> None:
    text = "the dog runs\na cat sleeps\n"
    (tmp_path / "queries.txt").write_text(text)
    given, stdin = ("-", text) if way == "stdin" else (tmp_path / "queries.txt", None)
    found = hits(ok(model, "--corpus", corpus_file, "--query", given, "-k", 3, stdin=stdin))
    assert [hit["query"] for hit in found] == ["the dog runs"] * 3 + ["a cat sleeps"] * 3


def test_ten_hits_by_default_and_all_of_a_smaller_corpus(
    model: Path, corpus_file: Path, tmp_path: Path
) -> None:
    assert len(hits(ok(model, "--corpus", corpus_file, "--query", "a dog"))) == 10
    (tmp_path / "few.txt").write_text("a dog\na cat\n\n")
    result = ok(model, "--corpus", tmp_path / "few.txt", "--query", "a dog")
    assert [hit["text"] for hit in hits(result)] == ["a dog", "a cat"]
    assert "blank lines left out: 1" in result.stderr


def test_a_string_is_ranked_once_or_as_often_as_it_occurs(model: Path, tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("a dog\na dog\na cat\n")
    words = [model, "--corpus", tmp_path / "c.txt", "--query", "a dog"]
    assert [hit["text"] for hit in hits(ok(*words))] == ["a dog", "a cat"]
    assert [hit["row"] for hit in hits(ok(*words, "--match", "index"))] == [0, 1, 2]
    assert [hit["text"] for hit in hits(ok(*words, "--exclude-query"))] == ["a cat"]


def test_checkpoints_side_by_side(model: Path, corpus_file: Path, tmp_path: Path) -> None:
    other = make_tiny_bert(tmp_path / "other", seed=1)
    words = [model, other, "--pooler", "mean", "--corpus", corpus_file, "--query", "a dog", "-k", 2]
    found = hits(ok(*words))
    assert [(hit["model"], hit["rank"]) for hit in found] == [
        ("tiny", 1), ("tiny", 2), ("other", 1), ("other", 2),
    ]  # fmt: skip
    table = ok(*words, "--format", "table", "--label", "one", "--label", "two").stdout
    lines = table.splitlines()
    assert lines[0] == "a dog"
    assert lines[1].split() == ["#", "one", "two"]
    for rank in (0, 1):
        first, second = found[rank], found[rank + 2]
        assert f"{first['score']:.4f}  {first['text']}" in lines[3 + rank]
        assert f"{second['score']:.4f}  {second['text']}" in lines[3 + rank]


def test_the_formats_agree(model: Path, corpus_file: Path, tmp_path: Path) -> None:
    words = [model, "--corpus", corpus_file, "--query", "a dog", "-k", 3]
    wanted = hits(ok(*words))
    document = json.loads(ok(*words, "--json").stdout)
    assert (document["schema"], document["command"]) == (1, "retrieve")
    assert document["rows"] == wanted
    rows = list(csv.DictReader(io.StringIO(ok(*words, "--format", "csv").stdout)))
    assert [float(row["score"]) for row in rows] == [hit["score"] for hit in wanted]
    ok(*words, "--output", tmp_path / "hits.json")
    assert json.loads((tmp_path / "hits.json").read_text())["rows"] == wanted


@pytest.mark.parametrize("label", ["rank", "#", "model", "hit", "index"])
def test_a_label_may_be_any_word(model: Path, tmp_path: Path, label: str) -> None:
    (tmp_path / "c.txt").write_text("a dog\na cat\n")
    words = ["--corpus", tmp_path / "c.txt", "--query", "a dog", "--format", "table"]
    lines = ok(model, *words, "--label", label).stdout.splitlines()
    assert lines[1].split() == ["#", label]
    assert lines[3].split()[0] == "1"
    assert lines[3].endswith("a dog")


@pytest.mark.parametrize(
    ("format", "wanted"),
    [
        ("table", ""),
        ("markdown", ""),
        ("latex", ""),
        ("jsonl", ""),
        ("csv", "query,model,rank,score,row,text\n"),
    ],
)
def test_no_hits_at_all_are_an_empty_answer(
    model: Path, tmp_path: Path, format: str, wanted: str
) -> None:
    (tmp_path / "c.txt").write_text("a dog\n")
    words = ["--corpus", tmp_path / "c.txt", "--query", "a dog", "--exclude-query"]
    result = ok(model, *words, "--format", format)
    assert result.stdout == wanted
    assert "no hits" in result.stderr


# ------------------------------------------------------------------------------------- the index


def test_an_index_is_built_reused_and_extended(
    model: Path, corpus_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "index"
    query = ["--query", "a dog", "-k", 4]
    wanted = hits(ok(model, "--corpus", corpus_file, *query))
    built = ok(model, "--corpus", corpus_file, "--index", place)
    assert built.stdout == ""
    assert f"{place}: 200 sentences, 32 dimensions, exact" in built.stderr
    encoded: list[int] = []
    encode = Encoder.encode

    def counting(self: Encoder, texts: list[str], **rest: bool) -> object:
        encoded.append(len(texts))
        return encode(self, texts, **rest)

    monkeypatch.setattr(Encoder, "encode", counting)
    assert hits(ok(model, "--index", place, *query)) == wanted
    assert hits(ok(model, "--index", place, "--corpus", corpus_file, *query)) == wanted
    assert encoded == [1, 1]  # the queries
    (tmp_path / "more.txt").write_text("a dog\n")
    more = ["--corpus", tmp_path / "more.txt", "--index", place]
    refused = retrieve(model, *more)
    assert refused.exit_code == 2
    assert "--extend" in refused.stderr
    row = json.loads(ok(model, *more, "--extend", "--json").stdout)["rows"][0]
    assert (row["n"], row["shards"], row["index_type"]) == (201, 2, "exact")
    assert hits(ok(model, "--index", place, "--no-verify", *query))[0]["row"] == 200


def test_an_index_refuses_another_checkpoint(
    model: Path, corpus_file: Path, tmp_path: Path
) -> None:
    ok(model, "--corpus", corpus_file, "--index", tmp_path / "i")
    other = make_tiny_bert(tmp_path / "other", seed=1)
    result = retrieve(other, "--pooler", "mean", "--index", tmp_path / "i", "--query", "a dog")
    assert result.exit_code == 3
    assert "holds vectors of tiny" in result.stderr
    pooled = retrieve(model, "--pooler", "cls", "--index", tmp_path / "i", "--query", "a dog")
    assert pooled.exit_code == 3


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--max-length", "4"], "not of tiny cut at 4 tokens; use it with that --max-length"),
        (["--precision", "bf16"], "in fp32, not of tiny in bf16; use it with that --precision"),
    ],
)
def test_an_index_refuses_another_length_or_precision(
    model: Path, corpus_file: Path, tmp_path: Path, words: list[str], told: str
) -> None:
    ok(model, "--corpus", corpus_file, "--index", tmp_path / "i")
    (tmp_path / "more.txt").write_text("a dog\n")
    for use in (
        ["--query", "a dog"],
        ["--corpus", corpus_file],
        ["--corpus", tmp_path / "more.txt", "--extend"],
    ):
        result = retrieve(model, "--index", tmp_path / "i", *use, *words)
        assert result.exit_code == 3
        assert told in result.stderr.splitlines()[-1]


def test_candidates_are_for_an_index_of_another_kind(
    model: Path, corpus_file: Path, tmp_path: Path
) -> None:
    words = [model, "--index", tmp_path / "i", "--query", "a dog", "--candidates", 50]
    ok(model, "--corpus", corpus_file, "--index", tmp_path / "i")
    for more in ([], ["--corpus", corpus_file]):
        refused = retrieve(*words, *more)
        assert refused.exit_code == 2
        assert "--candidates is for an index that is not exact" in refused.stderr
    ok(*words, "--index-type", "int8")


def test_a_build_tells_what_it_made_with_either_word_for_json(
    model: Path, corpus_file: Path, tmp_path: Path
) -> None:
    words = [model, "--corpus", corpus_file, "--index", tmp_path / "i"]
    rows = [
        json.loads(ok(*words, *way).stdout)["rows"] for way in (["--json"], ["--format", "json"])
    ]
    assert rows[0] == rows[1]


def test_a_corrupt_index(model: Path, corpus_file: Path, tmp_path: Path) -> None:
    ok(model, "--corpus", corpus_file, "--index", tmp_path / "i")
    path = tmp_path / "i" / "shard-00000" / "vectors.f32"
    data = bytearray(path.read_bytes())
    data[777] ^= 4
    path.write_bytes(data)
    result = retrieve(model, "--index", tmp_path / "i", "--query", "a dog")
    assert result.exit_code == 3
    assert "corrupt" in result.stderr
    assert result.stderr.count("error:") == 1


# ------------------------------------------------------------------------------------ evaluating


def test_eval_of_pairs_groups_and_the_demo(model: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a dog\tthe dog\na cat\tthe cat\nred ball\tbig ball\n")
    document = json.loads(ok(model, "--eval", tmp_path / "pairs.tsv", "--json").stdout)
    metrics = {row["metric"]: row for row in document["rows"]}
    assert list(metrics) == ["recall@1", "recall@5", "recall@10", "mrr"]
    assert metrics["recall@5"]["value"] == 1.0
    assert {(row["task"], row["n"]) for row in document["rows"]} == {("pairs", 6)}
    (tmp_path / "texts.txt").write_text("a dog\nthe dog\na cat\nthe cat\n")
    grouped = ok(model, "--eval", tmp_path / "texts.txt", "--groups", 2).stdout
    assert "4 sentences, 4 queries" in grouped
    assert "recall@10" in grouped


def test_stsb_asks_for_its_97_pairs_both_ways(model: Path, assets: Path) -> None:
    result = ok(
        model, "--eval", "stsb", "--data-dir", assets / "data" / "senteval", "--format", "csv"
    )
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert {(row["task"], row["split"], row["n"]) for row in rows} == {("STS-B", "test", "194")}
    values = [float(row["value"]) for row in rows]
    assert all(value * 194 == pytest.approx(round(value * 194)) for value in values[:3])


# -------------------------------------------------------------------------------------- bad input

BAD = {
    "nothing to do": ([], 2, "nothing to do"),
    "corpus without query": (["--corpus", "{corpus}"], 2, "nothing to do"),
    "query without corpus": (["--query", "x"], 2, "--corpus FILE or --index DIR"),
    "k of nothing": (["--corpus", "{corpus}", "--query", "x", "-k", "0"], 2, "'-k'"),
    "k too large": (["--corpus", "{corpus}", "--query", "x", "-k", "201"], 2, "200 sentences"),
    "blank query": (["--corpus", "{corpus}", "--query", "  "], 3, "--query is blank"),
    "blank line": (["--corpus", "{corpus}", "--query", "{gap}"], 3, "line 2 is blank"),
    "no query file": (["--corpus", "{corpus}", "--query", "no.txt"], 3, "no such file"),
    "empty queries": (["--corpus", "{corpus}", "--query", "{empty}"], 3, "empty"),
    "no corpus": (["--corpus", "{tmp}/none.txt", "--query", "x"], 3, "no such file"),
    "empty corpus": (["--corpus", "{empty}", "--query", "x"], 3, "is empty"),
    "blank corpus": (["--corpus", "{blank}", "--query", "x"], 3, "only blank lines"),
    "no index": (["--index", "{tmp}/none", "--query", "x"], 3, "no such folder"),
    "not an index": (["--index", "{tmp}", "--query", "x"], 3, "not an index"),
    "folder taken": (["--index", "{tmp}", "--corpus", "{corpus}"], 2, "choose another"),
    "index is a file": (["--index", "{corpus}", "--corpus", "{corpus}"], 5, "is a file"),
    "below a file": (["--index", "{corpus}/x", "--corpus", "{corpus}"], 5, "cannot write"),
    "output": (["--corpus", "{corpus}", "--query", "x", "--output", "{tmp}/no/x.csv"], 5, "no"),
    "index type": (["--corpus", "{corpus}", "--query", "x", "--index-type", "ivfq"], 2, "ivfpq"),
    "extend what": (["--corpus", "{corpus}", "--query", "x", "--extend"], 2, "--index DIR"),
    "eval and query": (["--eval", "stsb", "--query", "x"], 2, "--query is for searching"),
    "eval and k": (["--eval", "stsb", "-k", "3"], 2, "-k is for searching"),
    "eval in lines": (["--eval", "stsb", "--format", "jsonl"], 2, "--format json"),
    "groups of what": (["--groups", "5", "--corpus", "{corpus}", "--query", "x"], 2, "--eval"),
    "groups": (["--eval", "{corpus}", "--groups", "7"], 3, "not groups of 7"),
    "eval of nothing": (["--eval", "{tmp}/none.tsv"], 3, "no such file"),
    "build and k": (["{build}", "-k", "3"], 2, "-k is for searching"),
    "build and match": (["{build}", "--match", "text"], 2, "--match is for searching"),
    "build and exclude": (["{build}", "--exclude-query"], 2, "--exclude-query is for searching"),
    "build and output": (["{build}", "--output", "{tmp}/x.csv"], 2, "--output is for searching"),
    "build and format": (["{build}", "--format", "csv"], 2, "is json, or none"),
    "build and candidates": (["{build}", "--candidates", "9"], 2, "--candidates is for"),
    "build and data dir": (["{build}", "--data-dir", "{tmp}"], 2, "--data-dir is for"),
    "search and data dir": (["{search}", "--data-dir", "{tmp}"], 2, "--data-dir is for --eval"),
    "search and verify": (["{search}", "--no-verify"], 2, "--index DIR"),
    "rows without": (["{search}", "--match", "index", "--exclude-query"], 2, "--match index"),
    "candidates of all": (["{search}", "--candidates", "9"], 2, "an index that is not exact"),
    "column of what": (["--index", "{tmp}", "--query", "x", "--text-column", "a"], 2, "--corpus"),
    "bytes of what": (["--index", "{tmp}", "--query", "x", "--encoding", "ascii"], 2, "--corpus"),
    "eval and encoding": (["--eval", "stsb", "--encoding", "utf-8"], 2, "--encoding is for"),
    "eval and folder": (["--eval", "{corpus}", "--data-dir", "{tmp}"], 2, "--eval stsb"),
    "groups of pairs": (["--eval", "stsb", "--groups", "5"], 2, "--eval FILE"),
    "query of bytes": (["--corpus", "{corpus}", "--query", "caf\udce9"], 2, "is not text"),
    "odd groups": (["--eval", "{corpus}", "--groups", "\u00b2"], 3, "no such file"),
    "data dir": (["--eval", "stsb", "--data-dir", "{tmp}/none"], 3, "--data-dir"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(model: Path, corpus_file: Path, tmp_path: Path, case: str) -> None:
    words, code, told = BAD[case]
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "blank.txt").write_text("\n  \n")
    (tmp_path / "gap.txt").write_text("a dog\n\na cat\n")
    names = {"tmp": tmp_path, "corpus": corpus_file}
    names |= {name: tmp_path / f"{name}.txt" for name in ("empty", "blank", "gap")}
    whole = {
        "{search}": ["--corpus", "{corpus}", "--query", "x"],
        "{build}": ["--corpus", "{corpus}", "--index", "{tmp}/i"],
    }
    words = [part for word in words for part in whole.get(word, [word])]
    result = retrieve(model, *(word.format(**names) for word in words))
    assert result.exit_code == code, result.stderr
    assert result.stdout == ""
    last = result.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert told in last


def test_one_index_is_one_checkpoint(model: Path, corpus_file: Path, tmp_path: Path) -> None:
    other = make_tiny_bert(tmp_path / "other", seed=1)
    result = retrieve(model, other, "--corpus", corpus_file, "--index", tmp_path / "i")
    assert result.exit_code == 2
    assert "one checkpoint" in result.stderr


def test_torchrun_builds_and_does_not_query(
    model: Path, corpus_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("1", "0"):
        monkeypatch.setenv("RANK", rank)
        refused = retrieve(model, "--corpus", corpus_file, "--query", "a dog")
        assert refused.exit_code == 2
        assert "torchrun builds an index" in refused.stderr
        built = ok(model, "--corpus", corpus_file, "--index", tmp_path / "i", "--json")
        assert bool(built.stdout) == (rank == "0")
    assert json.loads(built.stdout)["rows"][0]["shards"] == 2
