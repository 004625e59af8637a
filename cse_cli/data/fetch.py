"""`cse data fetch`: a dataset of the hub in its place, whole or not at all.

OUT/wiki1m_for_simcse.txt
OUT/nli_for_simcse.csv
OUT/senteval/downstream/STS/...     unpacked, as `--data-dir OUT/senteval` wants it
OUT/.cse-download-NAME/             only while a download is unfinished: what has arrived
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub.utils import WeakFileLock

from cse_cli.data.archive import unpack
from cse_cli.data.catalog import REPOSITORY, Dataset
from cse_cli.data.hub import download, in_hub_cache
from cse_cli.errors import InputError, OutputError

STAGED, ARRANGED = "staged", "arranged"  # what is unpacked, before it takes its place


def fetch(dataset: Dataset, out: Path) -> Path:
    """Bring one dataset into the folder `out`; returns the path it landed on.

    What lies there already is kept, and nothing is downloaded. Of two processes that want the same
    dataset the second waits for the first.

    Raises:
        InputError: it cannot be downloaded, or the archive is broken or hostile.
        OutputError: `out` cannot be written.
    """
    target = dataset.place(out)
    if target.exists():
        return target
    with _work_folder(out / f".cse-download-{dataset.name}") as work:
        if not target.exists():
            file = in_hub_cache(REPOSITORY, dataset.file)
            file = file or download(REPOSITORY, dataset.file, work)
            staged = work / STAGED
            if dataset.is_archive:
                unpack(file, staged)
                staged = _senteval_layout(staged, dataset.file)
            else:
                shutil.copyfile(file, staged)
            os.replace(staged, target)
    return target


@contextmanager
def _work_folder(work: Path) -> Iterator[Path]:
    """A locked folder beside the target; it outlives the block only to keep a broken download.

    What a run unpacked there before it was killed is removed, what it downloaded is kept.
    """
    lock = work.with_suffix(".lock")
    try:
        work.parent.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(lock):
            work.mkdir(exist_ok=True)
            for left in (work / STAGED, work / ARRANGED):
                _remove(left)
            done = False
            try:
                yield work
                done = True
            finally:
                if done or not any(part.stat().st_size for part in work.glob("*.partial")):
                    shutil.rmtree(work, ignore_errors=True)
                    lock.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"cannot write {work.parent} ({reason}); choose another --out") from error


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _senteval_layout(unpacked: Path, archive: str) -> Path:
    """The folder that holds `downstream/`, whichever of the usual ways the archive was packed.

    The authors packed the tasks themselves; SentEval's own tree has `data/downstream/` above them.
    """
    landmarks = sorted(unpacked.rglob("STS"), key=lambda path: len(path.parts))
    if not landmarks:
        raise InputError(f"{archive} holds no folder STS, so it is not the SentEval archive")
    tasks = landmarks[0].parent
    if tasks.name == "downstream":
        return tasks.parent
    root = unpacked.with_name(ARRANGED)
    root.mkdir()
    os.replace(tasks, root / "downstream")
    return root
