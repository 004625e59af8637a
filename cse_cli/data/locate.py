"""Where the evaluation data and downloaded files are: option, environment, default.

The SentEval folder is the one that holds `downstream/` (and `probing/`), as the SentEval toolkit
lays it out: `--data-dir`, else `CSE_DATA`, else none, and the caller falls back on the demo set.
"""

import os
from pathlib import Path

from cse_cli.errors import InputError

DATA_VARIABLE = "CSE_DATA"
CACHE_VARIABLE = "CSE_CACHE"


def resolve_data_dir(option: str | Path | None = None) -> Path | None:
    """The SentEval folder: `option`, else `CSE_DATA`, else None (nothing is configured).

    The folder that holds `downstream/` is meant; its parent (what `cse data fetch --out` filled)
    and `downstream/` itself are understood too. Raises InputError where the configured folder
    does not exist. Whether a task is in it is the business of that task's reader.
    """
    source, given = "--data-dir", option
    if given is None:
        source, given = DATA_VARIABLE, os.environ.get(DATA_VARIABLE) or None
    if given is None:
        return None
    folder = _expanded(source, given)
    if not folder.is_dir():
        raise InputError(
            f"{source} is '{given}', which is not a folder; "
            "point it at a SentEval folder, or get one with `cse data fetch senteval`"
        )
    return senteval_root(folder)


def cache_folder() -> Path:
    """Where downloads and token stores go: `CSE_CACHE`, else `cse` in the user's cache folder.

    The user's cache folder is `XDG_CACHE_HOME`, else `~/.cache`. Nothing is created here.
    Raises InputError where `~` is nobody's home.
    """
    own = os.environ.get(CACHE_VARIABLE)
    if own:
        return _expanded(CACHE_VARIABLE, own)
    return _expanded("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "cse"


def _expanded(source: str, given: str | Path) -> Path:
    """`given` with `~` replaced; InputError where that is nobody's home."""
    try:
        return Path(given).expanduser()
    except RuntimeError:
        raise InputError(f"{source} is '{given}', but no such home folder is known") from None


def fetched_folder() -> Path:
    """Where `cse data fetch` puts datasets when no folder is asked for."""
    return cache_folder() / "data"


def senteval_root(folder: Path) -> Path:
    """`folder`, its child `senteval/` or its parent: whichever holds `downstream/`; else itself."""
    if (folder / "downstream").is_dir():
        return folder
    if (folder / "senteval" / "downstream").is_dir():
        return folder / "senteval"
    if folder.resolve().name == "downstream":
        return folder.resolve().parent
    return folder
