"""Settings of the ingredients that ask a masked language model: DiffCSE and the MLM auxiliary."""

from dataclasses import dataclass

from cse_cli.config.fields import option

DIFFCSE, MLM = "DiffCSE", "Masked LM"


@dataclass(frozen=True)
class ReplacedTokensConfig:
    """DiffCSE: sentences edited by a masked language model, told from the original."""

    generator: str | None = option(
        None,
        "Masked language model that fills the masks, hub id or folder, with the encoder's"
        " vocabulary (default: the model that training starts from).",
        panel=DIFFCSE,
    )
    mask_ratio: float = option(
        0.30, "Share of a sentence's tokens that is masked.", panel=DIFFCSE, above=0, high=1
    )
    edit_ratio: float = option(
        0.15,
        "Share of a sentence's tokens that is inserted or deleted by those edits.",
        panel=DIFFCSE,
        above=0,
        high=1,
    )
    rtd_weight: float = option(0.005, "Weight of replaced-token detection.", panel=DIFFCSE, low=0)
    decode: str = option(
        "sample",
        "How the generator fills a mask: by a draw, or by its likeliest token (released).",
        panel=DIFFCSE,
        choices=("sample", "argmax"),
    )
    edit: str = option(
        "mask",
        "mask: replace tokens; insert or delete them; all: one of the three each batch; released:"
        " 80/10/10 corruption, and the generator's token at every position.",
        panel=DIFFCSE,
        choices=("mask", "insert", "delete", "all", "released"),
    )
    rtd_reduction: str = option(
        "mean",
        "mean: over tokens; sum: as the paper prints it; released: mean over padding, too.",
        panel=DIFFCSE,
        choices=("mean", "sum", "released"),
    )
    edited_as: str = option(
        "rtd",
        "What edited sentences are for: replaced-token detection, or a further positive or"
        " negative of each anchor.",
        panel=DIFFCSE,
        choices=("rtd", "positive", "negative"),
    )


@dataclass(frozen=True)
class MaskedLMConfig:
    """SimCSE's auxiliary: the encoder goes on with masked language modelling."""

    mlm_weight: float = option(0.1, "Weight of masked language modelling.", panel=MLM, low=0)
    mlm_ratio: float = option(
        0.15, "Share of a sentence's tokens to be predicted.", panel=MLM, above=0, high=1
    )
