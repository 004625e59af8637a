"""`cse methods`: what each method is."""

from typing import Annotated

import typer


def methods(
    name: Annotated[
        str | None, typer.Argument(help="Show this method only.", show_default=False)
    ] = None,
) -> None:
    """Print each method: its equation, ingredients, defaults and citation.

    Example: cse methods sscl
    """
    from dataclasses import fields

    from cse_cli.cli.stdout import write_stdout
    from cse_cli.config import INGREDIENT_CONFIGS
    from cse_cli.config.fields import about, flag
    from cse_cli.errors import UsageError, suggestion
    from cse_cli.methods import METHODS
    from cse_cli.methods.catalog import CATALOG

    if name is not None and name not in METHODS:
        raise UsageError(f"unknown method '{name}'; {suggestion(name, METHODS)}")
    blocks = []
    for method in [name] if name else METHODS:
        entry = CATALOG[method]
        lines = [method, f"  {entry.title}", f"  {entry.equation}"]
        lines += [f"  ingredients: {', '.join(METHODS[method]) or 'none'}"]
        lines += [f"  {flag(key)} {value}" for key, value in entry.settings.items()]
        for ingredient in METHODS[method]:
            for field in fields(INGREDIENT_CONFIGS[ingredient]):
                value = field.default
                shown = " ".join(value) if isinstance(value, tuple) else value
                lines.append(f"  {flag(field.name)} {shown}: {about(field).help}")
        blocks.append("\n".join([*lines, f"  {entry.citation}"]))
    write_stdout("\n\n".join(blocks) + "\n")
