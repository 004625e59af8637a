"""A run that is killed again and again, as a test and as the program it kills.

    python -m tests.kills WHERE N -- train --model …

runs the command line in this process and kills it (SIGKILL, no chance to clean up) at the Nth call
of WHERE, one of `PLACES`: while a step's gradients are there and not applied, between the files of
a state or a checkpoint, in the middle of an evaluation, while files are published.
"""

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.runs import environment

# name: (module, attribute) whose Nth call is the last thing the process does
PLACES = {
    "step": ("cse_cli.training.loop", "training_step"),
    "optimiser": ("torch.nn.utils", "clip_grad_norm_"),
    "evaluation": ("cse_cli.encoder", "Encoder.encode"),
    "state": ("cse_cli.training.state", "save_file"),
    "index": ("cse_cli.training.state", "digest"),
    "checkpoint": ("cse_cli.checkpoint", "write_layout"),
    "publish": ("cse_cli.checkpoint", "sync_one"),
    "metrics": ("cse_cli.training.metrics", "MetricsFile.write"),
}


def kill_at(place: str, number: int) -> None:
    """Have this process killed at the `number`th call of `place`, after that call's own work."""
    module, path = PLACES[place]
    owner: Any = importlib.import_module(module)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    real: Callable[..., Any] = getattr(owner, name)
    left = [number]

    def doomed(*args: Any, **options: Any) -> Any:
        result = real(*args, **options)
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, doomed)


def killed_run(place: str, number: int, words: list[str], cwd: Path) -> bool:
    """Run `cse` with `words` until it is killed; False where it ended before the kill."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.kills", place, str(number), "--", *words],
        cwd=cwd,
        env=environment(PYTHONPATH=str(Path(__file__).parents[1])),
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def main() -> None:
    """The program that is killed."""
    place, number, _, *words = sys.argv[1:]
    kill_at(place, int(number))
    sys.argv = ["cse", *words]
    from cse_cli.__main__ import main as cse

    cse()


if __name__ == "__main__":
    main()
