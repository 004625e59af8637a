"""The settings of each ingredient, one small frozen dataclass apiece.

Option names are unique over all of them and the general settings, so that one flat namespace
serves the command line, TOML files and the environment.
"""

from dataclasses import dataclass

from cse_cli.config.fields import option


@dataclass(frozen=True)
class LayerNegativesConfig:
    """SSCL: intermediate layers as negatives."""

    neg_layer: tuple[str, ...] = option(
        ("penultimate",),
        "Block whose pooled states are negatives: 1 … L-1 or 'penultimate'"
        " (repeatable: progressive SSCL).",
        panel="SSCL",
        metavar="L",
    )
    variant: str = option(
        "paper",
        "paper: every sentence's layer vector once; literal: the own vector N times, as Eq. 4 is"
        " printed; released: both views' layers, averaged with plain SimCSE.",
        panel="SSCL",
        choices=("paper", "literal", "released"),
    )


INGREDIENT_CONFIGS: dict[str, type] = {
    "layer-negatives": LayerNegativesConfig,
}
