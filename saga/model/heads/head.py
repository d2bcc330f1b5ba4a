"""Base class of heads: inputs, hazard of death, and a year's draw from one uniform number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saga.features.calendar import MACRO_FEATURES
from saga.features.sequences import MAX_GAP, UNKNOWN
from saga.features.transforms import Transforms
from saga.model.config import ModelConfig
from saga.model.decoder import squared_relu

# Smallest rate of an upper tail of log earnings; amounts then have a Pareto tail with a mean.
MIN_TAIL_RATE = 1.5
MAX_LOWER_TAIL = 12.0  # longest lower tail of a draw, in logs
EDGE = 1e-6  # smallest distance of a draw's probability from 0 and 1
_INITIAL_LOG_HAZARD = -6.0  # training starts from a hazard of about e^-6 per year


class HeadInputs(NamedTuple):
    """Sizes of a head's inputs: the longest gap in years, and the number of macro covariates."""

    max_gap: int = MAX_GAP
    macro_features: int = MACRO_FEATURES


YEARLY = HeadInputs()  # of the head that rollouts use


class Predictive(Protocol):
    """Parameters of predictive distributions: a tuple of tensors with leading shape (...,)."""

    @property
    def death(self) -> Tensor:
        """Logit (...,) of dying before the target year."""
        ...


Distribution = TypeVar("Distribution", bound=Predictive)


class Head(nn.Module, ABC, Generic[Distribution]):
    """Predictive distribution of a target year from a hidden state, through one residual MLP.

    Macro covariates enter after the MLP, as a scale and a shift of each unit (FiLM: Perez et al.
    2018), so the outputs are linear in them. A panel covers about thirty years; with a linear map
    the network can learn slopes, as a regression does, but cannot memorise single years.

    A subclass adds its output maps and defines its distribution: `forward`, `log_density`, `draw`.
    """

    criterion = "nll"  # the name of `loss` in the log

    def __init__(
        self, config: ModelConfig, transforms: Transforms, inputs: HeadInputs = YEARLY
    ) -> None:
        """Make the layers; without zeros or deaths in training their probability is fixed at 0."""
        super().__init__()
        d = config.width
        self.has_zeros, self.has_death = transforms.has_zeros, transforms.has_death
        self.gap = nn.Embedding(inputs.max_gap + 1, d)
        self.macro = nn.Linear(inputs.macro_features, 2 * d, bias=False)
        self.norm_in, self.norm_out = nn.LayerNorm(d), nn.LayerNorm(d)
        self.up = nn.Linear(d, config.head_width)
        self.down = nn.Linear(config.head_width, d)

    @abstractmethod
    def outputs(self) -> list[nn.Linear]:
        """The output layers; like that of the macro covariates, they are initialised near zero."""

    @abstractmethod
    def forward(self, hidden: Tensor, gap: Tensor, macro: Tensor) -> Distribution:
        """Distribution of the target year; leading shapes broadcast.

        Args:
            hidden: Hidden states (..., d).
            gap: Years from the token to the target year (...,).
            macro: Macro covariates (..., m), those of the target year first.
        """

    @abstractmethod
    def log_density(self, distribution: Distribution, state: Tensor, z: Tensor) -> Tensor:
        """Log density (...,) of earnings given survival.

        It is a probability at zero earnings and a density of log earnings elsewhere.
        """

    @abstractmethod
    def draw(self, distribution: Distribution, v: Tensor) -> tuple[Tensor, Tensor]:
        """Inverse CDF of earnings at v in [0, 1] (...,), given survival: (positive, z)."""

    @abstractmethod
    def cdf(self, distribution: Distribution, z: Tensor) -> tuple[Tensor, Tensor]:
        """Probability of zero (...,) and CDF at z (..., G), given survival.

        The CDF is that of earnings and includes zero; `z` (..., G) is relative log earnings.
        """

    def places(self, z: Tensor) -> Any:
        """What `cdf_at` needs of z (..., G): it can be kept for other distributions."""
        return z

    def cdf_at(self, distribution: Distribution, places: Any) -> tuple[Tensor, Tensor]:
        """`cdf` at the z of which `places` were made; the same bits."""
        return self.cdf(distribution, places)

    def nll(
        self, distribution: Distribution, state: Tensor, z: Tensor, dead: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Negative log-likelihoods (...,) of earnings and of death; 0 if there is no outcome.

        Earnings count if `state` is known; death counts if `state` is known or the person is dead.
        """
        observed = state != UNKNOWN
        earnings = -self.log_density(distribution, state, z) * observed
        return earnings, self._death_nll(distribution.death, observed, dead)

    def loss(
        self, distribution: Distribution, state: Tensor, z: Tensor, dead: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Training losses (...,) of earnings and of death: `nll` unless a head overrides it."""
        return self.nll(distribution, state, z, dead)

    def sample(self, distribution: Distribution, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Inverse CDF at u (...,): (dead, positive, z).

        With growing u the outcome is death, then zero, then earnings from low to high.
        """
        hazard = torch.sigmoid(distribution.death)
        dead = u < hazard
        positive, z = self.draw(distribution, ((u - hazard) / (1 - hazard)).clamp(0.0, 1.0))
        return dead, ~dead & positive, z

    def features(self, hidden: Tensor, gap: Tensor, macro: Tensor) -> Tensor:
        """Input (..., d) of the output maps."""
        x = hidden + self.gap(gap)
        x = x + self.down(squared_relu(self.up(self.norm_in(x))))
        scale, shift = (F.linear(macro, weight) for weight in self.macro.weight.chunk(2))
        return torch.addcmul(shift, self.norm_out(x), 1 + scale)

    def death_logit(self, output: Tensor) -> Tensor:
        """The distribution's `death` from an output (...,)."""
        logit = output if self.has_death else torch.full_like(output, float("-inf"))
        return logit + _INITIAL_LOG_HAZARD

    def _death_nll(self, death: Tensor, observed: Tensor, dead: Tensor) -> Tensor:
        if not self.has_death:
            return torch.zeros_like(death)
        entropy = F.binary_cross_entropy_with_logits(death, dead.to(death.dtype), reduction="none")
        return entropy * (observed | dead)
