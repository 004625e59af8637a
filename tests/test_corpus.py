"""The token store: the tokenizer's own rows, made once, whole or not there, in bounded memory."""

import io
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from cse_cli.data import build, sources
from cse_cli.data.corpus import Corpus, open_corpus
from cse_cli.data.report import corpus_report, corpus_warnings
from cse_cli.data.tokenise import BatchTokenizer
from cse_cli.errors import InputError, OutputError, UsageError
from tests.conftest import WORDS
from tests.small_tokenizers import FAMILIES, wordpiece, wrap

CORE = wordpiece()
TOKENIZER = wrap(CORE)
LENGTH = 12


def sentences(n: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(n)]


@pytest.fixture
def corpus_file(tmp_path):
    def _write(lines, name: str = "corpus.txt") -> str:
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    return _write


@pytest.fixture
def cache() -> Path:
    return Path(os.environ["CSE_CACHE"]) / "tokens"


def opened(*paths: str, tokenizer=TOKENIZER, max_length=LENGTH, **options) -> Corpus:
    return open_corpus(paths, tokenizer, max_length=max_length, **options)


def stores(cache: Path) -> list[Path]:
    return [path.parent for path in cache.glob("*/meta.json")]


def rows_of(tokens) -> list[list[int]]:
    return [row[:n].tolist() for row, n in zip(tokens.ids, tokens.lengths, strict=True)]


def expected(core, texts, max_length=LENGTH) -> list[list[int]]:
    core = type(core).from_str(core.to_str())
    core.enable_truncation(max_length)
    return [core.encode(text).ids for text in texts]


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_are_the_tokenizers_own(corpus_file, family):
    core, texts = FAMILIES[family](), sentences(300)
    corpus = opened(corpus_file(texts), tokenizer=wrap(core))
    tokens = corpus.batch(np.arange(300))
    assert rows_of(tokens) == expected(core, texts)
    assert corpus.lengths[:, 0].tolist() == [len(row) for row in expected(core, texts)]
    assert not tokens.starts[~tokens.mask].any()
    uncut = tokens.lengths < LENGTH
    words = torch.tensor([len(text.split()) for text in texts])
    assert torch.equal(tokens.starts.sum(1)[uncut], words[uncut])


def test_rows_come_in_any_order_and_shape(corpus_file):
    texts = sentences(50)
    corpus = opened(corpus_file(texts))
    whole = expected(CORE, texts)
    chosen = torch.tensor([7, 49, 7, 0])
    tokens = corpus.batch(chosen)
    assert rows_of(tokens) == [whole[i] for i in chosen]
    assert tokens.ids.shape[1] == max(len(whole[i]) for i in chosen)
    assert tokens.ids.dtype == tokens.lengths.dtype == torch.int64
    assert corpus.batch(chosen, width=LENGTH).ids.shape == (4, LENGTH)
    assert len(corpus.batch(np.array([], dtype=np.int64))) == 0
    with pytest.raises(ValueError, match="does not fit"):
        corpus.batch(chosen, width=2)
    for wrong in ([50], [-1]):
        with pytest.raises(IndexError):
            corpus.batch(np.array(wrong))
    with pytest.raises(IndexError):
        corpus.batch(chosen, 1)


