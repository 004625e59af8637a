"""Who belongs to whom in a retrieval corpus: scored pairs, a file of pairs, or groups of rows.

A `Partners` holds the corpus and, for every query, its own row and the row it should find. Both
directions of a pair are queries, and every ordered pair of sentences in a group.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path

from cse_cli.data.readers import Tally, iter_rows, iter_texts
from cse_cli.data.sources import find_source
from cse_cli.data.sts import Pairs, load_pairs_file
from cse_cli.errors import InputError

_HEADERS = (["a", "b"], ["sentence1", "sentence2"])


@dataclass(frozen=True)
class Partners:
    """The corpus `texts`, and `pairs` of rows in it: (the query's, its partner's)."""

    texts: list[str]
    pairs: list[tuple[int, int]]


def partners_of_pairs(pairs: Pairs) -> Partners:
    """All sentences as corpus; the pairs with the highest gold score are partners.

    On STS-B test these are the 97 pairs of DiffCSE's Table 10, asked in both directions.
    """
    texts = [text for pair in zip(pairs.a, pairs.b, strict=True) for text in pair]
    best = [i for i, gold in enumerate(pairs.gold) if gold == pairs.gold.max()]
    ways = [(2 * i + side, 2 * i + 1 - side) for i in best for side in (0, 1)]
    return Partners(texts, ways)


def load_partners(path: str | Path) -> Partners:
    """Pairs from a tab-separated file: `a<TAB>b`, all of them partners, or `score<TAB>a<TAB>b`.

    With scores the highest ones are partners and the others only fill the corpus. A header may
    name the columns. Raises InputError for an unreadable file or a line with one column.
    """
    source, tally = replace(find_source(str(path)), kind="txt"), Tally()
    texts: list[str] = []
    for (line,) in iter_rows([source], None, encoding="utf-8", tally=tally):
        fields = [field.strip() for field in line.split("\t")]
        if not texts and len(fields) > 2:
            return partners_of_pairs(load_pairs_file(path))
        if not texts and [field.lower() for field in fields] in _HEADERS:
            continue
        if len(fields) != 2 or not all(fields):
            raise InputError(f"{tally.place}: expected two sentences with a tab between")
        texts += fields
    rows = range(0, len(texts), 2)
    return Partners(texts, [way for i in rows for way in ((i, i + 1), (i + 1, i))])


def load_groups(path: str | Path, groups: str) -> Partners:
    """Sentences of a file in groups; every sentence should find each other one of its group.

    `groups` is the number of consecutive rows that are a group, or a file with one label a row.
    Raises InputError where rows and groups do not fit together.
    """
    texts = list(iter_texts([str(path)], keep_blank=True))
    labels = _labels(str(path), len(texts), groups)
    kept = [row for row, text in enumerate(texts) if text.strip()]
    members: dict[Hashable, list[int]] = defaultdict(list)
    for number, row in enumerate(kept):
        members[labels[row]].append(number)
    ways = [way for group in members.values() for way in permutations(group, 2)]
    if not ways:
        raise InputError(f"--groups {groups}: no group of {path} has two sentences")
    return Partners([texts[row] for row in kept], ways)


def _labels(path: str, rows: int, groups: str) -> Sequence[Hashable]:
    if not groups.isdecimal():
        labels = list(iter_texts([groups], keep_blank=True))
        if len(labels) != rows:
            raise InputError(f"{groups} has {len(labels)} labels, but {path} has {rows} rows")
        return labels
    size = int(groups)
    if size < 2 or rows % size:
        raise InputError(
            f"--groups {size}: the {rows} rows of {path} are not groups of {size}, and one row "
            "missing puts all behind it into wrong groups; give --groups a file of labels"
        )
    return [row // size for row in range(rows)]
