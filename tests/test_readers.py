"""Readers: the same sentences from every kind of file, and one clear line for every broken one."""

import gzip
import io
import json
import os
import sys
import threading

import pytest

from cse_cli.data.readers import Tally, iter_texts
from cse_cli.data.sources import BLOCK
from cse_cli.errors import InputError, UsageError

SENTENCES = ["A dog, running.", 'She said "no"', "naïve 文 ​"]


def table(separator: str, quote: bool) -> str:
    cells = [f'"{s.replace(chr(34), chr(34) * 2)}"' if quote else s for s in SENTENCES]
    return "\n".join(f"{i}{separator}{cell}" for i, cell in enumerate(["text", *cells])) + "\n"


CONTENTS = {
    "x.txt": "\n".join(SENTENCES) + "\n",
    "x.csv": table(",", quote=True),
    "x.tsv": table("\t", quote=False),
    "x.jsonl": "".join(json.dumps({"id": 1, "text": s}) + "\n" for s in SENTENCES),
}


@pytest.fixture
def write(tmp_path):
    def _write(name: str, content: str | bytes) -> str:
        data = content.encode() if isinstance(content, str) else content
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return str(path)

    return _write


def read(path, **options):
    return list(iter_texts([path] if isinstance(path, str) else path, **options))


@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "bom"])
@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("name", CONTENTS)
def test_every_kind_gives_the_same_sentences(write, name, packed, mark, ending):
    content = mark + CONTENTS[name].replace("\n", ending)
    assert read(write(name + packed, content)) == SENTENCES


@pytest.mark.parametrize("name", CONTENTS)
def test_standard_input_and_pipes_are_read_once(write, monkeypatch, tmp_path, name):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CONTENTS["x.txt"].encode())))
    assert read("-") == SENTENCES
    pipe = tmp_path / f"pipe{name[1:]}"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(CONTENTS[name],))
    writer.start()
    assert read(str(pipe)) == SENTENCES
    writer.join()


def test_files_follow_each_other(write):
    paths = [write(name, content) for name, content in CONTENTS.items()]
    assert read(paths) == SENTENCES * 4


def test_blank_rows_are_skipped_and_counted(write):
    path, tally = write("x.txt", "one\n\n  \t\r\ntwo\n\n"), Tally()
    assert read(path, tally=tally) == ["one", "two"]
    assert (tally.blank, tally.line) == (3, 5)
    assert read(path, keep_blank=True) == ["one", "", "  \t", "two", ""]


def test_only_line_feeds_end_lines(write):
    assert read(write("x.txt", "one\u2028still\x0bone\x85\ntwo")) == [
        "one\u2028still\x0bone\x85",
        "two",
    ]


@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize(("name", "mark"), [("x.csv", ","), ("x.tsv", "\t")])
def test_a_cr_alone_ends_no_row(write, name, mark, ending):
    rows = ["text|note", "one\rstill|a", "two|b\r", "|", "\rthree"]
    path = write(name, ending.join(rows).replace("|", mark) + ending)
    assert read(path) == ["one\rstill", "two", "\rthree"]
    last = [("one\rstill", "a"), ("two", "b\r" if ending == "\r\n" else "b")]
    assert read(path, columns=["text", "note"]) == last


def test_line_ends_inside_quotes_stay(write):
    path = write("x.csv", 'text\r\n"one\r\nstill"\r\n"two\rstill"\r\nthree\r\n')
    assert read(path) == ["one\r\nstill", "two\rstill", "three"]


@pytest.mark.parametrize("size", [BLOCK - 6, BLOCK - 5, BLOCK - 4])
@pytest.mark.parametrize("ending", ["\r", "\r\n"])
def test_a_cr_at_the_end_of_a_block(write, size, ending):
    path = write("x.csv", f"text\n{'w' * size}{ending}still\n")
    assert "\n".join(read(path)) == f"{'w' * size}{ending}still".replace("\r\n", "\n")


def test_a_line_longer_than_blocks_is_whole(write):
    long = "word " * BLOCK
    assert read(write("x.txt", f"one\n{long}\ntwo\n")) == ["one", long, "two"]


def test_a_file_is_not_read_ahead(write):
    path, tally = write("x.txt", "a line of text\n" * 400_000), Tally()
    next(iter_texts([path], tally=tally))
    assert 0 < tally.bytes_read <= BLOCK


def test_other_encodings(write):
    assert read(write("x.txt", "naïve\n".encode("latin-1")), encoding="latin-1") == ["naïve"]
    content = CONTENTS["x.csv"].encode("utf-16")
    assert read(write("x.csv", content), encoding="utf-16") == SENTENCES


def test_the_only_column_needs_no_name(write):
    assert read(write("x.csv", "sentence\nhello\nNA\n")) == ["hello", "NA"]
    assert read(write("x.jsonl", '{"s": "hello"}\n\n{"s": null}\n{"s": 5}\n')) == ["hello", "5"]


