"""`cse encode` as typed: argument, file and pipe, to every kind of output, and bad input."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from cse_cli.cli import encode as command
from cse_cli.cli.app import app
from cse_cli.encoder import Encoder

TEXTS = [
    "the dog runs",
    "a cat, a man",
    "the dog runs",
    "",
    "caf\u00e9 \u2028 street",
    "the red ball",
]
SOURCES = ("txt", "crlf", "csv", "tsv", "jsonl", "gz", "stdin", "dash")


def encode(*words: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["encode", *map(str, words)], input=stdin)


def ok(*words: object, stdin: bytes | None = None) -> Result:
    result = encode(*words, stdin=stdin)
    assert result.exit_code == 0, result.stderr
    return result


def lines(text: str) -> tuple[list[str], np.ndarray]:
    rows = [json.loads(line) for line in text.splitlines()]
    vectors = np.array([row["embedding"] for row in rows], dtype=np.float32)
    return [row["text"] for row in rows], vectors


def write(folder: Path, kind: str) -> tuple[list[object], bytes | None]:
    """TEXTS as the arguments and the standard input of one kind of source."""
    plain = "".join(f"{text}\n" for text in TEXTS)
    if kind in ("stdin", "dash"):
        return (["-"] if kind == "dash" else []), plain.encode()
    name, contents = {
        "txt": ("x.txt", plain),
        "crlf": ("x.txt", plain.replace("\n", "\r\n")),
        "csv": ("x.csv", "text\n" + "".join(f'"{text}"\n' for text in TEXTS)),
        "tsv": ("x.tsv", "id\ttext\n" + "".join(f"{i}\t{t}\n" for i, t in enumerate(TEXTS))),
        "jsonl": ("x.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)),
        "gz": ("x.txt.gz", plain),
    }[kind]
    data = contents.encode()
    (folder / name).write_bytes(gzip.compress(data) if kind == "gz" else data)
    return [folder / name], None


@pytest.fixture(scope="module")
def wanted(tiny_bert: Path) -> np.ndarray:
    return Encoder.load(str(tiny_bert), pooler="mean").encode(TEXTS).numpy()


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("out", ["x.npy", "y.jsonl", "-", None])
def test_every_source_to_every_output(
    tiny_bert: Path, tmp_path: Path, wanted: np.ndarray, kind: str, out: str | None
) -> None:
    files, stdin = write(tmp_path, kind)
    to_file = out not in (None, "-")
    where = [] if out is None else ["--out", tmp_path / out if to_file else out]
    result = ok(tiny_bert, *files, *where, "--pooler", "mean", stdin=stdin)
    if out == "x.npy":
        vectors = np.load(tmp_path / out, allow_pickle=False)
    else:
        texts, vectors = lines((tmp_path / str(out)).read_text() if to_file else result.stdout)
        assert texts == TEXTS
    assert vectors.dtype == np.float32
    assert vectors.shape == wanted.shape
    np.testing.assert_allclose(vectors, wanted, atol=1e-6)
    if to_file:
        assert result.stdout == ""
        assert "6 vectors of 32 dimensions" in result.stderr


def test_json_lines_give_back_every_bit(tiny_bert: Path, tmp_path: Path) -> None:
    files, _ = write(tmp_path, "txt")
    ok(tiny_bert, *files, "--pooler", "cls", "--out", tmp_path / "v.npy")
    _, vectors = lines(ok(tiny_bert, *files, "--pooler", "cls").stdout)
    assert np.array_equal(vectors, np.load(tmp_path / "v.npy"))


def test_rows_line_up_with_lines(tiny_bert: Path, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("\nthe dog\n   \nthe dog\n")
    result = ok(tiny_bert, tmp_path / "x.txt", "--pooler", "cls")
    texts, vectors = lines(result.stdout)
    assert texts == ["", "the dog", "   ", "the dog"]
    assert np.array_equal(vectors[1], vectors[3])
    assert "blank lines encoded as empty texts: 2" in result.stderr


def test_several_files_and_chunks(
    tiny_bert: Path,
    tmp_path: Path,
    sentences: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Chunking changes neither order nor values, and the matrix has all rows."""
    (tmp_path / "a.txt").write_text("\n".join(sentences[:150]))
    (tmp_path / "b.txt").write_text("\n".join(sentences[150:]))
    words = (tiny_bert, tmp_path / "a.txt", tmp_path / "b.txt", "--pooler", "mean")
    ok(*words, "--out", tmp_path / "whole.npy")
    monkeypatch.setattr(command, "CHUNK", 7)
    ok(*words, "--out", tmp_path / "parts.npy")
    whole, parts = np.load(tmp_path / "whole.npy"), np.load(tmp_path / "parts.npy")
    assert whole.shape == (200, 32)
    np.testing.assert_allclose(parts, whole, atol=1e-6)


