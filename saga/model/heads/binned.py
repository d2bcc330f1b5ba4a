"""Bins and tails: a density on relative log earnings z, with an atom at zero earnings.

The density is constant inside bins, exponential below the lowest knot and logistic above the
highest. Prior-data fitted networks have such a binned density as output (Müller et al. 2022). The
upper tail is a logistic distribution truncated at the last knot; amounts have a Pareto tail. The
peak of the logistic may lie above the knot, for persons with much higher earnings. If it is far
below the knot, the tail is exponential.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saga.features.sequences import POSITIVE, ZERO
from saga.features.transforms import Transforms
from saga.model.config import ModelConfig
from saga.model.heads.head import EDGE, MAX_LOWER_TAIL, MIN_TAIL_RATE, YEARLY, Head, HeadInputs

_MAX_PEAK = 4.0  # largest distance, in logs, between the last knot and the upper tail's peak


class BinnedDistribution(NamedTuple):
    """Parameters of predictive distributions, leading shape (...,).

    Attributes:
        logits: Logits of zero, the lower tail, the bins and the upper tail, (..., n_bin + 3).
        lower: Rate of the lower tail.
        upper: Rate of the upper tail.
        peak: Location of the upper tail, in logs above the last knot.
        death: Logit of dying before that year.
    """

    logits: Tensor
    lower: Tensor
    upper: Tensor
    peak: Tensor
    death: Tensor


class BinnedPlaces(NamedTuple):
    """Where points z (..., G) lie among the knots.

    `below` and `share` (..., G) are a point's bin and its place in it, from 0 to 1. `lower` and
    `upper` are the columns of points in the tails, `depth` (<= 0) and `height` (>= 0) their
    distances from the outermost knots.
    """

    below: Tensor
    share: Tensor
    lower: slice
    depth: Tensor
    upper: slice
    height: Tensor


class BinnedHead(Head[BinnedDistribution]):
    """`config.bins` bins between the knots of the transforms."""

    knots: Tensor
    log_width: Tensor
    bin_start: Tensor
    bin_width: Tensor

    def __init__(
        self, config: ModelConfig, transforms: Transforms, inputs: HeadInputs = YEARLY
    ) -> None:
        super().__init__(config, transforms, inputs)
        knots = torch.tensor(transforms.knots, dtype=torch.float32)
        self.register_buffer("knots", knots, persistent=False)
        self.register_buffer("log_width", knots.diff().log(), persistent=False)
        # Same index as the logits: zero and the tails have no width, and a tail starts at its knot.
        zero = knots.new_zeros(1)
        width = torch.cat([zero, zero, knots.diff(), zero])
        self.register_buffer("bin_start", torch.cat([zero, knots[:1], knots]), persistent=False)
        self.register_buffer("bin_width", width, persistent=False)
        # The logits of bins; the attribute's name is that of weights in a bundle.
        self.cells = nn.Linear(config.width, 1 + 1 + config.bins + 1)
        self.shape = nn.Linear(config.width, 4)
        self.min_upper = MIN_TAIL_RATE * transforms.units.scale

    def outputs(self) -> list[nn.Linear]:
        """The layers with the logits of bins, and with tails and death."""
        return [self.cells, self.shape]

    def forward(self, hidden: Tensor, gap: Tensor, macro: Tensor) -> BinnedDistribution:
        """See `Head.forward`."""
        x = self.features(hidden, gap, macro)
        lower, upper, peak, death = self.shape(x).float().unbind(-1)
        logits = self.cells(x).float()
        if not self.has_zeros:
            logits = F.pad(logits[..., 1:], (1, 0), value=float("-inf"))
        return BinnedDistribution(
            logits,
            0.3 + F.softplus(lower),
            self.min_upper + F.softplus(upper),
            peak.clamp(-_MAX_PEAK, _MAX_PEAK),
            self.death_logit(death),
        )

    def log_density(self, distribution: BinnedDistribution, state: Tensor, z: Tensor) -> Tensor:
        """See `Head.log_density`."""
        lower, upper = distribution.lower, distribution.upper
        last = len(self.knots) - 1
        below, above = z < self.knots[0], z >= self.knots[-1]
        inner = torch.bucketize(z, self.knots, right=True) - 1
        index = torch.where(below, 1, torch.where(above, last + 2, inner + 2))
        index = torch.where(state == ZERO, 0, index)
        inside = -self.log_width[inner.clamp(0, last - 1)]
        inside = torch.where(below, lower.log() + lower * (z - self.knots[0]), inside)
        t = distribution.peak * upper
        x = upper * (z - self.knots[-1]) - t
        upper_tail = upper.log() + F.logsigmoid(x) + F.logsigmoid(-x) - F.logsigmoid(t)
        inside = torch.where(above, upper_tail, inside)
        log_p = distribution.logits.log_softmax(-1).gather(-1, index[..., None]).squeeze(-1)
        return log_p + torch.where(state == POSITIVE, inside, torch.zeros_like(inside))

    def draw(self, distribution: BinnedDistribution, v: Tensor) -> tuple[Tensor, Tensor]:
        """See `Head.draw`."""
        cdf = distribution.logits.softmax(-1).cumsum(-1)
        last = cdf.shape[-1] - 1
        v = (v * cdf[..., -1])[..., None]
        index = torch.searchsorted(cdf, v, right=True).clamp(max=last)
        start = torch.where(index > 0, cdf.gather(-1, (index - 1).clamp(min=0)), 0.0)
        share = (v - start) / (cdf.gather(-1, index) - start).clamp(min=1e-12)
        share = share.clamp(EDGE, 1 - EDGE).squeeze(-1)
        index = index.squeeze(-1)
        z = torch.addcmul(self.bin_start[index], self.bin_width[index], share)
        drop = (share.log() / distribution.lower).clamp(min=-MAX_LOWER_TAIL)
        z = torch.where(index == 1, z + drop, z)
        t = distribution.peak * distribution.upper
        log_survival = torch.log1p(-share) + F.logsigmoid(t)  # of the logistic, at the draw
        excess = t + torch.log(-torch.expm1(log_survival)) - log_survival
        return index > 0, torch.where(index == last, z + excess / distribution.upper, z)

    def cdf(self, distribution: BinnedDistribution, z: Tensor) -> tuple[Tensor, Tensor]:
        """See `Head.cdf`."""
        return self.cdf_at(distribution, self.places(z))

    def places(self, z: Tensor) -> BinnedPlaces:
        """See `Head.places`."""
        below = torch.bucketize(z, self.knots[1:-1], right=True)  # the bin, also of the tails
        share = ((z - self.knots[below]) / self.bin_width[2:][below]).clamp(0, 1)
        # The tails, at the grid points that lie in them for some distribution.
        by_point = z.reshape(-1, z.shape[-1])
        lower = _span(by_point.amin(0) < self.knots[0])
        upper = _span(by_point.amax(0) > self.knots[-1])
        depth, height = z[..., lower] - self.knots[0], z[..., upper] - self.knots[-1]
        return BinnedPlaces(below, share, lower, depth.clamp(max=0), upper, height.clamp(min=0))

    def cdf_at(
        self, distribution: BinnedDistribution, places: BinnedPlaces
    ) -> tuple[Tensor, Tensor]:
        """See `Head.cdf_at`."""
        mass = distribution.logits.softmax(-1)
        zero = mass[..., 0]
        # CDF at the knots; bins are uniform, so it is linear between them.
        at_knots = mass[..., :-1].cumsum(-1)[..., 1:]
        below = places.below.expand(*mass.shape[:-1], -1)
        start, end = at_knots.gather(-1, below), at_knots[..., 1:].gather(-1, below)
        cdf = torch.lerp(start, end, places.share)
        if places.depth.shape[-1]:
            share = torch.exp(distribution.lower[..., None] * places.depth)
            cdf[..., places.lower] -= mass[..., 1:2] * (1 - share)
        if places.height.shape[-1]:
            t = (distribution.peak * distribution.upper)[..., None]
            excess = distribution.upper[..., None] * places.height
            survival = torch.exp(F.logsigmoid(t - excess) - F.logsigmoid(t))
            cdf[..., places.upper] += mass[..., -1:] * (1 - survival)
        return zero, cdf


def _span(flags: Tensor) -> slice:
    """The columns from the first to the last that is flagged; an empty slice if none is."""
    flagged = flags.nonzero()
    return slice(int(flagged[0]), int(flagged[-1]) + 1) if len(flagged) else slice(0, 0)
