"""Where a training run's values come from, and which of them wins.

Option > `CSE_*` variable > `--config FILE` > `[tool.cse]` of ./pyproject.toml > recipe > the
built-in default. `--set name=value` counts as an option.
"""

import dataclasses
import os
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from cse_cli.config import option_owners
from cse_cli.config.fields import check_field, convert
from cse_cli.errors import InputError, UsageError, suggestion

ENVIRONMENT = "CSE_"
TYPED = "option"  # the source of what was typed as an option
# Variables whose name is not the option's: the SentEval folder is shared by all commands.
_RENAMED = {"data_dir": "CSE_DATA"}


def gather(
    options: Mapping[str, Any],
    *,
    sets: Sequence[str] = (),
    config_file: Path | None = None,
    recipe: str | None = None,
) -> tuple[dict[str, Any], dict[str, str]]:
    """(values, sources): the winning value of each name that anything sets, and who set it.

    `options` holds what was typed (None: not typed). Raises UsageError for an unknown name or a
    value of the wrong type, InputError for a file that cannot be read.
    """
    layers: list[tuple[str, Mapping[str, Any]]] = []
    if recipe is not None:
        layers.append((f"recipe {recipe}", load_recipe(recipe)["settings"]))
    layers.append(("pyproject.toml [tool.cse]", project_settings(Path("pyproject.toml"))))
    if config_file is not None:
        layers.append((str(config_file), read_toml(config_file)))
    layers.append(("environment", environment()))
    layers.append(("--set", collect(sets)))
    typed = {name: value for name, value in options.items() if value is not None}
    layers.append((TYPED, typed))
    return merge(layers)


def merge(
    layers: Sequence[tuple[str, Mapping[str, Any]]],
) -> tuple[dict[str, Any], dict[str, str]]:
    """(values, sources) of named layers of settings, the last one to set a name winning."""
    owners = option_owners()
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, layer in layers:
        for raw, value in layer.items():
            name = raw.replace("-", "_")
            name = "with_" if name == "with" else name
            if name not in owners:
                near = suggestion(name, [known.rstrip("_") for known in owners])
                raise UsageError(f"{source}: unknown setting '{raw}'; {near}")
            try:
                values[name] = _value(owners[name], name, value)
            except UsageError as error:
                raise (error if source == TYPED else UsageError(f"{source}: {error}")) from None
            sources[name] = source
    return values, sources


def _value(owner: type, name: str, value: Any) -> Any:
    """`value` as the type of the field `name` of `owner`, and in its range."""
    found = convert(owner, name, value)
    (field,) = [field for field in dataclasses.fields(owner) if field.name == name]
    check_field(field, found)
    return found


def environment() -> dict[str, str]:
    """Training options set by `CSE_*` variables."""
    found = {}
    for name in option_owners():
        variable = _RENAMED.get(name, ENVIRONMENT + name.rstrip("_").upper())
        if os.environ.get(variable):
            found[name] = os.environ[variable]
    return found


def project_settings(path: Path) -> dict[str, Any]:
    """The flat values of `[tool.cse]` in a pyproject.toml; empty where there is none."""
    if not path.is_file():
        return {}
    table = read_toml(path)
    for name in ("tool", "cse"):
        table = table.get(name, {})
        if not isinstance(table, dict):
            raise UsageError(f"{path}: '{name}' is {table!r}, but [tool.cse] is a table")
    return {name: value for name, value in table.items() if not isinstance(value, dict)}


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file; InputError where it cannot be read or parsed."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from None


def collect(sets: Sequence[str]) -> dict[str, Any]:
    """The settings of all `--set` words; UsageError where one is set twice."""
    found: dict[str, Any] = {}
    for name, value in map(split_set, sets):
        if name in found:
            raise UsageError(f"--set {name} is given twice; several values are {name}=[…, …]")
        found[name] = value
    return found


def split_set(text: str) -> tuple[str, Any]:
    """`name=value` of `--set`; the value is read as TOML where it is TOML, else as text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set {text}: NAME=VALUE is expected")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), value


def recipe_names() -> list[str]:
    """The recipes in the package, sorted."""
    folder = resources.files("cse_cli") / "recipes"
    return sorted(item.name[:-5] for item in folder.iterdir() if item.name.endswith(".toml"))


def recipe_text(name: str) -> str:
    """The TOML text of a recipe; UsageError for an unknown one."""
    names = recipe_names()
    if name not in names:
        raise UsageError(f"unknown recipe '{name}'; {suggestion(name, names)}")
    return (resources.files("cse_cli") / "recipes" / f"{name}.toml").read_text(encoding="utf-8")


def load_recipe(name: str) -> dict[str, Any]:
    """A recipe's tables: `settings`, and of a published one `paper` and what it has `claimed`."""
    return tomllib.loads(recipe_text(name))
