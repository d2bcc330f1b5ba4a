"""Bins and tails: an atom at zero and a density on z = log earnings - log wage index that is constant inside bins, exponential below the
lowest knot and logistic above the highest. A binned density as output follows prior-data fitted networks (Müller et al. 2022).

The upper tail is a logistic law cut off at the last knot: around a crest, so that who earned several times the last knot may go on to,
and in levels of Pareto's kind far out. With the crest far below the knot it is the exponential.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saga.features.sequences import POSITIVE, ZERO
from saga.features.transforms import Transforms
from saga.model.config import ModelConfig
from saga.model.heads.head import EDGE, LOWEST_LOG_DROP, MIN_TAIL, Head

_FAR = 4.0  # logs from the last knot within which the crest of the upper tail lies


class Bins(NamedTuple):
    """Parameters of predictive distributions, leading shape (...,).

    `logits` (..., 1 + n_cell): zero, lower tail, bins, upper tail; `lower`, `upper` (...,) tail rates; `crest` (...,) of the upper tail,
    logs above the last knot; `death` (...,) logit of dying before that year.
    """

    logits: Tensor
    lower: Tensor
    upper: Tensor
    crest: Tensor
    death: Tensor

    @property
    def above(self) -> Tensor:
        """Mean excess (...,) over the last knot of who is in the upper tail."""
        t = self.crest * self.upper
        return F.softplus(t) / (self.upper * torch.sigmoid(t))


class Binned(Head[Bins]):
    """`config.bins` bins between the knots of the transforms."""

    knots: Tensor
    log_width: Tensor
    cell_start: Tensor
    cell_width: Tensor

    def __init__(self, config: ModelConfig, transforms: Transforms) -> None:
        super().__init__(config, transforms)
        knots = torch.tensor(transforms.knots, dtype=torch.float32)
        self.register_buffer("knots", knots, persistent=False)
        self.register_buffer("log_width", knots.diff().log(), persistent=False)
        # Of the zero and tail cells too: where a tail begins, and no width.
        zero = knots.new_zeros(1)
        self.register_buffer("cell_start", torch.cat([zero, knots[:1], knots]), persistent=False)
        self.register_buffer(
            "cell_width", torch.cat([zero, zero, knots.diff(), zero]), persistent=False
        )
        self.cells = nn.Linear(config.width, 1 + 1 + config.bins + 1)
        self.shape = nn.Linear(config.width, 4)

    def outputs(self) -> list[nn.Linear]:
        """Logits of the cells; tails and death."""
        return [self.cells, self.shape]

    def forward(self, hidden: Tensor, gap: Tensor, macro: Tensor) -> Bins:
        """See `Head.forward`."""
        x = self.read(hidden, gap, macro)
        lower, upper, crest, death = self.shape(x).float().unbind(-1)
        logits = self.cells(x).float()
        if not self.has_zeros:
            logits = F.pad(logits[..., 1:], (1, 0), value=float("-inf"))
        return Bins(
            logits,
            0.3 + F.softplus(lower),
            MIN_TAIL + F.softplus(upper),
            crest.clamp(-_FAR, _FAR),
            self.hazard(death),
        )

    def density(self, law: Bins, state: Tensor, z: Tensor) -> Tensor:
        """See `Head.density`."""
        last = len(self.knots) - 1
        below, above = z < self.knots[0], z >= self.knots[-1]
        bin_ = torch.bucketize(z, self.knots, right=True) - 1
        cell = torch.where(below, 1, torch.where(above, last + 2, bin_ + 2))
        cell = torch.where(state == ZERO, 0, cell)
        inside = -self.log_width[bin_.clamp(0, last - 1)]
        inside = torch.where(below, law.lower.log() + law.lower * (z - self.knots[0]), inside)
        t = law.crest * law.upper
        x = law.upper * (z - self.knots[-1]) - t
        inside = torch.where(
            above, law.upper.log() + F.logsigmoid(x) + F.logsigmoid(-x) - F.logsigmoid(t), inside
        )
        log_p = law.logits.log_softmax(-1).gather(-1, cell[..., None]).squeeze(-1)
        return log_p + torch.where(state == POSITIVE, inside, torch.zeros_like(inside))

    def draw(self, law: Bins, v: Tensor) -> tuple[Tensor, Tensor]:
        """See `Head.draw`."""
        cdf = law.logits.softmax(-1).cumsum(-1)
        last = cdf.shape[-1] - 1
        v = (v * cdf[..., -1])[..., None]
        cell = torch.searchsorted(cdf, v, right=True).clamp(max=last)
        before = torch.where(cell > 0, cdf.gather(-1, (cell - 1).clamp(min=0)), 0.0)
        share = (
            ((v - before) / (cdf.gather(-1, cell) - before).clamp(min=1e-12))
            .clamp(EDGE, 1 - EDGE)
            .squeeze(-1)
        )
        cell = cell.squeeze(-1)
        z = torch.addcmul(self.cell_start[cell], self.cell_width[cell], share)
        z = torch.where(cell == 1, z + (share.log() / law.lower).clamp(min=-LOWEST_LOG_DROP), z)
        t = law.crest * law.upper
        survive = torch.log1p(-share) + F.logsigmoid(
            t
        )  # log of the logistic's survival function at the draw
        excess = (t + torch.log(-torch.expm1(survive)) - survive) / law.upper
        return cell > 0, torch.where(cell == last, z + excess, z)
