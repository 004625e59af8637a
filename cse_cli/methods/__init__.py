"""The methods: named lists of ingredients, and where each ingredient's class is found.

Import strings, so that listing them loads no torch.
"""

INGREDIENTS: dict[str, str] = {
    "layer-negatives": "cse_cli.methods.sscl:LayerNegatives",
}

METHODS: dict[str, tuple[str, ...]] = {
    "simcse": (),
    "sscl": ("layer-negatives",),
}
