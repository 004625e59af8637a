"""A small SentEval folder: every STS task, its files and quirks, a few pairs each."""

import random
from pathlib import Path

from cse_cli.data.sts import STS_TASKS, sts_files

PAIRS = 12


def write_sts_tree(folder: Path, words: list[str], *, seed: int = 0) -> Path:
    """All seven tasks under `folder/downstream`, `PAIRS` pairs a file; returns `folder`."""
    draw = random.Random(seed)
    for task in STS_TASKS:
        for split in ("train", "dev", "test") if task in ("STS-B", "SICK-R") else ("test",):
            for name in sts_files(task, split):
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(_contents(name, words, draw), encoding="utf-8")
    return folder


def _contents(name: str, words: list[str], draw: random.Random) -> str:
    def sentence() -> str:
        return " ".join(draw.choices(words, k=draw.randint(3, 8)))

    def score() -> str:
        return f"{5 * draw.random():.3f}"

    if ".gs." in name:
        return "".join(f"{score()}\n" for _ in range(PAIRS))
    if ".input." in name:
        return "".join(f"{sentence()}\t{sentence()}\n" for _ in range(PAIRS))
    if "SICK" in name:
        rows = [f"{i}\t{sentence()}\t{sentence()}\t{score()}\tNEUTRAL\n" for i in range(PAIRS)]
        return (
            "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
            + "".join(rows)
        )
    return "".join(
        f"main-news\tx\t2012test\t{i:04d}\t{score()}\t{sentence()}\t{sentence()}\n"
        for i in range(PAIRS)
    )
