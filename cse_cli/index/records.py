"""Small JSON records of an index, which know whether they and the files they describe are whole.

A record carries the SHA-256 of its own content; a file is described by its size and SHA-256.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cse_cli.errors import InputError, OutputError
from cse_cli.files import whole_file

OWN = "record_sha256"


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write `record` as JSON, whole or not at all. OutputError where that cannot be done."""
    with whole_file(path) as file:
        text = json.dumps({**record, OWN: _digest(record)}, indent=1, ensure_ascii=False)
        file.write(text.encode() + b"\n")


def read_record(path: Path) -> dict[str, Any]:
    """The record at `path`. InputError where it is missing, damaged, or no record."""
    try:
        record = json.loads(path.read_bytes())
        stated = record.pop(OWN)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise corrupt(path) from None
    if stated != _digest(record):
        raise corrupt(path)
    return record


def describe(path: Path) -> dict[str, Any]:
    """Size and SHA-256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def check_file(path: Path, stated: Mapping[str, Any], *, verify: bool) -> Path:
    """`path`, if it has the stated size and, with `verify`, hash; InputError otherwise."""
    try:
        whole = path.stat().st_size == stated["bytes"]
        if whole and verify:
            whole = describe(path) == dict(stated)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    if not whole:
        raise corrupt(path)
    return path


def corrupt(path: Path) -> InputError:
    """The error for a file that is not what was written."""
    return InputError(f"the index is corrupt: {path} is not as it was written; build it again")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError inside into the OutputError that says `path` cannot be written."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def _digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
