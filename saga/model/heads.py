"""The head: the full predictive distribution of earnings at the next observed year, and the hazard of death before it.

Earnings are a mixture of an atom at zero and a density on z = log earnings - log wage index: constant inside bins, exponential below
the lowest knot and above the highest (in levels a Pareto tail, index >= 1.5 so that means exist).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saga.model.config import ModelConfig
from saga.model.decoder import squared_relu
from saga.model.tokens import MACRO_FEATURES
from saga.sequences import MAX_GAP, POSITIVE, UNKNOWN, ZERO

MIN_TAIL = 1.5
_RARE = 6.0  # training starts from a hazard of e^-6 a year
_LOWEST_LOG_DROP = 12.0  # a draw from the lower tail stays within this many logs of the lowest knot


@dataclass(eq=False)
class Predictive:
    """Parameters of predictive distributions, leading shape (...,).

    `logits` (..., 1 + n_cell): zero, lower tail, bins, upper tail; `lower`, `upper` (...,) tail rates; `death` (...,) logit of dying
    before that year.
    """

    logits: Tensor
    lower: Tensor
    upper: Tensor
    death: Tensor


class Head(nn.Module):
    """Hidden state + what is asked (gap, macro of that year) -> Predictive, through one residual MLP."""

    knots: Tensor
    log_width: Tensor
    cell_start: Tensor
    cell_width: Tensor

    def __init__(self, config: ModelConfig, knots: Tensor, *, has_zeros: bool, has_death: bool) -> None:
        """Without zeros, or without death labels, in the training panel neither is identified and that part is switched off."""
        super().__init__()
        d = config.width
        self.has_zeros, self.has_death = has_zeros, has_death
        self.register_buffer("knots", knots, persistent=False)
        self.register_buffer("log_width", knots.diff().log(), persistent=False)
        # Of the zero and tail cells too: where a tail begins, and no width.
        zero = knots.new_zeros(1)
        self.register_buffer("cell_start", torch.cat([zero, knots[:1], knots]), persistent=False)
        self.register_buffer("cell_width", torch.cat([zero, zero, knots.diff(), zero]), persistent=False)
        self.gap = nn.Embedding(MAX_GAP + 1, d)
        self.macro = nn.Linear(MACRO_FEATURES, d, bias=False)
        self.norm_in, self.norm_out = nn.LayerNorm(d), nn.LayerNorm(d)
        self.up = nn.Linear(d, config.head_width)
        self.down = nn.Linear(config.head_width, d)
        self.cells = nn.Linear(d, 1 + 1 + config.bins + 1)
        self.shape = nn.Linear(d, 3)

    def forward(self, hidden: Tensor, gap: Tensor, macro: Tensor) -> Predictive:
        """Hidden (..., d), gap (...,) and macro covariates (..., 4) of the asked year -> Predictive; leading shapes broadcast."""
        x = hidden + (self.gap(gap) + self.macro(macro))
        x = x + self.down(squared_relu(self.up(self.norm_in(x))))
        x = self.norm_out(x)
        lower, upper, death = self.shape(x).float().unbind(-1)
        logits = self.cells(x).float()
        if not self.has_zeros:
            logits = F.pad(logits[..., 1:], (1, 0), value=float("-inf"))
        if not self.has_death:
            death = torch.full_like(death, float("-inf"))
        return Predictive(logits, 0.3 + F.softplus(lower), MIN_TAIL + F.softplus(upper), death - _RARE)

    def nll(self, p: Predictive, state: Tensor, z: Tensor, dead: Tensor) -> tuple[Tensor, Tensor]:
        """Negative log-likelihoods (...,) of earnings and of death; 0 where there is nothing to score.

        Earnings count where `state` is known; the death hazard where it is known or `dead`. The measure is a point mass at zero plus
        Lebesgue measure of log earnings.
        """
        last = len(self.knots) - 1
        below, above = z < self.knots[0], z >= self.knots[-1]
        bin_ = torch.bucketize(z, self.knots, right=True) - 1
        cell = torch.where(below, 1, torch.where(above, last + 2, bin_ + 2))
        cell = torch.where(state == ZERO, 0, cell)
        log_density = -self.log_width[bin_.clamp(0, last - 1)]
        log_density = torch.where(below, p.lower.log() + p.lower * (z - self.knots[0]), log_density)
        log_density = torch.where(above, p.upper.log() - p.upper * (z - self.knots[-1]), log_density)
        log_p = p.logits.log_softmax(-1).gather(-1, cell[..., None]).squeeze(-1)
        earnings = -(log_p + torch.where(state == POSITIVE, log_density, torch.zeros_like(log_density)))
        known = state != UNKNOWN
        if not self.has_death:
            return earnings * known, torch.zeros_like(earnings)
        death = F.binary_cross_entropy_with_logits(p.death, dead.to(p.death.dtype), reduction="none")
        return earnings * known, death * (known | dead)

    def sample(self, p: Predictive, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Inverse CDF at u (...,): (dead, positive, z). One uniform orders death, then zero, then earnings from low to high."""
        hazard = torch.sigmoid(p.death)
        dead = u < hazard
        cdf = p.logits.softmax(-1).cumsum(-1)
        last = cdf.shape[-1] - 1
        v = (((u - hazard) / (1 - hazard)).clamp(0.0, 1.0) * cdf[..., -1])[..., None]
        cell = torch.searchsorted(cdf, v, right=True).clamp(max=last)
        before = torch.where(cell > 0, cdf.gather(-1, (cell - 1).clamp(min=0)), 0.0)
        share = ((v - before) / (cdf.gather(-1, cell) - before).clamp(min=1e-12)).clamp(1e-6, 1 - 1e-6).squeeze(-1)
        cell = cell.squeeze(-1)
        z = torch.addcmul(self.cell_start[cell], self.cell_width[cell], share)
        z = torch.where(cell == 1, z + (share.log() / p.lower).clamp(min=-_LOWEST_LOG_DROP), z)
        z = torch.where(cell == last, z - torch.log1p(-share) / p.upper, z)
        return dead, ~dead & (cell > 0), z
