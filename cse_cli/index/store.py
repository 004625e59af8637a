"""An index on disk: sentences and their vectors in shards, and a manifest of what they are.

    DIR/index.json            schema, checkpoint, dimension, kind, and the record of every shard
    DIR/shard-00000/ …        see `shard.py`; rows are counted through the shards in their order
    DIR/shard-00001.part/     a build that is under way, or was killed and will be resumed

A shard exists for a reader once the manifest names it, so readers never see half a build.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from cse_cli.errors import InputError
from cse_cli.identity import identity
from cse_cli.index.records import read_record
from cse_cli.index.shard import Shard

# Of an encoder's identity: how a difference is told, and what ends it.
_DIFFERENCES = (
    ("precision", "in {value}", "that --precision"),
    ("fingerprint", "({value})", "that checkpoint"),
    ("tokenizer", "with tokenizer {value}", "that tokenizer"),
    ("max_length", "cut at {value} tokens", "that --max-length"),
)
MANIFEST = "index.json"
SCHEMA = 2


@dataclass(frozen=True)
class Index:
    """An opened index; `starts` are the shards' first rows."""

    folder: Path
    manifest: Mapping[str, Any]
    shards: Sequence[Shard]
    starts: Sequence[int]

    @classmethod
    def open(cls, folder: str | Path, *, verify: bool = True) -> "Index":
        """Map the index in `folder`, comparing every file with its hash if `verify`.

        Without `verify` only the sizes are compared. Raises InputError where there is no index,
        or where a file is not what was written.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        if manifest is None:
            raise InputError(f"{folder}: {_absence(folder)}; build it with --corpus FILE")
        shards = [
            Shard.open(folder / record["name"], record, verify=verify)
            for record in manifest["shards"]
        ]
        starts = [0, *accumulate(map(len, shards))]
        return cls(folder, manifest, shards, starts)

    def __len__(self) -> int:
        return self.starts[-1]

    @property
    def dimension(self) -> int:
        """D of the vectors."""
        return int(self.manifest["dimension"])

    @property
    def kind(self) -> str:
        """The kind it was built as, one of `kinds.KINDS`."""
        return str(self.manifest["kind"])

    def text(self, row: int) -> str:
        """The sentence of a row, counted through all shards."""
        return self.shards[self._shard(row)].text(row - self.starts[self._shard(row)])

    def vector(self, row: int) -> np.ndarray:
        """The vector (D,) of a row, counted through all shards."""
        return self.shards[self._shard(row)].vectors[row - self.starts[self._shard(row)]]

    def require(self, encoder: Any) -> None:
        """InputError unless the vectors are those that `encoder` makes."""
        require_maker(self.folder, self.manifest, identity(encoder), encoder.name)

    def _shard(self, row: int) -> int:
        return bisect_right(self.starts, row) - 1


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of the index in `folder`; None where there is none."""
    path = folder / MANIFEST
    if not path.exists():
        return None
    manifest = read_record(path)
    if manifest["schema"] != SCHEMA:
        raise InputError(
            f"{path} has schema {manifest['schema']}, this version reads {SCHEMA}; build it again"
        )
    return manifest


def require_maker(
    folder: Path, manifest: Mapping[str, Any], maker: Mapping[str, Any], name: str
) -> None:
    """InputError unless the index was made by the encoder with the identity `maker`.

    Precision comes first: it changes the weights, so it can change the fingerprint too.
    """
    made = manifest["maker"]
    for key, told, remedy in _DIFFERENCES:
        if made[key] != maker[key]:
            held, given = (told.format(value=str(one[key])[:12]) for one in (made, maker))
            raise InputError(
                f"{folder} holds vectors of {manifest['model']} {held}, not of {name} {given}; "
                f"use it with {remedy}, or build another"
            )


def _absence(folder: Path) -> str:
    if not folder.exists():
        return "no such folder"
    if any(folder.glob("shard-*")):
        return "the index is unfinished"
    return "not an index"
