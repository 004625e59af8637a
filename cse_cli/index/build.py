"""Building an index: sentences are streamed through the encoder, block by block, into shards.

Every process that torchrun started writes the shard of its own share of the sentences; whichever
finishes last finds all of them whole and writes the manifest. An extension adds shards. Nothing but
one block of sentences and vectors is held in memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from cse_cli.errors import InputError, OutputError, UsageError
from cse_cli.identity import identity
from cse_cli.index.corpus import Corpus
from cse_cli.index.kinds import check_kind, derive
from cse_cli.index.records import read_record, write_record, writing
from cse_cli.index.shard import RECORD, Shard, ShardWriter
from cse_cli.index.store import MANIFEST, SCHEMA, read_manifest, require_maker
from cse_cli.maths import unit
from cse_cli.progress import log, track
from cse_cli.shards import process, share

BLOCK = 8192  # sentences encoded together and then noted as done


class Encodes(Protocol):
    """The part of `cse_cli.encoder.Encoder` that an index is made with.

    Precision and tokenizer are recorded too, where it has any.
    """

    name: str
    pooler: str
    max_length: int

    @property
    def fingerprint(self) -> str:
        """What tells encoders apart."""

    @property
    def dimension(self) -> int:
        """D of the vectors."""

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Vectors (n, D) of texts."""


def build_index(
    folder: str | Path,
    corpus: Corpus,
    encoder: Encodes,
    *,
    kind: str = "exact",
    extend: bool = False,
) -> bool:
    """See to it that `folder` is an index that holds `corpus`: build, resume, reuse or extend it.

    An index that holds other text is extended only with `extend`. Returns whether the index is
    complete: under torchrun only the process that finishes last can say so.

    Raises:
        UsageError: the folder holds something else, other text without `extend`, an unfinished
            build of something else, or is being written by another process.
        InputError: the index is another encoder's or corrupt, or a vector is not finite.
        OutputError: the folder cannot be written.
    """
    folder, (rank, world) = Path(folder), process()
    check_kind(kind)
    maker = identity(encoder)
    manifest = _present(folder, maker, encoder.name)
    if manifest is not None:
        if any(shard["origin"]["corpus"] == corpus.identity for shard in manifest["shards"]):
            return True
        if not extend:
            raise UsageError(
                f"{folder} holds other text than {corpus.source.label}; --extend adds it, "
                "without --corpus the index is used as it is"
            )
    if corpus.rows < world:
        raise UsageError(f"{corpus.rows} sentences cannot be shared by {world} processes")
    first = len(manifest["shards"]) if manifest else 0
    origin = {
        "corpus": corpus.identity,
        "rows": corpus.rows,
        "world": world,
        "maker": maker,
        "dimension": encoder.dimension,
    }
    mine = folder / _name(first + rank)
    if not mine.exists():
        _write_shard(mine, corpus, encoder, origin, share(corpus.rows, rank, world))
    record = _finished(mine, origin)
    if record is None:
        raise UsageError(f"{mine} is of other text or another checkpoint; finish that or remove it")
    derive(Shard.open(mine, record, verify=False), kind)
    return _publish(folder, manifest or _manifest(encoder, maker, kind), origin, first)


def _write_shard(
    folder: Path, corpus: Corpus, encoder: Encodes, origin: dict[str, Any], rows: range
) -> None:
    writer = ShardWriter(folder, origin)
    if writer.rows:
        log(f"{folder}: resuming at sentence {writer.rows} of {len(rows)}")
    texts = islice(corpus.texts(), rows.start + writer.rows, rows.stop)
    blocks = -(-(len(rows) - writer.rows) // BLOCK)
    label = f"indexing with {encoder.name}"
    try:
        for block in track(_blocks(texts), blocks, label):
            writer.append(block, _vectors(encoder, block))
        if writer.rows != len(rows):
            raise InputError(f"{corpus.source.label} was changed while it was read; start again")
        writer.finish()
    finally:
        writer.close()


def _blocks(texts: Iterator[str]) -> Iterator[list[str]]:
    while block := list(islice(texts, BLOCK)):
        yield block


def _vectors(encoder: Encodes, texts: Sequence[str]) -> np.ndarray:
    """Unit vectors (B, D) float32 of sentences."""
    vectors = unit(encoder.encode(texts).float())
    broken = (~vectors.isfinite().all(dim=1)).nonzero()
    if len(broken):
        text = texts[int(broken[0])]
        raise InputError(f"{encoder.name} gives a vector that is not finite for '{text[:60]}'")
    return vectors.numpy()


def _present(folder: Path, maker: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """The manifest that is there already; refuses a folder that an index cannot be put in."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"cannot write {folder}: it is a file, not a folder")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        manifest = read_manifest(folder)
        foreign = [path for path in folder.iterdir() if not path.name.startswith(("shard-", "."))]
        if manifest is None and foreign:
            raise UsageError(f"{folder} holds files that are no index; choose another --index")
    if manifest is not None:
        require_maker(folder, manifest, maker, name)
    return manifest


def _name(number: int) -> str:
    return f"shard-{number:05d}"


def _finished(folder: Path, origin: dict[str, Any]) -> dict[str, Any] | None:
    """The record of a shard that is whole and of this origin."""
    if not folder.exists():
        return None
    record = read_record(folder / RECORD)
    return record if record["origin"] == origin else None


def _manifest(encoder: Encodes, maker: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kind": kind,
        "model": encoder.name,
        "maker": maker,
        "pooler": encoder.pooler,
        "dimension": encoder.dimension,
        "dtype": "float32",
        "shards": [],
    }


def _publish(folder: Path, manifest: dict[str, Any], origin: dict[str, Any], first: int) -> bool:
    """Name the new shards in the manifest, if all of them are whole.

    Every process asks this after its own shard is whole, so the last one says yes. Two that ask at
    the same moment write the same bytes.
    """
    names = [_name(first + rank) for rank in range(origin["world"])]
    records = [_finished(folder / name, origin) for name in names]
    if None in records:
        return False
    added = [
        {"name": name, **record} for name, record in zip(names, records, strict=True) if record
    ]
    write_record(folder / MANIFEST, {**manifest, "shards": [*manifest["shards"], *added]})
    return True
