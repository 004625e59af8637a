"""The demo of classifying commands: have two words of a toy sentence been swapped?"""

from functools import cache

from cse_cli.data.builtin import DEMO_TASK, demo_corpus
from cse_cli.data.make_probing import make_probing, sentence_pool
from cse_cli.data.probing import SPLITS, labelled
from cse_cli.data.transfer import TransferData

ROWS = 1200


@cache
def demo_probe() -> TransferData:
    """A balanced BigramShift of the demo's own sentences; always the same rows."""
    pool = sentence_pool(demo_corpus().read_text(encoding="utf-8").splitlines())
    rows = make_probing(pool, "BigramShift", size=ROWS, seed=0)
    classes = ("I", "O")
    splits = {
        name: labelled([(r.text.split(), classes.index(r.label)) for r in rows if r.split == short])
        for short, name in SPLITS.items()
    }
    return TransferData(DEMO_TASK, classes, splits)
