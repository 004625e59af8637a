"""`cse recipes`: published settings, one for each paper and backbone, and what the paper claims."""

from typing import Annotated, Any

import typer

recipes_app = typer.Typer(
    help="List published settings, or show one; `cse train --recipe NAME` trains by it.",
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@recipes_app.callback(invoke_without_command=True)
def recipes(context: typer.Context, json: Json = False) -> None:
    """List the recipes: name, backbone, what it is, and the average that the paper claims.

    Example: cse recipes
    """
    if context.invoked_subcommand is not None:
        return
    from cse_cli.cli.stdout import write_stdout
    from cse_cli.config.sources import load_recipe, recipe_names

    found = {name: load_recipe(name) for name in recipe_names()}
    if json:
        from json import dumps

        document = {"schema": 1, "command": "recipes", "recipes": found}
        write_stdout(dumps(document, indent=2, ensure_ascii=False) + "\n")
        return
    width = max(map(len, found))
    lines = [f"{name:<{width}}  {_summary(tables)}" for name, tables in found.items()]
    write_stdout("\n".join(lines) + "\n")


@recipes_app.command()
def show(
    name: Annotated[str, typer.Argument(help="The recipe's name.", show_default=False)],
    json: Json = False,
) -> None:
    """Print a recipe: its settings as TOML, its source, and the scores that the paper claims.

    Example: cse recipes show esimcse-bert-base
    """
    from cse_cli.cli.stdout import write_stdout
    from cse_cli.config.sources import load_recipe, recipe_text

    tables = load_recipe(name)
    if json:
        from json import dumps

        document = {"schema": 1, "command": "recipes show", "name": name, **tables}
        write_stdout(dumps(document, indent=2, ensure_ascii=False) + "\n")
        return
    write_stdout(recipe_text(name))


def _summary(tables: dict[str, Any]) -> str:
    """One line on a recipe: backbone, what it is, the claimed average and whether it holds."""
    paper = tables.get("paper")
    if paper is None:
        return "settings of the built-in demo"
    line = f"{paper['backbone']:<13}  {paper['summary']}"
    claimed = tables.get("claimed")
    if claimed is None:
        return line
    scores = claimed["scores"]
    task = "Avg" if "Avg" in scores else next(iter(scores))
    doubt = "; disagrees with itself" if "disagrees" in claimed else ""
    return f"{line} ({task} {scores[task]:.2f}, {claimed['table']}{doubt})"