def test_several_columns_make_tuples(write):
    path = write("x.csv", "sent0,sent1,hard_neg\na,b,c\nd,,f\ng,h,i\n")
    tally = Tally()
    rows = read(path, columns=["sent0", "sent1", "hard_neg"], tally=tally)
    assert rows == [("a", "b", "c"), ("g", "h", "i")]
    assert tally.blank == 1
    assert read(path, text_column="sent0") == ["a", "d", "g"]


TRUNCATED = gzip.compress(os.urandom(5000).hex().encode())[:3000]
BROKEN = {
    "empty": ("x.txt", b"", "x.txt is empty"),
    "empty csv": ("x.csv", b"", "x.csv is empty"),
    "empty jsonl": ("x.jsonl", b"", "x.jsonl is empty"),
    "header only": ("x.csv", b"text\n", "has no rows under its header"),
    "blank": ("x.txt", b"\n \n\r\n", "holds only blank lines"),
    "blank tsv": ("x.tsv", b"text\n\n \n", "holds only blank lines"),
    "latin-1": ("x.txt", b"one\ntwo\nna\xefve\n", r"line 3: not utf-8; .*--encoding"),
    "late latin-1": ("x.txt", b"one\n" * 600_000 + b"\xe9\n", "line 600001: not utf-8"),
    "cut character": ("x.txt", b"one\ncaf\xc3", "line 2: not utf-8"),
    "latin-1 csv": ("x.csv", b"text\none\nna\xefve\n", "line 3: not utf-8"),
    "nul": ("x.txt", b"one\n\ntw\0o\n", "line 3: holds a NUL byte"),
    "nul csv": ("x.csv", b"text\ntw\0o\n", "line 2: holds a NUL byte"),
    "no gzip": ("x.txt.gz", None, "after line 0: broken gzip"),
    "cut gzip": ("y.txt.gz", None, "broken gzip"),
    "json": ("x.jsonl", b'{"text": "a"}\n{"text": \n', "line 2: not JSON"),
    "json deep": ("x.jsonl", b"[" * 200_000, "line 1: not JSON"),
    "json list": ("x.jsonl", b'["a"]\n', "line 1: not a JSON object"),
    "json value": ("x.jsonl", b'{"text": ["a"]}\n', "line 1: 'text' is not a string"),
    "json hole": ("x.jsonl", b'{"text": "a"}\n{"txt": "b"}\n', "line 2: has no 'text'"),
    "json half": ("x.jsonl", b'{"text": "\\ud83d"}\n', "line 1: 'text' holds half of a surrogate"),
    "unquoted comma": ("x.csv", b"text\nHello, world\n", "do not fit the header .*quotes"),
    "late comma": ("x.csv", b"text\nHi\nHello, world\n", "header .*line 3, saw 2.*quotes"),
    "open quote": ("x.csv", b'text\n"Hi\nHello\n', "EOF inside string"),
    "kind": ("x.parquet", b"PAR1", "'.parquet' is no known kind of sentence file"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_told_in_one_line(write, tmp_path, case):
    name, content, message = BROKEN[case]
    path = write(name, content or b"")
    if content is None:
        (tmp_path / name).write_bytes(TRUNCATED if "cut" in case else b"plain text")
    with pytest.raises(InputError, match=message) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read(str(tmp_path / "nowhere.txt"))
    with pytest.raises(InputError, match="is a folder"):
        read(str(tmp_path))


def test_columns_that_are_not_there(write):
    path = write("x.csv", "sentence,label\na,1\n")
    with pytest.raises(UsageError, match=r"no column 'sentense'; did you mean 'sentence'.*'label'"):
        read(path, text_column="sentense")
    with pytest.raises(UsageError, match=r"has the columns 'sentence', 'label'.*--text-column"):
        read(path)
    with pytest.raises(UsageError, match="no column 'hard_neg'"):
        read(path, columns=["sentence", "hard_neg"])
    with pytest.raises(UsageError, match="no column 'q'"):
        read(write("x.jsonl", '{"text": "a"}\n'), text_column="q")


def test_plain_text_has_no_columns(write):
    text, csv = write("x.txt", "a\n"), write("x.csv", "s\nb\n")
    with pytest.raises(UsageError, match="has no columns"):
        read(text, text_column="s")
    with pytest.raises(UsageError, match="has no columns"):
        read([csv, text], columns=["s", "t"])
    assert read([csv, text], text_column="s") == ["b", "a"]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_rows_that_each_lack_a_column(write, name):
    csv = "s,t\na,\n,b\n"
    path = write(name, csv if name == "a.csv" else '{"s": "a", "t": ""}\n{"s": "", "t": "b"}\n')
    with pytest.raises(InputError, match=f"{name} has no row in which 's', 't' are all filled"):
        read(path, columns=["s", "t"])


@pytest.mark.parametrize("name", ["utf-9", "base64", "undefined", "unicode_escape", "UTF7"])
def test_unknown_encodings(write, name):
    with pytest.raises(UsageError, match=f"unknown encoding '{name}'"):
        read(write("x.txt", "a\n"), encoding=name)
