"""How the token store grows with the corpus: time to build, to start again, and private memory.

    python benchmarks/token_store.py                 # 10,000 to 1,000,000 lines
    python benchmarks/token_store.py --lines 1e7     # ten million (1.3 GB of text in --folder)

Lines are Wikipedia's (`$CSE_ASSETS/data/corpora/wiki60k.txt`), repeated, each made different by a
number behind its first word. Every measurement is a process of its own with an empty cache; the
private memory (RssAnon, so mapped files do not count) is sampled every 5 ms, and what the process
holds before it opens the corpus (Python, torch, tokenizer) is shown beside the peak.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ASSETS = Path(os.environ.get("CSE_ASSETS", Path(__file__).parents[2] / "shared"))
MODEL = ASSETS / "models" / "mlm-minilm-l6"
BATCH, BATCHES, LENGTH = 64, 2000, 32


class Sampler(threading.Thread):
    """Keeps the largest private memory seen, in MB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.base = self.peak = private_memory()

    def run(self) -> None:
        while True:
            self.peak = max(self.peak, private_memory())
            time.sleep(0.005)


def private_memory() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("this benchmark needs Linux's /proc")


def measure(path: str) -> None:
    """In a process of its own: open the corpus, draw shuffled batches, print what it took."""
    from transformers import AutoTokenizer

    from cse_cli.data.corpus import open_corpus
    from cse_cli.data.order import order
    from cse_cli.data.report import corpus_report

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.encode("warm")
    sampler = Sampler()
    sampler.start()
    begun, work = time.perf_counter(), time.process_time()
    corpus = open_corpus([path], tokenizer, max_length=LENGTH)
    opened, worked = time.perf_counter() - begun, time.process_time() - work
    report = corpus_report(corpus)
    rows = order(len(corpus), 42, 0)
    begun = time.process_time()
    for i in range(BATCHES):
        at = i * BATCH % (len(corpus) - BATCH)
        corpus.batch(rows[at : at + BATCH])
    batch = (time.process_time() - begun) / BATCHES
    print(
        json.dumps(
            {
                "open": opened,
                "cpu": worked,
                "batch_ms": batch * 1e3,
                "base_mb": sampler.base,
                "peak_mb": max(sampler.peak, private_memory()),
                "store_mb": sum(corpus.meta.files.values()) / 2**20,
                "duplicates": report["duplicates"],
            }
        )
    )


def synthesise(path: Path, lines: int) -> None:
    source = (ASSETS / "data" / "corpora" / "wiki60k.txt").read_text().splitlines()
    with path.open("w") as file:
        for i in range(lines):
            first, _, rest = source[i % len(source)].partition(" ")
            file.write(f"{first} {i} {rest}\n")


def child(path: Path, cache: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", str(path)]
    done = subprocess.run(
        command, env=os.environ | {"CSE_CACHE": cache}, check=True, stdout=subprocess.PIPE
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=float, nargs="+", default=[1e4, 1e5, 1e6])
    parser.add_argument("--folder", help="where the synthetic corpora and stores go for a while")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
        return
    print(f"{MODEL.name}, length {LENGTH}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(
        f"{'lines':>10} {'build s':>8} {'cpu s':>7} {'sent/s':>8} {'sent/cpu-s':>10}"
        f" {'store MB':>8} {'restart s':>9} {'batch ms':>8} {'base MB':>8}"
        f" {'build peak':>10} {'restart peak':>12}"
    )
    for lines in map(int, options.lines):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            path = Path(folder, "corpus.txt")
            synthesise(path, lines)
            time.sleep(2.5)  # a digest is kept only for a file that is older than two seconds
            build, restart = child(path, folder), child(path, folder)
        assert build["duplicates"] == restart["duplicates"]
        print(
            f"{lines:>10,} {build['open']:>8.1f} {build['cpu']:>7.1f} "
            f"{lines / build['open']:>8,.0f} {lines / build['cpu']:>10,.0f} "
            f"{build['store_mb']:>8.1f} {restart['open']:>9.3f} {restart['batch_ms']:>8.3f} "
            f"{build['base_mb']:>8.0f} {build['peak_mb']:>10.0f} {restart['peak_mb']:>12.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
