"""`make demo`: train SSCL on the built-in demo, score it beside the untrained base, and say so."""

import subprocess
import sys
import tempfile
from pathlib import Path

from cse_cli.data.builtin import demo_model


def cse(*words: str) -> str:
    """Run one command, showing what is typed; its standard output comes back."""
    print(f"$ cse {' '.join(words)}", flush=True)
    command = [sys.executable, "-m", "cse_cli", *words]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    print(result.stdout, flush=True)
    return result.stdout


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "sscl")
        cse("train", "--method", "sscl", "--neg-layer", "11", "--out", out)
        cse("eval-sts", str(demo_model()), out, "--pooler", "cls")
        cse("info", out)


if __name__ == "__main__":
    main()
