"""`cse probe-smoothing`: how alike layers and tokens become on the way up (SSCL)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cse_cli.cli.groups import grouped
from cse_cli.cli.heatmap import matrices, special_ids
from cse_cli.cli.options import (
    POOLERS,
    DataDir,
    Loading,
    Models,
    Running,
)
from cse_cli.cli.probes import (
    FIGURES_PANEL,
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
    from cse_cli.results import Row, Table

    Texts = Callable[[], Iterable[str]]

TextFile = Annotated[
    str | None,
    typer.Option(
        "--file",
        metavar="FILE|-",
        help="Sentences to measure in place of STS-B test: .txt (one a line), .csv, .tsv, .jsonl, "
        "each also .gz; `-` is standard input.",
        show_default=False,
    ),
]
Poolers = Annotated[
    list[str] | None,
    typer.Option(
        "--pooler",
        metavar="NAME[,NAME...]",
        help="How SetSim pools each layer: cls, mean or max (the two-layer poolers take the mean "
        "of a layer); several give a curve each. Else what the checkpoint says.",
        show_default=False,
    ),
]
NoSpecial = Annotated[
    bool,
    typer.Option(
        "--no-special",
        help="Leave [CLS] and [SEP] out of TokSim and of the matrix; else they count.",
        show_default=False,
    ),
]
Heatmap = Annotated[
    str | None,
    typer.Option(
        "--heatmap",
        metavar="SENTENCE",
        help="In place of the curves: the cosines between this sentence's tokens.",
        rich_help_panel=FIGURES_PANEL,
        show_default=False,
    ),
]
Layer = Annotated[
    int | None,
    typer.Option(
        "--layer",
        metavar="N",
        help="The layer of --heatmap: 0 is the embedding output, -1 the last (the default).",
        rich_help_panel=FIGURES_PANEL,
        show_default=False,
    ),
]


@grouped
def probe_smoothing(
    models: Models,
    data_dir: DataDir = None,
    file: TextFile = None,
    poolers: Poolers = None,
    no_special: NoSpecial = False,
    labels: Labels = None,
    heatmap: Heatmap = None,
    layer: Layer = None,
    *,
    outputs: Outputs,
    running: Running,
) -> None:
    """Measure over-smoothing: SetSim between consecutive layers and TokSim within each layer.

    On STS-B test, or on --file. Without data it uses the small built-in demo set, which says only
    that things work.

    Example: cse probe-smoothing runs/simcse runs/sscl --out smoothing.png

    Example: cse probe-smoothing runs/simcse runs/sscl --heatmap "A man plays." --out tokens.svg
    """
    outputs.check()
    names, kinds = labelled(models, labels), _poolers(poolers)
    _check_heatmap(heatmap, layer)
    loading = Loading(**asdict(running), pooler=kinds[0] if kinds else None)
    if heatmap is not None:
        probe = matrices(names, loading, heatmap, -1 if layer is None else layer, no_special)
    else:
        probe = _curves(names, loading, kinds, _texts(data_dir, file), no_special)
    finish(
        probe,
        outputs,
        command="probe-smoothing",
        config={
            "checkpoints": names,
            "data_dir": data_dir,
            "file": file,
            "heatmap": heatmap,
            "layer": layer,
            "no_special": no_special,
            **asdict(loading),
            "pooler": kinds,
        },
    )


def _check_heatmap(sentence: str | None, layer: int | None) -> None:
    if sentence is not None and not sentence.strip():
        raise UsageError("--heatmap is blank; give a sentence")
    if layer is not None and sentence is None:
        raise UsageError("--layer belongs to --heatmap; the curves show every layer")


def _poolers(names: Sequence[str] | None) -> list[str]:
    """The poolers asked for, each once; none where the checkpoint decides."""
    asked = [name.strip() for text in names or () for name in text.split(",")]
    for name in asked:
        if name not in POOLERS:
            raise UsageError(f"--pooler '{name}' is unknown: {suggestion(name, POOLERS)}")
    return list(dict.fromkeys(asked))


def _texts(data_dir: Path | None, file: str | None) -> "tuple[str, str, Texts]":
    """Task, split and sentences: those of `file`, of STS-B test, or of the demo set.

    A file is read again for each checkpoint, never held; what is wrong with its beginning is told
    now, before a model is loaded.
    """
    from cse_cli.cli.inputs import data_folder
    from cse_cli.data.readers import iter_texts

    if file is None:
        task, pairs = stsb_pairs(data_folder(data_dir), "test")
        return task, "test", lambda: [*pairs.a, *pairs.b]
    if Path(file).is_file():
        next(iter(iter_texts([file])))
        return Path(file).name, "", lambda: iter_texts([file])
    held = list(iter_texts([file]))  # a pipe can be read only once
    return "stdin" if file == "-" else Path(file).name, "", lambda: held


def _curves(
    models: dict[str, str],
    loading: Loading,
    poolers: Sequence[str],
    source: "tuple[str, str, Texts]",
    no_special: bool,
) -> Probe:
    from functools import partial

    from cse_cli.progress import warn
    from cse_cli.results import Table
    from cse_cli.tasks.smoothing import smoothing

    task, split, texts = source
    table = Table()
    for label, encoder in open_each(models, loading):
        found = smoothing(
            partial(encoder.stream, progress=True),
            texts(),
            poolers=poolers or [encoder.pooler],
            model=label,
            task=task,
            split=split,
            ignore=special_ids(encoder, no_special),
        )
        all_n, with_tokens = (found.where(metric=m).rows[0].n for m in ("setsim", "toksim"))
        if all_n > with_tokens:
            short = all_n - with_tokens
            warn(f"{label}: {short} of {all_n} sentences have no two tokens and so no TokSim")
        table.extend(found)

    def draw() -> Any:
        from cse_cli.figures import draw_smoothing

        return draw_smoothing(table)

    setsim, toksim = table.where(metric="setsim"), table.where(metric="toksim")
    sections = [
        (
            note("SetSim: mean cosine of a sentence in layers l and l + 1", task),
            by_subset(setsim, _between, keep=["pooler"]),
        ),
        (
            note("TokSim: mean cosine between a sentence's tokens in layer l", task),
            by_subset(toksim, lambda row: str(row.keys["layer"])),
        ),
    ]
    curves = [*_by_model("SetSim", setsim), *_by_model("TokSim", toksim)]
    return Probe(table, sections, draw, curves)


def _between(row: "Row") -> str:
    """The two layers that a SetSim row compares."""
    return f"{row.keys['layer']}-{row.keys['layer'] + 1}"


def _by_model(name: str, table: "Table") -> list[tuple[str, list[float]]]:
    """The values over the layers, one curve a model and pooler."""
    curves: dict[str, list[float]] = {}
    for row in table:
        label = " ".join((name, row.model, row.keys.get("pooler", "")))
        curves.setdefault(label.strip(), []).append(row.value)
    return list(curves.items())
