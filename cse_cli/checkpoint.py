"""The checkpoint directory: one format, written whole or not at all, verified when read.

    ckpt/               sentence-transformers files + README.md + cse.json, the best step
    ckpt/train/step-N/  the same layout, immutable, renamed into place when whole

`cse.json` records what the run was, and size and SHA-256 of every other file. Publishing a step
to the root replaces file by file and writes `cse.json` last, between raising and lowering a flag
file: a root that a kill left half replaced does not match its `cse.json`, and the loader falls back
to the whole `step-N` it names.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cse_cli.errors import CseError, InputError, OutputError
from cse_cli.layout import Layout, read_json, write_layout
from cse_cli.progress import warn

MANIFEST = "cse.json"
SCHEMA = 1
TRAIN = "train"
PUBLISHING = ".publishing"


def save(
    folder: Path, encoder: Any, record: dict[str, Any], card: str, *, max_length: int | None = None
) -> None:
    """Write `encoder` and `record` as a checkpoint `folder`, which appears only when whole.

    `card` is the text of README.md, `max_length` the evaluation length where it is not the
    encoder's present one. Raises OutputError where the folder cannot be written.
    """
    layout = Layout(
        pooler=encoder.pooler,
        normalize=encoder.normalize,
        max_length=max_length or encoder.max_length,
        dense=kept_dense(encoder),
    )

    def write(place: Path) -> None:
        """Every file of the checkpoint, in the folder that will be renamed."""
        backbone = encoder.backbone
        two_layers = layout.pooler not in ("cls", "mean", "max")
        backbone.config.output_hidden_states = two_layers
        backbone.save_pretrained(place)
        backbone.config.output_hidden_states = False
        encoder.tokenizer.save_pretrained(place)
        write_layout(place, layout, width=encoder.width, num_layers=encoder.num_layers)
        (place / "README.md").write_text(card, encoding="utf-8")
        write_manifest(place, record)

    write_whole(folder, write)


def kept_dense(encoder: Any) -> list[Any]:
    """The dense layers that stay at evaluation, as sentence-transformers' Dense modules."""
    from cse_cli.heads import DenseHead

    if not encoder.keep_head:
        return []
    return [module for module in encoder.head.modules() if isinstance(module, DenseHead)]


def write_whole(folder: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a new folder beside `folder`, sync it to disk, and rename it into place.

    Raises OutputError (and leaves nothing behind) where the disk is full or read-only.
    """
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        write(temporary)
        sync(temporary)
        if folder.exists():
            old = folder.with_name(f".{folder.name}.old")
            shutil.rmtree(old, ignore_errors=True)
            folder.rename(old)
            temporary.rename(folder)
            shutil.rmtree(old, ignore_errors=True)
        else:
            temporary.rename(folder)
        sync_one(folder.parent)
    except CseError:
        raise
    except Exception as error:  # safetensors wraps a full disk in an error of its own
        if isinstance(error, OSError) or "I/O error" in str(error) or "No space" in str(error):
            raise OutputError(f"{folder} cannot be written: {error}") from None
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def sync(folder: Path) -> None:
    """Force every file of `folder`, and the folder itself, to the disk."""
    for path in [*folder.rglob("*"), folder]:
        sync_one(path)


def sync_one(path: Path) -> None:
    """Force one file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path, record: dict[str, Any]) -> None:
    """Write `cse.json`: the record, with size and hash of every other file of the checkpoint."""
    files = {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": digest(path)}
        for path in members(folder)
    }
    text = json.dumps({"schema": SCHEMA, **record, "files": files}, indent=2, default=str)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def members(folder: Path) -> list[Path]:
    """The files that belong to the checkpoint at `folder`: all but `cse.json` and `train/`."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and path.name != MANIFEST
        and path.relative_to(folder).parts[0] != TRAIN
        and not path.relative_to(folder).parts[0].startswith(".")
    )


def publish(step: Path, root: Path) -> None:
    """Make the whole checkpoint `step` the one at `root`, file by file, `cse.json` last."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        (root / PUBLISHING).touch()
        for path in [*members(step), step / MANIFEST]:
            target = root / path.relative_to(step)
            target.parent.mkdir(exist_ok=True)
            temporary = target.with_name(f".{target.name}.new")
            shutil.copyfile(path, temporary)
            sync_one(temporary)
            temporary.replace(target)
        sync_one(root)
        (root / PUBLISHING).unlink()
    except OSError as error:
        raise OutputError(f"{root} cannot be written: {error}") from None


def manifest(folder: Path) -> dict[str, Any]:
    """The contents of `cse.json`; InputError where it is missing, damaged or from a newer cse."""
    record = read_json(folder / MANIFEST)
    if not isinstance(record, dict) or not _lists_files(record.get("files")):
        raise InputError(f"{folder / MANIFEST} is damaged: no list of files")
    if not isinstance(record.get("schema"), int):
        raise InputError(f"{folder / MANIFEST} is damaged: no schema")
    if record["schema"] > SCHEMA:
        raise InputError(f"{folder / MANIFEST}: schema {record['schema']} needs a newer cse")
    return record


def _lists_files(files: Any) -> bool:
    """Whether `files` has the form that `write_manifest` gives it."""
    return isinstance(files, dict) and all(
        isinstance(entry, dict)
        and isinstance(entry.get("bytes"), int)
        and isinstance(entry.get("sha256"), str)
        for entry in files.values()
    )


def damage(folder: Path, *, hashes: bool = False) -> str | None:
    """What is wrong with the checkpoint at `folder`, naming the file; None where all is well.

    Sizes are compared always, contents only with `hashes`.
    """
    for name, wanted in manifest(folder)["files"].items():
        path = folder / name
        if not path.is_file():
            return f"{path} is missing"
        if path.stat().st_size != wanted["bytes"]:
            return f"{path} has {path.stat().st_size} bytes instead of {wanted['bytes']}"
        if hashes and digest(path) != wanted["sha256"]:
            return f"{path} does not match its recorded SHA-256"
    return None


def resolve(folder: Path) -> Path:
    """The folder to load: `folder`, or the whole step it was published from if it is damaged.

    A folder without `cse.json` is somebody else's and returned as it is. Raises InputError, with
    the damaged file's name, where no whole step is left.
    """
    if not (folder / MANIFEST).is_file():
        if (folder / TRAIN).is_dir():
            raise InputError(f"{folder} holds a run but no checkpoint yet ({MANIFEST} is missing)")
        return folder
    wrong = damage(folder, hashes=(folder / PUBLISHING).exists())
    if wrong is None:
        return folder
    step = folder / TRAIN / f"step-{manifest(folder).get('step')}"
    if (step / MANIFEST).is_file() and damage(step) is None:
        warn(f"{wrong}; using {step} instead")
        return step
    raise InputError(f"the checkpoint is damaged: {wrong}")
