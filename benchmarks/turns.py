"""Two commands timed in turns, so that a busy machine slows both alike."""

import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from memory import watched

ASSETS = Path(os.environ.get("CSE_ASSETS", Path(__file__).parents[2] / "shared"))
MODEL = ASSETS / "models" / "all-MiniLM-L6-v2"


def in_turns(commands: Mapping[str, Sequence[str]], rounds: int) -> dict[str, list[float]]:
    """Wall seconds of each command, start-up included, `rounds` times one after the other.

    Times and peaks of the private memory are told as they come.
    """
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(rounds):
        for name, command in commands.items():
            begun = time.perf_counter()
            peak = watched(command, environment(), every=0.2)[1] / 2**20
            seconds[name].append(time.perf_counter() - begun)
            told = f"{seconds[name][-1]:.1f} s, at most {peak:.0f} MiB of private memory"
            print(f"round {turn + 1}, {name}: {told}", file=sys.stderr)
    return seconds


def environment() -> dict[str, str]:
    """The environment of both: no look at the network."""
    return {**os.environ, "HF_HUB_OFFLINE": "1"}


def row(what: str, ours: Sequence[float], theirs: Sequence[float]) -> str:
    """One line of a Markdown table: medians, and their ratio."""
    our, their = statistics.median(ours), statistics.median(theirs)
    return f"| {what} | {our:.1f} | {their:.1f} | {their / our:.2f}x |"


def header(what: str) -> str:
    """The two lines above the rows."""
    return f"| {what} | cse, s | sentence-transformers, s | ratio |\n| --- | ---: | ---: | ---: |"
