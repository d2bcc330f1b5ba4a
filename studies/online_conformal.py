"""Published online methods for one stream of conformity scores in [0, 1], for comparison.

They were made for one outcome at a time. In a yearly delivery, outcomes arrive together: each is a
step, in keyed order, and intervals are issued with the threshold after the last step.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class OnlineThreshold(Protocol):
    """A threshold of scores that follows outcomes; split thresholds have score density one."""

    @property
    def threshold(self) -> float:
        """The threshold in force."""

    def update(self, scores: Array) -> None:
        """Take the scores of outcomes, one after the other."""


class DynamicAci:
    """DtACI of Gibbs and Candès (2024), algorithm 1, with their constants.

    Eight step sizes from 0.001 to 0.128, and weights for a window of 500 steps.
    """

    STEPS = np.array([0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128])
    WINDOW = 500

    def __init__(self, coverage: float) -> None:
        self.alpha = 1 - coverage
        self.levels = np.full(len(self.STEPS), self.alpha)
        self.weights = np.ones(len(self.STEPS))
        a, count = self.alpha, len(self.STEPS)
        moment = (1 - a) ** 2 * a**3 + a**2 * (1 - a) ** 3
        self.rate = math.sqrt(3 / self.WINDOW * (math.log(count * self.WINDOW) + 2) / moment)
        self.shared = 1 / (2 * self.WINDOW)

    @property
    def threshold(self) -> float:
        """The threshold of the weighted mean level."""
        return float(1 - self.weights @ self.levels / self.weights.sum())

    def update(self, scores: Array) -> None:
        """Take the scores of outcomes, one after the other."""
        for score in scores.tolist():
            best = 1 - score  # the largest level that covers the outcome
            error = best - self.levels
            loss = np.where(error > 0, self.alpha * error, (self.alpha - 1) * error)
            weights = self.weights * np.exp(-self.rate * loss)
            total = weights.sum()
            self.weights = (1 - self.shared) * weights + total * self.shared / len(weights)
            self.weights /= self.weights.sum()
            missed = self.levels > best
            self.levels = self.levels + self.STEPS * (self.alpha - missed)


class ConformalPid:
    """Conformal PID of Angelopoulos, Candès and Tibshirani (2023), without a scorecaster.

    Quantile tracking with a step of 0.1 times the largest score of the last 100 steps, and the
    error integrator K tan(x log(t) / (t C)) with their choice of C for a gap of 0.01 after
    `n_steps` steps, and K the largest score.
    """

    WINDOW, STEP, GAP = 100, 0.1, 0.01

    def __init__(self, coverage: float, n_steps: int) -> None:
        self.alpha = 1 - coverage
        self.tracked, self.errors, self.steps = coverage, 0.0, 0
        self.saturation = (
            2 / math.pi * (math.ceil(math.log(n_steps) * self.GAP) - 1 / math.log(n_steps))
        )
        self.recent: list[float] = []

    @property
    def threshold(self) -> float:
        """The tracked quantile plus the integrated error."""
        t = self.steps + 1
        angle = self.errors * math.log(t + 1) / (self.saturation * (t + 1))
        limit = math.pi / 2 - 1e-6
        return self.tracked + math.tan(min(max(angle, -limit), limit))

    def update(self, scores: Array) -> None:
        """Take the scores of outcomes, one after the other."""
        for score in scores.tolist():
            missed = float(score > self.threshold)
            self.recent = [*self.recent[-self.WINDOW + 1 :], score]
            self.tracked += self.STEP * max(self.recent) * (missed - self.alpha)
            self.errors += missed - self.alpha
            self.steps += 1
