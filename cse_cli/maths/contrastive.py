"""The contrastive loss and the columns that each paper adds to it.

    l = mean_i -log( e^{s(z1_i, z2_i)} / sum_j e^{logit_ij} ),    s(a, b) = cos(a, b) / temperature

The first N columns of the logits are the batch, the positive of row i in column i; everything a
paper adds to the denominator is another block of columns. A weight w on a column's exponential is
`+ log w` on its logit, so the loss stays one log-sum-exp.

Papers: SimCSE (Gao et al. 2021), SSCL (layer negatives), ESimCSE (momentum queue), GS-InfoNCE
(Gaussian noise), SimCSE++ (off-dropout negatives).
"""

import math

import torch
import torch.nn.functional as F

from cse_cli.maths.vectors import cosine, paired_cosine, require


def info_nce(logits: torch.Tensor) -> torch.Tensor:
    """InfoNCE over `logits` (N, K), K >= N, the positive of row i in column i: scalar mean."""
    return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))


def layer_negatives(anchor: torch.Tensor, states: torch.Tensor, temperature: float) -> torch.Tensor:
    """SSCL: s(h_i, h_j^M) for every layer M in S and every sentence j, `anchor`'s own included.

    `anchor` (N, D); `states` (K, N, D), the pooled states of K intermediate layers. Returns
    (N, K*N), layer after layer. Gradient flows into `states`, as in the released code.
    """
    return cosine(anchor, states.flatten(0, 1)) / temperature


def sscl_literal_negatives(
    anchor: torch.Tensor, states: torch.Tensor, temperature: float
) -> torch.Tensor:
    """SSCL Eq. 4 as printed: the sentence's own h_i^M inside the sum over j, so counted N times.

    `anchor` (N, D); `states` (K, N, D). Returns (N, K): s(h_i, h_i^M) + log N.
    """
    return paired_cosine(anchor, states).T / temperature + math.log(len(anchor))


def queue_negatives(anchor: torch.Tensor, queue: torch.Tensor, temperature: float) -> torch.Tensor:
    """ESimCSE: s(h_i, q_m). `anchor` (N, D), `queue` (M, D), M may be 0: (N, M).

    The queue is past output of the momentum encoder: no gradient flows into it.
    """
    return cosine(anchor, queue.detach()) / temperature


def gaussian_negatives(
    anchor: torch.Tensor, noise: torch.Tensor, temperature: float, weight: float = 1.0
) -> torch.Tensor:
    """GS-InfoNCE: s(h_i, g_k) + log weight. `anchor` (N, D), `noise` (M, D): (N, M).

    A weight of 0 removes the term, so it gives no column at all, (N, 0). The released code declares
    the weight (lambda) and never uses it.
    """
    if weight == 0:
        return anchor.new_empty(len(anchor), 0)
    return cosine(anchor, noise) / temperature + math.log(weight)


def off_dropout(
    logits: torch.Tensor,
    clean: torch.Tensor,
    temperature: float,
    m: float = 0.9,
    mode: str = "negatives",
) -> torch.Tensor:
    """SimCSE++ Eq. 3: the in-batch negatives compare vectors encoded without dropout.

    `logits` (N, N), the ordinary s(z1_i, z2_j); `clean` (N, D), the dropout-free z0. Returns (N, N)
    with s(z0_i, z0_j) off the diagonal and the positive on it.

    mode "negatives" is the paper: m multiplies the sum over the negatives (m=0 leaves none). mode
    "logit" is the released code: m multiplies the positive's *logit*, in numerator and denominator,
    which for m < 1 weighs the negatives up, not down. The two agree at m=1.
    """
    require("m mode", mode, ("negatives", "logit"))
    negatives = cosine(clean, clean) / temperature
    if mode == "logit":
        positives = m * logits
    else:
        positives = logits
        negatives = negatives + (math.log(m) if m else -math.inf)
    diagonal = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    return torch.where(diagonal, positives, negatives)
