"""The versions that a result or a checkpoint was made with."""

import platform
from importlib import metadata

from cse_cli import __version__

_DISTRIBUTIONS = {
    "torch": "torch",
    "transformers": "transformers",
    "numpy": "numpy",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
}


def versions() -> dict[str, str]:
    """Version of `cse_cli`, `python` and the libraries; read from metadata, nothing is imported."""
    found = {"cse_cli": __version__, "python": platform.python_version()}
    for name, distribution in _DISTRIBUTIONS.items():
        found[name] = metadata.version(distribution)
    return found
