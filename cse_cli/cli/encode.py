"""`cse encode`: sentences in, vectors out."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from cse_cli.cli.groups import grouped
from cse_cli.cli.options import (
    Json,
    Loading,
    Model,
)
from cse_cli.errors import InputError, UsageError

if TYPE_CHECKING:
    import numpy as np

    from cse_cli.encoder import Encoder

    Write = Callable[[Sequence[str], np.ndarray], None]

CHUNK = 1 << 17  # texts held at a time, so that a file of any length can be encoded
PIPED = 1 << 13  # texts encoded before a pipe's reader sees their vectors
LINES = 1 << 10  # vectors spelled out at a time: numbers as text take many times their memory
STDIN = STDOUT = "-"

Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE|-",
        help="Sentences: .txt (one a line), .csv, .tsv, .jsonl, each also .gz; "
        "`-` or nothing is standard input.",
        show_default=False,
    ),
]
Out = Annotated[
    str,
    typer.Option(
        "--out",
        metavar="FILE",
        help="x.npy gets a float32 matrix, x.jsonl an object a line with `text` and `embedding`; "
        "`-` writes such lines to standard output.",
    ),
]
TextColumn = Annotated[
    str | None,
    typer.Option(
        "--text-column",
        metavar="NAME",
        help="The column of .csv, .tsv and .jsonl files; else the only one, or `text`.",
        show_default=False,
    ),
]
Encoding = Annotated[str, typer.Option("--encoding", metavar="NAME", help="Of the files.")]
Normalize = Annotated[
    bool,
    typer.Option("--normalize", help="Scale every vector to length 1.", show_default=False),
]


@grouped
def encode(
    model: Model,
    files: Files = None,
    out: Out = STDOUT,
    text_column: TextColumn = None,
    encoding: Encoding = "utf-8",
    normalize: Normalize = False,
    json: Json = False,
    *,
    loading: Loading,
) -> None:
    """Write the vector of every line, in the order of the lines; a blank one is an empty text.

    --json tells what --out FILE got; without --out, standard output has the vectors themselves.
    Under torchrun each process writes a shard of its own, `x-00000-of-00002.npy` and so on.

    Example: cse encode runs/sscl sentences.txt --out vectors.npy

    Example: echo "A man is playing a flute." | cse encode runs/sscl

    Example: torchrun --nproc-per-node 2 -m cse_cli encode runs/sscl big.txt --out big.npy
    """
    from cse_cli.cli.inputs import open_encoder
    from cse_cli.progress import log

    kind, sources = _kind(out), _sources(files)
    if json and out == STDOUT:
        raise UsageError("--json needs --out FILE: standard output is taken by the vectors")
    rows, out = _shard(sources, out, text_column, encoding)
    size = PIPED if kind == STDOUT else CHUNK
    chunks = _chunks(sources, text_column, encoding, rows, size)
    encoder = open_encoder(model, normalize=normalize or None, **asdict(loading))
    count = 0
    with _WRITERS[kind](out, encoder.dimension) as write:
        for texts in chunks:
            vectors = encoder.encode(texts, progress=True).numpy()
            _require_finite(vectors, texts, encoder.name)
            write(texts, vectors)
            count += len(texts)
    if json:
        _describe(out, count, encoder, files, normalize)
    elif out != STDOUT:
        log(f"{out}: {count} vectors of {encoder.dimension} dimensions")


def _describe(
    out: str, count: int, encoder: "Encoder", files: Sequence[str] | None, normalize: bool
) -> None:
    import pandas as pd

    from cse_cli.cli.report import report_frame

    row = {"path": out, "n": count, "dimension": encoder.dimension, "model": encoder.name}
    config = {
        "files": list(files or [STDIN]),
        "pooler": encoder.pooler,
        "max_length": encoder.max_length,
        "normalize": normalize or encoder.normalize,
    }
    report_frame(pd.DataFrame([row]), command="encode", config=config, format="json")


def _kind(out: str) -> str:
    """The format of `--out`; refuses what cannot be written before any work is done."""
    from cse_cli.files import check_writable

    if out == STDOUT:
        return STDOUT
    kind = Path(out).suffix.lower()
    if kind not in _WRITERS:
        raise UsageError(f"--out {out}: the extension says the format, .npy or .jsonl")
    check_writable(out)
    return kind


def _sources(files: Sequence[str] | None) -> Sequence[str]:
    if not files and sys.stdin.isatty():
        raise UsageError("nothing to encode: name a FILE or pipe sentences in")
    return files or [STDIN]


def _shard(
    files: Sequence[str], out: str, text_column: str | None, encoding: str
) -> tuple[range | None, str]:
    """This process's share of the lines and the shard they go to; None: all of them, to `out`.

    The shards of all processes below each other are the file that one process writes.
    """
    from cse_cli.data.readers import Tally, iter_texts
    from cse_cli.progress import warn
    from cse_cli.shards import process, share

    rank, world = process()
    if world == 1:
        return None, out
    if out == STDOUT or STDIN in files:
        raise UsageError("several processes read files and write shards: name a FILE and --out")
    tally = Tally()
    texts = iter_texts(
        files, text_column=text_column, encoding=encoding, keep_blank=True, tally=tally
    )
    count = sum(1 for _ in texts)
    if tally.blank == count:
        raise InputError(f"{tally.name} holds only blank lines")
    if tally.blank and rank == 0:
        warn(f"blank lines encoded as empty texts: {tally.blank}")
    if count < world:
        raise UsageError(f"{count} lines cannot be shared by {world} processes")
    path = Path(out)
    name = f"{path.stem}-{rank:05d}-of-{world:05d}{path.suffix}"
    return share(count, rank, world), str(path.with_name(name))


def _chunks(
    files: Sequence[str], text_column: str | None, encoding: str, rows: range | None, size: int
) -> Iterator[Sequence[str]]:
    """Texts of `rows`, `size` at a time; the first are read at once, to tell bad input early."""
    from cse_cli.data.readers import Tally, iter_texts
    from cse_cli.progress import warn

    tally = Tally()
    texts = iter_texts(
        files, text_column=text_column, encoding=encoding, keep_blank=True, tally=tally
    )
    if rows is not None:
        texts = islice(texts, rows.start, rows.stop)
    first = list(islice(texts, CHUNK))
    if rows is None and tally.blank == len(first):
        raise InputError(f"{tally.name} holds only blank lines")

    def chunks() -> Iterator[Sequence[str]]:
        chunk = first
        while chunk:
            yield from (chunk[start : start + size] for start in range(0, len(chunk), size))
            chunk = list(islice(texts, CHUNK))
        if tally.blank and rows is None:
            warn(f"blank lines encoded as empty texts: {tally.blank}")

    return chunks()


def _require_finite(vectors: "np.ndarray", texts: Sequence[str], name: str) -> None:
    import numpy as np

    broken = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(broken):
        text = texts[broken[0]][:60]
        raise InputError(f"{name} gives vectors that are not finite, the first for '{text}'")


@contextmanager
def _matrix(out: str, dimension: int) -> "Iterator[Write]":
    """A .npy file, written as the rows come; its header is completed at the end."""
    import numpy as np
    from numpy.lib.format import write_array_header_1_0

    from cse_cli.files import whole_file

    rows = 0

    def header(file: IO[bytes]) -> None:  # of the same length for any number of rows
        file.seek(0)
        description = {"descr": "<f4", "fortran_order": False, "shape": (rows, dimension)}
        write_array_header_1_0(file, description)

    with whole_file(out) as file:
        header(file)

        def write(texts: Sequence[str], vectors: "np.ndarray") -> None:
            nonlocal rows
            file.write(np.ascontiguousarray(vectors, dtype="<f4").data)
            rows += len(texts)

        yield write
        header(file)


@contextmanager
def _lines(out: str, dimension: int) -> "Iterator[Write]":
    """A .jsonl file."""
    from cse_cli.files import whole_file

    with whole_file(out) as file:

        def write(texts: Sequence[str], vectors: "np.ndarray") -> None:
            file.writelines(part.encode() for part in _json_lines(texts, vectors, dimension))

        yield write


@contextmanager
def _standard_output(_out: str, dimension: int) -> "Iterator[Write]":
    """JSON lines on standard output."""
    from cse_cli.cli.stdout import write_stdout

    def write(texts: Sequence[str], vectors: "np.ndarray") -> None:
        for part in _json_lines(texts, vectors, dimension):
            write_stdout(part)

    yield write


_WRITERS = {".npy": _matrix, ".jsonl": _lines, STDOUT: _standard_output}


def _json_lines(texts: Sequence[str], vectors: "np.ndarray", dimension: int) -> Iterator[str]:
    """`{"text": …, "embedding": […]}`, `LINES` at a time.

    Nine digits give back every float32 exactly.
    """
    import json

    numbers = f"[{', '.join(['%.9g'] * dimension)}]"
    for start in range(0, len(texts), LINES):
        some = slice(start, start + LINES)
        yield "".join(
            f'{{"text": {json.dumps(text)}, "embedding": {numbers % tuple(vector)}}}\n'
            for text, vector in zip(texts[some], vectors[some].tolist(), strict=True)
        )
