"""Probing sets from any corpus, without a parser, in SentEval's layout.

    SentLen       which of six bins the number of words falls in (5-8, 9-12, ... 26-28)
    WordContent   which one of the medium-frequent words is in the sentence
    BigramShift   have two neighbouring words been swapped (I) or not (O)?
    CoordInv      have the clauses around a conjunction been exchanged (I) or not (O)?

After Conneau et al. (2018), with these liberties. BigramShift swaps words of letters alone and
never the first, so that neither capitals nor punctuation tell. CoordInv finds clauses by their
words: one conjunction after the only comma, and on either side something that begins like a
clause (pronoun, article, name, ...) and holds a finite verb form. Sentences that are left as they
are pass the same filters.

Classes are equally large in each split. A sentence is used once in a task, whatever its case or
punctuation, so no split knows another's.
"""

import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cse_cli.data.probing import probing_file
from cse_cli.errors import OutputError

WORDS = (5, 28)  # of every sentence
BINS = ((5, 8), (9, 12), (13, 16), (17, 20), (21, 25), (26, 28))
TARGETS = 1000  # words of WordContent, fewer where the corpus is small
SHARE = 12  # every 12th row of a class is for dev, another for test
CONJUNCTIONS = frozenset(("and", "but", "or", "nor", "yet", "so"))
_STARTERS = (
    "i you he she it we they there this that these those who the a an my your his her its our "
    "their some many most all both each every no one"
)
_FINITE = (
    "am is are was were has have had does do did will would can could may might must shall should "
    "became began came felt found gave got kept knew left lost made met ran said saw sent stood "
    "thought told took went won wrote"
)
STARTERS, FINITE = frozenset(_STARTERS.split()), frozenset(_FINITE.split())

Candidates = dict[str, list[str]]  # label -> texts


@dataclass(frozen=True)
class ProbingRow:
    """One line of a probing file; `split` is tr, va or te."""

    split: str
    label: str
    text: str


def sentence_pool(texts: Iterable[str], exclude: Iterable[str] = ()) -> list[str]:
    """The distinct sentences of 5 to 28 words that are not in `exclude`, blanks made single."""
    seen = {_key(text) for text in exclude}
    pool = []
    for text in texts:
        words = text.split()
        key = _key(text)
        if WORDS[0] <= len(words) <= WORDS[1] and key and key not in seen:
            seen.add(key)
            pool.append(" ".join(words))
    return pool


def make_probing(pool: Sequence[str], task: str, *, size: int, seed: int) -> list[ProbingRow]:
    """At most `size` rows of one task of `BUILDERS`; none where the corpus has too few for it.

    Equal pools and seeds give equal rows, whichever other tasks are made.
    """
    draw = random.Random(f"{seed} {task}")
    shuffled = list(pool)
    draw.shuffle(shuffled)
    return _balanced(BUILDERS[task](shuffled, draw), size, draw)


def write_probing(folder: Path, made: Mapping[str, Sequence[ProbingRow]]) -> dict[str, Path]:
    """Write `folder/probing/` with a file for each task, all of them or none; their paths.

    Raises OutputError where it cannot be written or is there already.
    """
    target = folder / "probing"
    temporary = folder / f".probing.{os.getpid()}.part"
    paths = {task: probing_file(folder, task) for task in made}
    try:
        temporary.mkdir(parents=True)
        for task, rows in made.items():
            lines = (f"{row.split}\t{row.label}\t{row.text}\n" for row in rows)
            (temporary / paths[task].name).write_text("".join(lines), encoding="utf-8")
        temporary.rename(target)
    except OSError as error:
        raise OutputError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return paths


def _key(text: str) -> str:
    """What makes two sentences the same: letters and digits, without case."""
    return " ".join(re.findall(r"\w+", text.lower()))


