"""Every method from the same base, on the same sentences, for the same number of steps.

Each run is `cse train` and `cse eval-sts` as a user types them; a run that is there is not run
again, so the script can be stopped and started. Runs go seed by seed, so that a table of all
methods comes early. Prints Markdown: mean and sample standard deviation over the seeds of the seven
STS tasks (Spearman x 100), of their average and of its difference from SimCSE's with the same seed;
the fastest seed's sentences/s and the mean peak private memory, of the seeds in `--timed` alone
where others were trained on another machine.

DiffCSE's generator is the base itself, which has its masked-language-model head.

    python benchmarks/reproduce_methods.py [--assets ../shared] [--steps 300] [--seeds 0 1 2]
        [--learning-rate 5e-5] [--threads 2] [--device auto] [--out runs/reproduce]
        [--only NAME …] [--table] [--timed 1 2]
"""

import argparse
import json
import math
import os
import statistics
import sys
from pathlib import Path

from memory import watched

MODEL, CORPUS, DATA = "models/mlm-minilm-l6", "data/corpora/wiki60k.txt", "data/senteval"
TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "Avg")
BASE = "base"
RUNS: dict[str, list[str]] = {
    "SimCSE": [],
    "SSCL": ["--method", "sscl"],
    "SSCL progressive-2": ["--method", "sscl", "--neg-layer", "5", "--neg-layer", "4"],
    "word repetition": ["--with", "word-repetition"],
    "momentum queue": ["--with", "momentum-queue"],
    "ESimCSE": ["--method", "esimcse"],
    "GS-InfoNCE": ["--method", "gs-infonce"],
    "off-dropout": ["--with", "off-dropout"],
    "DCL": ["--with", "dcl"],
    "SimCSE++": ["--method", "simcse-pp"],
    "DiffCSE": ["--method", "diffcse"],
    "SSCL on ESimCSE": ["--method", "esimcse", "--with", "layer-negatives"],
    "SimCSE++ on DiffCSE": ["--method", "diffcse", "--with", "off-dropout", "--with", "dcl"],
}


def cse(*arguments: str) -> tuple[str, int]:
    """Standard output and peak private memory of a `cse` command."""
    return watched([sys.executable, "-m", "cse_cli", *arguments], os.environ, every=0.1)


def scores(checkpoint: Path | str, options: argparse.Namespace, *more: str) -> dict[str, float]:
    """Spearman x 100 of each task and of the average."""
    data = str(options.assets / DATA)
    output, _ = cse("eval-sts", str(checkpoint), "--data-dir", data, "--json", *more)
    rows = json.loads(output)["rows"]
    return {row["task"]: 100 * row["value"] for row in rows if row["metric"] == "spearman_all"}


def train(name: str, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """Train and score one run: the tasks, `speed` in sentences/s and `memory` in MiB."""
    folder = options.out / name.replace(" ", "-") / f"seed-{seed}"
    result = folder / "result.json"
    if result.exists():
        return json.loads(result.read_text())
    print(f"{name}, seed {seed} …", file=sys.stderr, flush=True)
    checkpoint = folder / "checkpoint"
    arguments = ["train", "--model", str(options.assets / MODEL), "--pooler", "cls"]
    arguments += ["--train-file", str(options.assets / CORPUS), "--batch-size", "64"]
    arguments += ["--max-length", "32", "--max-steps", str(options.steps), "--seed", str(seed)]
    arguments += ["--learning-rate", str(options.learning_rate), "--eval-steps", "50"]
    arguments += ["--threads", str(options.threads), "--device", options.device]
    arguments += ["--data-dir", str(options.assets / DATA), "--save-steps", "0"]
    arguments += ["--out", str(checkpoint), "--overwrite", *RUNS[name]]
    _, memory = cse(*arguments)
    metrics = (checkpoint / "train" / "metrics.jsonl").read_text().splitlines()
    speeds = [json.loads(line)["sentences_per_second"] for line in metrics]
    found = scores(checkpoint, options)
    found |= {"speed": statistics.median(speeds), "memory": memory / 2**20}
    result.write_text(json.dumps(found, indent=2) + "\n")
    return found


def base(options: argparse.Namespace) -> dict[str, float]:
    """The base as it stands, [CLS]."""
    result = options.out / "base.json"
    if not result.exists():
        found = scores(options.assets / MODEL, options, "--pooler", "cls")
        options.out.mkdir(parents=True, exist_ok=True)
        result.write_text(json.dumps(found, indent=2) + "\n")
    return json.loads(result.read_text())


def finished(name: str, options: argparse.Namespace) -> dict[int, dict[str, float]]:
    """The results of a method that are there, by seed."""
    folder = options.out / name.replace(" ", "-")
    files = {seed: folder / f"seed-{seed}" / "result.json" for seed in options.seeds}
    return {seed: json.loads(file.read_text()) for seed, file in files.items() if file.exists()}


def cell(values: list[float], digits: int = 2) -> str:
    """mean ± sample standard deviation; the value alone where there is one."""
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def table(options: argparse.Namespace) -> str:
    """All results that are there, as Markdown."""
    header = ["method", "seeds", *TASKS, "over SimCSE", "sentences/s", "peak memory, MiB"]
    rows = [header, ["---", *["---:"] * (len(header) - 1)]]
    plain = base(options)
    rows.append([BASE, "", *(f"{plain[task]:.2f}" for task in TASKS), "", "", ""])
    simcse = finished("SimCSE", options)
    for name in options.only:
        runs = finished(name, options)
        if not runs:
            continue
        row = [name, str(len(runs))]
        row += [cell([run[task] for run in runs.values()]) for task in TASKS]
        over = [run["Avg"] - simcse[seed]["Avg"] for seed, run in runs.items() if seed in simcse]
        row.append(cell(over) if over and name != "SimCSE" else "")
        timed = [run for seed, run in runs.items() if seed in options.timed or not options.timed]
        row.append(f"{max((run['speed'] for run in timed), default=math.nan):.0f}")
        row.append(f"{statistics.mean([run['memory'] for run in timed] or [math.nan]):.0f}")
        rows.append(row)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path(os.environ.get("CSE_ASSETS", "../shared"))
    parser.add_argument("--assets", type=Path, default=default)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path("runs/reproduce"))
    parser.add_argument("--only", nargs="*", choices=list(RUNS), default=list(RUNS))
    parser.add_argument("--timed", type=int, nargs="+", help="seeds whose speed is shown")
    parser.add_argument("--table", action="store_true", help="print what is there, run nothing")
    options = parser.parse_args()
    if not options.table:
        for seed in options.seeds:
            for name in options.only:
                train(name, seed, options)
    print(table(options))


if __name__ == "__main__":
    main()
