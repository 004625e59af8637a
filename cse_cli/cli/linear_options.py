"""The options that commands with a linear classifier share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cse_cli.cli.options import ENCODING_PANEL, choice
from cse_cli.errors import UsageError

CLASSIFIER_PANEL = "Classifier"

Classifier = Annotated[
    str,
    typer.Option(
        "--classifier",
        help="senteval: Adam with early stopping, the accuracies of the literature. lbfgs: the "
        "optimum, as scikit-learn's LogisticRegression; they differ.",
        rich_help_panel=CLASSIFIER_PANEL,
        **choice("--classifier", ("senteval", "lbfgs")),
    ),
]
Fast = Annotated[
    bool,
    typer.Option(
        "--fast",
        help="SentEval's cheap setting, for use during development: 5 folds, RMSprop, batches of "
        "128, earlier stops. Its accuracies are not those of the literature.",
        rich_help_panel=CLASSIFIER_PANEL,
        show_default=False,
    ),
]
Dev = Annotated[
    bool,
    typer.Option(
        "--dev",
        help="Only dev accuracies, by which penalties (and checkpoints) are chosen; test rows "
        "stay unseen.",
        rich_help_panel=CLASSIFIER_PANEL,
        show_default=False,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        max=2**32 - 1,
        help="Of folds and classifier; SentEval's is 1111.",
        rich_help_panel=CLASSIFIER_PANEL,
    ),
]
Detail = Annotated[
    bool,
    typer.Option(
        "--detail",
        help="Also the chosen penalties, and which classes were taken for which.",
        show_default=False,
    ),
]
Layers = Annotated[
    str | None,
    typer.Option(
        "--layers",
        metavar="all|N[,N...]",
        help="Probe the pooled states of these layers in place of the model's own vectors; "
        "0 is the embedding output. All come from one pass.",
        show_default=False,
    ),
]
NoCache = Annotated[
    bool,
    typer.Option(
        "--no-cache",
        help="Neither look for this checkpoint's vectors in the cache folder (CSE_CACHE) "
        "nor keep them there.",
        rich_help_panel=ENCODING_PANEL,
        show_default=False,
    ),
]


def parse_layers(text: str | None, out: Path | None = None) -> Sequence[int] | str | None:
    """`all`, or the layers named in `text`, each once; None where the models' own vectors count.

    Raises UsageError for anything else, and for a figure `out` without layers to draw over.
    """
    if text is None:
        if out is not None:
            raise UsageError("--out draws accuracy over the layers; give --layers all too")
        return None
    if text.strip() == "all":
        return "all"
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UsageError(f"--layers {text}: 'all', or layer numbers such as 0,6,12")
    return sorted({int(part) for part in parts})
