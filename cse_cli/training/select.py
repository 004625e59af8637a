"""What picks the best step: a score of the encoder, higher is better, by the evaluators that
`cse eval-sts` and its siblings use.

`stsb` Spearman on STS-B dev; a PAIRS.tsv file, the same on it; `uniformity`, the negative
uniformity of a sample of the corpus (no labels at all); `transfer`, the average dev accuracy of
the classification tasks; `last`, no score: the last step is taken.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cse_cli.errors import InputError, UsageError, suggestion

NAMES = ("stsb", "transfer", "uniformity", "last")
SAMPLE = 1000  # sentences of the corpus that `uniformity` looks at

if TYPE_CHECKING:
    from torch import Tensor

    Encode = Callable[[Sequence[str]], Tensor]


@dataclass(frozen=True)
class Selector:
    """`score(encode)`, higher is better, or None to take the last step; `name` is recorded."""

    name: str
    score: "Callable[[Encode], float] | None"


def check_select(select: str) -> None:
    """Refuse what is neither a name (UsageError) nor a file that is there (InputError)."""
    if select in NAMES or Path(select).is_file():
        return
    if Path(select).suffix:
        raise InputError(f"--select {select}: no such file")
    raise UsageError(f"--select {select}: a name or a PAIRS.tsv file; {suggestion(select, NAMES)}")


def choose_selector(
    select: str, data_dir: Path | None, sample: Callable[[int], list[str]]
) -> Selector:
    """The selector named `select`, its data read now so that what is missing is told first.

    `sample(n)` gives n sentences of the training corpus. Raises UsageError for an unknown name,
    InputError for data that is configured but not there.
    """
    check_select(select)
    if select == "last":
        return Selector("last", None)
    if select == "uniformity":
        return _uniformity(sample(SAMPLE))
    if select == "stsb":
        return _stsb(data_dir)
    if select == "transfer":
        return _transfer(data_dir)
    return _pairs_file(select)


def _stsb(data_dir: Path | None) -> Selector:
    from cse_cli.data.sts import load_sts
    from cse_cli.tasks.sts import sts_dev

    if data_dir is None:
        from cse_cli.data.builtin import demo_pairs

        demo = demo_pairs("dev")
        return Selector("demo", lambda encode: sts_dev(encode, demo))
    pairs = load_sts(data_dir, "STS-B", "dev")
    (only,) = pairs.values()
    return Selector("stsb", lambda encode: sts_dev(encode, only))


def _pairs_file(path: str) -> Selector:
    from cse_cli.data.sts import load_pairs_file
    from cse_cli.tasks.sts import sts_dev

    pairs = load_pairs_file(path)
    return Selector(Path(path).name, lambda encode: sts_dev(encode, pairs))


def _uniformity(sentences: list[str]) -> Selector:
    from cse_cli.maths import uniformity

    return Selector("uniformity", lambda encode: -float(uniformity(encode(sentences))))


def _transfer(data_dir: Path | None) -> Selector:
    if data_dir is None:
        raise InputError("--select transfer needs the SentEval data: --data-dir or CSE_DATA")
    from cse_cli.tasks.transfer import load_all, transfer_dev

    tasks = load_all(data_dir)
    return Selector("transfer", lambda encode: transfer_dev(encode, tasks))
