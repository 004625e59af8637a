"""The mathematics of the toolkit: pure functions of tensors, each reading like its equation.

Tensors in, tensors out, in the dtype they came in; no state; differentiable where that makes sense.
N sentences, D width, T tokens, L blocks. The equations and their sources: docs/methods.md.
"""

from cse_cli.maths.auxiliary import (
    barlow_twins,
    dimension_wise,
    masked_lm,
    replaced_token_detection,
)
from cse_cli.maths.contrastive import (
    gaussian_negatives,
    info_nce,
    layer_negatives,
    off_dropout,
    queue_negatives,
    sscl_literal_negatives,
)
from cse_cli.maths.geometry import (
    alignment,
    set_similarity,
    token_similarity,
    top_similarities,
    uniformity,
)
from cse_cli.maths.ranking import length_bias, spearman_groups
from cse_cli.maths.retrieval import (
    mean_reciprocal_rank,
    partner_ranks,
    recall_at_k,
    recall_of,
)
from cse_cli.maths.vectors import cosine, paired_cosine, unit

__all__ = [
    "alignment",
    "barlow_twins",
    "cosine",
    "dimension_wise",
    "gaussian_negatives",
    "info_nce",
    "layer_negatives",
    "length_bias",
    "masked_lm",
    "mean_reciprocal_rank",
    "off_dropout",
    "paired_cosine",
    "partner_ranks",
    "queue_negatives",
    "recall_at_k",
    "recall_of",
    "replaced_token_detection",
    "set_similarity",
    "spearman_groups",
    "sscl_literal_negatives",
    "token_similarity",
    "top_similarities",
    "uniformity",
    "unit",
]
