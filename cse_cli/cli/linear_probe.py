"""The run of a command with a linear classifier: over models, tasks and layers, and its reading.

`cse eval-transfer` and `cse probe-linguistic` differ in their tasks alone.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cse_cli.cli.linear_options import (
    Classifier,
    Detail,
    Dev,
    Fast,
    Layers,
    NoCache,
    Seed,
    parse_layers,
)
from cse_cli.cli.options import Loading
from cse_cli.cli.probes import Outputs, Probe, by_subset, finish, note, open_each
from cse_cli.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from cse_cli.classifier import Solver
    from cse_cli.cli.report import Gate
    from cse_cli.data.transfer import TransferData
    from cse_cli.embedding_cache import CachedEncoder
    from cse_cli.encoder import Encoder
    from cse_cli.results import Row, Table

    Encode = Callable[[Sequence[str]], Tensor]
    Section = tuple[str, Table | pd.DataFrame]

LAST: tuple[None] = (None,)  # no layer is named: the encoder's own vectors


class Evaluate(Protocol):
    """What `evaluate_transfer` and `evaluate_probing` are to a command."""

    def __call__(
        self,
        encode: "Encode",
        data: "TransferData",
        solver: "Solver",
        *,
        model: str,
        pooler: str,
        layer: int | None,
        dev: bool,
        detail: bool,
    ) -> "Table":
        """The rows of one task."""


@dataclass(frozen=True)
class Fitting:
    """The options about classifier, layers and cache (a group, see groups.py)."""

    classifier: Classifier = "senteval"
    fast: Fast = False
    dev: Dev = False
    seed: Seed = 1111
    layers: Layers = None
    detail: Detail = False
    no_cache: NoCache = False

    def check(self, out: Path | None) -> None:
        """Refuse layers that are none, or a figure `out` without layers to draw over."""
        parse_layers(self.layers, out)

    def solver(self) -> "Solver":
        """What makes the fits."""
        from cse_cli.classifier import solver

        return solver(self.classifier, fast=self.fast, seed=self.seed)


@dataclass(frozen=True)
class LinearProbe:
    """A command with a linear classifier; Avg is the mean of those tasks that are `averaged`."""

    command: str
    title: str
    data_dir: Path | None
    tasks: Sequence["TransferData"]
    evaluate: Evaluate
    averaged: Sequence[str]

    def run(
        self,
        models: Mapping[str, str],
        loading: Loading,
        fitting: Fitting,
        outputs: Outputs,
        gates: Sequence["Gate"],
    ) -> None:
        """Measure everything, print and draw it, then compare it with the gates.

        Raises UsageError for a figure where no task has an accuracy to draw.
        """
        from cse_cli.cli.report import check_gates
        from cse_cli.results import Table

        if outputs.out is not None and not any(data.classes for data in self.tasks):
            raise UsageError("--out draws accuracy over the layers, and no task here has one")
        table, encoders = self._measure(models, loading, fitting)
        config = {
            "data_dir": self.data_dir,
            "tasks": [data.name for data in self.tasks],
            **asdict(fitting),
            "layers": parse_layers(fitting.layers),
            **asdict(loading),
        }
        finish(self._probe(table, encoders, fitting), outputs, command=self.command, config=config)
        headlines = ("dev_accuracy", "dev_pearson") if fitting.dev else ("accuracy", "pearson")
        check_gates(Table([row for row in table if row.metric in headlines]), gates, None)

    def _measure(
        self, models: Mapping[str, str], loading: Loading, fitting: Fitting
    ) -> tuple["Table", list[dict[str, Any]]]:
        """The rows of all models, layers and tasks, and what each encoder turned out to be."""
        from cse_cli.classifier.judge import add_averages
        from cse_cli.cli.inputs import describe
        from cse_cli.embedding_cache import CachedEncoder, embedding_cache
        from cse_cli.results import Table

        evaluate = partial(
            self.evaluate, solver=fitting.solver(), dev=fitting.dev, detail=fitting.detail
        )
        table, encoders, asked = Table(), [], parse_layers(fitting.layers)
        with embedding_cache(keep=not fitting.no_cache) as folder:
            for label, encoder in open_each(models, loading):
                encoders.append(describe(encoder, models[label]))
                cached, layers = (
                    CachedEncoder(encoder, folder),
                    _layers(asked, encoder),
                )
                for data in self.tasks:
                    for layer in layers:
                        table.extend(_one(cached, data, evaluate, layer))
                for layer in layers:
                    add_averages(table, self.averaged, model=label, layer=layer)
        return table, encoders

    def _probe(self, table: "Table", encoders: Sequence[dict[str, Any]], fitting: Fitting) -> Probe:
        metric = "dev_accuracy" if fitting.dev else "accuracy"
        title = f"{self.title} by {fitting.classifier}{', fast' if fitting.fast else ''}"

        def draw() -> Any:
            from cse_cli.figures.probing import draw_layers

            return draw_layers(table, metric, title)

        curves = [] if fitting.layers is None else _curves(table, metric)
        return Probe(table, sections(table, title), draw, curves, encoders)


def _layers(asked: Sequence[int] | str | None, encoder: "Encoder") -> Sequence[int | None]:
    """The layers to probe in this encoder; UsageError for one that it does not have."""
    if asked is None:
        return LAST
    top = encoder.num_layers
    if isinstance(asked, str):
        return range(top + 1)
    if max(asked) > top:
        raise UsageError(f"--layers {max(asked)}: {encoder.name} has the layers 0 … {top}")
    return asked


def _one(
    cached: "CachedEncoder",
    data: "TransferData",
    evaluate: Callable[..., "Table"],
    layer: int | None,
) -> "Table":
    """One task on one layer, with a line on how it went."""
    from cse_cli.progress import log

    spent, before = [0.0], cached.encoded
    inner = cached if layer is None else cached.layer(layer)

    def encode(texts: Sequence[str]) -> "Tensor":
        start = time.perf_counter()
        vectors = inner(texts)
        spent[0] += time.perf_counter() - start
        return vectors

    start = time.perf_counter()
    encoder = cached.encoder
    rows = evaluate(encode, data, model=encoder.name, pooler=encoder.pooler, layer=layer)
    fitted = time.perf_counter() - start - spent[0]
    scores = ", ".join(
        f"{row.metric.replace('_', ' ')} {100 * row.value:.2f}"
        for row in rows
        if "subset" not in row.keys
    )
    texts = cached.encoded - before
    source = f"{texts} texts encoded in {spent[0]:.1f} s" if texts else "vectors from the cache"
    place = "" if layer is None else f", layer {layer}"
    log(f"{encoder.name}{place}, {data.name}: {scores} ({source}, fits {fitted:.1f} s)")
    return rows


def _curves(table: "Table", metric: str) -> list[tuple[str, list[float]]]:
    """Accuracy over the layers, a model each: the average where there is one, else the task."""
    rows = table.where(metric=metric).rows
    last = rows[-1].task if rows else ""
    models = dict.fromkeys(row.model for row in rows)
    return [
        (f"{last} {name}", [row.value for row in rows if (row.model, row.task) == (name, last)])
        for name in models
    ]


def sections(table: "Table", title: str) -> list["Section"]:
    """Accuracies with the F1 of a task beside its own, dev accuracies, then the details."""
    from cse_cli.results import Table

    names = {
        "accuracy": f"{title}, accuracy x 100",
        "dev_accuracy": f"{title}, dev accuracy x 100",
    }
    parts: list[Section] = []
    for metric, name in names.items():
        rows = [row for row in table if row.metric == metric]
        if rows:
            parts.append((note(name, rows[0].task), Table(list(_with_f1(table, rows)))))
    related = [row for row in table if row.keys.get("classifier") == "regression"]
    if related:
        parts.append(("Correlation x 100 of predicted and gold scores", Table(related)))
    penalties = table.where(metric="penalty")
    if len(penalties):
        parts.append(("Chosen penalties", by_subset(penalties, _place, keep=["layer"])))
    return [*parts, *_confusions(table.where(metric="confusion"))]


def _with_f1(table: "Table", rows: Iterable["Row"]) -> Iterator["Row"]:
    for row in rows:
        yield row
        if row.metric == "accuracy":
            same = {"model": row.model, "task": row.task, "layer": row.keys.get("layer")}
            for f1 in table.where(metric="f1", **same):
                yield replace(f1, task=f"{row.task} F1", metric="accuracy")


def _place(row: "Row") -> str:
    return str(row.keys["subset"])


def _confusions(counts: "Table") -> Iterator["Section"]:
    """One frame for each model, layer and task: true classes down, predicted ones across."""
    import pandas as pd

    frame = counts.frame
    if frame.empty:
        return
    keys = ["model", "task", *(["layer"] if "layer" in frame else [])]
    for key, part in frame.groupby(keys, sort=False):
        pairs = part["subset"].str.split(" -> ", expand=True)
        classes = list(dict.fromkeys(pairs[0]))
        cells = part["value"].astype(int).to_numpy().reshape(len(classes), -1)
        wide = pd.DataFrame(cells, columns=classes)
        wide.insert(0, "true \\ predicted", classes)
        model, task, *layer = key
        where = f", layer {layer[0]:.0f}" if layer else ""
        yield f"Confusions: {model}, {task}{where}", wide
