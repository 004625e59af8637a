"""How training's speed and private memory grow: batch size, length, corpus, gradient cache.

    python benchmarks/train_growth.py [--steps 6] [--max-batch 1024] [--max-lines 10000000]

Each line is a run of `cse train` of its own. Memory is the largest RssAnon that the run reached
(what is mapped from files is not a run's own). A corpus is wiki60k's sentences, repeated with a
number in front up to the wanted lines; its token store is made by the first run and found by the
second. The last table has both, the others the second.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from itertools import cycle, islice
from pathlib import Path

from memory import private_memory
from turns import ASSETS, environment

MODEL = ASSETS / "models" / "mlm-minilm-l6"
CORPUS = ASSETS / "data" / "corpora" / "wiki60k.txt"
WARM = 2  # steps that are not counted


def run(folder: Path, text: Path, steps: int, *more: object) -> tuple[float, float, float]:
    """(sentences/s, peak RssAnon in MiB, seconds to the first step) of one run."""
    out = folder / "run"
    words = ["--model", MODEL, "--pooler", "cls", "--train-file", text, "--select", "last"]
    words += ["--max-steps", steps, "--save-steps", 0, "--out", out, "--overwrite", *more]
    command = [sys.executable, "-m", "cse_cli", "train", *map(str, words)]
    settings = environment() | {"CSE_CACHE": str(folder / "cache")}
    begun = time.time()
    child = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=settings, text=True
    )
    peak, first = [0], [0.0]

    def watch() -> None:
        metrics = out / "train" / "metrics.jsonl"
        while child.poll() is None:
            peak[0] = max(peak[0], private_memory(child.pid))
            if not first[0] and metrics.is_file() and metrics.stat().st_mtime > begun:
                first[0] = time.time() - begun if metrics.stat().st_size else 0.0
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    told = child.communicate()[1]
    watcher.join()
    if child.returncode:
        sys.exit(told)
    lines = (out / "train" / "metrics.jsonl").read_text().splitlines()
    speeds = [json.loads(line)["sentences_per_second"] for line in lines]
    counted = speeds[WARM:] or speeds
    return sorted(counted)[len(counted) // 2], peak[0] / 2**20, first[0]


def write_lines(path: Path, lines: int) -> Path:
    """A corpus of `lines` different lines."""
    with CORPUS.open(encoding="utf-8") as source, path.open("w", encoding="utf-8") as file:
        sentences = source.read().splitlines()
        file.writelines(
            f"{i // len(sentences)} {sentence}\n"
            for i, sentence in enumerate(islice(cycle(sentences), lines))
        )
    return path


def line(what: str, found: tuple[float, float, float]) -> None:
    """One row of the table."""
    print(f"| {what} | {found[0]:.1f} | {found[1]:.0f} | {found[2]:.1f} |", flush=True)


def header(what: str) -> None:
    """The two lines above the rows."""
    print(f"\n| {what} | sentences/s | peak RssAnon, MiB | s to the first step |")
    print("| --- | ---: | ---: | ---: |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--max-batch", type=int, default=1024)
    parser.add_argument("--max-lines", type=int, default=10_000_000)
    parser.add_argument("--chunk", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        text = write_lines(folder / "small.txt", 10_000)
        run(folder, text, 1)  # makes the token store
        header("batch, length 32")
        for batch in (16, 64, 256, 1024):
            if batch <= options.max_batch:
                size = ("--batch-size", batch)
                line(f"{batch}", run(folder, text, options.steps, *size))
                cached = (*size, "--chunk-size", options.chunk)
                line(f"{batch}, in chunks of {options.chunk}", run(folder, text, 3, *cached))
        header("length, batch 64")
        for length in (32, 64, 128, 256, 512):
            sizes = ("--max-length", length)
            run(folder, text, 1, *sizes)
            line(f"{length}", run(folder, text, options.steps, *sizes))
        header("lines of the corpus, batch 64, length 32")
        for lines in (10_000, 100_000, 1_000_000, 10_000_000):
            if lines <= options.max_lines:
                text = write_lines(folder / f"{lines}.txt", lines)
                for when in ("making the token store", "finding it"):
                    line(f"{lines:,}, {when}", run(folder, text, options.steps))


if __name__ == "__main__":
    main()