@pytest.mark.parametrize("out", ["-", "x.jsonl"])
def test_lines_are_spelled_out_a_few_at_a_time(
    tiny_bert: Path,
    tmp_path: Path,
    sentences: list[str],
    monkeypatch: pytest.MonkeyPatch,
    out: str,
) -> None:
    """200 vectors, 20 lines at a time; a pipe's reader gets some after every 50 texts."""
    (tmp_path / "a.txt").write_text("\n".join(sentences))
    words = (tiny_bert, tmp_path / "a.txt", "--pooler", "mean")
    wanted = lines(ok(*words).stdout)
    encode_texts, spell = Encoder.encode, command._json_lines
    events: list[int | str] = []

    def encoding(self: Encoder, texts: list[str], **rest: bool) -> object:
        events.append("encoded")
        return encode_texts(self, texts, **rest)

    def spelling(*arguments: Any) -> Iterator[str]:
        for part in spell(*arguments):
            events.append(part.count("\n"))
            yield part

    monkeypatch.setattr(Encoder, "encode", encoding)
    monkeypatch.setattr(command, "_json_lines", spelling)
    monkeypatch.setattr(command, "PIPED", 50)
    monkeypatch.setattr(command, "LINES", 20)
    result = ok(*words, "--out", out if out == "-" else tmp_path / out)
    parts = ["encoded", 20, 20, 10] * 4 if out == "-" else ["encoded", *[20] * 10]
    assert events == parts
    texts, vectors = lines(result.stdout if out == "-" else (tmp_path / out).read_text())
    assert texts == wanted[0]
    np.testing.assert_allclose(vectors, wanted[1], atol=1e-6)


def test_normalize(tiny_bert: Path, wanted: np.ndarray, tmp_path: Path) -> None:
    files, _ = write(tmp_path, "txt")
    _, vectors = lines(ok(tiny_bert, *files, "--pooler", "mean", "--normalize").stdout)
    unit = wanted / np.linalg.norm(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, unit, atol=1e-6)


