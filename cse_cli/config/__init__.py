"""Configuration: every option of training as a dataclass field, and where values come from."""

import dataclasses

from cse_cli.config.ingredients import INGREDIENT_CONFIGS
from cse_cli.config.train import TrainConfig

__all__ = ["INGREDIENT_CONFIGS", "TrainConfig", "option_owners"]


def option_owners() -> dict[str, type]:
    """Every option name of a training run, with the configuration class whose field it is."""
    classes = [TrainConfig, *INGREDIENT_CONFIGS.values()]
    return {field.name: owner for owner in classes for field in dataclasses.fields(owner)}
