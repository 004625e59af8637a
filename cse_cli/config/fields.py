"""Options as dataclass fields: default, help, range and panel stand in one place.

A configuration is a frozen dataclass whose fields are made by `option`. From the same metadata the
command line builds its options, TOML and environment values are converted, and `check` refuses
what is out of range. Nothing here imports torch, so `cse --help` does not either.
"""

import contextlib
import dataclasses
import math
import typing
from dataclasses import dataclass
from types import UnionType
from typing import Any

from cse_cli.errors import UsageError, suggestion


@dataclass(frozen=True)
class Option:
    """What a field tells the command line: `low` and `high` are inclusive unless `above` is set."""

    help: str
    panel: str
    low: float | None = None
    high: float | None = None
    above: float | None = None
    choices: tuple[str, ...] | None = None
    metavar: str | None = None
    rows: bool = False  # a number of rows or a multiple of the batch; see `row_count`


def option(
    default: Any,
    help: str,
    *,
    panel: str,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] | None = None,
    metavar: str | None = None,
    rows: bool = False,
) -> Any:
    """A dataclass field that is also an option; `above` is an exclusive lower bound."""
    about = Option(help, panel, low, high, above, choices, metavar, rows)
    return dataclasses.field(default=default, metadata={"option": about})


def about(field: dataclasses.Field[Any]) -> Option:
    """The `Option` of a field."""
    return typing.cast(Option, field.metadata["option"])


def flag(name: str) -> str:
    """The command-line spelling of a field's name: `neg_layer` -> `--neg-layer`."""
    return "--" + name.rstrip("_").replace("_", "-")


def plain_type(config: type, name: str) -> tuple[Any, bool, bool]:
    """(scalar type, may be None, repeatable) of the field `name` of a configuration class."""
    kind = typing.get_type_hints(config)[name]
    arguments = typing.get_args(kind)
    optional = isinstance(kind, UnionType) and type(None) in arguments
    if optional:
        kind = next(a for a in arguments if a is not type(None))
    if typing.get_origin(kind) is tuple:
        return typing.get_args(kind)[0], optional, True
    return kind, optional, False


def convert(config: type, name: str, value: Any) -> Any:
    """`value` (from TOML, the environment or the command line) as the field's type.

    Raises UsageError where it is not one.
    """
    kind, optional, repeatable = plain_type(config, name)
    if value is None and optional:
        return None
    if repeatable:
        items = value if isinstance(value, (list, tuple)) else [value]
        return tuple(_scalar(kind, name, item) for item in items)
    return _scalar(kind, name, value)


def _scalar(kind: type, name: str, value: Any) -> Any:
    if kind is bool:
        words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        found = value if isinstance(value, bool) else words.get(str(value).lower())
        if found is None:
            raise UsageError(f"{flag(name)} {value}: true or false is expected")
        return found
    if kind is str:
        return str(value)
    try:
        if isinstance(value, bool):
            raise ValueError
        return _whole(value) if kind is int else float(value)
    except (TypeError, ValueError, OverflowError):
        word = "a whole number" if kind is int else "a number"
        raise UsageError(f"{flag(name)} {value}: {word} is expected") from None


def _whole(value: Any) -> int:
    """`7`, `"7"`, `7.0` and `"1e3"` as whole numbers of any size; ValueError for others."""
    with contextlib.suppress(ValueError):
        return int(str(value))
    number = float(value)
    if number != int(number):
        raise ValueError
    return int(number)


def check(config: Any) -> None:
    """Refuse values out of range or unknown, with the option's name and what it takes."""
    for field in dataclasses.fields(config):
        check_field(field, getattr(config, field.name))


def check_field(field: dataclasses.Field[Any], value: Any) -> None:
    """`check` for the `value` of one field."""
    for item in value if isinstance(value, tuple) else (value,):
        if item is not None:
            _check_one(field.name, about(field), item)


def _check_one(name: str, rules: Option, value: Any) -> None:
    if rules.choices is not None and value not in rules.choices:
        near = suggestion(str(value), rules.choices)
        raise UsageError(f"{flag(name)} '{value}' is unknown; {near}")
    if rules.rows:
        row_count(name, value, 1)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{flag(name)} {value}: a finite number is expected")
    too_low = (rules.low is not None and not value >= rules.low) or (
        rules.above is not None and not value > rules.above
    )
    if too_low or (rules.high is not None and not value <= rules.high):
        raise UsageError(f"{flag(name)} {value}: {span(rules)} is expected")


def span(rules: Option) -> str:
    """The allowed range in words, such as `0 … 1` or `more than 0`."""
    if rules.above is not None:
        return f"more than {rules.above:g}" + (
            f", at most {rules.high:.10g}" if rules.high is not None else ""
        )
    if rules.high is None:
        return f"at least {rules.low:g}"
    return f"{rules.low:g} … {rules.high:.10g}"


def row_count(name: str, text: str, batch: int) -> int:
    """The number of rows that `text` names: `160`, or `2.5x` for 2.5 times `batch`, rounded down.

    Raises UsageError, naming the option `name`, for anything else and for less than 0.
    """
    number, times = (text[:-1], True) if text.endswith("x") else (text, False)
    try:
        value = float(number)
        if not 0 <= value < math.inf or (not times and value != int(value)):
            raise ValueError
    except ValueError:
        raise UsageError(
            f"{flag(name)} {text}: a number of rows, at least 0, or a multiple of the batch such "
            "as 2.5x is expected"
        ) from None
    return int(value * batch) if times else int(value)
