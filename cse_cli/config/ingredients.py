"""The settings of each ingredient, one small frozen dataclass apiece.

Option names are unique over all of them and the general settings, so that one flat namespace
serves the command line, TOML files and the environment.
"""

from dataclasses import dataclass

from cse_cli.config.fields import option
from cse_cli.config.generative import MaskedLMConfig, ReplacedTokensConfig


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


@dataclass(frozen=True)
class WordRepetitionConfig:
    """ESimCSE: positives made longer."""

    repeat: str = option(
        "subword",
        "What makes a positive longer: repeated sub-words, repeated words, a stop-word or [MASK]"
        " put behind chosen words.",
        panel="ESimCSE",
        choices=("subword", "word", "stop-word", "mask"),
    )
    dup_rate: float = option(
        0.32,
        "Largest share of a sentence's sub-words (words) that is repeated.",
        panel="ESimCSE",
        low=0,
        high=1,
    )
    dup_rule: str = option(
        "paper",
        "paper: up to max(2, rate x N) repetitions; released: fewer than"
        " min(10, rate x (N + 2)), so none in short sentences.",
        panel="ESimCSE",
        choices=("paper", "released"),
    )


@dataclass(frozen=True)
class MomentumQueueConfig:
    """ESimCSE: earlier sentences as negatives."""

    queue_size: str = option(
        "2.5x",
        "Earlier sentences kept as negatives: a number, or a multiple of the batch.",
        panel="ESimCSE",
        metavar="ROWS",
        rows=True,
    )
    momentum: float = option(
        0.995,
        "Share that the queue's encoder keeps of itself at each step.",
        panel="ESimCSE",
        low=0,
        high=1,
    )
    momentum_head: str = option(
        "ema",
        "Head in front of the queue; ema: averaged like the encoder; online: the trained one, as"
        " released.",
        panel="ESimCSE",
        choices=("ema", "online"),
    )


@dataclass(frozen=True)
class GaussianNoiseConfig:
    """GS-InfoNCE: random vectors as negatives."""

    noise_count: str = option(
        "3x",
        "Noise vectors a step: a number, or a multiple of the batch.",
        panel="GS-InfoNCE",
        metavar="ROWS",
        rows=True,
    )
    noise_weight: float = option(
        1.0, "Weight (lambda) of the noise in the denominator.", panel="GS-InfoNCE", low=0
    )
    noise_mean: float = option(0.0, "Mean of the noise.", panel="GS-InfoNCE")
    noise_std: float = option(
        1.0,
        "Standard deviation of the noise; without effect at mean 0, as cosine removes the scale.",
        panel="GS-InfoNCE",
        low=0,
    )


@dataclass(frozen=True)
class OffDropoutConfig:
    """SimCSE++: negatives encoded without dropout."""

    off_dropout_m: float = option(
        0.9, "Weight m of the dropout-free negatives.", panel="SimCSE++", low=0
    )
    m_mode: str = option(
        "negatives",
        "negatives: m scales the negatives' sum (Eq. 3); logit: m scales the positive's logit, as"
        " released.",
        panel="SimCSE++",
        choices=("negatives", "logit"),
    )


@dataclass(frozen=True)
class DimensionWiseConfig:
    """SimCSE++: dimension-wise contrastive learning."""

    dcl_weight: float = option(0.1, "Weight of the DCL term.", panel="SimCSE++", low=0)
    dcl_temperature: float = option(5.0, "Temperature of the DCL term.", panel="SimCSE++", above=0)
    dcl_reduction: str = option(
        "released",
        "released: divided by the batch, mean over dimensions, which the published weights belong"
        " to; paper: Eq. 5 to the letter.",
        panel="SimCSE++",
        choices=("paper", "released"),
    )


@dataclass(frozen=True)
class BarlowTwinsConfig:
    """The Barlow Twins baseline of SimCSE++."""

    bt_weight: float = option(
        0.1, "Weight of the Barlow Twins term.", panel="SimCSE++ baselines", low=0
    )
    bt_redundancy: float = option(
        0.013,
        "Weight of the off-diagonal correlations inside the term (released: 0.012).",
        panel="SimCSE++ baselines",
        low=0,
    )
    bt_artificial: int = option(
        704,
        "Random rows appended to both views against the rank bottleneck (Table 2: 0 … 704).",
        panel="SimCSE++ baselines",
        low=0,
    )
    bt_center: bool = option(
        False,
        "Centre each dimension first, as the released code does.",
        panel="SimCSE++ baselines",
    )


@dataclass(frozen=True)
class NoiseStudyConfig:
    """SimCSE++ Table 1: more or less noise in positives or negatives."""

    noise_study: str = option(
        "neg-",
        "Where noise is added (+) or averaged away (-): the positive pairs or the negatives.",
        panel="SimCSE++ baselines",
        choices=("pos+", "pos-", "neg+", "neg-"),
    )
    noise_variance: float = option(
        0.1,
        "Variance of the noise added by pos+ and neg+.",
        panel="SimCSE++ baselines",
        low=0,
    )
    noise_passes: int = option(
        10,
        "Dropout passes K that pos- and neg- average over, for each view.",
        panel="SimCSE++ baselines",
        low=1,
        metavar="K",
    )


@dataclass(frozen=True)
class HardNegativesConfig:
    """Supervised SimCSE: the third column of triplets."""

    hard_weight: float = option(
        1.0, "Weight of a sentence's own hard negative.", panel="Supervised SimCSE", low=0
    )


INGREDIENT_CONFIGS: dict[str, type] = {
    "layer-negatives": LayerNegativesConfig,
    "word-repetition": WordRepetitionConfig,
    "momentum-queue": MomentumQueueConfig,
    "gaussian-noise": GaussianNoiseConfig,
    "off-dropout": OffDropoutConfig,
    "dcl": DimensionWiseConfig,
    "barlow-twins": BarlowTwinsConfig,
    "noise-study": NoiseStudyConfig,
    "hard-negatives": HardNegativesConfig,
    "replaced-tokens": ReplacedTokensConfig,
    "masked-lm": MaskedLMConfig,
}
