"""SentEval's ten probing tasks (Conneau et al. 2018): what does a sentence vector know of grammar?

One file a task in `probing/`, tab-separated and unquoted: split (tr, va, te), label, text last.
Rows are put in the order in which SentEval trains on them, by number of words and then class; a
class's number is its place among the sorted labels of the training split.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cse_cli.data.transfer import Labelled, TransferData, read_lines
from cse_cli.errors import InputError, UsageError, suggestion


@dataclass(frozen=True)
class _Spec:
    """A task's file, other names that people use for it, and the number of its classes."""

    file: str
    other_names: tuple[str, ...]
    classes: int


_SPECS: dict[str, _Spec] = {
    "SentLen": _Spec("sentence_length", ("Length",), 6),
    "WordContent": _Spec("word_content", ("WC",), 1000),
    "TreeDepth": _Spec("tree_depth", ("Depth",), 7),
    "TopConst": _Spec("top_constituents", ("TopConstituents",), 20),
    "BigramShift": _Spec("bigram_shift", ("BShift",), 2),
    "Tense": _Spec("past_present", (), 2),
    "SubjNum": _Spec("subj_number", ("SubjNumber",), 2),
    "ObjNum": _Spec("obj_number", ("ObjNumber",), 2),
    "OddManOut": _Spec("odd_man_out", ("SOMO",), 2),
    "CoordInv": _Spec("coordination_inversion", ("CoordinationInversion",), 2),
}
PROBING_TASKS = tuple(_SPECS)
SPLITS = {"tr": "train", "va": "dev", "te": "test"}


def probing_task(name: str) -> str:
    """The task meant by `name`, in any case, ours or SentEval's; UsageError for another."""
    known = {task.lower(): task for task in PROBING_TASKS}
    known |= {other.lower(): task for task, spec in _SPECS.items() for other in spec.other_names}
    if name.lower() not in known:
        raise UsageError(f"unknown probing task '{name}': {suggestion(name, PROBING_TASKS)}")
    return known[name.lower()]


def probing_file(data_dir: str | Path, task: str) -> Path:
    """Where a task's file is, or would be: `probing/`, or the folder itself where that is it."""
    folder, name = Path(data_dir), f"{_SPECS[task].file}.txt"
    return folder / name if (folder / name).is_file() else folder / "probing" / name


def load_probing(data_dir: str | Path, task: str) -> TransferData:
    """The three splits of one probing task.

    Raises InputError for a file that is missing or not UTF-8, a broken line, an empty split, fewer
    than two classes, or a label that training never sees.
    """
    path = probing_file(data_dir, task)
    if not path.is_file():
        raise InputError(
            f"{task} is not in {data_dir}: no {path}; get SentEval's probing files, "
            "or build some with `cse data make-probing`"
        )
    rows: dict[str, list[tuple[int, str, list[str]]]] = {split: [] for split in SPLITS.values()}
    for number, split, label, text in _rows(path):
        rows[split].append((number, label, text.split()))
    for split, found in rows.items():
        if not found:
            raise InputError(f"{path} has no {split} row")
    classes = sorted({label for _, label, _ in rows["train"]})
    if len(classes) < 2:
        raise InputError(f"{path}: all training rows have the label '{classes[0]}'")
    numbers = {label: i for i, label in enumerate(classes)}
    for found in rows.values():
        for number, label, _ in found:
            if label not in numbers:
                raise InputError(f"{path}, line {number}: no training row has the label '{label}'")
    return TransferData(
        task,
        tuple(classes),
        {
            split: labelled([(words, numbers[label]) for _, label, words in found])
            for split, found in rows.items()
        },
    )


def labelled(rows: list[tuple[list[str], int]]) -> Labelled:
    """Words and class of each row, put in SentEval's order."""
    rows = sorted(rows, key=lambda row: (len(row[0]), row[1]))
    texts = [" ".join(words) for words, _ in rows]
    return Labelled(texts, [], np.array([number for _, number in rows], dtype=np.int64))


def _rows(path: Path) -> Iterator[tuple[int, str, str, str]]:
    """Line number, split, label and text of every line."""
    for number, line in read_lines(path, "utf-8"):
        fields = line.rstrip().split("\t")
        if len(fields) < 3 or fields[0] not in SPLITS:
            raise InputError(f"{path}, line {number}: not `tr|va|te<TAB>label<TAB>text`")
        yield number, SPLITS[fields[0]], fields[1], fields[-1]
