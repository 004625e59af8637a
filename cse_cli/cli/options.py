"""The options that commands share, each written once: name, help text, variable and panel.

Choices are checked here, so that a wrong one is answered with the nearest right one (exit 2).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from cse_cli.errors import UsageError, suggestion

POOLERS = ("cls", "mean", "max", "first_last_mean", "layer1_last_mean", "top2_mean")
FORMATS = ("table", "json", "csv", "markdown", "latex")
PRECISIONS = ("fp32", "bf16", "fp16")

ENCODING_PANEL = "Encoding"
OUTPUT_PANEL = "Output"


def choice(option: str, known: Sequence[str]) -> dict[str, Any]:
    """The arguments of `typer.Option` that limit its value to `known` and complete it."""

    def check(context: typer.Context, value: str | None) -> str | None:
        if value is not None and value not in known and not context.resilient_parsing:
            raise UsageError(f"{option} '{value}' is unknown: {suggestion(value, known)}")
        return value

    def complete(incomplete: str) -> list[str]:
        return [name for name in known if name.startswith(incomplete)]

    return {"callback": check, "autocompletion": complete, "metavar": "|".join(known)}


def listed(option: str, values: Sequence[str] | None) -> list[str]:
    """The names given with an option that takes several, by repetition or with commas between.

    None where it was not given; UsageError where it was, but names nothing.
    """
    names = [name.strip() for text in values or () for name in text.split(",") if name.strip()]
    if values and not names:
        raise UsageError(f"{option} names nothing; give a name or leave it out")
    return names


Models = Annotated[
    list[str],
    typer.Argument(
        metavar="CKPT",
        help="Checkpoints: a folder of `cse train`, a sentence-transformers or Hugging Face "
        "folder, or a hub id. Several give one table.",
        show_default=False,
    ),
]
Model = Annotated[
    str,
    typer.Argument(
        metavar="CKPT",
        help="A folder of `cse train`, a sentence-transformers or Hugging Face folder, "
        "or a hub id.",
        show_default=False,
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="SentEval's data folder, the one that holds `downstream/`; else CSE_DATA, "
        "else the small built-in demo set.",
        show_default=False,
    ),
]
Pooler = Annotated[
    str | None,
    typer.Option(
        "--pooler",
        help="How token vectors become a sentence vector; else what the checkpoint says. "
        "A plain Hugging Face model says nothing, so name one for it.",
        rich_help_panel=ENCODING_PANEL,
        show_default=False,
        **choice("--pooler", POOLERS),
    ),
]
MaxLength = Annotated[
    int | None,
    typer.Option(
        "--max-length",
        metavar="TOKENS",
        min=3,
        help="Longer texts are cut here; else the checkpoint's evaluation length, "
        "else the model's own maximum, at most 512.",
        rich_help_panel=ENCODING_PANEL,
        show_default=False,
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        "--precision",
        help="Number format of the forward pass; fp16 on a GPU only.",
        rich_help_panel=ENCODING_PANEL,
        **choice("--precision", PRECISIONS),
    ),
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        envvar="CSE_DEVICE",
        metavar="NAME",
        help="auto (a GPU where there is one), cpu, cuda or cuda:N.",
        rich_help_panel=ENCODING_PANEL,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        envvar="CSE_THREADS",
        metavar="N",
        min=1,
        max=1024,
        help="Processor threads; else one for every core.",
        rich_help_panel=ENCODING_PANEL,
        show_default=False,
    ),
]
BatchTokens = Annotated[
    int | None,
    typer.Option(
        "--batch-tokens",
        envvar="CSE_BATCH_TOKENS",
        metavar="N",
        min=1,
        help="Tokens, padding included, that go through the encoder at once; "
        "lower it where memory is short.",
        rich_help_panel=ENCODING_PANEL,
        show_default=False,
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        envvar="CSE_FORMAT",
        help="What standard output gets. JSON and CSV are unscaled and unrounded.",
        rich_help_panel=OUTPUT_PANEL,
        **choice("--format", FORMATS),
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="The same as --format json.", rich_help_panel=OUTPUT_PANEL),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        help="Write the table to a file too, in the format of its extension: "
        ".json, .csv, .md, .tex or .txt.",
        rich_help_panel=OUTPUT_PANEL,
        show_default=False,
    ),
]
FailUnder = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-under",
        metavar="SCORE|TASK=SCORE",
        help="Exit 1 where the average x 100 (or one task's score x 100) stays below; "
        "repeatable. NaN fails.",
        rich_help_panel=OUTPUT_PANEL,
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Running:
    """How an encoder runs, whatever its pooler (a group of options, see groups.py)."""

    max_length: MaxLength = None
    precision: Precision = "fp32"
    device: Device = "auto"
    threads: Threads = None
    batch_tokens: BatchTokens = None


@dataclass(frozen=True)
class Loading(Running):
    """How an encoder is opened: what `open_encoder` takes."""

    pooler: Pooler = None


@dataclass(frozen=True)
class Printing:
    """Where a table goes."""

    format: Format = "table"
    json: Json = False
    output: Output = None
