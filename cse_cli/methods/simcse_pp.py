"""SimCSE++ (Xu et al. 2023): dropout-free negatives, contrast between dimensions, and baselines.

    l_off = mean_i -log e^{s(z1_i,z2_i)} / ( e^{s(z1_i,z2_i)} + m sum_{j!=i} e^{s(z0_i,z0_j)} )  (3)
    l_DCL = - sum_c log e^{a_cc} / sum_d e^{a_cd},   a_cd = sum_i u1_ic u2_id / tau_DCL          (5)

z1, z2 (N, D) are the two views, z0 (N, D) a third pass with dropout off and gradient on; all behind
the head. u is z standardised over the batch. Eq. 5's literal sums would outweigh InfoNCE a thousand
times at the published weight, which belongs to the released reductions: hence that default.

The baselines: Barlow Twins (Zbontar et al. 2021) with random rows against its rank bottleneck
(Table 2), and the study of noise in positives and negatives (Table 1).
"""

from typing import Any

import torch
from torch import Tensor

from cse_cli.config.ingredients import (
    BarlowTwinsConfig,
    DimensionWiseConfig,
    NoiseStudyConfig,
    OffDropoutConfig,
)
from cse_cli.encoder import Encoder
from cse_cli.maths import barlow_twins, cosine, dimension_wise, off_dropout
from cse_cli.methods.base import Ingredient, Needs, Views


class OffDropout(Ingredient):
    """In-batch negatives compare vectors encoded without dropout, weighted by m (Eq. 3)."""

    needs = Needs(clean=True)

    def __init__(self, config: OffDropoutConfig, encoder: Encoder):
        super().__init__()
        self.config = config

    def logits(self, z: Views, s: Tensor) -> Tensor:
        """s (N, N) with its off-diagonal, and in mode "logit" its diagonal, replaced."""
        assert z.clean is not None  # `needs` asks for it
        return off_dropout(s, z.clean, z.temperature, self.config.off_dropout_m, self.config.m_mode)


class DimensionWise(Ingredient):
    """DCL: each dimension of one view should be most like itself in the other (Eq. 5)."""

    def __init__(self, config: DimensionWiseConfig, encoder: Encoder):
        super().__init__()
        self.config = config
        self._value: Tensor | float = float("nan")

    def loss(self, z: Views, s: Tensor) -> Tensor | None:
        """weight l_DCL; None at weight 0."""
        if self.config.dcl_weight == 0:
            return None
        term = dimension_wise(z.h, z.p, self.config.dcl_temperature, self.config.dcl_reduction)
        self._value = term.detach()
        return self.config.dcl_weight * term

    def diagnostics(self) -> dict[str, Any]:
        """`dcl`: the unweighted DCL loss."""
        return {"dcl": self._value}


class BarlowTwins(Ingredient):
    """The cross-correlation of the views' dimensions drawn to the identity."""

    def __init__(self, config: BarlowTwinsConfig, encoder: Encoder):
        super().__init__()
        self.config = config
        self._value: Tensor | float = float("nan")

    def loss(self, z: Views, s: Tensor) -> Tensor | None:
        """weight l_BT over the N sentences and the artificial rows; None at weight 0."""
        if self.config.bt_weight == 0:
            return None
        shape = (self.config.bt_artificial, z.h.shape[1])
        artificial = torch.randn(shape, generator=z.rng("barlow-twins")).to(z.h)  # (M, D)
        term = barlow_twins(z.h, z.p, self.config.bt_redundancy, artificial, self.config.bt_center)
        self._value = term.detach()
        return self.config.bt_weight * term

    def diagnostics(self) -> dict[str, Any]:
        """`barlow_twins`: the unweighted Barlow Twins loss."""
        return {"barlow_twins": self._value}


class NoiseStudy(Ingredient):
    """Table 1: vectors with more or less noise in the positive pairs, or in the negatives.

    "+" adds N(0, noise_variance) to both views' vectors, "-" replaces each view's by the mean of K
    further dropout passes. The positive logit stands in numerator and denominator, so "pos" changes
    the diagonal and "neg" the rest.
    """

    def __init__(self, config: NoiseStudyConfig, encoder: Encoder):
        super().__init__()
        self.config = config
        self.place, self.sign = config.noise_study[:3], config.noise_study[3]
        self.needs = Needs(passes=config.noise_passes if self.sign == "-" else 0)

    def logits(self, z: Views, s: Tensor) -> Tensor:
        """s (N, N) with its diagonal ("pos") or off-diagonal ("neg") from the changed vectors."""
        h, p = self._noisier(z) if self.sign == "+" else self._calmer(z)
        changed = cosine(h, p) / z.temperature
        diagonal = torch.eye(len(s), dtype=torch.bool, device=s.device)
        return torch.where(diagonal == (self.place == "pos"), changed, s)

    def _noisier(self, z: Views) -> tuple[Tensor, Tensor]:
        rng = z.rng("noise-study")
        scale = self.config.noise_variance**0.5
        noise = [scale * torch.randn(x.shape, generator=rng).to(x) for x in (z.h, z.p)]
        return z.h + noise[0], z.p + noise[1]

    def _calmer(self, z: Views) -> tuple[Tensor, Tensor]:
        assert z.passes is not None  # `needs` asks for it
        k = self.config.noise_passes
        return z.passes[0][:k].mean(0), z.passes[1][:k].mean(0)
