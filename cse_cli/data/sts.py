"""The semantic textual similarity tasks in SentEval's layout: pairs of sentences, gold scores.

STS12-16 are folders of subsets, each two parallel files: `STS.input.NAME.txt` holds `a<TAB>b`,
`STS.gs.NAME.txt` one score (0-5) a line, blank where nobody scored the pair. STS-B and SICK-R are
one tab-separated sheet a split. STS13 is scored without its SMT subset, as the literature does.

None of these files is quoted: with a CSV reader's default quoting STS-B loses 260 test pairs.
Words are joined by one space, as SentEval does.
"""

import gzip
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cse_cli.errors import InputError, UsageError, suggestion

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Pairs:
    """P scored sentence pairs: `gold` is (P,) float64, higher means more similar."""

    a: list[str]
    b: list[str]
    gold: np.ndarray

    def __len__(self) -> int:
        return len(self.a)


@dataclass(frozen=True)
class _Subsets:
    """A task of parallel input/gs files, test split only."""

    folder: str
    subsets: tuple[str, ...]
    counts: Mapping[str, int]

    def files(self, _split: str) -> list[str]:
        """Every file of the task, relative to `downstream/`."""
        kinds = ("input", "gs")
        return [f"{self.folder}/STS.{k}.{name}.txt" for name in self.subsets for k in kinds]

    def read(self, root: Path, _split: str) -> dict[str, Pairs]:
        """The scored pairs of each subset."""
        folder = root / self.folder
        return {
            name: _read_parallel(folder / f"STS.input.{name}.txt", folder / f"STS.gs.{name}.txt")
            for name in self.subsets
        }


@dataclass(frozen=True)
class _Sheet:
    """A task of one tab-separated file a split; `columns` are those of score, a and b."""

    name: str
    folder: str
    sheets: Mapping[str, str]
    columns: tuple[int, int, int]
    counts: Mapping[str, int]
    header: bool = False

    def files(self, split: str) -> list[str]:
        """The split's file, relative to `downstream/`."""
        return [f"{self.folder}/{self.sheets[split]}"]

    def read(self, root: Path, split: str) -> dict[str, Pairs]:
        """The split's pairs, as the task's only subset."""
        path = root / self.folder / self.sheets[split]
        return {self.name: _read_sheet(path, self.columns, skip=int(self.header))}


