"""`cse info`: what a checkpoint is, and whether it is whole."""

from pathlib import Path
from typing import Annotated

import typer


def info(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CKPT", help="A folder of `cse train`.", show_default=False)
    ],
    verify: Annotated[
        bool, typer.Option("--verify", help="Hash every file and compare.", show_default=False)
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print cse.json as it is.")] = False,
) -> None:
    """Show what a checkpoint is: method, ingredients, pooler, lengths, step, score, versions.

    Example: cse info runs/sscl --verify
    """
    from json import dumps

    from cse_cli.checkpoint import MANIFEST, TRAIN, damage, manifest
    from cse_cli.cli.stdout import write_stdout
    from cse_cli.errors import InputError
    from cse_cli.progress import log

    if not (checkpoint / MANIFEST).is_file():
        missing = "no such folder" if not checkpoint.exists() else f"no {MANIFEST} in it"
        raise InputError(f"{checkpoint}: {missing}; not a checkpoint of `cse train`")
    record = manifest(checkpoint)
    wrong = damage(checkpoint, hashes=verify)
    if wrong is not None:
        raise InputError(f"the checkpoint is damaged: {wrong}")
    if verify:
        for step in sorted((checkpoint / TRAIN).glob("step-*")):
            wrong = damage(step, hashes=True)
            if wrong is not None:
                raise InputError(f"the checkpoint is damaged: {wrong}")
        log(f"{checkpoint}: every file matches its recorded SHA-256")
    if json:
        write_stdout(dumps(record, indent=2) + "\n")
        return
    shown = {key: value for key, value in record.items() if key not in ("files", "config")}
    shown["files"] = (
        f"{len(record['files'])}, {sum(f['bytes'] for f in record['files'].values())} bytes"
    )
    width = max(map(len, shown))
    lines = [f"{key.ljust(width)}  {_plain(value)}" for key, value in shown.items()]
    write_stdout("\n".join(lines) + "\n")


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)
