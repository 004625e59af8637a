"""From flat values to a run: the general settings, and each ingredient with its own, in order."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cse_cli.config import INGREDIENT_CONFIGS, TrainConfig, option_owners
from cse_cli.config.fields import check, flag
from cse_cli.errors import UsageError, suggestion
from cse_cli.methods import INGREDIENTS, METHODS
from cse_cli.methods.catalog import CATALOG


@dataclass(frozen=True)
class Run:
    """A resolved run: general settings and the ingredients (name, settings) in their order."""

    train: TrainConfig
    parts: tuple[tuple[str, Any], ...]

    @property
    def ingredients(self) -> list[str]:
        """The ingredients' names in order."""
        return [name for name, _ in self.parts]

    def flat(self) -> dict[str, Any]:
        """Every setting of the run by name: what `config.toml` and `cse.json` record."""
        values = dataclasses.asdict(self.train)
        for _, config in self.parts:
            values.update(dataclasses.asdict(config))
        return values


def resolve(values: Mapping[str, Any]) -> Run:
    """Check `values` and sort them to their owners; names not given take their defaults.

    Raises UsageError for an unknown method or ingredient, a value out of range, or an option whose
    ingredient is not part of the run.
    """
    method = values.get("method", TrainConfig.method)
    if method not in METHODS:
        raise UsageError(f"unknown method '{method}'; {suggestion(method, METHODS)}")
    names = _ingredients(method, values.get("with_", ()))
    merged = {**CATALOG[method].settings, **values}
    if merged.get("project_dim") is not None:
        if values.get("head", "linear") != "linear":
            raise UsageError("--project-dim replaces the head; leave --head out")
        merged["head"] = "linear"
    owners = option_owners()
    for name in values:
        owner = owners[name]
        if owner is not TrainConfig and owner not in {INGREDIENT_CONFIGS[n] for n in names}:
            home = next(n for n, config in INGREDIENT_CONFIGS.items() if config is owner)
            raise UsageError(f"{flag(name)} belongs to '{home}'; add --with {home}")
    train = _build(TrainConfig, merged)
    parts = tuple((name, _build(INGREDIENT_CONFIGS[name], merged)) for name in names)
    return Run(train, parts)


def _ingredients(method: str, added: tuple[str, ...]) -> list[str]:
    """The method's ingredients and the added ones, each once, in order."""
    names = list(METHODS[method])
    for name in added:
        if name not in INGREDIENTS:
            raise UsageError(f"--with {name}: unknown ingredient; {suggestion(name, INGREDIENTS)}")
        if name not in names:
            names.append(name)
    return names


def _build(config: type, values: Mapping[str, Any]) -> Any:
    fields = [field.name for field in dataclasses.fields(config)]
    built = config(**{name: values[name] for name in fields if name in values})
    check(built)
    return built
