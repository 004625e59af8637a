"""`cse encode` of Wikipedia sentences against sentence-transformers, at equal precision.

    python benchmarks/encode.py [--sentences 20000] [--rounds 3] [--precisions fp32 bf16]
                                [--device cpu|cuda]

Both are whole commands in processes of their own, from start-up to the written .npy file, in
turns; the medians are compared, and so are the two files.
"""

import argparse
import sys
import tempfile
from itertools import islice
from pathlib import Path

from turns import ASSETS, MODEL, header, in_turns, row

CORPUS = ASSETS / "data" / "corpora" / "wiki60k.txt"
PRECISIONS = ("fp32", "bf16", "fp16")


def peer(source: str, out: str, precision: str, device: str) -> None:
    """Encode a file of sentences with sentence-transformers, and save the matrix."""
    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer

    kinds = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    asked = {"dtype": kinds[precision]}
    model = SentenceTransformer(str(MODEL), device=device, model_kwargs=asked)
    lines = Path(source).read_text(encoding="utf-8").split("\n")
    np.save(out, model.encode([line for line in lines if line]))


def largest_difference(ours: Path, theirs: Path) -> float:
    """The largest difference between two numbers at the same place."""
    import numpy as np

    return float(np.abs(np.load(ours) - np.load(theirs)).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS[:2])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--peer", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        peer(*options.peer)
        return
    print(header(f"{options.sentences} sentences of wiki60k, all-MiniLM-L6-v2"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, mine, other = folder / "text.txt", folder / "ours.npy", folder / "theirs.npy"
        with CORPUS.open(encoding="utf-8") as lines:
            source.write_text("".join(islice(lines, options.sentences)), encoding="utf-8")
        for precision in options.precisions:
            ours = [sys.executable, "-m", "cse_cli", "encode", str(MODEL), str(source)]
            ours += ["--out", str(mine), "--precision", precision, "--device", options.device]
            theirs = [sys.executable, __file__, "--peer"]
            theirs += [str(source), str(other), precision, options.device]
            seconds = in_turns({"cse": ours, "peer": theirs}, options.rounds)
            print(row(precision, seconds["cse"], seconds["peer"]))
            difference = largest_difference(mine, other)
            print(f"{precision}: largest difference {difference:.2g}", file=sys.stderr)


if __name__ == "__main__":
    main()
