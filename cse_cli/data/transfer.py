"""SentEval's classification tasks in its file layout, in the order in which it trains on them.

    MR CR SUBJ MPQA   one file a class; no split of their own
    SST2 SST5         `sentence<TAB>label`, or `label sentence`; train, dev, test
    TREC              `CLASS:detail question`; train, test
    MRPC SICK-E       sentence pairs on tab-separated sheets with a header
    STS-B SICK-R      scored pairs (`cse_cli.data.sts`), here with a regression on top

The order of the rows decides which of them share a fold, so it is part of the protocol: by number
of words, then by class (pairs: words of a, words of b, class), stable over positives before
negatives. Words are joined by one blank; blank rows (CR and MPQA have some) are kept.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cse_cli.data.sts import STS_COUNTS, load_sts, sts_files
from cse_cli.errors import InputError, UsageError, suggestion


@dataclass(frozen=True)
class Labelled:
    """n sentences `a`, or pairs where `b` is not empty, and their classes or scores `y` (n,).

    Classes are int64 numbers, scores float64.
    """

    a: list[str]
    b: list[str]
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.a)


@dataclass(frozen=True)
class TransferData:
    """A task as it was read: its splits (`all` where there is no split) and its classes by name.

    A task without classes is a regression on scores.
    """

    name: str
    classes: tuple[str, ...]
    splits: Mapping[str, Labelled]


Example = tuple[list[str], list[str], int]  # words of a, words of b (or none), class
Parse = Callable[[str], Example]  # ValueError says what is wrong with the line


@dataclass(frozen=True)
class _Spec:
    """Files and published rows by split; `parsers` has one for all files or one a file."""

    classes: tuple[str, ...]
    files: Mapping[str, tuple[str, ...]]
    parsers: tuple[Parse, ...]
    counts: Mapping[str, int]
    encoding: str = "utf-8"
    header: bool = False


def _sentence(label: int) -> Parse:
    return lambda line: (line.split(), [], label)


def _binary(positive: str, negative: str, rows: int, classes: tuple[str, str]) -> _Spec:
    """Two files of bare sentences: class 1, then class 0."""
    parsers = (_sentence(1), _sentence(0))
    return _Spec(classes, {"all": (positive, negative)}, parsers, {"all": rows}, "latin-1")


def _last_column(line: str) -> Example:
    text, _, label = line.rstrip().rpartition("\t")
    return text.split(), [], _class(label, ("0", "1"))


def _first_letter(line: str) -> Example:
    label, _, text = line.partition(" ")
    return text.split(), [], _class(label, tuple("01234"))


TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
SICK_CLASSES = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")


def _question(line: str) -> Example:
    label, _, rest = line.partition(":")
    return rest.partition(" ")[2].split(), [], _class(label, TREC_CLASSES)


def _columns(a: int, b: int, label: int, classes: tuple[str, ...]) -> Parse:
    """A pair on a tab-separated sheet, by the columns of a, b and the class."""

    def parse(line: str) -> Example:
        fields = line.split("\t")
        if len(fields) <= max(a, b, label):
            raise ValueError(f"{len(fields)} tab-separated columns; {max(a, b, label) + 1} needed")
        return fields[a].split(), fields[b].split(), _class(fields[label].strip(), classes)

    return parse


def _class(label: str, known: Sequence[str]) -> int:
    if label not in known:
        raise ValueError(f"'{label[:40]}' is no class; known: {', '.join(known)}")
    return known.index(label)


def _sst(folder: str, classes: tuple[str, ...], parse: Parse, counts: Sequence[int]) -> _Spec:
    splits = ("train", "dev", "test")
    files = {split: (f"SST/{folder}/sentiment-{split}",) for split in splits}
    return _Spec(classes, files, (parse,), dict(zip(splits, counts, strict=True)))


_SENTIMENT = ("negative", "positive")
_SPECS: dict[str, _Spec] = {
    "MR": _binary("MR/rt-polarity.pos", "MR/rt-polarity.neg", 10_662, _SENTIMENT),
    "CR": _binary("CR/custrev.pos", "CR/custrev.neg", 3775, _SENTIMENT),
    "SUBJ": _binary(
        "SUBJ/subj.objective", "SUBJ/subj.subjective", 10_000, ("subjective", "objective")
    ),
    "MPQA": _binary("MPQA/mpqa.pos", "MPQA/mpqa.neg", 10_606, _SENTIMENT),
    "SST2": _sst("binary", _SENTIMENT, _last_column, (67_349, 872, 1821)),
    "TREC": _Spec(
        TREC_CLASSES,
        {"train": ("TREC/train_5500.label",), "test": ("TREC/TREC_10.label",)},
        (_question,),
        {"train": 5452, "test": 500},
        "latin-1",
    ),
    "MRPC": _Spec(
        ("different", "paraphrase"),
        {split: (f"MRPC/msr_paraphrase_{split}.txt",) for split in ("train", "test")},
        (_columns(3, 4, 0, ("0", "1")),),
        {"train": 4076, "test": 1725},
        header=True,
    ),
    "SST5": _sst(
        "fine",
        ("very negative", "negative", "neutral", "positive", "very positive"),
        _first_letter,
        (8544, 1101, 2210),
    ),
    "SICK-E": _Spec(
        SICK_CLASSES,
        {
            "train": ("SICK/SICK_train.txt",),
            "dev": ("SICK/SICK_trial.txt",),
            "test": ("SICK/SICK_test_annotated.txt",),
        },
        (_columns(1, 2, 4, SICK_CLASSES),),
        {"train": 4500, "dev": 500, "test": 4927},
        header=True,
    ),
}

TRANSFER_TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")
"""The seven tasks whose average the papers print."""
RELATEDNESS_TASKS = ("STS-B", "SICK-R")
EXTRA_TASKS = ("SST5", "SICK-E", *RELATEDNESS_TASKS)
TRANSFER_COUNTS: dict[str, Mapping[str, int]] = {
    **{task: spec.counts for task, spec in _SPECS.items()},
    **{task: STS_COUNTS[task] for task in RELATEDNESS_TASKS},
}
"""Published rows of every task and split."""


def transfer_files(task: str) -> list[str]:
    """All files of a task, relative to SentEval's data folder."""
    if task in RELATEDNESS_TASKS:
        return [name for split in STS_COUNTS[task] for name in sts_files(task, split)]
    return [f"downstream/{name}" for names in _spec(task).files.values() for name in names]