def _balanced(candidates: Candidates, size: int, draw: random.Random) -> list[ProbingRow]:
    """Equally many rows of each class in each split, in random order."""
    each = min((*map(len, candidates.values()), size // max(1, len(candidates))), default=0)
    if each < SHARE or len(candidates) < 2:
        return []
    rows = []
    for label, texts in candidates.items():
        held = each // SHARE
        splits = ["va"] * held + ["te"] * held + ["tr"] * (each - 2 * held)
        rows += [ProbingRow(*row) for row in zip(splits, [label] * each, texts[:each], strict=True)]
    draw.shuffle(rows)
    return rows


def _sentence_length(pool: Sequence[str], _draw: random.Random) -> Candidates:
    found: Candidates = {str(i): [] for i in range(len(BINS))}
    for text in pool:
        count = len(text.split())
        found[next(str(i) for i, (_, top) in enumerate(BINS) if count <= top)].append(text)
    return found


def _word_content(pool: Sequence[str], _draw: random.Random) -> Candidates:
    """Targets are the W words at ranks 2W to 3W, W = 1000 halved until each has enough rows."""
    frequency: Counter[str] = Counter()
    for text in pool:
        frequency.update({word for word in text.lower().split() if word.isalpha()})
    ranked = sorted(frequency, key=lambda word: (-frequency[word], word))
    count = TARGETS
    while count >= 2:
        targets = set(ranked[2 * count : 3 * count])
        found: Candidates = {word: [] for word in sorted(targets)}
        for text in pool:
            inside = targets.intersection(text.lower().split())
            if len(inside) == 1:
                found[inside.pop()].append(text)
        if len(found) == count and min(map(len, found.values())) >= SHARE:
            return found
        count //= 2
    return {}


def _bigram_shift(pool: Sequence[str], draw: random.Random) -> Candidates:
    def swapped(text: str) -> str | None:
        """The text with two neighbours exchanged; None where no two can be."""
        words = text.split()
        places = [
            i
            for i in range(1, len(words) - 1)
            if words[i].isalpha() and words[i + 1].isalpha() and words[i] != words[i + 1]
        ]
        if not places:
            return None
        i = draw.choice(places)
        words[i], words[i + 1] = words[i + 1], words[i]
        return " ".join(words)

    return _half_changed(pool, swapped)


def _coordination_inversion(pool: Sequence[str], _draw: random.Random) -> Candidates:
    names = _names(pool)
    return _half_changed(pool, lambda text: invert_clauses(text, names))


def _names(pool: Sequence[str]) -> frozenset[str]:
    """Words that are capitalised inside sentences and nowhere begin with a small letter."""
    inside = {word for text in pool for word in text.split()[1:] if word.isalpha()}
    ordinary = inside | STARTERS
    return frozenset(word for word in inside if word[0].isupper() and word.lower() not in ordinary)


def _half_changed(pool: Sequence[str], change: Callable[[str], str | None]) -> Candidates:
    """Every second sentence that can be changed is; one that would meet another is left out."""
    found: Candidates = {"I": [], "O": []}
    known = {_key(text) for text in pool}
    for text in pool:
        changed = change(text)
        if changed is None or _key(changed) in known:
            continue
        known.add(_key(changed))
        if len(found["I"]) <= len(found["O"]):
            found["I"].append(changed)
        else:
            found["O"].append(text)
    return found


def invert_clauses(text: str, names: Container[str] = ()) -> str | None:
    """`A, and b.` as `B, and a.`; None where `text` is not two plain clauses around one `and`.

    A clause may begin with one of `names`, which keep their capital.
    """
    match = re.fullmatch(r"([^,]+?)( ?, )(\w+) ([^,]+?)( ?[.!?])", text)
    if match is None or match[3] not in CONJUNCTIONS:
        return None
    left, right = match[1].split(), match[4].split()
    if CONJUNCTIONS & {word.lower() for word in (*left, *right)}:
        return None
    if not all(_is_clause(words, names) for words in (left, right)):
        return None
    if left[0].lower() in STARTERS - {"i"}:
        left[0] = left[0].lower()
    right[0] = right[0][0].upper() + right[0][1:]
    return f"{' '.join(right)}{match[2]}{match[3]} {' '.join(left)}{match[5]}"


def _is_clause(words: Sequence[str], names: Container[str]) -> bool:
    """Begins as clauses do and holds a finite verb behind that."""
    if len(words) < 3 or not (words[0].lower() in STARTERS or words[0] in names):
        return False
    return any(word in FINITE or word.endswith(("ed", "n't")) for word in words[1:])


BUILDERS: dict[str, Callable[[Sequence[str], random.Random], Candidates]] = {
    "SentLen": _sentence_length,
    "WordContent": _word_content,
    "BigramShift": _bigram_shift,
    "CoordInv": _coordination_inversion,
}