def test_text_column_and_encoding(tiny_bert: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes("id,body\n1,caf\u00e9\n".encode("latin-1"))
    result = ok(
        *(tiny_bert, path, "--pooler", "cls", "--text-column", "body", "--encoding", "latin-1")
    )
    assert lines(result.stdout)[0] == ["caf\u00e9"]


def test_json_describes_the_file(tiny_bert: Path, tmp_path: Path) -> None:
    files, _ = write(tmp_path, "txt")
    words = (tiny_bert, *files, "--pooler", "max", "--json")
    found = json.loads(ok(*words, "--out", tmp_path / "v.npy").stdout)
    assert (found["schema"], found["command"]) == (1, "encode")
    assert found["rows"] == [
        {"path": str(tmp_path / "v.npy"), "n": 6, "dimension": 32, "model": "tiny"}
    ]
    assert found["config"]["pooler"] == "max"
    assert encode(*words).exit_code == 2


@pytest.mark.parametrize(
    ("contents", "code", "told"),
    [
        (b"", 3, "is empty"),
        (b"\n  \n\n", 3, "holds only blank lines"),
        (b"fine\ncaf\xe9\n", 3, "line 2: not utf-8"),
        (b"fine\nno\0thing\n", 3, "line 2: holds a NUL byte"),
    ],
)
@pytest.mark.parametrize("piped", [False, True])
def test_unusable_text_is_one_line(
    tiny_bert: Path, tmp_path: Path, contents: bytes, code: int, told: str, piped: bool
) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(contents)
    source = "-" if piped else path
    result = encode(tiny_bert, source, "--pooler", "cls", stdin=contents if piped else None)
    assert result.exit_code == code
    assert told in result.stderr
    assert ("standard input" if piped else str(path)) in result.stderr
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1


def test_a_line_of_a_megabyte_is_cut_with_a_warning(tiny_bert: Path, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("dog " * 250_000 + "\nthe cat\n")
    result = ok(tiny_bert, tmp_path / "x.txt", "--pooler", "cls")
    assert "1 of 2 texts" in result.stderr
    assert len(result.stdout.splitlines()) == 2


def test_a_fault_late_in_the_input_leaves_the_old_file(
    tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "CHUNK", 2)
    (tmp_path / "x.jsonl").write_text('{"text": "a dog"}\n' * 5 + "broken\n")
    (tmp_path / "v.npy").write_bytes(b"old")
    result = encode(tiny_bert, tmp_path / "x.jsonl", "--pooler", "cls", "--out", tmp_path / "v.npy")
    assert result.exit_code == 3
    assert "line 6" in result.stderr
    assert (tmp_path / "v.npy").read_bytes() == b"old"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["v.npy", "x.jsonl"]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("none.txt",), 3, "none.txt: no such file"),
        (("x.txt", "--out", "v.txt"), 2, "--out v.txt: the extension says the format"),
        (("x.txt", "--out", "none/v.npy"), 5, "there is no folder none"),
        (("x.txt", "--out", "folder.npy"), 5, "it is a folder"),
        (("x.txt", "--text-column", "text"), 2, "has no columns"),
        (("x.txt", "--encoding", "utf-88"), 2, "unknown encoding 'utf-88'"),
        (("x.txt", "--pooler", "men"), 2, "did you mean 'mean'"),
        (("x.txt", "--precision", "fp31"), 2, "did you mean 'fp32'"),
        (("x.txt", "--precision", "fp16"), 2, "--precision fp16 needs a GPU"),
        (("x.txt", "--device", "gpu"), 2, "--device gpu"),
        (("x.txt", "--threads", "0"), 2, "--threads"),
    ],
)
def test_bad_options_are_one_line_and_the_right_code(
    tiny_bert: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    code: int,
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.txt").write_text("the dog\n")
    (tmp_path / "folder.npy").mkdir()
    result = encode(tiny_bert, *words)
    assert result.exit_code == code
    assert told in result.stderr
    assert result.stdout == ""


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("the dog\n")
    result = encode(tmp_path / "model", tmp_path / "x.txt")
    assert result.exit_code == 3
    assert str(tmp_path / "model") in result.stderr


def test_vectors_that_are_not_finite_are_refused(
    tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    def broken(self: Encoder, texts: list[str], *, progress: bool = False) -> torch.Tensor:
        return torch.full((len(texts), 32), float("nan"))

    monkeypatch.setattr(Encoder, "encode", broken)
    (tmp_path / "x.txt").write_text("the dog\n")
    result = encode(
        *(tiny_bert, tmp_path / "x.txt", "--pooler", "cls", "--out", tmp_path / "v.npy")
    )
    assert result.exit_code == 3
    assert "not finite, the first for 'the dog'" in result.stderr
    assert not (tmp_path / "v.npy").exists()


def as_process(monkeypatch: pytest.MonkeyPatch, rank: int, world: int) -> None:
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", str(world))


@pytest.mark.parametrize("suffix", ["npy", "jsonl"])
def test_shards_of_several_processes_are_one_file_cut_up(
    tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    files, _ = write(tmp_path, "txt")
    ok(tiny_bert, *files, "--pooler", "cls", "--out", tmp_path / f"whole.{suffix}")
    for rank in range(4):  # six lines for four processes
        as_process(monkeypatch, rank, 4)
        ok(tiny_bert, *files, "--pooler", "cls", "--out", tmp_path / f"v.{suffix}")
    shards = sorted(tmp_path.glob(f"v-*-of-00004.{suffix}"))
    assert [path.name[2:7] for path in shards] == ["00000", "00001", "00002", "00003"]
    assert not (tmp_path / f"v.{suffix}").exists()
    if suffix == "npy":
        together = np.concatenate([np.load(path) for path in shards])
        np.testing.assert_allclose(together, np.load(tmp_path / "whole.npy"), atol=1e-6)
    else:
        texts, vectors = lines("".join(path.read_text() for path in shards))
        wanted = lines((tmp_path / "whole.jsonl").read_text())
        assert texts == wanted[0]
        np.testing.assert_allclose(vectors, wanted[1], atol=1e-6)


def test_what_several_processes_cannot_share(
    tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, _ = write(tmp_path, "txt")
    as_process(monkeypatch, 0, 7)
    few = encode(tiny_bert, *files, "--out", tmp_path / "v.npy")
    assert (few.exit_code, few.stdout) == (2, "")
    assert "6 lines cannot be shared by 7 processes" in few.stderr
    for words in ([*files], ["-", "--out", tmp_path / "v.npy"]):
        refused = encode(tiny_bert, *words, stdin=b"the dog\n")
        assert refused.exit_code == 2
        assert "several processes read files and write shards" in refused.stderr
    (tmp_path / "blank.txt").write_text("\n" * 9)
    blank = encode(tiny_bert, tmp_path / "blank.txt", "--out", tmp_path / "v.npy")
    assert blank.exit_code == 3
    assert "only blank lines" in blank.stderr
    assert not list(tmp_path.glob("v*"))
