"""A mixture of normals: an atom at zero and, for positive earnings, five normals of log earnings, as GKOS describe their shocks
(Guvenen, Karahan, Ozkan and Song 2021), with weights, means and spreads that depend on the record (Bishop 1994).

Draws invert the mixture's own CDF instead of choosing a component first: earnings then rise with the uniform number, so that a path keeps
its rank wherever one number answers two questions.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saga.features.sequences import ZERO
from saga.features.transforms import Transforms
from saga.model.config import ModelConfig
from saga.model.heads.head import Head, zero_or_positive

COMPONENTS = 5
_NARROWEST = 0.01  # least spread, in logs: no component shrinks onto one person
_LOG_ROOT_2PI = 0.9189385332046727
_HALVINGS = 30  # of a bracket some logs wide: below the resolution of float32


class Normals(NamedTuple):
    """`zero` (...,) logit of no earnings; `weight` (..., 5) logits, `mean` and `spread` (..., 5) of z; `death` (...,) logit."""

    zero: Tensor
    weight: Tensor
    mean: Tensor
    spread: Tensor
    death: Tensor


class Mixture(Head[Normals]):
    """Five normals, which start spread over the training persons' earnings."""

    start: Tensor

    def __init__(self, config: ModelConfig, transforms: Transforms) -> None:
        super().__init__(config, transforms)
        self.scale = transforms.scale
        start = transforms.centre + transforms.scale * torch.linspace(-1.5, 1.5, COMPONENTS)
        self.register_buffer("start", start.to(torch.float32), persistent=False)
        self.shape = nn.Linear(config.width, 3 * COMPONENTS + 2)

    def outputs(self) -> list[nn.Linear]:
        """All parameters of the law."""
        return [self.shape]

    def forward(self, hidden: Tensor, gap: Tensor, macro: Tensor) -> Normals:
        """See `Head.forward`."""
        out = self.shape(self.read(hidden, gap, macro)).float()
        weight, mean, spread, others = out.split([COMPONENTS, COMPONENTS, COMPONENTS, 2], -1)
        zero, death = others.unbind(-1)
        if not self.has_zeros:
            zero = torch.full_like(zero, float("-inf"))
        return Normals(
            zero,
            weight,
            self.start + self.scale * mean,
            _NARROWEST + self.scale * F.softplus(spread),
            self.hazard(death),
        )

    def density(self, law: Normals, state: Tensor, z: Tensor) -> Tensor:
        """See `Head.density`."""
        away = (z[..., None] - law.mean) / law.spread
        normal = -0.5 * away * away - law.spread.log() - _LOG_ROOT_2PI
        inside = F.logsigmoid(-law.zero) + (law.weight.log_softmax(-1) + normal).logsumexp(-1)
        return torch.where(state == ZERO, F.logsigmoid(law.zero), inside)

    def draw(self, law: Normals, v: Tensor) -> tuple[Tensor, Tensor]:
        """See `Head.draw`. The mixture's quantile lies between the least and the greatest of its components' and is found by bisection."""
        positive, share = zero_or_positive(law.zero, v)
        weight = law.weight.softmax(-1)
        own = law.mean + law.spread * torch.special.ndtri(share)[..., None]
        low, high = own.amin(-1), own.amax(-1)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            below = (weight * torch.special.ndtr((middle[..., None] - law.mean) / law.spread)).sum(
                -1
            ) < share
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return positive, (low + high) / 2
