"""How much of what the encoder multiplies is padding, before and after grouping by length.

    python benchmarks/padding.py [--sentences 20000]

Before: the rows of a batch padded to its longest one. After: the groups of a training step (which
rows make up the batch stays random) and those of `cse encode`. Counted, not timed, on wiki60k.
"""

import argparse
from itertools import islice

import numpy as np
from tokenizers import Tokenizer
from turns import ASSETS

from cse_cli.batching import budget_groups, deal, step_groups
from cse_cli.encoder import BATCH_TOKENS
from cse_cli.lanes import LANES
from cse_cli.rows import LAUNCH

MODEL = ASSETS / "models" / "mlm-minilm-l6"
CORPUS = ASSETS / "data" / "corpora" / "wiki60k.txt"
BATCH = 64


def share(lengths: np.ndarray, groups: list[np.ndarray]) -> tuple[int, int]:
    """(padding, all) token places of `groups`, each as wide as its longest row."""
    places = sum(len(group) * int(lengths[group].max()) for group in groups)
    return places - int(lengths.sum()), places


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sentences", type=int, default=20_000)
    options = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    with CORPUS.open(encoding="utf-8") as lines:
        texts = [line.strip() for line in islice(lines, options.sentences)]
    whole = np.array([len(found.ids) for found in tokenizer.encode_batch(texts)]).clip(3, 512)
    np.random.default_rng(0).shuffle(whole)
    print("| | padded to the longest of a batch | grouped by length |\n| --- | ---: | ---: |")
    for what, limit, rows in (("a training step, length 32", 32, BATCH), ("encoding", 512, BATCH)):
        lengths = np.minimum(whole, limit)
        before, after = [0, 0], [0, 0]
        for start in range(0, len(lengths) - rows + 1, rows):
            batch = lengths[start : start + rows]
            before = np.add(before, share(batch, [np.arange(rows)]))
            if limit == 32:
                both = np.concatenate([batch, batch])  # two views in one stack
                groups = [
                    lane[group]
                    for lane in deal(both.tolist(), LANES)
                    for group in step_groups(both[lane].tolist(), LAUNCH["cpu"])
                ]
                after = np.add(after, share(both, groups))
        if limit != 32:
            after = share(lengths, budget_groups(lengths.tolist(), BATCH_TOKENS["cpu"]))
        print(f"| {what} | {before[0] / before[1]:.1%} | {after[0] / after[1]:.1%} |")


if __name__ == "__main__":
    main()