def load_transfer(data_dir: str | Path, task: str) -> TransferData:
    """Read every split of one task, in the order of its protocol.

    `data_dir` is SentEval's `data` folder (it holds `downstream/`).

    Raises:
        UsageError: no such task.
        InputError: a file is missing or unreadable, a line is broken, or a class has no row.
    """
    if task in RELATEDNESS_TASKS:
        splits = {s: _scored(data_dir, task, s) for s in STS_COUNTS[task]}
        return TransferData(task, (), splits)
    spec = _spec(task)
    _require(Path(data_dir), task, transfer_files(task))
    root = Path(data_dir) / "downstream"
    splits = {split: _read(root, spec, names) for split, names in spec.files.items()}
    first = next(iter(splits))
    for number, name in enumerate(spec.classes):
        if not (splits[first].y == number).any():
            raise InputError(f"{task} in {data_dir}: no {first} row is of class '{name}'")
    return TransferData(task, spec.classes, splits)


def _spec(task: str) -> _Spec:
    if task not in _SPECS:
        known = (*TRANSFER_TASKS, *EXTRA_TASKS)
        raise UsageError(f"unknown transfer task '{task}': {suggestion(task, known)}")
    return _SPECS[task]


def _scored(data_dir: str | Path, task: str, split: str) -> Labelled:
    """Scored pairs by (words of a, words of b, score)."""
    pairs = load_sts(data_dir, task, split)[task]
    rows = [(a.split(), b.split(), y) for a, b, y in zip(pairs.a, pairs.b, pairs.gold, strict=True)]
    return _sorted(rows, np.dtype(np.float64))


def _require(data_dir: Path, task: str, files: Sequence[str]) -> None:
    missing = [name for name in files if not (data_dir / name).is_file()]
    if not missing:
        return
    if len(missing) < len(files):
        found = len(files) - len(missing)
        raise InputError(
            f"{task} is incomplete ({found} of {len(files)} files): no {data_dir / missing[0]}"
        )
    raise InputError(
        f"{task} is not in {data_dir}: no {data_dir / missing[0]}; "
        "point --data-dir at SentEval's data folder or get it with `cse data fetch senteval`"
    )


def _read(root: Path, spec: _Spec, names: Sequence[str]) -> Labelled:
    """The rows of one split's files, sorted; InputError where there is none."""
    rows: list[Example] = []
    for i, name in enumerate(names):
        parse = spec.parsers[min(i, len(spec.parsers) - 1)]
        for number, line in read_lines(root / name, spec.encoding):
            if spec.header and number == 1:
                continue
            try:
                rows.append(parse(line))
            except ValueError as error:
                raise InputError(f"{root / name}, line {number}: {error}") from None
    if not rows:
        raise InputError(f"{root / names[0]} has no row under its header")
    return _sorted(rows, np.dtype(np.int64))


def _sorted(rows: Sequence[tuple[list[str], list[str], float]], kind: np.dtype) -> Labelled:
    ordered = sorted(rows, key=lambda row: (len(row[0]), len(row[1]), row[2]))
    a, b, y = zip(*ordered, strict=True)
    pairs = any(b)
    return Labelled(
        [" ".join(words) for words in a],
        [" ".join(words) for words in b] if pairs else [],
        np.array(y, dtype=kind),
    )


def read_lines(path: Path, encoding: str) -> Iterator[tuple[int, str]]:
    """Number and text of every line; InputError where the file is no text in its encoding."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if not data.strip():
        raise InputError(f"{path} is empty")
    wrong = data.find(b"\0")
    if wrong < 0:
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError as error:
            wrong = error.start
    if wrong >= 0:
        number = data.count(b"\n", 0, wrong) + 1
        raise InputError(f"{path}, line {number}: not {encoding}; SentEval's file is")
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        yield number, line.removesuffix("\r")
