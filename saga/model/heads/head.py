"""What every head shares: the question, the hazard of death, and the order in which one uniform number decides a year."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saga.features.sequences import MAX_GAP, UNKNOWN
from saga.features.transforms import Transforms
from saga.model.config import ModelConfig
from saga.model.decoder import squared_relu

MACRO_FEATURES = 4  # what the head is told of the economy of the year asked for (`saga.features.transforms.macro_features`)
MIN_TAIL = 1.5  # least rate of an exponential upper tail of log earnings: in levels a Pareto tail whose mean exists
LOWEST_LOG_DROP = (
    12.0  # a draw from a lower tail stays within this many logs of where the tail begins
)
EDGE = 1e-6  # draws keep this far from probabilities 0 and 1
_RARE = 6.0  # training starts from a hazard of e^-6 a year


class Predictive(Protocol):
    """Parameters of predictive distributions, leading shape (...,): a tuple of tensors, `death` (...,) among them."""

    @property
    def death(self) -> Tensor:
        """Logit of dying before the year asked for."""
        ...


Law = TypeVar("Law", bound=Predictive)


class Head(nn.Module, ABC, Generic[Law]):
    """Hidden state + what is asked (gap, macro of that year) -> law of the year, through one residual MLP.

    The economy enters behind the MLP, by a scale and a shift of each unit (FiLM: Perez et al. 2018), so the outputs are linear in it.
    A panel's history has some thirty years: of them a network learns slopes, like a regression, and cannot learn each year by heart.

    A kind of head adds its output maps, and says what its law is: `forward`, `density`, `draw`.
    """

    criterion = "nll"  # what `loss` is called in the log

    def __init__(self, config: ModelConfig, transforms: Transforms) -> None:
        """Without zeros, or without death labels, in the training panel neither is identified and that part is switched off."""
        super().__init__()
        d = config.width
        self.has_zeros, self.has_death = transforms.has_zeros, transforms.has_death
        self.gap = nn.Embedding(MAX_GAP + 1, d)
        self.macro = nn.Linear(MACRO_FEATURES, 2 * d, bias=False)
        self.norm_in, self.norm_out = nn.LayerNorm(d), nn.LayerNorm(d)
        self.up = nn.Linear(d, config.head_width)
        self.down = nn.Linear(config.head_width, d)

    @abstractmethod
    def outputs(self) -> list[nn.Linear]:
        """The output maps, which start near zero as the economy's does."""

    @abstractmethod
    def forward(self, hidden: Tensor, gap: Tensor, macro: Tensor) -> Law:
        """Hidden (..., d), gap (...,) and macro covariates (..., 4) of the asked year -> law; leading shapes broadcast."""

    @abstractmethod
    def density(self, law: Law, state: Tensor, z: Tensor) -> Tensor:
        """Log density (...,) of earnings given being alive: a point mass at zero plus Lebesgue measure of log earnings."""

    @abstractmethod
    def draw(self, law: Law, v: Tensor) -> tuple[Tensor, Tensor]:
        """Inverse CDF of earnings at v in [0, 1] (...,), given being alive: (positive, z)."""

    def nll(self, law: Law, state: Tensor, z: Tensor, dead: Tensor) -> tuple[Tensor, Tensor]:
        """Negative log-likelihoods (...,) of earnings and of death; 0 where there is nothing to score.

        Earnings count where `state` is known; the death hazard where it is known or `dead`.
        """
        known = state != UNKNOWN
        return -self.density(law, state, z) * known, self._death_nll(law.death, known, dead)

    def loss(self, law: Law, state: Tensor, z: Tensor, dead: Tensor) -> tuple[Tensor, Tensor]:
        """What training minimises, as `nll`, which it is unless a head says otherwise."""
        return self.nll(law, state, z, dead)

    def sample(self, law: Law, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Inverse CDF at u (...,): (dead, positive, z). One uniform orders death, then zero, then earnings from low to high."""
        hazard = torch.sigmoid(law.death)
        dead = u < hazard
        positive, z = self.draw(law, ((u - hazard) / (1 - hazard)).clamp(0.0, 1.0))
        return dead, ~dead & positive, z

    def read(self, hidden: Tensor, gap: Tensor, macro: Tensor) -> Tensor:
        """What the output maps read (..., d): the state, told what is asked."""
        x = hidden + self.gap(gap)
        x = x + self.down(squared_relu(self.up(self.norm_in(x))))
        scale, shift = (F.linear(macro, weight) for weight in self.macro.weight.chunk(2))
        return torch.addcmul(shift, self.norm_out(x), 1 + scale)

    def hazard(self, logit: Tensor) -> Tensor:
        """The law's `death` from an output."""
        return (logit if self.has_death else torch.full_like(logit, float("-inf"))) - _RARE

    def _death_nll(self, death: Tensor, known: Tensor, dead: Tensor) -> Tensor:
        if not self.has_death:
            return torch.zeros_like(death)
        return F.binary_cross_entropy_with_logits(death, dead.to(death.dtype), reduction="none") * (
            known | dead
        )


def zero_or_positive(zero: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Where the logit of zero earnings is `zero`: whether v means positive earnings, and its place among those, inside (0, 1)."""
    p = torch.sigmoid(zero)
    return v >= p, ((v - p) / (1 - p)).clamp(EDGE, 1 - EDGE)
