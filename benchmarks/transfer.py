"""The linear classifiers on SentEval's tasks: against one fit at a time, in all, and as they grow.

    python benchmarks/transfer.py [--tasks MR CR ...] [--part fits seven growth]

Vectors of all-MiniLM-L6-v2 (texts of at most 128 tokens) are made first, or come from the cache;
times are of fitting alone. The reference (`senteval_reference.py`) fits the same classifier one
after the other with torch.nn and torch.optim, on as many threads as suit it best. Memory is the
peak of the process's private memory while it fits (RssAnon), vectors included.
"""

import argparse
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

import senteval_reference as reference
import torch
from turns import ASSETS, MODEL

from cse_cli.classifier import CLASSIFIERS, solver, train_test
from cse_cli.classifier.judge import features, judge_rows
from cse_cli.data.transfer import TRANSFER_TASKS, TransferData, load_transfer
from cse_cli.embedding_cache import CachedEncoder, embedding_cache
from cse_cli.encoder import Encoder

T = TypeVar("T")
Make = Callable[[TransferData], dict[str, torch.Tensor]]  # the rows of a task's splits
ROUNDS = 3  # of the fast side; the median counts


def vectors() -> Make:
    """From a task to the rows of its splits; a second run finds them in the cache."""
    encoder = Encoder.load(str(MODEL), max_length=128)

    def rows(data: TransferData) -> dict[str, torch.Tensor]:
        with embedding_cache() as folder:
            return features(CachedEncoder(encoder, folder), data, "all-MiniLM-L6-v2")

    return rows


def timed(work: Callable[[], T]) -> tuple[float, T]:
    begun = time.perf_counter()
    found = work()
    return time.perf_counter() - begun, found


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """The largest private memory in GiB seen while the block ran, as the list's only number."""
    peak, stop = [0.0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.05):
            with open("/proc/self/status") as status:
                size = next(line for line in status if line.startswith("RssAnon")).split()[1]
            peak[0] = max(peak[0], int(size) / 2**20)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        stop.set()
        watcher.join()


def best_threads(X: torch.Tensor, y: torch.Tensor, classes: int) -> int:
    """On how many threads the reference is fastest."""
    trial = reference.Settings(max_epoch=0, epoch_size=1)
    seconds = {}
    for threads in (1, torch.get_num_threads()):
        torch.set_num_threads(threads)
        reference.fit(X, y, classes, 1e-3, trial)  # torch.optim imports much at its first use
        seconds[threads], _ = timed(partial(reference.fit, X, y, classes, 1e-3, trial))
    return min(seconds, key=seconds.__getitem__)


def one_fit_at_a_time(rows: Make) -> None:
    """CR and TREC by both, in this process, one after the other."""
    threads, fit = torch.get_num_threads(), solver("senteval")
    print(f"| task | lock-step, s ({threads} threads) | one at a time, s | ratio | accuracies |")
    print("| --- | ---: | ---: | ---: | --- |")
    for task in ("CR", "TREC"):
        data = load_transfer(ASSETS / "data/senteval", task)
        made = rows(data)
        parts = [(X, torch.from_numpy(data.splits[name].y)) for name, X in made.items()]
        runs = [timed(partial(judge_rows, made, data, fit, dev=False)) for _ in range(ROUNDS)]
        fast, found = statistics.median(seconds for seconds, _ in runs), runs[0][1].outcome
        torch.set_num_threads(best_threads(*parts[0], len(data.classes)))
        used = torch.get_num_threads()
        if len(parts) == 1:
            slow, wanted = timed(partial(reference.nested, *parts[0], len(data.classes)))
        else:
            given = [tensor for part in parts for tensor in part]
            slow, wanted = timed(partial(reference.train_test, *given, len(data.classes)))
        torch.set_num_threads(threads)
        print(
            f"| {task} | {fast:.1f} | {slow:.1f} ({used} threads) | {slow / fast:.1f}x | "
            f"{100 * found.accuracy:.2f} and {wanted.accuracy:.2f}, "
            f"dev {100 * found.dev_accuracy:.2f} and {wanted.dev_accuracy:.2f} |",
            flush=True,
        )


def seven_tasks(rows: Make, tasks: list[str]) -> None:
    """Every task by both classifiers: seconds, accuracies, peak memory."""
    print("\n| task | senteval, s | accuracy | dev | lbfgs, s | accuracy | dev |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    total = dict.fromkeys(CLASSIFIERS, 0.0)
    with peak_memory() as peak:
        for task in tasks:
            data = load_transfer(ASSETS / "data/senteval", task)
            made, cells = rows(data), []
            for name in total:
                seconds, found = timed(partial(judge_rows, made, data, solver(name), dev=False))
                total[name] += seconds
                scores = found.outcome.accuracy, found.outcome.dev_accuracy
                cells.append(f"{seconds:.1f} | " + " | ".join(f"{100 * s:.2f}" for s in scores))
            print(f"| {task} | {' | '.join(cells)} |", flush=True)
    print(f"| together | {total['senteval']:.1f} | | | {total['lbfgs']:.1f} | | |")
    print(f"\npeak private memory: {peak[0]:.2f} GiB")


def growth() -> None:
    """Seconds of `senteval` and `lbfgs` on random clouds, as one of rows, width, folds grows."""
    print("\n| rows | width | folds | senteval, s | lbfgs, s |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    base = {"rows": 4000, "width": 384, "folds": 10}
    cases = [base, *({**base, "rows": n} for n in (2000, 8000, 16_000))]
    cases += [{**base, "width": d} for d in (192, 768, 1536)]
    cases += [{**base, "folds": k} for k in (5, 20)]
    for case in cases:
        draw = torch.Generator().manual_seed(0)
        y = torch.arange(case["rows"]) % 2
        X = torch.randn(case["rows"], case["width"], generator=draw)
        X[:, :8] += 0.5 * y[:, None]
        X /= X.norm(dim=1, keepdim=True)
        seconds = []
        for name in ("senteval", "lbfgs"):
            fit = replace(solver(name), folds=case["folds"])
            seconds.append(timed(partial(train_test, (X, y), (X, y), ["0", "1"], fit))[0])
        print(
            f"| {case['rows']} | {case['width']} | {case['folds']} | "
            f"{seconds[0]:.2f} | {seconds[1]:.2f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(TRANSFER_TASKS), help="of the seven")
    parser.add_argument(
        "--part",
        nargs="+",
        choices=("fits", "seven", "growth"),
        default=["fits", "seven", "growth"],
    )
    options = parser.parse_args()
    rows = vectors()
    if "fits" in options.part:
        one_fit_at_a_time(rows)
    if "seven" in options.part:
        seven_tasks(rows, options.tasks)
    if "growth" in options.part:
        growth()


if __name__ == "__main__":
    main()
