"""The JSON document that every command's `--json` prints, schema 1.

{"schema": 1, "command": …, "rows": […], "config": {…}, "versions": {…}}
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from cse_cli.versions import versions

SCHEMA = 1


def to_json(rows: Sequence[Mapping[Any, Any]], command: str, config: Mapping[str, Any]) -> str:
    """The document as text; NaN and infinity, which JSON lacks, are null."""
    document = {
        "schema": SCHEMA,
        "command": command,
        "rows": rows,
        "config": config,
        "versions": versions(),
    }
    return json.dumps(_plain(document), indent=2, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """`value` in JSON's own types; anything else (a path, say) as its text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):  # a NumPy scalar
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else str(value)
