"""What the demo holds: sentences to train on, and pairs to measure with, drawn from the grammar."""

from collections.abc import Iterator
from random import Random

from .edits import EDITS, edit
from .grammar import Meaning, imagine, say
from .lexicon import Lexicon
from .similarity import similarity

Pair = tuple[float, str, str]


def sentences(lexicon: Lexicon, count: int, seed: str) -> list[str]:
    """`count` sentences, no two alike; the first ones stay the same whatever the count is."""
    random = Random(seed)
    said: dict[str, None] = {}
    while len(said) < count:
        said[say(imagine(lexicon, random), random)] = None
    return list(said)


def pairs(lexicon: Lexicon, count: int, seed: str, avoid: set[str]) -> list[Pair]:
    """`count` scored pairs that share no sentence with one another or with `avoid`."""
    drawn = _draw(lexicon, Random(seed))
    taken = set(avoid)
    kept: list[Pair] = []
    while len(kept) < count:
        score, a, b = next(drawn)
        if a != b and not taken & {a, b}:
            taken |= {a, b}
            kept.append((score, a, b))
    return kept


def _draw(lexicon: Lexicon, random: Random) -> Iterator[Pair]:
    """Pairs without end, the edits in turn, each as often as `EDITS` says."""
    kinds = [kind for kind, often in EDITS.items() for _ in range(often)]
    while True:
        for kind in kinds:
            one, other = _edited(kind, lexicon, random)
            yield similarity(one, other), say(one, random), say(other, random)


def _edited(kind: str, lexicon: Lexicon, random: Random) -> tuple[Meaning, Meaning]:
    """A meaning that the edit applies to, and what it makes of it."""
    while True:
        meaning = imagine(lexicon, random)
        edited = edit(kind, meaning, lexicon, random)
        if edited is not None:
            return meaning, edited
