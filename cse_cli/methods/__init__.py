"""The methods: named lists of ingredients, and where each ingredient's class is found.

Import strings, so that listing them loads no torch.
"""

INGREDIENTS: dict[str, str] = {
    "layer-negatives": "cse_cli.methods.sscl:LayerNegatives",
    "word-repetition": "cse_cli.methods.esimcse:WordRepetition",
    "momentum-queue": "cse_cli.methods.momentum_queue:MomentumQueue",
    "gaussian-noise": "cse_cli.methods.gs_infonce:GaussianNoise",
    "off-dropout": "cse_cli.methods.simcse_pp:OffDropout",
    "dcl": "cse_cli.methods.simcse_pp:DimensionWise",
    "barlow-twins": "cse_cli.methods.simcse_pp:BarlowTwins",
    "noise-study": "cse_cli.methods.simcse_pp:NoiseStudy",
    "hard-negatives": "cse_cli.methods.hard_negatives:HardNegatives",
    "replaced-tokens": "cse_cli.methods.diffcse:replaced_tokens",
    "masked-lm": "cse_cli.methods.mlm:MaskedLM",
}

METHODS: dict[str, tuple[str, ...]] = {
    "simcse": (),
    "sscl": ("layer-negatives",),
    "esimcse": ("word-repetition", "momentum-queue"),
    "gs-infonce": ("gaussian-noise",),
    "simcse-pp": ("off-dropout", "dcl"),
    "diffcse": ("replaced-tokens",),
}

# Those that replace the in-batch logits: a run takes one of them at most.
CHANGE_LOGITS = frozenset({"off-dropout", "noise-study"})
