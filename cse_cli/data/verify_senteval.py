"""Is a SentEval folder what the literature counted?

The STS tasks go through the reader that evaluation uses. The other tasks are held against a table:
the files of each split, the pattern that every line must match, and the number of rows. Lines are
bytes, for MR, MPQA and TREC are Latin-1 in SentEval's own distribution.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cse_cli.data.checks import ABSENT, FAILED, Check, compare
from cse_cli.data.sts import STS_COUNTS, load_sts, sts_files
from cse_cli.errors import InputError


@dataclass(frozen=True)
class _Lines:
    """Files of one task and split whose lines match `pattern`.

    `rows` counts the lines of all files together, or of each one where they are `parallel`.
    """

    task: str
    split: str
    files: tuple[str, ...]
    rows: int
    pattern: str = r".*"  # MR, CR, SUBJ and MPQA hold bare sentences, two of them blank
    header: bool = False
    parallel: bool = False
    optional: bool = False


_TREC = r"(ABBR|DESC|ENTY|HUM|LOC|NUM):\w+ .+"
_MRPC = r"[01]\t\d+\t\d+\t[^\t]+\t[^\t]+"
_SICK = r"\d+\t[^\t]+\t[^\t]+\t[1-5](\.\d+)?\t(NEUTRAL|ENTAILMENT|CONTRADICTION)"

_TRANSFER = (
    _Lines("MR", "all", ("MR/rt-polarity.pos", "MR/rt-polarity.neg"), 10_662),
    _Lines("CR", "all", ("CR/custrev.pos", "CR/custrev.neg"), 3775),
    _Lines("SUBJ", "all", ("SUBJ/subj.objective", "SUBJ/subj.subjective"), 10_000),
    _Lines("MPQA", "all", ("MPQA/mpqa.pos", "MPQA/mpqa.neg"), 10_606),
    *(
        _Lines("SST2", split, (f"SST/binary/sentiment-{split}",), rows, r".*\S.*\t[01]")
        for split, rows in (("train", 67_349), ("dev", 872), ("test", 1821))
    ),
    *(
        _Lines("SST5", split, (f"SST/fine/sentiment-{split}",), rows, r"[0-4] .+", optional=True)
        for split, rows in (("train", 8544), ("dev", 1101), ("test", 2210))
    ),
    _Lines("TREC", "train", ("TREC/train_5500.label",), 5452, _TREC),
    _Lines("TREC", "test", ("TREC/TREC_10.label",), 500, _TREC),
    _Lines("MRPC", "train", ("MRPC/msr_paraphrase_train.txt",), 4076, _MRPC, header=True),
    _Lines("MRPC", "test", ("MRPC/msr_paraphrase_test.txt",), 1725, _MRPC, header=True),
    *(
        _Lines("SICK-E", split, (f"SICK/SICK_{name}.txt",), rows, _SICK, header=True)
        for split, name, rows in (
            ("train", "train", 4500),
            ("dev", "trial", 500),
            ("test", "test_annotated", 4927),
        )
    ),
    *(
        _Lines(
            "SNLI",
            split,
            tuple(f"SNLI/{part}.{split}" for part in ("s1", "s2", "labels")),
            rows,
            parallel=True,
            optional=True,
        )
        for split, rows in (("train", 549_367), ("dev", 9842), ("test", 9824))
    ),
)


def verify_senteval(data_dir: Path) -> Iterator[Check]:
    """Check every task of the folder that holds `downstream/`, in the order of the literature."""
    for task, splits in STS_COUNTS.items():
        for split, expected in splits.items():
            yield _check_sts(data_dir, task, split, expected)
    for spec in _TRANSFER:
        yield _check_lines(data_dir / "downstream", spec)


def _check_sts(data_dir: Path, task: str, split: str, expected: int) -> Check:
    try:
        found = sum(len(pairs) for pairs in load_sts(data_dir, task, split).values())
    except InputError as error:
        missing = not any((data_dir / name).exists() for name in sts_files(task, split))
        problem = f"no {sts_files(task, split)[0]}" if missing else str(error)
        return Check(task, split, None, expected, FAILED, problem)
    return compare(task, split, found, expected)


def _check_lines(root: Path, spec: _Lines) -> Check:
    present = [(root / name).is_file() for name in spec.files]
    if spec.optional and not any(present):
        return Check(spec.task, spec.split, None, spec.rows, ABSENT, "optional")
    try:
        counts = [_count(root / name, spec) for name in spec.files]
    except InputError as error:
        return Check(spec.task, spec.split, None, spec.rows, FAILED, str(error))
    if not spec.parallel:
        return compare(spec.task, spec.split, sum(counts), spec.rows)
    wrong = [count for count in counts if count != spec.rows]
    return compare(spec.task, spec.split, wrong[0] if wrong else spec.rows, spec.rows)


def _count(path: Path, spec: _Lines) -> int:
    """The lines of a file below its header; InputError at the first that breaks the pattern."""
    pattern = re.compile(spec.pattern.encode())
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    lines = data.removesuffix(b"\n").split(b"\n") if data else []
    for number, line in enumerate(lines, start=1):
        if not (spec.header and number == 1) and not pattern.fullmatch(line.removesuffix(b"\r")):
            raise InputError(f"{path}, line {number}: not a row of {spec.task}: {_excerpt(line)}")
    return len(lines) - spec.header


def _excerpt(line: bytes, width: int = 60) -> str:
    text = line.decode("latin-1")
    return repr(text if len(text) <= width else text[:width] + "…")