_SPECS: dict[str, _Subsets | _Sheet] = {
    "STS12": _Subsets(
        "STS/STS12-en-test",
        ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
        {"test": 3108},
    ),
    "STS13": _Subsets("STS/STS13-en-test", ("FNWN", "headlines", "OnWN"), {"test": 1500}),
    "STS14": _Subsets(
        "STS/STS14-en-test",
        ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
        {"test": 3750},
    ),
    "STS15": _Subsets(
        "STS/STS15-en-test",
        ("answers-forums", "answers-students", "belief", "headlines", "images"),
        {"test": 3000},
    ),
    "STS16": _Subsets(
        "STS/STS16-en-test",
        ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
        {"test": 1186},
    ),
    "STS-B": _Sheet(
        "STS-B",
        "STS/STSBenchmark",
        {split: f"sts-{split}.csv" for split in SPLITS},
        columns=(4, 5, 6),
        counts={"train": 5749, "dev": 1500, "test": 1379},
    ),
    "SICK-R": _Sheet(
        "SICK-R",
        "SICK",
        {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"},
        columns=(3, 1, 2),
        counts={"train": 4500, "dev": 500, "test": 4927},
        header=True,
    ),
}

STS_TASKS = tuple(_SPECS)
STS_COUNTS: dict[str, Mapping[str, int]] = {task: spec.counts for task, spec in _SPECS.items()}
"""Scored pairs of every task and split; a task has the splits that are its keys here."""


def sts_files(task: str, split: str = "test") -> list[str]:
    """The files of a task's split, relative to the data folder."""
    return [f"downstream/{name}" for name in _spec(task, split).files(split)]


def load_sts(data_dir: str | Path, task: str, split: str = "test") -> dict[str, Pairs]:
    """The scored pairs of one task, by subset; STS-B and SICK-R are their own only subset.

    `data_dir` is SentEval's `data` folder (it holds `downstream/`).

    Raises:
        UsageError: no such task, or the task has no such split.
        InputError: a file is missing, or a line of it cannot be read.
    """
    spec = _spec(task, split)
    _require_files(Path(data_dir), task, sts_files(task, split))
    subsets = spec.read(Path(data_dir) / "downstream", split)
    for name, pairs in subsets.items():
        if not len(pairs):
            raise InputError(f"{task}, subset {name} in {data_dir}: no pair has a score")
    return subsets


def load_pairs_file(path: str | Path) -> Pairs:
    """A user's own tab-separated pairs: columns score, a, b, or a header with these names.

    A header may also call the sentences `sentence1` and `sentence2`. The file may be a .gz.

    Raises:
        InputError: unreadable, or too little in it for a rank correlation.
    """
    path = Path(path)
    _, first = next(_rows(path), (0, []))
    if not first:
        raise InputError(f"{path} is empty; it must hold lines of score<TAB>sentence<TAB>sentence")
    names = [name.strip().lower() for name in first]
    if "score" in names:
        columns = (names.index("score"), *_sentence_columns(path, names))
        pairs = _read_sheet(path, columns, skip=1)
    else:
        pairs = _read_sheet(path, (0, 1, 2), skip=0)
    if len(np.unique(pairs.gold)) < 2:
        raise InputError(f"{path} needs at least two different scores to rank pairs by")
    return pairs


def _spec(task: str, split: str) -> _Subsets | _Sheet:
    if task not in _SPECS:
        raise UsageError(f"unknown STS task '{task}': {suggestion(task, STS_TASKS)}")
    spec = _SPECS[task]
    if split not in spec.counts:
        raise UsageError(f"{task} has no split '{split}', only {', '.join(spec.counts)}")
    return spec


def _require_files(data_dir: Path, task: str, files: Sequence[str]) -> None:
    """Say whether a task is absent or only half there, and which file was looked for."""
    missing = [name for name in files if not (data_dir / name).is_file()]
    if not missing:
        return
    looked = data_dir / missing[0]
    if len(missing) < len(files):
        found = len(files) - len(missing)
        raise InputError(f"{task} is incomplete ({found} of {len(files)} files): no {looked}")
    raise InputError(
        f"{task} is not in {data_dir}: no {looked}; "
        "point --data-dir at SentEval's data folder or get it with `cse data fetch`"
    )


def _sentence_columns(path: Path, names: Sequence[str]) -> tuple[int, int]:
    for a, b in (("a", "b"), ("sentence1", "sentence2")):
        if a in names and b in names:
            return names.index(a), names.index(b)
    raise InputError(f"{path}, line 1: the header names no sentence columns 'a' and 'b'")


def _read_parallel(inputs: Path, gold: Path) -> Pairs:
    sentences, scores = list(_rows(inputs)), list(_rows(gold))
    if len(sentences) != len(scores):
        raise InputError(f"{gold} has {len(scores)} lines, but {inputs} has {len(sentences)}")
    a, b, kept = [], [], []
    for (number, fields), (_, score) in zip(sentences, scores, strict=True):
        if not score[0].strip():
            continue
        if len(fields) < 2:
            raise InputError(f"{inputs}, line {number}: expected two sentences with a tab between")
        a.append(_words(fields[0]))
        b.append(_words(fields[1]))
        kept.append(_score(gold, number, score[0]))
    return Pairs(a, b, np.array(kept))


def _read_sheet(path: Path, columns: tuple[int, int, int], *, skip: int) -> Pairs:
    score, first, second = columns
    a, b, gold = [], [], []
    for number, fields in _rows(path):
        if number <= skip or fields == [""]:
            continue
        if len(fields) <= max(columns):
            raise InputError(
                f"{path}, line {number}: {len(fields)} tab-separated columns, "
                f"expected at least {max(columns) + 1}"
            )
        a.append(_words(fields[first]))
        b.append(_words(fields[second]))
        gold.append(_score(path, number, fields[score]))
    return Pairs(a, b, np.array(gold))


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and tab-separated fields of every line, without quoting."""
    data = _bytes(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {number}: not UTF-8") from error
    lines = text.split("\n")  # not splitlines(): a stray U+2028 inside a sentence is no line end
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, start=1):
        yield number, line.removesuffix("\r").split("\t")


def _bytes(path: Path) -> bytes:
    """What is in a file, unpacked where it is a .gz."""
    try:
        if path.suffix != ".gz":
            return path.read_bytes()
        with gzip.open(path) as file:
            return file.read()
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {path}: {reason}") from error


def _words(text: str) -> str:
    return " ".join(text.split())


def _score(path: Path, line: int, text: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise InputError(f"{path}, line {line}: '{text.strip()}' is not a score")
    return score
