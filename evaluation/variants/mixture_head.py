"""The mixture head: an atom at zero and a mixture of five normals for log earnings.

The shocks of Guvenen, Karahan, Ozkan and Song (2021) have such distributions. Weights, means and
standard deviations depend on the record (Bishop 1994). A draw inverts the CDF of the mixture; it
does not first choose a component. Earnings therefore increase with the uniform number, and a path
has the same rank in all forecasts that use this number.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saga.features.sequences import ZERO
from saga.features.transforms import Transforms
from saga.model.config import ModelConfig
from saga.model.heads.head import EDGE, YEARLY, Head, HeadInputs

COMPONENTS = 5
_MIN_DEVIATION = 0.01  # in logs, so that no component narrows to a single person
_LOG_ROOT_2PI = 0.9189385332046727
_BISECTIONS = 30  # more would not change the result in float32


class NormalMixture(NamedTuple):
    """Parameters of predictive distributions; all tensors have the leading shape (...,).

    Attributes:
        zero: Logit of zero earnings (...,).
        weight_logits: Logits (..., 5) of the components' weights.
        mean: Means (..., 5) of the components, of z (log earnings relative to wages).
        deviation: Standard deviations (..., 5) of the components.
        death: Logit of death (...,).
    """

    zero: Tensor
    weight_logits: Tensor
    mean: Tensor
    deviation: Tensor
    death: Tensor


class MixtureHead(Head[NormalMixture]):
    """Five normals, initially spread over the earnings of the training persons."""

    start: Tensor

    def __init__(
        self, config: ModelConfig, transforms: Transforms, inputs: HeadInputs = YEARLY
    ) -> None:
        super().__init__(config, transforms, inputs)
        self.scale = transforms.scale
        start = transforms.centre + transforms.scale * torch.linspace(-1.5, 1.5, COMPONENTS)
        self.register_buffer("start", start.to(torch.float32), persistent=False)
        self.shape = nn.Linear(config.width, 3 * COMPONENTS + 2)

    def outputs(self) -> list[nn.Linear]:
        """The layer whose outputs are all parameters of the distribution."""
        return [self.shape]

    def forward(self, hidden: Tensor, gap: Tensor, macro: Tensor) -> NormalMixture:
        """See `Head.forward`."""
        out = self.shape(self.features(hidden, gap, macro)).float()
        weights, mean, deviation, others = out.split([COMPONENTS, COMPONENTS, COMPONENTS, 2], -1)
        zero, death = others.unbind(-1)
        if not self.has_zeros:
            zero = torch.full_like(zero, float("-inf"))
        return NormalMixture(
            zero,
            weights,
            self.start + self.scale * mean,
            _MIN_DEVIATION + self.scale * F.softplus(deviation),
            self.death_logit(death),
        )

    def log_density(self, distribution: NormalMixture, state: Tensor, z: Tensor) -> Tensor:
        """See `Head.log_density`."""
        x = (z[..., None] - distribution.mean) / distribution.deviation
        normal = -0.5 * x * x - distribution.deviation.log() - _LOG_ROOT_2PI
        mixture = (distribution.weight_logits.log_softmax(-1) + normal).logsumexp(-1)
        positive = F.logsigmoid(-distribution.zero) + mixture
        return torch.where(state == ZERO, F.logsigmoid(distribution.zero), positive)

    def draw(self, distribution: NormalMixture, v: Tensor) -> tuple[Tensor, Tensor]:
        """See `Head.draw`.

        The quantile of the mixture lies between the smallest and the largest quantile of its
        components; bisection finds it.
        """
        positive, share = split_zero(distribution.zero, v)
        weight = distribution.weight_logits.softmax(-1)
        mean, deviation = distribution.mean, distribution.deviation
        quantiles = mean + deviation * torch.special.ndtri(share)[..., None]
        low, high = quantiles.amin(-1), quantiles.amax(-1)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            cdf = (weight * torch.special.ndtr((middle[..., None] - mean) / deviation)).sum(-1)
            below = cdf < share
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return positive, (low + high) / 2

    def cdf(self, distribution: NormalMixture, z: Tensor) -> tuple[Tensor, Tensor]:
        """See `Head.cdf`."""
        zero, weight = torch.sigmoid(distribution.zero), distribution.weight_logits.softmax(-1)
        x = (z[..., None] - distribution.mean[..., None, :]) / distribution.deviation[..., None, :]
        positive = (weight[..., None, :] * torch.special.ndtr(x)).sum(-1)
        return zero, zero[..., None] + (1 - zero[..., None]) * positive


def split_zero(zero: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Whether v in [0, 1] gives positive earnings, and its rank in (0, 1) among those.

    `zero` is the logit of zero earnings; both results have shape (...,).
    """
    p = torch.sigmoid(zero)
    return v >= p, ((v - p) / (1 - p)).clamp(EDGE, 1 - EDGE)
