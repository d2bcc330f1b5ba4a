"""The paper's head: seven quantiles of log earnings, trained by the pinball loss (Koenker and Bassett 1978), and the probability of zero
beside them. Between the quantiles the distribution function is a straight line; beyond the outermost, the density goes on exponentially
from where it is. Quantiles cannot cross: the median and the steps between neighbours are what the network gives.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saga.features.sequences import UNKNOWN, ZERO
from saga.features.transforms import Transforms
from saga.model.config import ModelConfig
from saga.model.heads.head import LOWEST_LOG_DROP, MIN_TAIL, Head, zero_or_positive

LEVELS = (0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95)
_NARROWEST = 1e-3  # least step between two quantiles, in logs


class SevenQuantiles(NamedTuple):
    """`zero` (...,) logit of no earnings; `knots` (..., 7) the quantiles of z given positive earnings; `death` (...,) logit."""

    zero: Tensor
    knots: Tensor
    death: Tensor


class Quantiles(Head[SevenQuantiles]):
    """Seven quantiles, which start at those of a normal with the training persons' centre and scale."""

    criterion = "pinball"
    levels: Tensor
    step: Tensor

    def __init__(self, config: ModelConfig, transforms: Transforms) -> None:
        super().__init__(config, transforms)
        self.centre, self.scale, self.median = (
            transforms.centre,
            transforms.scale,
            LEVELS.index(0.5),
        )
        levels = torch.tensor(LEVELS)
        self.register_buffer("levels", levels, persistent=False)
        self.register_buffer(
            "step",
            transforms.scale * torch.special.ndtri(levels).diff() / F.softplus(torch.zeros(1)),
            persistent=False,
        )
        self.shape = nn.Linear(config.width, len(LEVELS) + 2)

    def outputs(self) -> list[nn.Linear]:
        """All parameters of the law."""
        return [self.shape]

    def forward(self, hidden: Tensor, gap: Tensor, macro: Tensor) -> SevenQuantiles:
        """See `Head.forward`."""
        out = self.shape(self.read(hidden, gap, macro)).float()
        middle, steps, others = out.split([1, len(LEVELS) - 1, 2], -1)
        zero, death = others.unbind(-1)
        if not self.has_zeros:
            zero = torch.full_like(zero, float("-inf"))
        height = F.pad((_NARROWEST + self.step * F.softplus(steps)).cumsum(-1), (1, 0))
        knots = self.centre + self.scale * middle + height - height[..., self.median, None]
        return SevenQuantiles(zero, knots, self.hazard(death))

    def loss(
        self, law: SevenQuantiles, state: Tensor, z: Tensor, dead: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The pinball loss summed over the levels, where earnings are positive, plus the log score of zero or not; and that of death."""
        known = state != UNKNOWN
        above = z[..., None] - law.knots
        pinball = torch.maximum(self.levels * above, (self.levels - 1) * above).sum(-1)
        zero = torch.where(
            state == ZERO, -F.logsigmoid(law.zero), -F.logsigmoid(-law.zero) + pinball
        )
        return zero * known, self._death_nll(law.death, known, dead)

    def density(self, law: SevenQuantiles, state: Tensor, z: Tensor) -> Tensor:
        """See `Head.density`."""
        knots, mass = law.knots, self.levels.diff()
        lower, upper = self._tails(law)
        place = (z[..., None] >= knots).sum(-1)
        between = (
            (mass.log() - knots.diff(dim=-1).log())
            .gather(-1, (place - 1).clamp(0, len(LEVELS) - 2)[..., None])
            .squeeze(-1)
        )
        below = self.levels[0].log() + lower.log() - lower * (knots[..., 0] - z)
        above = (1 - self.levels[-1]).log() + upper.log() - upper * (z - knots[..., -1])
        inside = torch.where(place == 0, below, torch.where(place == len(LEVELS), above, between))
        return torch.where(state == ZERO, F.logsigmoid(law.zero), F.logsigmoid(-law.zero) + inside)

    def draw(self, law: SevenQuantiles, v: Tensor) -> tuple[Tensor, Tensor]:
        """See `Head.draw`."""
        positive, share = zero_or_positive(law.zero, v)
        lower, upper = self._tails(law)
        at = torch.bucketize(share, self.levels, right=True).clamp(1, len(LEVELS) - 1)
        low, high = self.levels[at - 1], self.levels[at]
        knots = law.knots.expand(*share.shape, -1)
        start, end = (knots.gather(-1, index[..., None]).squeeze(-1) for index in (at - 1, at))
        z = start + (end - start) * (share - low) / (high - low)
        down = (torch.log(share / self.levels[0]) / lower).clamp(min=-LOWEST_LOG_DROP)
        z = torch.where(share < self.levels[0], knots[..., 0] + down, z)
        up = torch.log((1 - self.levels[-1]) / (1 - share)) / upper
        return positive, torch.where(share >= self.levels[-1], knots[..., -1] + up, z)

    def _tails(self, law: SevenQuantiles) -> tuple[Tensor, Tensor]:
        """Rates (...,) of the tails: the density has no jump at the outermost quantiles, unless the upper tail then had no mean."""
        steps = law.knots.diff(dim=-1)
        return self._rate(steps[..., 0], 0), self._rate(steps[..., -1], -1).clamp(min=MIN_TAIL)

    def _rate(self, step: Tensor, end: int) -> Tensor:
        tail = self.levels[0] if end == 0 else 1 - self.levels[-1]
        return self.levels.diff()[end] / (tail * step)
