"""The index as it is built: killed, extended, shared by processes, damaged, or not writable."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cse_cli.errors import InputError, OutputError, UsageError
from cse_cli.index import Corpus, Index, Searcher, build, build_index, kinds
from cse_cli.shards import process, share

from .fake_encoder import FakeEncoder, Numbers, near_copies, sentences, write

ROOT = Path(__file__).parents[1]
FILES = ("vectors.f32", "texts.utf8", "offsets.i64")


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return write(tmp_path / "corpus.txt", sentences(300))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "BLOCK", 32)


@pytest.fixture
def folder(tmp_path: Path, corpus: Corpus, small_blocks: None) -> Path:
    assert build_index(tmp_path / "index", corpus, FakeEncoder())
    return tmp_path / "index"


# -------------------------------------------------------------------------- build, reuse and extend


def test_the_same_text_is_reused_wherever_it_lies(folder: Path, tmp_path: Path) -> None:
    copy = write(tmp_path / "copy.txt", sentences(300))
    encoder = FakeEncoder()
    assert build_index(folder, copy, encoder)
    assert encoder.seen == 0


def test_other_text_needs_extend_and_then_counts_on(folder: Path, tmp_path: Path) -> None:
    more = write(tmp_path / "more.txt", sentences(50, seed=1))
    with pytest.raises(UsageError, match="--extend"):
        build_index(folder, more, FakeEncoder())
    encoder = FakeEncoder()
    assert build_index(folder, more, encoder, extend=True)
    assert encoder.seen == 50
    index = Index.open(folder)
    assert len(index) == 350
    assert index.text(300) == sentences(50, seed=1)[0]
    hits = Searcher(index).search(encoder.encode([index.text(320)]), 1)
    assert hits.rows.tolist() == [[320]]


def test_shards_merge_to_exactly_one_search(tmp_path: Path, small_blocks: None) -> None:
    """Scores bit for bit, rows in order; with repeated sentences, whose scores are equal."""
    texts = sentences(400) + sentences(100)
    build_index(tmp_path / "one", write(tmp_path / "all.txt", texts), FakeEncoder())
    for start in range(0, 500, 125):
        part = write(tmp_path / f"{start}.txt", texts[start : start + 125])
        build_index(tmp_path / "four", part, FakeEncoder(), extend=True)
    one, four = Index.open(tmp_path / "one"), Index.open(tmp_path / "four")
    assert len(four.shards) == 4
    queries = FakeEncoder().encode(sentences(30))
    for k in (1, 10, 500):
        a, b = Searcher(one).search(queries, k), Searcher(four).search(queries, k)
        np.testing.assert_array_equal(a.scores, b.scores)
        np.testing.assert_array_equal(a.rows, b.rows)


def test_another_checkpoint_is_refused(folder: Path, corpus: Corpus) -> None:
    other = FakeEncoder(seed=1)
    with pytest.raises(InputError, match="holds vectors of fake"):
        Index.open(folder).require(other)
    with pytest.raises(InputError, match="holds vectors of fake"):
        build_index(folder, corpus, other)


def variant(what: str, changed: bool) -> FakeEncoder:
    """An encoder with length, weights and a tokenizer; `changed` in the one thing `what`."""
    encoder, own = FakeEncoder(), changed
    encoder.max_length = 4 if own and what == "length" else 32
    dtype = torch.bfloat16 if own and what == "precision" else torch.float32
    encoder.backbone = torch.nn.Linear(2, 2, dtype=dtype)
    settings = {"vocab": 2 if own and what == "tokenizer" else 1, "truncation": int(own)}
    backend = SimpleNamespace(to_str=lambda: json.dumps(settings))
    encoder.tokenizer = SimpleNamespace(backend_tokenizer=backend)
    return encoder


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("length", "cut at 32 tokens, not of fake cut at 4 tokens; use it with that --max-length"),
        ("precision", "in fp32, not of fake in bf16; use it with that --precision"),
        ("tokenizer", "with tokenizer .*, not of fake with tokenizer"),
    ],
)
def test_vectors_of_another_length_precision_or_tokenizer_do_not_mix(
    tmp_path: Path, corpus: Corpus, what: str, told: str
) -> None:
    place, other = tmp_path / "i", variant(what, changed=True)
    more = write(tmp_path / "more.txt", sentences(5, seed=1))
    assert build_index(place, corpus, variant(what, changed=False))
    with pytest.raises(InputError, match=told):
        Index.open(place).require(other)
    for text in (corpus, more):
        with pytest.raises(InputError, match=told):
            build_index(place, text, other, extend=True)
    assert build_index(place, corpus, variant(what, changed=False))
    Index.open(place).require(variant("the last call's truncation", changed=True))


def test_an_older_index_is_refused_in_one_line(folder: Path, corpus: Corpus) -> None:
    from cse_cli.index.records import read_record, write_record

    manifest = read_record(folder / "index.json")
    del manifest["maker"]
    write_record(folder / "index.json", {**manifest, "schema": 1})
    for use in (lambda: Index.open(folder), lambda: build_index(folder, corpus, FakeEncoder())):
        with pytest.raises(InputError, match="schema 1, this version reads 2; build it again"):
            use()


def test_the_same_bytes_in_a_file_of_another_kind_are_other_text(tmp_path: Path) -> None:
    rows, lines = (
        write(tmp_path / "c.csv", ["text", "a dog"]),
        write(tmp_path / "c.txt", ["text", "a dog"]),
    )
    assert rows.sha256 == lines.sha256
    assert (rows.rows, lines.rows) == (1, 2)
    build_index(tmp_path / "i", rows, FakeEncoder())
    with pytest.raises(UsageError, match="holds other text"):
        build_index(tmp_path / "i", lines, FakeEncoder())


def test_a_vector_that_is_not_finite_is_named(tmp_path: Path, corpus: Corpus) -> None:
    class Broken(FakeEncoder):
        def encode(self, texts: list[str]) -> torch.Tensor:
            vectors = super().encode(texts)
            vectors[2, 3] = torch.inf
            return vectors

    with pytest.raises(InputError, match=f"not finite for '{sentences(3)[2]}'"):
        build_index(tmp_path / "i", corpus, Broken())


def test_folders_that_cannot_be_used(tmp_path: Path, corpus: Corpus) -> None:
    with pytest.raises(OutputError, match="is a file"):
        build_index(tmp_path / "corpus.txt", corpus, FakeEncoder())
    with pytest.raises(OutputError, match="cannot write"):
        build_index(tmp_path / "corpus.txt" / "below", corpus, FakeEncoder())
    with pytest.raises(UsageError, match="no index"):
        build_index(tmp_path, corpus, FakeEncoder())  # it holds corpus.txt
    with pytest.raises(InputError, match="no such folder"):
        Index.open(tmp_path / "nowhere")
    with pytest.raises(InputError, match="not an index"):
        Index.open(tmp_path)


def test_a_full_disk_is_told_and_what_was_done_stays(
    tmp_path: Path, corpus: Corpus, small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(100))
    fsync = os.fsync

    def full(handle: int) -> None:
        if next(calls) == 14:
            raise OSError(28, "No space left on device")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left"):
        build_index(tmp_path / "i", corpus, FakeEncoder())
    monkeypatch.undo()
    monkeypatch.setattr(build, "BLOCK", 32)
    encoder = FakeEncoder()
    assert build_index(tmp_path / "i", corpus, encoder)
    assert 0 < encoder.seen < 300


# ------------------------------------------------------------------------------- killed and resumed

SLOW_BUILD = """
import sys
from cse_cli.index import Corpus, build, build_index
from tests.fake_encoder import FakeEncoder
build.BLOCK = 32
build_index(sys.argv[1], Corpus.scan(sys.argv[2]), FakeEncoder(delay=0.15))
"""


def test_a_killed_build_resumes_to_the_same_bytes(
    tmp_path: Path, corpus: Corpus, folder: Path, small_blocks: None
) -> None:
    """Killed by SIGKILL twice; what was noted is not encoded again."""
    killed = tmp_path / "killed"
    part = killed / "shard-00000.part"
    for blocks in (2, 5):
        words = [sys.executable, "-c", SLOW_BUILD, str(killed), corpus.source.name]
        child = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while rows_noted(part) < blocks * 32 and time.monotonic() < deadline:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
        child.wait()
    done = rows_noted(part)
    assert 5 * 32 <= done < 300
    with pytest.raises(InputError, match="unfinished"):
        Index.open(killed)
    encoder = FakeEncoder()
    assert build_index(killed, corpus, encoder)
    assert encoder.seen == 300 - done
    for name in FILES:
        whole = (folder / "shard-00000" / name).read_bytes()
        assert (killed / "shard-00000" / name).read_bytes() == whole, name


def rows_noted(part: Path) -> int:
    try:
        return int(json.loads((part / "progress.json").read_text())["rows"])
    except FileNotFoundError:
        return 0


def test_what_was_written_after_the_last_note_is_cut_off(
    tmp_path: Path, corpus: Corpus, folder: Path, small_blocks: None
) -> None:
    """A kill in the middle of a block leaves bytes that no note speaks of."""

    class Stops(FakeEncoder):
        def encode(self, texts: list[str]) -> torch.Tensor:
            if self.seen >= 96:
                raise KeyboardInterrupt
            return super().encode(texts)

    place = tmp_path / "i"
    with pytest.raises(KeyboardInterrupt):
        build_index(place, corpus, Stops())
    for name in FILES:
        with (place / "shard-00000.part" / name).open("ab") as file:
            file.write(b"half a block")
    assert build_index(place, corpus, FakeEncoder())
    for name in FILES:
        whole = (folder / "shard-00000" / name).read_bytes()
        assert (place / "shard-00000" / name).read_bytes() == whole, name


def test_a_half_built_index_is_not_continued_with_something_else(
    tmp_path: Path, corpus: Corpus, small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    place = tmp_path / "i"
    with monkeypatch.context() as patch:
        patch.setattr("cse_cli.index.shard.ShardWriter.finish", stop)
        with pytest.raises(KeyboardInterrupt):
            build_index(place, corpus, FakeEncoder())
    other = write(tmp_path / "other.txt", sentences(40, seed=2))
    with pytest.raises(UsageError, match="unfinished build"):
        build_index(place, other, FakeEncoder())
    with pytest.raises(UsageError, match="unfinished build"):
        build_index(place, corpus, FakeEncoder(seed=3))
    encoder = FakeEncoder()
    assert build_index(place, corpus, encoder)
    assert encoder.seen == 0


def test_a_kill_before_the_manifest_loses_nothing(
    tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(build, "_publish", stop)
        with pytest.raises(KeyboardInterrupt):
            build_index(tmp_path / "i", corpus, FakeEncoder())
    encoder = FakeEncoder()
    assert build_index(tmp_path / "i", corpus, encoder)
    assert encoder.seen == 0
    assert len(Index.open(tmp_path / "i")) == 300


def test_two_builders_of_one_shard_do_not_mix(tmp_path: Path, corpus: Corpus) -> None:
    class Nested(FakeEncoder):
        def encode(self, texts: list[str]) -> torch.Tensor:
            with pytest.raises(UsageError, match="another process"):
                build_index(tmp_path / "i", corpus, FakeEncoder())
            return super().encode(texts)

    assert build_index(tmp_path / "i", corpus, Nested())


# ------------------------------------------------------------------------------------------- damage


def flip(path: Path, where: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * where)] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["index.json", *(f"shard-00000/{name}" for name in FILES)])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damage_is_recognised(folder: Path, name: str, damage: str) -> None:
    path = folder / name
    if damage == "flip":
        flip(path)
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-3])
    else:
        path.unlink()
    with pytest.raises(InputError, match=r"corrupt|cannot read|unfinished"):
        Index.open(folder)


@pytest.mark.parametrize("name", FILES)
def test_without_hashing_a_cut_file_is_still_recognised(folder: Path, name: str) -> None:
    path = folder / "shard-00000" / name
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(InputError, match="corrupt"):
        Index.open(folder, verify=False)


@pytest.mark.parametrize("kind", ["int8", "binary", "hnsw", "ivfpq"])
@pytest.mark.parametrize("verify", [True, False])
def test_damage_to_a_derived_file_is_recognised(
    tmp_path: Path, kind: str, verify: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind in ("hnsw", "ivfpq"):
        pytest.importorskip("faiss")
    monkeypatch.setattr(kinds, "FEW", 0)
    matrix = near_copies(100, 100, 16)
    corpus = write(tmp_path / "c.txt", [str(i) for i in range(len(matrix))])
    build_index(tmp_path / "i", corpus, Numbers(matrix), kind=kind)
    path = tmp_path / "i" / "shard-00000" / f"{kind}.bin"
    if verify:
        flip(path)
    else:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="corrupt"):
        Searcher(Index.open(tmp_path / "i"), verify=verify)


def test_a_schema_of_the_future_is_not_guessed_at(folder: Path) -> None:
    from cse_cli.index.records import read_record, write_record

    manifest = read_record(folder / "index.json")
    write_record(folder / "index.json", {**manifest, "schema": 3})
    with pytest.raises(InputError, match="schema 3"):
        Index.open(folder)


# -------------------------------------------------------------------------------- several processes

SHARED_BUILD = """
import sys
from cse_cli.index import Corpus, build_index
from tests.fake_encoder import FakeEncoder
encoder = FakeEncoder()
build_index(sys.argv[1], Corpus.scan(sys.argv[2]), encoder)
assert encoder.seen in (0, 150), encoder.seen
"""


def test_two_processes_write_a_shard_each_and_search_equals_one(
    tmp_path: Path, folder: Path, corpus: Corpus
) -> None:
    script = tmp_path / "build.py"
    script.write_text(SHARED_BUILD)
    shared = tmp_path / "shared"
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    words += ["--master-port", "0", str(script), str(shared), corpus.source.name]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for _ in range(2):  # the second time there is nothing left to do
        result = subprocess.run(words, capture_output=True, text=True, env=environment)
        assert result.returncode == 0, result.stderr
    one, two = Index.open(folder), Index.open(shared)
    assert [len(shard) for shard in two.shards] == [150, 150]
    assert [two.text(row) for row in range(300)] == list(corpus.texts())
    queries = FakeEncoder().encode(sentences(20, seed=5))
    a, b = Searcher(one).search(queries, 12), Searcher(two).search(queries, 12)
    np.testing.assert_array_equal(a.rows, b.rows)
    np.testing.assert_allclose(a.scores, b.scores, atol=1e-7)


def test_one_of_two_processes_alone_publishes_nothing(
    tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert not build_index(tmp_path / "i", corpus, FakeEncoder())
    with pytest.raises(InputError, match="unfinished"):
        Index.open(tmp_path / "i")
    monkeypatch.setenv("RANK", "0")
    assert build_index(tmp_path / "i", corpus, FakeEncoder())
    assert [len(shard) for shard in Index.open(tmp_path / "i").shards] == [150, 150]


@given(rows=st.integers(0, 1000), world=st.integers(1, 20))
def test_shares_are_all_rows_once_and_even(rows: int, world: int) -> None:
    shares = [share(rows, rank, world) for rank in range(world)]
    assert [row for part in shares for row in part] == list(range(rows))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_what_torchrun_sets_must_make_sense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert process() == (0, 1)
    for rank, world in (("2", "2"), ("x", "2"), ("0", "0")):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", world)
        with pytest.raises(UsageError, match="torchrun"):
            process()


def test_more_processes_than_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "5")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(UsageError, match="3 sentences cannot be shared by 5"):
        build_index(tmp_path / "i", write(tmp_path / "c.txt", sentences(3)), FakeEncoder())
