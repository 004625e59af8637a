"""The built-in demo: what runs as typed on a fresh machine, without network or data.

A 12-layer BERT of a few million bytes, sentences to train on and scored pairs to measure with, all
made by `scripts/make_demo.py` from a grammar of our own. They show that a method works, not how
well: whoever uses them says `DEMO_NOTICE` aloud.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from cse_cli.errors import InputError, UsageError, suggestion

if TYPE_CHECKING:
    from cse_cli.data.sts import Pairs

DEMO_TASK = "Demo"
DEMO_SPLITS = ("dev", "test")
DEMO_NOTICE = (
    "built-in demo data: NOT a benchmark. A toy model and sentences of a toy grammar; "
    "its scores compare with nothing. For real ones pass --model, --train-file and --data-dir."
)

_DEMO = Path(__file__).parents[1] / "demo"


def demo_model() -> Path:
    """The folder of the demo's masked-language model, as transformers reads it."""
    return _present(_DEMO / "model")


def demo_corpus() -> Path:
    """The demo's training sentences, one a line."""
    return _present(_DEMO / "sentences.txt")


def demo_pairs(split: str = "test") -> "Pairs":
    """The demo's scored pairs, gold 0-5; `split` is dev or test, which share no sentence.

    Raises:
        UsageError: no such split.
        InputError: the package was installed without its demo.
    """
    import numpy as np

    from cse_cli.data.sts import Pairs

    if split not in DEMO_SPLITS:
        raise UsageError(f"the demo has no split '{split}': {suggestion(split, DEMO_SPLITS)}")
    lines = _present(_DEMO / "similarity.tsv").read_text(encoding="utf-8").splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    chosen = [(score, a, b) for part, score, a, b in rows if part == split]
    scores, a, b = zip(*chosen, strict=True)
    return Pairs(list(a), list(b), np.array(scores, dtype=np.float64))


def _present(path: Path) -> Path:
    if not path.exists():
        raise InputError(f"the built-in demo is missing ({path}): install cse-cli again")
    return path
