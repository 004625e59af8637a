"""`cse eval-sts` against the same seven tasks scored with sentence-transformers, task by task.

    python benchmarks/eval_sts.py [--rounds 3]

Both are whole commands in processes of their own, from start-up to the last score, in float32, in
turns; the medians are compared. The peer's loop is the plain one: for every task encode the first
sentences, encode the second ones, correlate. The scores of both are compared as well.
"""

import argparse
import json
import subprocess
import sys

from turns import ASSETS, MODEL, environment, header, in_turns, row

TASKS = ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R"]
DATA = ASSETS / "data" / "senteval"


def peer(tasks: list[str]) -> None:
    """The tasks with sentence-transformers; prints {task: spearman}."""
    import numpy as np
    import torch
    from scipy.stats import spearmanr
    from sentence_transformers import SentenceTransformer

    from cse_cli.data.sts import load_sts

    model = SentenceTransformer(str(MODEL), device="cpu", model_kwargs={"dtype": torch.float32})
    scores = {}
    for task in tasks:
        cosines, gold = [], []
        for pairs in load_sts(DATA, task).values():
            a, b = model.encode(pairs.a), model.encode(pairs.b)
            lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
            cosines.append((a * b).sum(axis=1) / lengths)
            gold.append(pairs.gold)
        statistic = spearmanr(np.concatenate(cosines), np.concatenate(gold)).statistic
        scores[task] = float(statistic)
    print(json.dumps(scores))


def worst_difference(ours: list[str], theirs: list[str]) -> float:
    """The largest difference between the two commands' scores, x 100."""

    def scores(command: list[str]) -> str:
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env=environment()
        ).stdout

    found = {
        found["task"]: found["value"]
        for found in json.loads(scores([*ours, "--json"]))["rows"]
        if found["metric"] == "spearman_all"
    }
    wanted = json.loads(scores(theirs))
    return max(100 * abs(found[task] - value) for task, value in wanted.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", default=TASKS, help="fewer, for a quick look")
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        peer(options.tasks)
        return
    ours = [sys.executable, "-m", "cse_cli", "eval-sts", str(MODEL), "--data-dir", str(DATA)]
    ours += ["--tasks", ",".join(options.tasks)]
    theirs = [sys.executable, __file__, "--peer", "--tasks", *options.tasks]
    seconds = in_turns({"cse": ours, "peer": theirs}, options.rounds)
    print(header(f"{len(options.tasks)} STS tasks, all-MiniLM-L6-v2, fp32"))
    print(row("whole command", seconds["cse"], seconds["peer"]))
    print(f"\nlargest difference of a score x 100: {worst_difference(ours, theirs):.4f}")


if __name__ == "__main__":
    main()
