"""`cse geometry`: the shape of a sentence space, seen from seven sides."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cse_cli.cli.groups import grouped
from cse_cli.cli.options import (
    DataDir,
    Loading,
    Models,
    choice,
    listed,
)
from cse_cli.cli.probes import (
    Labels,
    Outputs,
    Probe,
    by_subset,
    finish,
    labelled,
    note,
    open_each,
    stsb_pairs,
)
from cse_cli.errors import UsageError, suggestion

if TYPE_CHECKING:
    import pandas as pd

    from cse_cli.data.sts import Pairs
    from cse_cli.results import Table

VIEWS = ("plane", "distribution", "spectrum", "correlation", "rank", "batch", "dimension")

Views = Annotated[
    list[str] | None,
    typer.Option(
        "--view",
        metavar="NAME[,NAME...]",
        help=f"What to look at: {', '.join(VIEWS)}; else all. One view makes a figure of one "
        "column.",
        show_default=False,
    ),
]
Corpus = Annotated[
    str | None,
    typer.Option(
        "--corpus",
        metavar="FILE|-",
        help="Sentences for spectrum, correlation, rank and batch, as `cse encode` takes them; "
        "else those of STS-B test. The other views need its scored pairs.",
        show_default=False,
    ),
]
AlignThreshold = Annotated[
    str,
    typer.Option(
        "--align-threshold",
        help="Gold scores of the positive pairs of alignment.",
        **choice("--align-threshold", (">4", ">=4")),
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed", metavar="N", min=0, max=2**32 - 1, help="Of the random batches and the noise."
    ),
]


@grouped
def geometry(
    models: Models,
    data_dir: DataDir = None,
    views: Views = None,
    corpus: Corpus = None,
    align_threshold: AlignThreshold = ">4",
    seed: Seed = 0,
    labels: Labels = None,
    *,
    outputs: Outputs,
    loading: Loading,
) -> None:
    """Look at a sentence space: alignment and uniformity, cosines by gold score, spectrum, ...

    On STS-B test. Without data it uses the small built-in demo set, which says only that things
    work.

    Example: cse geometry runs/base runs/simcse runs/sscl --view plane --out plane.pdf

    Example: cse geometry runs/sscl --view spectrum,correlation --corpus wiki.txt --json
    """
    from cse_cli.cli.inputs import data_folder

    outputs.check()
    names, chosen = labelled(models, labels), _views(views)
    sentences = _sentences(corpus)
    settings = {"views": chosen, "threshold": align_threshold, "seed": seed}
    folder = data_folder(data_dir)
    task, pairs = stsb_pairs(folder, "test")
    finish(
        _probe(names, loading, task, pairs, {**settings, "corpus": sentences}),
        outputs,
        command="geometry",
        config={
            "checkpoints": names,
            "data_dir": folder,
            "corpus": corpus,
            **settings,
            **asdict(loading),
        },
    )


def _views(names: Sequence[str] | None) -> list[str]:
    """The views asked for, each once and in their order; all by default."""
    asked = listed("--view", names)
    for name in asked:
        if name not in VIEWS:
            raise UsageError(f"--view '{name}' is unknown: {suggestion(name, VIEWS)}")
    return list(dict.fromkeys(asked)) or list(VIEWS)


def _sentences(corpus: str | None) -> tuple[str, list[str]] | None:
    from cse_cli.data.readers import iter_texts

    if corpus is None:
        return None
    return "stdin" if corpus == "-" else Path(corpus).name, list(iter_texts([corpus]))


def _probe(
    models: dict[str, str],
    loading: Loading,
    task: str,
    pairs: "Pairs",
    settings: dict[str, Any],
) -> Probe:
    from functools import partial

    from cse_cli.cli.inputs import describe
    from cse_cli.results import Table
    from cse_cli.tasks.geometry import geometry as measure

    table, encoders = Table(), []
    for label, encoder in open_each(models, loading):
        encoders.append(describe(encoder, models[label]))
        encode = partial(encoder.encode, progress=True)
        table.extend(measure(encode, pairs, model=label, task=task, **settings))

    def draw() -> Any:
        from cse_cli.figures import draw_geometry

        return draw_geometry(table, settings["views"])

    sections = [(note(title, task), part) for title, part in _sections(table) if len(part)]
    return Probe(table, sections, draw, _curves(table), encoders)


SINGLE = (
    "alignment", "uniformity", "spearman_all", "effective_rank", "mean_cosine",
    "dimension_correlation",
)  # fmt: skip


def _sections(table: "Table") -> "Iterator[tuple[str, Table | pd.DataFrame]]":
    """Each view's numbers as people read them: models across, what varies down the side."""
    from dataclasses import replace

    from cse_cli.results import Table

    def by_k(metric: str, unit: str) -> "Table":
        rows = [r for r in table if r.metric == metric and r.keys.get("subset") in (None, "mean")]
        return by_subset(rows, lambda row: f"{row.keys['k']} {unit}")

    yield (
        "Alignment and uniformity (lower is better), Spearman x 100, anisotropy, mean |r|",
        Table([replace(row, keys={}) for row in table if row.metric in SINGLE]),
    )
    groups = table.where(metric="cosine_mean")
    yield "Mean cosine by gold score", by_subset(groups, lambda row: row.keys["subset"])
    yield "Rank of the cross-correlation", _ranks(table.where(metric="rank"))
    yield "Mean of the 4 largest cosines of a batch", by_k("top_similarity", "sentences")
    yield "The same with Gaussian noise", by_k("noise_similarity", "sentences")
    yield "Spearman x 100 of the first coordinates", by_k("spearman_truncated", "dimensions")
    yield "Spearman x 100 of the principal directions", by_k("spearman_pca", "dimensions")


def _ranks(rows: "Table") -> "pd.DataFrame":
    """Whole numbers: a batch size a line, a model a column."""
    import pandas as pd

    lines: dict[int, dict[str, object]] = {}
    for row in rows:
        line = lines.setdefault(row.keys["k"], {"Batch size": row.keys["k"]})
        line[row.model] = int(row.value)
    return pd.DataFrame(list(lines.values()))


def _curves(table: "Table") -> list[tuple[str, list[float]]]:
    """The curve of every view that has one, a model each."""
    curves: dict[str, list[float]] = {}
    for row in table:
        drawn = row.metric in ("singular_value", "correlation_share", "spearman_truncated")
        if drawn or (row.metric == "top_similarity" and row.keys["subset"] == "mean"):
            curves.setdefault(f"{row.metric} {row.model}", []).append(row.value)
    return list(curves.items())
