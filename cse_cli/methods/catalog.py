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
    "esimcse": Method(
        title="ESimCSE: longer positives by repetition, earlier sentences as negatives",
        equation=(
            "l_i = -log e^{s(h_i,h_i+)} / (sum_j e^{s(h_i,h_j+)} + sum_{m=1..M} e^{s(h_i,q_m)})"
        ),
        citation=(
            "Wu, Gao, Zang, Han, Wang, Hu (2022). ESimCSE: Enhanced Sample Building Method for "
            "Contrastive Learning of Unsupervised Sentence Embedding. COLING."
        ),
    ),
    "gs-infonce": Method(
        title="GS-InfoNCE: Gaussian vectors as sure negatives",
        equation=(
            "l_i = -log e^{s(h_i,h_i+)} / "
            "(sum_j e^{s(h_i,h_j+)} + lambda sum_{k=1..M} e^{s(g_k,h_i)})"
        ),
        citation=(
            "Wu, Gao, Su, Han, Wang, Hu (2022). Smoothed Contrastive Learning for Unsupervised "
            "Sentence Embedding. COLING."
        ),
    ),
    "simcse-pp": Method(
        title="SimCSE++: dropout-free negatives and contrast between dimensions",
        equation=(
            "l = mean_i -log e^{s(z1_i,z2_i)} / (e^{s(z1_i,z2_i)} + m sum_{j!=i} e^{s(z0_i,z0_j)})"
            " + lambda l_DCL,   l_DCL = -sum_c log e^{a_cc} / sum_d e^{a_cd}"
        ),
        citation=(
            "Xu, Shao, Chen, Liu (2023). SimCSE++: Improving Contrastive Learning for Sentence "
            "Embeddings from Two Perspectives. EMNLP."
        ),
    ),
    "diffcse": Method(
        title="DiffCSE: sentence vectors that tell what an edit has changed",
        equation=(
            "l = InfoNCE + lambda RTD,   RTD = mean_t CE(D(x'', h)_t, [x''_t != x_t]),   "
            "x'' = G(mask(x))"
        ),
        citation=(
            "Chuang, Dangovski, Luo, Zhang, Chang, Soljacic, Li, Yih, Kim, Glass (2022). DiffCSE: "
            "Difference-based Contrastive Learning for Sentence Embeddings. NAACL."
        ),
        settings={"head": "batchnorm"},
    ),
}
