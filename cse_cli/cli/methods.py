"""`cse methods`: what each method is, what it is made of, and every option of that."""

from dataclasses import fields
from typing import Annotated

import typer

from cse_cli.config import INGREDIENT_CONFIGS
from cse_cli.config.fields import about, flag, span
from cse_cli.errors import UsageError, suggestion
from cse_cli.methods import INGREDIENTS, METHODS
from cse_cli.methods.catalog import CATALOG


def methods(
    name: Annotated[
        str | None,
        typer.Argument(help="Show this method or ingredient only.", show_default=False),
    ] = None,
    ingredients: Annotated[
        bool,
        typer.Option("--ingredients", help="List the ingredients that --with adds to any method."),
    ] = False,
) -> None:
    """Print each method: its equation, ingredients, options, defaults and citation.

    Examples:

      cse methods sscl

      cse methods --ingredients
    """
    from cse_cli.cli.stdout import write_stdout

    known = [*METHODS, *INGREDIENTS]
    if name is not None and name not in known:
        raise UsageError(f"unknown method or ingredient '{name}'; {suggestion(name, known)}")
    names = [name] if name else list(INGREDIENTS if ingredients else METHODS)
    blocks = [_method(n) if n in METHODS else "\n".join(_ingredient(n, "")) for n in names]
    write_stdout("\n\n".join(blocks) + "\n")


def _method(name: str) -> str:
    """A method with its ingredients and their options."""
    entry = CATALOG[name]
    lines = [name, f"  {entry.title}", f"  {entry.equation}"]
    lines += [f"  {flag(key)} {value}" for key, value in entry.settings.items()]
    for ingredient in METHODS[name]:
        lines += _ingredient(ingredient, "  ")
    return "\n".join([*lines, f"  {entry.citation}"])


def _ingredient(name: str, indent: str) -> list[str]:
    """An ingredient and its options, each with its range, choices and default."""
    config = INGREDIENT_CONFIGS[name]
    lines = [f"{indent}{name}: {(config.__doc__ or '').strip()}"]
    for field in fields(config):
        rules, default = about(field), field.default
        notes = ["|".join(rules.choices)] if rules.choices else []
        if rules.low is not None or rules.above is not None:
            notes.append(span(rules))
        if default is not None:
            notes.append(f"default: {_shown(default)}")
        about_it = f" [{'; '.join(notes)}]" if notes else ""
        lines.append(f"{indent}  {flag(field.name)}{about_it}  {rules.help}")
    return lines


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
