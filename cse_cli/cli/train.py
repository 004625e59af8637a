"""`cse train`. Its options are the fields of the configuration classes, each written once there."""

import dataclasses
import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from cse_cli.config import INGREDIENT_CONFIGS, TrainConfig
from cse_cli.config.fields import about, flag, plain_type, span

RUN = "Run"

Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Folder of the checkpoint (default: a new one in runs/).",
        rich_help_panel=RUN,
        show_default=False,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config", help="TOML file of settings.", rich_help_panel=RUN, show_default=False
    ),
]
Recipe = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        help="Published settings; `cse recipes` lists them.",
        rich_help_panel=RUN,
        show_default=False,
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Change one setting (repeatable).",
        rich_help_panel=RUN,
        show_default=False,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Show steps, memory, data report and settings; train nothing.",
        rich_help_panel=RUN,
    ),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace the run in --out.", rich_help_panel=RUN)
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Go on with the run in --out, exactly.", rich_help_panel=RUN),
]
Seeds = Annotated[
    str | None,
    typer.Option(
        "--seeds",
        metavar="0-4",
        help="Train once a seed (0-4 or 0,3,5) into OUT/seed-N; OUT/summary.json has mean and sd.",
        rich_help_panel=RUN,
        show_default=False,
    ),
]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs", metavar="N", min=1, help="Seeds trained at a time.", rich_help_panel=RUN
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON.", rich_help_panel=RUN)
]


def train(
    out: Out = None,
    config: Config = None,
    recipe: Recipe = None,
    set_: Sets = None,
    dry_run: DryRun = False,
    overwrite: Overwrite = False,
    resume: Resume = False,
    seeds: Seeds = None,
    jobs: Jobs = 1,
    json: Json = False,
    **options: Any,
) -> None:
    """Train a sentence encoder; prints the checkpoint's path.

    Without --model and --train-file it runs on the small built-in demo.

    Examples:

      cse train --method sscl --neg-layer 11

      cse train --method esimcse --seeds 0-4 --out runs/esimcse

      ckpt=$(cse train --model bert-base-uncased --train-file wiki.txt --out runs/simcse)
    """
    from cse_cli.cli.training import run_training

    run_training(
        options,
        out=out,
        config=config,
        recipe=recipe,
        sets=set_ or (),
        dry_run=dry_run,
        overwrite=overwrite,
        resume=resume,
        seeds=seeds,
        jobs=jobs,
        json=json,
    )


def _parameters() -> list[inspect.Parameter]:
    """One command-line option for every field of every configuration class."""
    found = []
    for config in (TrainConfig, *INGREDIENT_CONFIGS.values()):
        for field in dataclasses.fields(config):
            found.append(
                inspect.Parameter(
                    field.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=None,
                    annotation=_annotation(config, field),
                )
            )
    return found


def _annotation(config: type, field: dataclasses.Field[Any]) -> Any:
    kind, _, repeatable = plain_type(config, field.name)
    rules = about(field)
    name = flag(field.name)
    spelling = f"{name}/--no-{name[2:]}" if kind is bool else name
    metavar = rules.metavar or ("|".join(rules.choices) if rules.choices else None)
    option = typer.Option(
        spelling,
        help=_help(field),
        rich_help_panel=rules.panel,
        show_default=False,
        metavar=None if kind is bool else metavar,
    )
    return Annotated[(list[kind] if repeatable else kind) | None, option]  # type: ignore[valid-type]


def _help(field: dataclasses.Field[Any]) -> str:
    """The help text with its range and default, since the option itself defaults to "not typed"."""
    rules, default = about(field), field.default
    notes = []
    if rules.low is not None or rules.above is not None:
        notes.append(span(rules))
    if default not in (None, ()):
        shown = " ".join(default) if isinstance(default, tuple) else default
        notes.append(f"default: {str(shown).lower() if isinstance(shown, bool) else shown}")
    return rules.help + (f" ({'; '.join(notes)})" if notes else "")


_own = [p for p in inspect.signature(train).parameters.values() if p.kind is not p.VAR_KEYWORD]
train.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in _own] + _parameters()
)
