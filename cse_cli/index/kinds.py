"""The kinds of index, and what each derives from a shard's vectors to propose candidates.

A derived file `KIND.bin` and its record `KIND.json` lie beside the vectors; they can always be
made again. A shard of few rows is searched exactly whatever the kind: a graph would not be faster.
"""

import os
from pathlib import Path
from typing import Protocol

import numpy as np
from torch import Tensor

from cse_cli.errors import UsageError, suggestion
from cse_cli.index.approximate import Approximate, require_faiss, write_approximate
from cse_cli.index.exact import top_k
from cse_cli.index.quantised import CODES, Quantised, write_codes
from cse_cli.index.records import check_file, describe, read_record, write_record, writing
from cse_cli.index.shard import Shard
from cse_cli.index.ties import settle
from cse_cli.progress import log

KINDS = ("exact", "hnsw", "ivfpq", "int8", "binary")
EFFORT = {"hnsw": 64, "ivfpq": 200, "int8": 40, "binary": 200}
"""Candidates of a query that are rescored (hnsw: looked at), where nobody says how many."""
FEW = 10_000  # rows that are searched exactly in about the time of a graph walk


class Proposer(Protocol):
    """Chooses candidates in one shard."""

    def propose(self, queries: Tensor, wanted: int, effort: int) -> np.ndarray:
        """Places (Q, C) in the shard, C at least `wanted` if there are so many; -1 for none."""


class Exact:
    """Proposes the nearest vectors themselves."""

    SPARE = 8  # more than wanted, since single precision may swap neighbours

    def __init__(self, vectors: np.ndarray):
        self._vectors = vectors

    def propose(self, queries: Tensor, wanted: int, effort: int) -> np.ndarray:
        """The `wanted` nearest and a few more; more effort finds nothing better."""
        del effort
        scores, places = top_k(queries, self._vectors, wanted + self.SPARE)
        return settle(queries, self._vectors, scores, places, wanted).numpy()


def check_kind(kind: str) -> str:
    """`kind`, if it can be used here. UsageError for an unknown one or one that needs faiss."""
    if kind not in KINDS:
        raise UsageError(f"--index-type '{kind}' is unknown: {suggestion(kind, KINDS)}")
    if kind in ("hnsw", "ivfpq"):
        require_faiss(kind)
    return kind


def derive(shard: Shard, kind: str) -> None:
    """Make what `kind` needs beside the vectors of `shard`, where it is not there yet."""
    if _exact(shard, kind) or (shard.folder / f"{kind}.json").exists():
        return
    path = shard.folder / f"{kind}.bin"
    log(f"{path}: deriving from {len(shard)} vectors")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if kind in CODES:
            write_codes(shard.vectors, temporary, CODES[kind])
        else:
            write_approximate(shard.vectors, temporary, kind)
        with writing(path):
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    write_record(shard.folder / f"{kind}.json", {"rows": len(shard), "file": describe(path)})


def open_proposer(shard: Shard, kind: str, *, verify: bool) -> Proposer:
    """What chooses candidates in `shard`. InputError where a derived file is damaged."""
    if _exact(shard, kind):
        return Exact(shard.vectors)
    path = _checked(shard, kind, verify=verify)
    rows, dimension = shard.vectors.shape
    if kind in CODES:
        return Quantised(path, CODES[kind], (rows, dimension))
    return Approximate(path, kind, (rows, dimension))


def _exact(shard: Shard, kind: str) -> bool:
    return kind == "exact" or len(shard) < FEW


def _checked(shard: Shard, kind: str, *, verify: bool) -> Path:
    stated = read_record(shard.folder / f"{kind}.json")["file"]
    return check_file(shard.folder / f"{kind}.bin", stated, verify=verify)
