"""Making a token store: read, tokenise and write at the same time, in bounded memory.

While the Rust tokenizer works on one chunk of sentences, Python reads the next one and writes the
one before. A store is made in `<key>.partial` under a file lock and renamed when it is whole, so
a process that is killed leaves nothing that could be taken for a store, and of two processes that
want the same store the second waits and finds it made.
"""

import fcntl
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Encoding

from cse_cli.data.readers import Row, Tally
from cse_cli.data.store import StoreWriter
from cse_cli.data.tokenise import BatchTokenizer, Sequences
from cse_cli.errors import InputError, OutputError

CHUNK_CHARACTERS = 1 << 19  # about 4,000 sentences: small beside the tokenizer's own tables
CHUNK_ROWS = 1 << 13
PARTIAL = ".partial"
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Plan:
    """What a store is made of: text `columns`, behind them a weight if `weighted`."""

    columns: tuple[str, ...]
    weighted: bool
    fingerprint: str


def build_store(
    folder: Path,
    rows: Iterable[Row],
    tokenizer: BatchTokenizer,
    plan: Plan,
    tally: Tally,
    progress: Progress | None = None,
) -> None:
    """Make the store `folder` of `rows`, which are drawn once and keep `tally` up to date.

    `progress` is called with (rows so far, input bytes so far) after every chunk. Whoever calls
    holds `locked(folder)`. Raises OutputError where the store cannot be written; nothing but the
    lock's file is left then.
    """
    partial = folder.with_name(folder.name + PARTIAL)
    with _writing(folder.parent):
        _sweep(folder.parent)
        for stale in (folder, partial):  # a damaged store, and what a killed process left
            shutil.rmtree(stale, ignore_errors=True)
        partial.mkdir()
    try:
        _fill(partial, rows, tokenizer, plan, tally, progress)
        with _writing(folder.parent):
            _sync_folder(partial)
            partial.rename(folder)
            _sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the only process that makes the store `folder`; waits for another that does.

    The lock goes with the process, so one that was killed never blocks the next.
    """
    with _writing(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        file = open(_lock_name(folder), "w")  # noqa: SIM115 (closed below, which unlocks)
    with file:
        with _writing(folder.parent):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fill(
    partial: Path,
    rows: Iterable[Row],
    tokenizer: BatchTokenizer,
    plan: Plan,
    tally: Tally,
    progress: Progress | None,
) -> None:
    dtype, width, special = tokenizer.dtype(), len(plan.columns), sum(tokenizer.special)
    with _writing(partial.parent):
        writer = StoreWriter(partial, plan.columns, tokenizer.max_length, weighted=plan.weighted)
    written = empty = 0
    try:
        for texts, weights, encodings in _pipeline(rows, tokenizer, plan, tally):
            sequences = tokenizer.pack(texts, encodings, dtype)
            keep = np.all((sequences.lengths > special).reshape(-1, width), axis=1)
            if not keep.all():
                sequences = _keep_rows(sequences, keep, width)
                empty += int(np.count_nonzero(~keep))
            written += int(np.count_nonzero(keep))
            if keep.any():
                with _writing(partial.parent):
                    writer.add(sequences, weights[keep] if plan.weighted else None)
            if progress:
                progress(written, tally.bytes_read)
        if not written:
            raise InputError(f"{tally.name}: the tokenizer makes no token of any of its sentences")
        with _writing(partial.parent):
            writer.finish(dtype, plan.fingerprint, special, tally.blank + empty)
    finally:
        with _writing(partial.parent):
            writer.close()


def _pipeline(
    rows: Iterable[Row], tokenizer: BatchTokenizer, plan: Plan, tally: Tally
) -> Iterator[tuple[list[str], np.ndarray, list[Encoding]]]:
    """(texts, weights, encodings) of each chunk; the next chunk is tokenised meanwhile."""
    waiting: tuple[list[str], np.ndarray, Future[list[Encoding]]] | None = None
    with ThreadPoolExecutor(1) as pool:
        for texts, weights in _chunks(rows, plan, tally):
            begun = (texts, weights, pool.submit(tokenizer.encode, texts))
            if waiting:
                yield waiting[0], waiting[1], waiting[2].result()
            waiting = begun
        if waiting:
            yield waiting[0], waiting[1], waiting[2].result()


def _chunks(
    rows: Iterable[Row], plan: Plan, tally: Tally
) -> Iterator[tuple[list[str], np.ndarray]]:
    """Groups of rows, bounded in number and in characters: texts row by row, and weights."""
    texts: list[str] = []
    weights: list[float] = []
    room = CHUNK_CHARACTERS
    width = len(plan.columns)
    for row in rows:
        if plan.weighted:
            weights.append(_weight(row[-1], tally))
        texts += row[:width]
        room -= sum(map(len, row))
        if room <= 0 or len(texts) >= CHUNK_ROWS:
            yield texts, np.array(weights)
            texts, weights, room = [], [], CHUNK_CHARACTERS
    if texts:
        yield texts, np.array(weights)


def _weight(text: str, tally: Tally) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{tally.place}: the weight '{text}' is no number >= 0")
    return value


def _keep_rows(sequences: Sequences, keep: np.ndarray, width: int) -> Sequences:
    """Leave out the rows that are not kept: those with a text that became no token at all."""
    chosen = np.repeat(keep, width)
    tokens = np.repeat(chosen, sequences.lengths)
    return Sequences(
        sequences.ids[tokens],
        sequences.lengths[chosen],
        sequences.starts[tokens],
        sequences.truncated[chosen],
    )


def _sweep(folder: Path) -> None:
    """Remove what killed processes left half made: partial stores that nobody has locked."""
    for partial in folder.glob(f"*{PARTIAL}"):
        with open(_lock_name(partial.with_suffix("")), "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(partial, ignore_errors=True)


def _lock_name(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Errors of the disk as OutputError."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"the token store cannot be written to {folder}: {error.strerror or error}; "
            "make room, or set CSE_CACHE to another folder"
        ) from error
