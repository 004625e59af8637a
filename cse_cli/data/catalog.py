"""What `cse data` knows how to fetch: the files the SimCSE authors keep on the Hugging Face hub.

Gao et al. 2021, "SimCSE: Simple Contrastive Learning of Sentence Embeddings": the corpora of
section 3 and section 4, and the SentEval folder of their evaluation.
"""

from dataclasses import dataclass
from pathlib import Path

from cse_cli.errors import UsageError, suggestion

REPOSITORY = "princeton-nlp/datasets-for-simcse"


@dataclass(frozen=True)
class Dataset:
    """One file of the hub's repository, and what is in it.

    `rows` counts sentences or triplets (None for an archive), `megabytes` is the download.
    `lands_as` is what it becomes inside the output folder.
    """

    name: str
    file: str
    lands_as: str
    rows: int | None
    megabytes: int
    about: str

    @property
    def is_archive(self) -> bool:
        """Whether the file is unpacked into a folder."""
        return self.file != self.lands_as

    def place(self, out: Path) -> Path:
        """Where it lies once fetched into `out`."""
        return out / self.lands_as


_CATALOG = (
    Dataset(
        name="wiki1m",
        file="wiki1m_for_simcse.txt",
        lands_as="wiki1m_for_simcse.txt",
        rows=1_000_000,
        megabytes=120,
        about="one million Wikipedia sentences, one a line (unsupervised training)",
    ),
    Dataset(
        name="nli",
        file="nli_for_simcse.csv",
        lands_as="nli_for_simcse.csv",
        rows=275_601,
        megabytes=49,
        about="SNLI + MNLI triplets sent0,sent1,hard_neg (supervised training)",
    ),
    Dataset(
        name="senteval",
        file="senteval.tar",
        lands_as="senteval",
        rows=None,
        megabytes=90,
        about="SentEval's evaluation sets: seven STS tasks, seven transfer tasks",
    ),
)

DATASETS = {dataset.name: dataset for dataset in _CATALOG}


def dataset(name: str) -> Dataset:
    """The dataset of that name; UsageError, with the nearest name, where there is none."""
    if name not in DATASETS:
        raise UsageError(f"unknown dataset '{name}': {suggestion(name, DATASETS)}")
    return DATASETS[name]


def known_file(name: str) -> Dataset | None:
    """The catalogued corpus that is kept under this file name, or None."""
    return next((d for d in _CATALOG if d.lands_as == name and not d.is_archive), None)
