"""The quantile head of the paper: seven quantiles of log earnings and the probability of zero.

The quantiles are trained with the pinball loss (Koenker and Bassett 1978). The CDF is linear
between neighbouring quantiles. Beyond the outermost quantiles the density is continuous and decays
exponentially. Quantiles cannot cross, because the network's outputs are the median and the positive
differences between neighbouring quantiles.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from saga.evaluation.variants.mixture_head import split_zero
from torch import Tensor, nn

from saga.features.sequences import UNKNOWN, ZERO
from saga.features.transforms import Transforms
from saga.model.config import ModelConfig
from saga.model.heads.head import (
    MAX_LOWER_TAIL,
    MIN_TAIL_RATE,
    YEARLY,
    Head,
    HeadInputs,
)

HEAD_QUANTILES = (0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95)
_MIN_STEP = 1e-3  # smallest difference between neighbouring quantiles, in logs


class QuantileDistribution(NamedTuple):
    """Parameters of predictive distributions; all tensors have the leading shape (...,).

    Attributes:
        zero: Logit of zero earnings (...,).
        knots: Quantiles (..., 7) of z, log earnings relative to wages, given positive earnings.
        death: Logit of death (...,).
    """

    zero: Tensor
    knots: Tensor
    death: Tensor


class QuantileHead(Head[QuantileDistribution]):
    """Seven quantiles, initially those of a normal distribution fitted to training persons."""

    criterion = "pinball"
    probabilities: Tensor
    step: Tensor

    def __init__(
        self, config: ModelConfig, transforms: Transforms, inputs: HeadInputs = YEARLY
    ) -> None:
        super().__init__(config, transforms, inputs)
        self.centre, self.scale = transforms.centre, transforms.scale
        self.min_upper = MIN_TAIL_RATE * transforms.units.scale
        self.median = HEAD_QUANTILES.index(0.5)
        probabilities = torch.tensor(HEAD_QUANTILES)
        self.register_buffer("probabilities", probabilities, persistent=False)
        normal_steps = transforms.scale * torch.special.ndtri(probabilities).diff()
        step = normal_steps / F.softplus(torch.zeros(1))
        self.register_buffer("step", step, persistent=False)
        self.shape = nn.Linear(config.width, len(HEAD_QUANTILES) + 2)

    def outputs(self) -> list[nn.Linear]:
        """The layer whose outputs are all parameters of the distribution."""
        return [self.shape]

    def forward(self, hidden: Tensor, gap: Tensor, macro: Tensor) -> QuantileDistribution:
        """See `Head.forward`."""
        out = self.shape(self.features(hidden, gap, macro)).float()
        middle, steps, others = out.split([1, len(HEAD_QUANTILES) - 1, 2], -1)
        zero, death = others.unbind(-1)
        if not self.has_zeros:
            zero = torch.full_like(zero, float("-inf"))
        height = F.pad((_MIN_STEP + self.step * F.softplus(steps)).cumsum(-1), (1, 0))
        knots = self.centre + self.scale * middle + height - height[..., self.median, None]
        return QuantileDistribution(zero, knots, self.death_logit(death))

    def loss(
        self, distribution: QuantileDistribution, state: Tensor, z: Tensor, dead: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Loss of earnings, and negative log-likelihood of death, shapes (...,).

        The loss of earnings is the log score of whether earnings are positive plus, if they are,
        the pinball loss summed over the quantiles.
        """
        observed = state != UNKNOWN
        above = z[..., None] - distribution.knots
        p = self.probabilities
        pinball = torch.maximum(p * above, (p - 1) * above).sum(-1)
        positive = -F.logsigmoid(-distribution.zero) + pinball
        earnings = torch.where(state == ZERO, -F.logsigmoid(distribution.zero), positive)
        return earnings * observed, self._death_nll(distribution.death, observed, dead)

    def log_density(self, distribution: QuantileDistribution, state: Tensor, z: Tensor) -> Tensor:
        """See `Head.log_density`."""
        knots, mass, last = distribution.knots, self.probabilities.diff(), len(HEAD_QUANTILES)
        lower, upper = self._tail_rates(distribution)
        interval = (z[..., None] >= knots).sum(-1)
        densities = mass.log() - knots.diff(dim=-1).log()
        between = densities.gather(-1, (interval - 1).clamp(0, last - 2)[..., None]).squeeze(-1)
        below = self.probabilities[0].log() + lower.log() - lower * (knots[..., 0] - z)
        above = (1 - self.probabilities[-1]).log() + upper.log() - upper * (z - knots[..., -1])
        positive = torch.where(interval == 0, below, torch.where(interval == last, above, between))
        zero = distribution.zero
        return torch.where(state == ZERO, F.logsigmoid(zero), F.logsigmoid(-zero) + positive)

    def draw(self, distribution: QuantileDistribution, v: Tensor) -> tuple[Tensor, Tensor]:
        """See `Head.draw`."""
        p = self.probabilities
        positive, share = split_zero(distribution.zero, v)
        lower, upper = self._tail_rates(distribution)
        index = torch.bucketize(share, p, right=True).clamp(1, len(HEAD_QUANTILES) - 1)
        low, high = p[index - 1], p[index]
        knots = distribution.knots.expand(*share.shape, -1)
        start, end = (knots.gather(-1, i[..., None]).squeeze(-1) for i in (index - 1, index))
        z = start + (end - start) * (share - low) / (high - low)
        down = (torch.log(share / p[0]) / lower).clamp(min=-MAX_LOWER_TAIL)
        z = torch.where(share < p[0], knots[..., 0] + down, z)
        up = torch.log((1 - p[-1]) / (1 - share)) / upper
        return positive, torch.where(share >= p[-1], knots[..., -1] + up, z)

    def cdf(self, distribution: QuantileDistribution, z: Tensor) -> tuple[Tensor, Tensor]:
        """See `Head.cdf`."""
        zero, p, last = torch.sigmoid(distribution.zero), self.probabilities, len(HEAD_QUANTILES)
        lower, upper = (rate[..., None] for rate in self._tail_rates(distribution))
        knots = distribution.knots[..., None, :]
        first, final = knots[..., 0], knots[..., -1]
        share = ((z[..., None] - knots[..., :-1]) / knots.diff(dim=-1)).clamp(0, 1)
        inside = p[0] + (share * p.diff()).sum(-1)
        below = p[0] * torch.exp(lower * (z - first).clamp(max=0))
        above = 1 - (1 - p[last - 1]) * torch.exp(-upper * (z - final).clamp(min=0))
        positive = torch.where(z < first, below, torch.where(z > final, above, inside))
        return zero, zero[..., None] + (1 - zero[..., None]) * positive

    def _tail_rates(self, distribution: QuantileDistribution) -> tuple[Tensor, Tensor]:
        """Rates (...,) for which the density is continuous; the upper tail always has a mean."""
        p, steps = self.probabilities, distribution.knots.diff(dim=-1)
        lower = p.diff()[0] / (p[0] * steps[..., 0])
        upper = p.diff()[-1] / ((1 - p[-1]) * steps[..., -1])
        return lower, upper.clamp(min=self.min_upper)
