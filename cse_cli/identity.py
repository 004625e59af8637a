"""What an encoder's vectors depend on, so that kept ones are never taken for those of another."""

import hashlib
import json
from typing import Any

from cse_cli.encoder import DTYPES


def identity(encoder: Any) -> dict[str, Any]:
    """Fingerprint, precision, length and tokenizer (SHA-256) of an encoder.

    Equal ones give equal vectors. What has no weights or no tokenizer, since it makes its vectors
    in another way, has None for them.
    """
    return {
        "fingerprint": encoder.fingerprint,
        "precision": _precision(encoder),
        "max_length": encoder.max_length,
        "tokenizer": _tokenizer(encoder),
    }


def _precision(encoder: Any) -> str | None:
    backbone = getattr(encoder, "backbone", None)
    if backbone is None:
        return None
    found = next(backbone.parameters()).dtype
    return next(name for name, dtype in DTYPES.items() if dtype == found)


def _tokenizer(encoder: Any) -> str | None:
    tokenizer = getattr(encoder, "tokenizer", None)
    if tokenizer is None:
        return None
    settings = json.loads(tokenizer.backend_tokenizer.to_str())
    for passing in ("truncation", "padding"):  # left over from the last call
        settings.pop(passing, None)
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()
