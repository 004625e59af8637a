"""What `cse probe-smoothing` costs beside plainly encoding the same sentences.

Time: SetSim and TokSim of STS-B test against `Encoder.encode` of it, in turn, in one process. Both
see every distinct sentence once. Wall time is what counts; on a busy machine processor time tells
more. Memory: the private memory of a process that probes the sentences, and of one that probes four
times as many distinct ones, above what the loaded model holds. There, glibc hands large blocks back
as soon as they are freed, so that what is measured is what is held, not what the allocator keeps.

    python benchmarks/smoothing.py [--assets ../shared] [--repeats 5] [--threads N]
"""

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
from memory import private_memory

from cse_cli.data.sts import load_sts
from cse_cli.encoder import Encoder
from cse_cli.tasks.smoothing import smoothing

MODEL = "models/all-MiniLM-L6-v2"


def stsb(assets: Path) -> list[str]:
    pairs = load_sts(assets / "data" / "senteval", "STS-B")["STS-B"]
    return [*pairs.a, *pairs.b]


def probe(encoder: Encoder, texts: list[str]) -> float:
    table = smoothing(
        encoder.stream, texts, poolers=[encoder.pooler], model="m", task="STS-B", split="test"
    )
    return table.value(metric="toksim", layer=encoder.num_layers)


def seconds(action, *arguments) -> tuple[float, float]:
    """Wall and processor time."""
    wall, processor = time.perf_counter(), time.process_time()
    action(*arguments)
    return time.perf_counter() - wall, time.process_time() - processor


def peak_growth(assets: Path, times: int) -> float:
    """MiB above the loaded model while `times` x 2758 distinct sentences are probed."""
    texts = stsb(assets)
    texts = [f"{text} {i}" if i else text for i in range(times) for text in texts]
    encoder = Encoder.load(str(assets / MODEL))
    encoder.encode(texts[:512])
    base, peak, done = private_memory(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.02):
            peak = max(peak, private_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    probe(encoder, texts)
    done.set()
    watcher.join()
    return (peak - base) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = os.environ.get("CSE_ASSETS", "../shared")
    parser.add_argument("--assets", type=Path, default=Path(default))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--memory", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.memory:
        print(peak_growth(options.assets, options.memory))
        return
    encoder = Encoder.load(str(options.assets / MODEL))
    texts = stsb(options.assets)
    encoder.encode(texts[:512])
    plain, probed = [], []
    for _ in range(options.repeats):
        plain.append(seconds(encoder.encode, texts))
        probed.append(seconds(probe, encoder, texts))
    print(f"sentences {len(texts)} ({len(set(texts))} distinct), threads {options.threads}")
    for kind, name in enumerate(("wall", "processor")):
        one, other = [run[kind] for run in plain], [run[kind] for run in probed]
        ratio = statistics.median(b / a for a, b in zip(one, other, strict=True))
        spread = max(one) / min(one)
        print(
            f"{name:9} time: encoding {statistics.median(one):.2f} s, SetSim + TokSim "
            f"{statistics.median(other):.2f} s, ratio {ratio:.2f} "
            f"(encoding against itself: up to {spread:.2f})"
        )
    for times in (1, 4):
        command = [sys.executable, __file__, "--assets", str(options.assets), "--threads"]
        command += [str(options.threads), "--memory", str(times)]
        environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
        run = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
        grown = float(run.stdout)
        print(f"private memory above the model, {times * len(texts):6d} sentences: {grown:.0f} MiB")


if __name__ == "__main__":
    main()
