"""Losses that are added to InfoNCE: dimension-wise contrast, Barlow Twins, RTD, masked LM.

z1, z2 (N, D) are the two views of a batch. The first two compare *dimensions*, columns of the
views, where InfoNCE compares rows. A column that does not vary has no direction; it contributes
zeros, never NaN.
"""

import torch
import torch.nn.functional as F

from cse_cli.maths.vectors import require, unit


def dimension_wise(
    z1: torch.Tensor, z2: torch.Tensor, temperature: float = 5.0, reduction: str = "paper"
) -> torch.Tensor:
    """Dimension-wise contrastive learning (SimCSE++ Eq. 5): scalar.

        l = - sum_c log( e^{a_cc} / sum_d e^{a_cd} ),    a_cd = sum_i u1_ic u2_id / temperature

    u = (z - mean) / std over the batch. reduction "paper" is Eq. 5 to the letter, std with N-1.
    "released" is the authors' code, which the published weights belong to: std = sqrt(biased
    variance + 1e-5), a also divided by N, and the mean over the D dimensions for the sum.
    """
    require("DCL reduction", reduction, ("paper", "released"))
    if reduction == "paper":
        # std = |z - mean| / sqrt(N-1): both views' factors make the N-1
        similarity = (len(z1) - 1) * unit(_centred(z1), dim=0).T @ unit(_centred(z2), dim=0)
        total = "sum"
    else:
        similarity = _batch_normed(z1).T @ _batch_normed(z2) / len(z1)
        total = "mean"
    dimensions = torch.arange(z1.shape[1], device=z1.device)
    return F.cross_entropy(similarity / temperature, dimensions, reduction=total)  # (D, D)


def barlow_twins(
    z1: torch.Tensor,
    z2: torch.Tensor,
    weight: float = 0.013,
    artificial: torch.Tensor | None = None,
    center: bool = False,
) -> torch.Tensor:
    """Barlow Twins, the baseline of SimCSE++: scalar.

        l = sum_c (1 - C_cc)^2 + weight sum_{c != d} C_cd^2,    C_cd = cos(z1_.c, z2_.d)

    The leading minus printed in the paper is a typo. `artificial` (M, D) are rows appended, the
    same ones, to both views. `center` subtracts each column's mean first, as BatchNorm does in the
    released code, which lowers the rank of C by one.
    """
    if artificial is not None:
        z1, z2 = torch.cat([z1, artificial]), torch.cat([z2, artificial])
    if center:
        z1, z2 = _centred(z1), _centred(z2)
    correlation = unit(z1, dim=0).T @ unit(z2, dim=0)  # (D, D)
    diagonal = correlation.diagonal()
    redundancy = correlation.square().sum() - diagonal.square().sum()
    return (1 - diagonal).square().sum() + weight * redundancy


def replaced_token_detection(
    scores: torch.Tensor, replaced: torch.Tensor, mask: torch.Tensor, reduction: str = "mean"
) -> torch.Tensor:
    """Replaced-token detection (DiffCSE): cross-entropy of "is this token replaced?", scalar.

    `scores` (B, T, 2), `replaced` (B, T) 0/1, `mask` (B, T) 1 on tokens and 0 on padding.
    reduction "mean" averages over the tokens, "sum" adds them up as the paper prints, "released"
    averages over all B*T positions, padding included. A batch without a token gives 0.
    """
    require("RTD reduction", reduction, ("mean", "sum", "released"))
    kept = mask.bool() if reduction != "released" else torch.ones_like(mask, dtype=torch.bool)
    total = F.cross_entropy(scores[kept], replaced[kept].long(), reduction="sum")
    return total if reduction == "sum" else total / kept.sum().clamp_min(1)


def masked_lm(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Masked language modelling: mean cross-entropy over the masked tokens, scalar.

    `logits` (B, T, V), `labels` (B, T) with -100 where a token is not masked. 0 if none is.
    """
    kept = labels != -100
    return F.cross_entropy(logits[kept], labels[kept], reduction="sum") / kept.sum().clamp_min(1)


def _centred(z: torch.Tensor) -> torch.Tensor:
    return z - z.mean(0)


def _batch_normed(z: torch.Tensor) -> torch.Tensor:
    return _centred(z) / (z.var(0, correction=0) + 1e-5).sqrt()
