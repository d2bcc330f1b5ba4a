"""Random parameters of economies, and random streams by key."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from saga.evaluation.textbook.gkos_process import Mixture

from saga.arrays import Floats
from saga.keyed_random import Part, encode


def random_stream(*key: Part) -> np.random.Generator:
    """The random stream of a key; streams of different keys are independent."""
    digest = hashlib.blake2b(encode(*key), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=np.frombuffer(digest, "<u8")))


@dataclass(frozen=True)
class ParameterDraws:
    """Draws of parameters from wide distributions."""

    rng: np.random.Generator

    def uniform(self, low: float, high: float) -> float:
        """Uniform between `low` and `high`."""
        return float(self.rng.uniform(low, high))

    def log_uniform(self, low: float, high: float) -> float:
        """Uniform in logs between `low` and `high`, both positive."""
        return float(np.exp(self.rng.uniform(np.log(low), np.log(high))))

    def happens(self, probability: float) -> bool:
        """True with this probability."""
        return bool(self.rng.random() < probability)

    def spread(self, probability: float, low: float, high: float) -> float:
        """A parameter that is 0 in some economies and otherwise positive, uniform in logs.

        Args:
            probability: Probability that it is positive.
            low: Its lowest value.
            high: Its highest value.
        """
        value = self.log_uniform(low, high)
        return value if self.happens(probability) else 0.0

    def shocks(self, sd: float) -> Mixture:
        """Shocks with mean 0 and standard deviation `sd`, from normal to heavy-tailed and skewed.

        A quarter of the draws are normal. In the others, a share of the shocks has a standard
        deviation 1.5 to 12 times that of the rest, and in half of these also another mean.
        """
        if self.happens(0.25):
            return Mixture(p=0.5, mean=0.0, sd=(sd, sd))  # a normal distribution
        share, ratio = self.log_uniform(0.01, 0.5), self.log_uniform(1.5, 12.0)
        mean = ratio * (self.uniform(-1.0, 0.6) if self.happens(0.5) else 0.0)
        unscaled = Mixture(p=share, mean=mean, sd=(ratio, 1.0))
        scale = sd / np.sqrt(unscaled.variance)
        return Mixture(p=share, mean=mean * scale, sd=(ratio * scale, scale))


def draw_mixture(mixture: Mixture, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Independent draws of `mixture`, of `shape`."""
    rare = rng.random(shape) < mixture.p
    normal = rng.standard_normal(shape)
    (first, second), (sd_first, sd_second) = mixture.means, mixture.sd
    return np.asarray(
        np.where(rare, first, second) + np.where(rare, sd_first, sd_second) * normal,
        dtype=np.float64,
    )
