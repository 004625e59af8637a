"""`cse data verify`: a folder or a file against what the literature counted."""

from collections.abc import Iterator
from pathlib import Path

from cse_cli.data.catalog import DATASETS
from cse_cli.data.checks import Check
from cse_cli.data.locate import senteval_root
from cse_cli.data.verify_corpus import verify_corpus
from cse_cli.data.verify_senteval import verify_senteval
from cse_cli.errors import InputError


def verify(path: Path) -> Iterator[Check]:
    """The checks of one corpus file, or of a folder: its SentEval data and its fetched corpora.

    Raises InputError where there is nothing, or nothing known.
    """
    if not path.exists():
        raise InputError(f"there is no {path} to verify")
    if not path.is_dir():
        yield from verify_corpus(path)
        return
    root = senteval_root(path)
    has_tasks = (root / "downstream").is_dir()
    corpora = [d.place(path) for d in DATASETS.values() if d.place(path).is_file()]
    if not has_tasks and not corpora:
        names = ", ".join(dataset.lands_as for dataset in DATASETS.values())
        raise InputError(f"{path} holds neither downstream/ nor any of {names}")
    if has_tasks:
        yield from verify_senteval(root)
    for corpus in corpora:
        yield from verify_corpus(corpus)