def test_chunks_do_not_show(corpus_file, monkeypatch, cache):
    path = corpus_file(sentences(500))
    one = opened(path).batch(np.arange(500))
    for store in stores(cache):
        (store / "meta.json").unlink()  # so that it is made again
    monkeypatch.setattr(build, "CHUNK_ROWS", 7)
    calls: list[tuple[int, int]] = []
    many = opened(path, progress=lambda *at: calls.append(at)).batch(np.arange(500))
    assert torch.equal(one.ids, many.ids)
    assert torch.equal(one.starts, many.starts)
    assert len(calls) == -(-500 // 7)
    assert calls[-1] == (500, Path(path).stat().st_size)


def test_a_huge_line_is_cut_like_any_other(corpus_file):
    corpus = opened(corpus_file(["a cat", "the dog " * 130_000, "c" * 1_000_000, "a dog"]))
    assert corpus.lengths.min() > 2
    assert corpus.lengths[1] == LENGTH
    assert len(corpus) == 4


def test_left_truncation_keeps_the_end(corpus_file):
    path = corpus_file(["the cat " + "runs " * 20 + "sleep"])
    tokens = opened(path, tokenizer=wrap(CORE, "left")).batch(np.array([0]))
    tail = CORE.encode("runs sleep").ids[1:]
    assert tokens.ids[0, -len(tail) :].tolist() == tail
    assert tokens.starts[0, :2].tolist() == [False, True]


def test_ids_beyond_sixteen_bits(corpus_file):
    core = wordpiece()
    core.add_tokens([f"word{i}" for i in range(66_000)])
    corpus = opened(corpus_file(["a word65999 cat"]), tokenizer=wrap(core))
    assert corpus.meta.dtype == "int32"
    assert core.token_to_id("word65999") in corpus.batch(np.array([0])).ids[0].tolist()


# -- found again, by content ---------------------------------------------------------------------


def test_the_second_start_does_not_tokenise(corpus_file, monkeypatch, cache):
    path = corpus_file(sentences(100))
    first = opened(path)
    monkeypatch.setattr(BatchTokenizer, "encode", None)
    again = opened(path)
    assert torch.equal(again.batch(np.arange(100)).ids, first.batch(np.arange(100)).ids)
    copy = corpus_file(sentences(100), "copy.txt")
    assert opened(copy).fingerprint == first.fingerprint
    assert len(stores(cache)) == 1


def test_another_content_tokenizer_or_length_makes_another_store(corpus_file, cache):
    path = corpus_file(sentences(20))
    first = opened(path)
    opened(path, max_length=LENGTH + 1)
    opened(path, tokenizer=wrap(FAMILIES["unigram"]()))
    assert len(stores(cache)) == 3
    changed = opened(corpus_file(sentences(20, seed=1)))
    assert changed.fingerprint != first.fingerprint
    assert len(stores(cache)) == 4


def test_truncation_set_by_somebody_else_is_no_other_tokenizer(corpus_file, cache):
    path, core = corpus_file(sentences(20)), wordpiece()
    opened(path, tokenizer=wrap(core))
    core.enable_truncation(3)
    core.enable_padding()
    assert opened(path, tokenizer=wrap(core)).lengths.max() > 3
    assert core.truncation["max_length"] == 3
    assert len(stores(cache)) == 1


def test_a_store_works_in_a_cache_that_cannot_be_written(corpus_file, monkeypatch):
    path = corpus_file(sentences(20))
    opened(path)

    def refuse(*args, **options):
        raise PermissionError(13, "Permission denied")

    for name in ("mkdir", "rename"):
        monkeypatch.setattr(Path, name, refuse)
    assert len(opened(path)) == 20
    with pytest.raises(OutputError, match="CSE_CACHE"):
        opened(path, max_length=LENGTH + 1)


def test_digests_of_large_files_are_remembered(corpus_file, monkeypatch):
    monkeypatch.setattr(sources, "HASHED_EVERY_TIME", 0)
    path = corpus_file(sentences(20))
    source = sources.find_source(path)
    index = Path(os.environ["CSE_CACHE"]) / "digests"
    sources.digest(source, index)
    assert not index.exists()  # too fresh: a second change may leave the time stamp as it is
    monkeypatch.setattr(sources, "CLOCK_TICK", -1)
    known = sources.digest(source, index)
    monkeypatch.setattr(sources.hashlib, "file_digest", None)
    assert sources.digest(source, index) == known
    monkeypatch.undo()
    monkeypatch.setattr(sources, "HASHED_EVERY_TIME", 0)
    size = os.path.getsize(path)
    Path(path).write_text("x" * (size - 1) + "\n")
    os.utime(path, ns=(1, 1))
    assert sources.digest(source, index) != known
    for entry in index.iterdir():
        entry.write_text("{")
    assert sources.digest(source, index) != known


# -- whole or not there --------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from cse_cli.data import build
from cse_cli.data.corpus import open_corpus
from tests.small_tokenizers import wordpiece, wrap
build.CHUNK_ROWS = 10
open_corpus([sys.argv[1]], wrap(wordpiece()), max_length=int(sys.argv[2]),
            progress=lambda rows, _: rows > 50 and os.kill(os.getpid(), signal.SIGKILL))
"""


def test_a_killed_build_is_ignored_and_cleared_away(corpus_file, cache):
    path = corpus_file(sentences(200))
    command = [sys.executable, "-c", KILLED, path, str(LENGTH)]
    assert subprocess.run(command, cwd=Path(__file__).parents[1]).returncode == -9
    (partial,) = cache.glob("*.partial")
    shutil.copytree(partial, cache / "another.partial")
    assert not stores(cache)
    corpus = opened(path)
    assert rows_of(corpus.batch(np.arange(200))) == expected(CORE, sentences(200))
    assert not list(cache.glob("*.partial"))  # the other one's too


def test_a_damaged_store_is_made_again(corpus_file, cache):
    path = corpus_file(sentences(100))
    whole = opened(path).batch(np.arange(100)).ids
    (store,) = stores(cache)
    for damage in (
        lambda: os.truncate(store / "ids.bin", 10),
        lambda: (store / "starts.bin").unlink(),
        lambda: (store / "meta.json").write_text('{"schema": 1'),
        lambda: (store / "meta.json").write_text("{}"),
        lambda: (store / "meta.json").unlink(),
    ):
        damage()
        assert torch.equal(opened(path).batch(np.arange(100)).ids, whole)


def test_a_store_of_another_schema_is_not_read(corpus_file, cache):
    path = corpus_file(sentences(10))
    opened(path)
    (store,) = stores(cache)
    meta = json.loads((store / "meta.json").read_text())
    (store / "meta.json").write_text(json.dumps(meta | {"schema": 0, "rows": 3}))
    assert len(opened(path)) == 10


def test_two_that_want_the_same_store_make_one(corpus_file, cache):
    path, made = corpus_file(sentences(400)), []
    gate, corpora = threading.Barrier(4), []

    def work():
        gate.wait()
        mine = []
        corpora.append(opened(path, progress=lambda *at: mine.append(at)))
        made.append(bool(mine))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(made) == 1
    assert [len(corpus) for corpus in corpora] == [400] * 4
    assert len(stores(cache)) == 1


def test_a_full_disk_is_told_and_leaves_nothing(corpus_file, cache):
    path = corpus_file(sentences(20_000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))  # the kernel refuses longer files
    try:
        with pytest.raises(OutputError, match=r"cannot be written .*CSE_CACHE"):
            opened(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [p.name for p in cache.iterdir() if p.is_dir()] == []
    assert len(opened(path)) == 20_000


def test_a_cache_that_is_a_file(corpus_file, monkeypatch):
    path = corpus_file(sentences(5))
    monkeypatch.setenv("CSE_CACHE", path)
    with pytest.raises(OutputError, match="CSE_CACHE"):
        opened(path)


def test_a_file_changed_while_it_is_read(corpus_file, cache, monkeypatch):
    path = corpus_file(sentences(100))
    monkeypatch.setattr(build, "CHUNK_ROWS", 10)

    def change(*_):
        Path(path).write_text("other\n")

    with pytest.raises(InputError, match="was changed while it was read"):
        opened(path, progress=change)
    assert not stores(cache)


# -- what is read --------------------------------------------------------------------------------


def test_standard_input_is_kept_until_it_is_tokenised(corpus_file, monkeypatch, cache):
    texts = sentences(30)
    stdin = io.TextIOWrapper(io.BytesIO(("\n".join(texts) + "\n").encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    corpus = opened("-")
    assert rows_of(corpus.batch(np.arange(30))) == expected(CORE, texts)
    assert corpus.fingerprint == opened(corpus_file(texts)).fingerprint
    assert {p.suffix for p in cache.iterdir()} == {"", ".lock"}  # the copy has no name


def test_triplets_and_weights(corpus_file, cache):
    texts = sentences(90)
    header = "sent0,sent1,hard_neg,weight"
    lines = [",".join([*texts[i : i + 3], f"{i / 100}"]) for i in range(0, 90, 3)]
    path = corpus_file([header, *lines], "nli.csv")
    columns = ["sent0", "sent1", "hard_neg"]
    corpus = opened(path, triplet_columns=columns, weight_column="weight")
    assert corpus.columns == tuple(columns)
    assert len(corpus) == 30
    whole = expected(CORE, texts)
    for column in range(3):
        assert rows_of(corpus.batch(np.arange(30), column)) == whole[column::3]
    np.testing.assert_allclose(corpus.weights, np.arange(0, 90, 3) / 100, rtol=1e-6)
    assert corpus.lengths.shape == (30, 3)
    plain = opened(path, triplet_columns=columns)
    assert plain.weights is None
    assert plain.fingerprint != corpus.fingerprint
    with pytest.raises(UsageError, match="no column 'hard'"):
        opened(path, triplet_columns=["sent0", "hard"])


@pytest.mark.parametrize("weight", ["x", "nan", "inf", "-1"])
def test_weights_must_be_weights(corpus_file, weight):
    path = corpus_file(["a,b,w", "cat,dog,1", f"cat,dog,{weight}"], "w.csv")
    with pytest.raises(InputError, match=f"row 2: the weight '{weight}' is no number"):
        opened(path, triplet_columns=["a", "b"], weight_column="w")


def test_rows_without_any_token_are_left_out(corpus_file):
    path = corpus_file(["s,t", "cat,dog", "\u200e,dog", "dog,cat", ",dog"], "x.csv")
    corpus = opened(path, triplet_columns=["s", "t"])
    assert (len(corpus), corpus.meta.blank) == (2, 2)
    assert rows_of(corpus.batch(np.array([1]))) == expected(CORE, ["dog"])
    with pytest.raises(InputError, match="makes no token of any"):
        opened(corpus_file(["\u200e"]))


def test_broken_input_leaves_no_store(corpus_file, tmp_path, cache):
    path = corpus_file([])
    for content, message in ((b"", "is empty"), (b"\n", "blank"), (b"a\n\xff\n", "line 2")):
        Path(path).write_bytes(content)
        with pytest.raises(InputError, match=message):
            opened(path)
    assert [p for p in cache.iterdir() if p.is_dir()] == []


def test_what_a_tokenizer_must_have(corpus_file):
    path = corpus_file(["a cat"])
    with pytest.raises(UsageError, match="no room for words"):
        opened(path, max_length=2)
    with pytest.raises(InputError, match="no fast tokenizer"):
        opened(path, tokenizer=object())


# -- the report ----------------------------------------------------------------------------------


def test_report_counts_what_is_there(corpus_file):
    texts = ["cat", "the dog runs", "cat", "", "a " * 50, "a " * 60, "dog the runs", "a"]
    report = corpus_report(opened(corpus_file(texts)))
    lengths = [len(ids) for ids in expected(CORE, filter(None, texts))]
    assert (report["rows"], report["blank"], report["truncated"]) == (7, 1, 2)
    assert report["duplicates"] == 2  # `cat`, and the long ones, equal once they are cut
    assert report["duplicate_share"] == pytest.approx(2 / 7)
    assert report["tokens"] == sum(lengths)
    assert report["one_token_share"] == pytest.approx(lengths.count(3) / 7)
    assert report["length"]["mean"] == pytest.approx(np.mean(lengths))
    for name, share in (("min", 0), ("median", 0.5), ("p95", 0.95), ("max", 1)):
        inverted = np.quantile(lengths, share, method="inverted_cdf")
        assert report["length"][name] == inverted
    json.dumps(report)


def test_duplicates_are_counted_as_a_set_would(corpus_file):
    texts = sentences(3000)
    corpus = opened(corpus_file(texts))
    distinct = {tuple(ids) for ids in expected(CORE, texts)}
    assert corpus.meta.duplicates == 3000 - len(distinct) > 0


def test_warnings_for_a_corpus_that_repeats_itself(corpus_file):
    whole = corpus_report(opened(corpus_file(sentences(30)[:3]), max_length=64))
    assert corpus_warnings(whole) == []
    texts = ["the dog runs", "the cat sleeps in the house"] * 20
    (warning,) = corpus_warnings(corpus_report(opened(corpus_file(texts), max_length=64)))
    assert "38 of 40 rows (95.0%) repeat an earlier one" in warning
    warnings = corpus_warnings(corpus_report(opened(corpus_file(["a", "cat"]))))
    assert len(warnings) <= 1
    assert all("single token" in warning for warning in warnings)


def test_warnings_for_what_is_lost(corpus_file):
    path = corpus_file(["a cat", "dog " * 60, "cat " * 60, "the dog runs"])
    (warning,) = corpus_warnings(corpus_report(opened(path)))
    assert warning.startswith(f"50.0% of the sentences are longer than {LENGTH} tokens")

    path = corpus_file(["s,t", "a cat,a dog", "the dog,", "a dog,the cat"], "gaps.csv")
    (warning,) = corpus_warnings(corpus_report(opened(path, triplet_columns=["s", "t"])))
    assert warning == "1 of 3 rows were left out: a column of theirs is empty"
    assert corpus_warnings(corpus_report(opened(corpus_file(["a cat", "", "the dog"])))) == []
