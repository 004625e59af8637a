"""What each method is, for readers: title, equation, settings of its own, citation.

`settings` are the values in which a method differs from plain SimCSE beside its ingredients; they
rank as built-in defaults, below any recipe.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Method:
    """A method's description."""

    title: str
    equation: str
    citation: str
    settings: dict[str, Any] = field(default_factory=dict)


CATALOG: dict[str, Method] = {
    "simcse": Method(
        title="SimCSE: dropout as the only augmentation",
        equation="l_i = -log e^{s(z1_i,z2_i)} / sum_j e^{s(z1_i,z2_j)},   s(a,b) = cos(a,b)/tau",
        citation=(
            "Gao, Yao, Chen (2021). SimCSE: Simple Contrastive Learning of Sentence Embeddings. "
            "EMNLP."
        ),
    ),
    "sscl": Method(
        title="SSCL: intermediate layers as negatives, against over-smoothing",
        equation=(
            "l_i = -log e^{s(h_i,h_i+)} / sum_j [e^{s(h_i,h_j+)} + sum_{M in S} e^{s(h_i,h_j^M)}]"
        ),
        citation=(
            "Chen, Shou, Pei, Gong, Cao, Chang, Li, Jiang (2023). Alleviating Over-smoothing for "
            "Unsupervised Sentence Representation. ACL."
        ),
    ),
}
