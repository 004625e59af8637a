"""`cse train --seeds 0-4`: the same run with several seeds, and a table of their mean and spread.

OUT/seed-0/  OUT/seed-1/ …   one checkpoint each
OUT/summary.json             every seed's score, with mean and sample standard deviation
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from cse_cli.cli.group import Interrupted
from cse_cli.errors import CseError, OutputError, UsageError
from cse_cli.files import whole_file
from cse_cli.methods.resolve import Run
from cse_cli.render.document import to_json

if TYPE_CHECKING:
    from cse_cli.results import Table

SUMMARY = "summary.json"
COMMAND = "train --seeds"
POLL = 0.05  # seconds between looks at the seeds that run


def parse_seeds(text: str) -> list[int]:
    """The seeds that `0-4` or `0,3,5` names, in order, each once; UsageError for anything else."""
    seeds: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if not found or int(found[2] or found[1]) < int(found[1]):
            raise UsageError(f"--seeds {text}: a range such as 0-4 or a list such as 0,3,5")
        seeds += range(int(found[1]), int(found[2] or found[1]) + 1)
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"--seeds {text}: a seed is named twice")
    return seeds


def train_seeds(
    run: Run, seeds: Sequence[int], out: Path, *, jobs: int, overwrite: bool, resume: bool
) -> "Table":
    """Train `run` once a seed into OUT/seed-N, `jobs` at a time, and write OUT/summary.json.

    Each seed is a process of its own, so that seeds share nothing. With `resume` a finished seed
    is kept and an unfinished one goes on. Raises the first failed seed's error, and Interrupted
    for a signal, which every running seed is given too.
    """
    check_folder(out, overwrite=overwrite, resume=resume)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error.strerror}") from None
    commands = [_command(run, seed, out, overwrite=overwrite, resume=resume) for seed in seeds]
    codes = run_beside(commands, places(run.train.device, jobs))
    for seed, code in zip(seeds, codes, strict=True):
        if code:
            raise SeedFailed(out / f"seed-{seed}", code)
    table = summary(out, seeds)
    with whole_file(out / SUMMARY) as file:
        file.write(to_json([row.as_dict() for row in table], COMMAND, run.flat()).encode())
    return table


def places(device: str, jobs: int) -> list[dict[str, str]]:
    """For each of `jobs` running beside each other, the variables that say which GPU is its own."""
    if jobs == 1 or not device.startswith("cuda"):
        return [{}] * jobs
    if ":" in device:
        raise UsageError(f"--device {device}: --jobs {jobs} share all GPUs; take --device cuda")
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    cards = visible.split(",") if visible else [str(i) for i in range(torch.cuda.device_count())]
    return [{"CUDA_VISIBLE_DEVICES": cards[job % len(cards)]} for job in range(jobs)]


def run_beside(commands: Sequence[Sequence[str]], places: list[dict[str, str]]) -> list[int]:
    """Run `commands`, as many at a time as there are `places`; their exit codes in order.

    A signal is handed to all that run, and ends this too once they have saved (Interrupted).
    """
    waiting = list(enumerate(commands))
    free = list(places)
    running: dict[int, tuple[subprocess.Popen[bytes], dict[str, str]]] = {}
    codes = [0] * len(commands)
    told = [0]

    def pass_on(number: int, _frame: Any) -> None:
        told[0] = number
        for child, _ in running.values():
            child.send_signal(number)

    before = {n: signal.signal(n, pass_on) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        while running or (waiting and not told[0]):
            if waiting and free and not told[0]:
                (i, command), place = waiting.pop(0), free.pop(0)
                environment = {**os.environ, **place}
                child = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
                running[i] = (child, place)
                continue
            time.sleep(POLL)
            for i, (child, place) in list(running.items()):
                if child.poll() is not None:
                    codes[i] = child.returncode
                    free.append(place)
                    del running[i]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if told[0]:
        raise Interrupted(128 + told[0])
    return codes


class SeedFailed(CseError):
    """One seed's run failed; the exit code is that run's own."""

    def __init__(self, folder: Path, code: int):
        super().__init__(f"{folder} failed, see above; --resume goes on with what is missing")
        self.exit_code = code if code > 0 else 128 - code


def check_folder(out: Path, *, overwrite: bool, resume: bool) -> None:
    """Refuse a folder that holds anything but seeds, or seeds that nobody said what to do with."""
    if not out.exists():
        return
    if not out.is_dir():
        raise OutputError(f"{out} is a file, not a folder")
    names = [path.name for path in out.iterdir() if not path.name.startswith(".")]
    if any(not re.fullmatch(r"seed-\d+", name) and name != SUMMARY for name in names):
        raise UsageError(f"{out} holds files that are no runs of several seeds; choose another")
    if names and not (overwrite or resume):
        raise UsageError(f"{out} already holds runs; --resume them or --overwrite them")


def _command(run: Run, seed: int, out: Path, *, overwrite: bool, resume: bool) -> list[str]:
    """The command line that trains one seed, or goes on with it."""
    folder = out / f"seed-{seed}"
    words = _words(run, seed)
    if resume and (folder / "train" / "config.toml").is_file():
        words = ["--resume"]
    elif overwrite:
        words = [*words, "--overwrite"]
    return [sys.executable, "-m", "cse_cli", "train", *words, "--out", str(folder)]


def _words(run: Run, seed: int) -> list[str]:
    """The run's settings as `--set` words, exactly as they were resolved."""
    from cse_cli.training.record import config_toml

    settings = Run(replace(run.train, seed=seed), run.parts).flat()
    return [word for line in config_toml(settings).splitlines() for word in ("--set", line)]


def summary(out: Path, seeds: Sequence[int]) -> "Table":
    """Each seed's score on what selected its checkpoint, then `mean` and `sd` over seeds."""
    from cse_cli.checkpoint import manifest
    from cse_cli.results import Table

    table = Table()
    scores = []
    for seed in seeds:
        record = manifest(out / f"seed-{seed}")
        score = record["dev_score"]
        if score is not None:
            scores.append(float(score))
            table.add(out.name, record["select"], "dev", "score", score, 1, seed=str(seed))
    if scores:
        task = table.rows[0].task
        table.add(out.name, task, "dev", "score", fmean(scores), len(scores), seed="mean")
    if len(scores) > 1:
        table.add(out.name, task, "dev", "score", stdev(scores), len(scores), seed="sd")
    return table
