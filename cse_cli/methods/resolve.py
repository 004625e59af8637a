"""From flat values to a run: the general settings, and each ingredient with its own, in order."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cse_cli.config import INGREDIENT_CONFIGS, TrainConfig, option_owners
from cse_cli.config.fields import check, flag
from cse_cli.config.sources import TYPED
from cse_cli.errors import UsageError, suggestion
from cse_cli.methods import CHANGE_LOGITS, INGREDIENTS, METHODS
from cse_cli.methods.catalog import CATALOG

HARD_NEGATIVES = "hard-negatives"
FILLED = ("mask", "insert", "all", "released")  # the edits that a generator fills
# Options that act for some values of another option only.
RULED: dict[str, tuple[str, tuple[str, ...]]] = {
    "rtd_weight": ("edited_as", ("rtd",)),
    "rtd_reduction": ("edited_as", ("rtd",)),
    "generator": ("edit", FILLED),
    "decode": ("edit", FILLED),
    "mask_ratio": ("edit", ("mask", "all", "released")),
    "edit_ratio": ("edit", ("insert", "delete", "all")),
    "noise_variance": ("noise_study", ("pos+", "neg+")),
    "noise_passes": ("noise_study", ("pos-", "neg-")),
}


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


def resolve(values: Mapping[str, Any], sources: Mapping[str, str] | None = None) -> Run:
    """Check `values` and sort them to their owners; names not given take their defaults.

    `sources` says which file, recipe or variable has set a value that was not typed.
    Raises UsageError for an unknown method or ingredient, a value out of range, or an option whose
    ingredient is not part of the run.
    """
    method = values.get("method", TrainConfig.method)
    if method not in METHODS:
        raise UsageError(f"unknown method '{method}'; {suggestion(method, METHODS)}")
    names = _ingredients(method, values.get("with_", ()))
    _check_columns(values, names)
    merged = {**CATALOG[method].settings, **values}
    if merged.get("project_dim") is not None:
        if values.get("head", "linear") != "linear":
            raise UsageError("--project-dim replaces the head; leave --head out")
        merged["head"] = "linear"
    _check_augmentation(merged, names)
    owners = option_owners()
    for name in values:
        owner = owners[name]
        if owner is not TrainConfig and owner not in {INGREDIENT_CONFIGS[n] for n in names}:
            home = next(n for n, config in INGREDIENT_CONFIGS.items() if config is owner)
            setter = (sources or {}).get(name, TYPED)
            where = "" if setter == TYPED else f"{setter}: "
            raise UsageError(f"{where}{flag(name)} belongs to '{home}'; add --with {home}")
    train = _build(TrainConfig, merged)
    parts = tuple((name, _build(INGREDIENT_CONFIGS[name], merged)) for name in names)
    run = Run(train, parts)
    _check_effect(run, [name for name, source in (sources or {}).items() if source == TYPED])
    return run


def _ingredients(method: str, added: tuple[str, ...]) -> list[str]:
    """The method's ingredients and the added ones, each once, in order."""
    names = list(METHODS[method])
    for name in added:
        if name not in INGREDIENTS:
            several = "repeat --with for several" if "," in name else None
            near = several or suggestion(name, INGREDIENTS)
            raise UsageError(f"--with {name}: unknown ingredient; {near}")
        if name not in names:
            names.append(name)
    both = [name for name in names if name in CHANGE_LOGITS]
    if len(both) > 1:
        raise UsageError(f"'{both[0]}' and '{both[1]}' both replace the logits; leave one out")
    return names


def _check_columns(values: Mapping[str, Any], names: list[str]) -> None:
    """A file's columns against `names`; a third column adds the ingredient that uses it."""
    given = values.get("triplet_columns")
    columns = given.split(",") if given else []
    if given and values.get("text_column") is not None:
        raise UsageError("--text-column names one column, --triplet-columns others; leave one out")
    if given and (len(columns) not in (2, 3) or not all(columns)):
        raise UsageError(f"--triplet-columns {given}: ANCHOR,POSITIVE[,NEGATIVE] is expected")
    if len(columns) == 3 and HARD_NEGATIVES not in names:
        names.append(HARD_NEGATIVES)
    if HARD_NEGATIVES in names and len(columns) < 3:
        raise UsageError(
            f"'{HARD_NEGATIVES}' needs --triplet-columns ANCHOR,POSITIVE,NEGATIVE of a file"
        )
    if values.get("weight_column") is not None and HARD_NEGATIVES not in names:
        raise UsageError(
            "--weight-column weighs hard negatives; add --triplet-columns ANCHOR,POSITIVE,NEGATIVE"
        )


def _check_augmentation(values: Mapping[str, Any], names: list[str]) -> None:
    """Without a second view no positive of any other kind can be meant."""
    if values.get("augmentation", True):
        return
    if values.get("triplet_columns"):
        raise UsageError("--no-augmentation makes anchors their own positives; the file has others")
    if "word-repetition" in names:
        raise UsageError("--no-augmentation leaves no positives for 'word-repetition' to change")


def _check_effect(run: Run, typed: Iterable[str]) -> None:
    """Refuse a typed option that another option's value leaves without effect."""
    values = run.flat()
    for name in typed:
        ruler, wanted = RULED.get(name, (None, ()))
        if ruler is not None and values[ruler] not in wanted:
            raise UsageError(
                f"{flag(name)} has no effect with {flag(ruler)} {values[ruler]}; it belongs to "
                f"{', '.join(wanted)}"
            )


def _build(config: type, values: Mapping[str, Any]) -> Any:
    fields = [field.name for field in dataclasses.fields(config)]
    built = config(**{name: values[name] for name in fields if name in values})
    check(built)
    return built
