"""Sampling bands: where the figures of a forecaster without fault fall by chance.

For one figure, or for a whole curve at once.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from saga.calibration.fit.person_scores import rank_needed
from scipy import stats

from saga.small_groups import MIN_PERSONS

Array = NDArray[np.float64]


def coverage_band(
    coverage: float, n: int, calibrated_on: int | None = None, *, probability: float = 0.95
) -> tuple[float, float]:
    """Central range of the share of n test persons inside intervals of this coverage.

    With m calibration persons n x share follows BetaBinomial(n, k, m + 1 - k),
    k = ceil((m + 1) coverage), which counts the chance of the calibration sample too (Vovk 2012).
    The upper end uses the outermost of the order statistics that a threshold averages. With too few
    calibration persons for a threshold (k > m) everybody is covered.

    Args:
        coverage: Stated coverage.
        n: Test persons.
        calibrated_on: Calibration persons m; None: the threshold is exact (binomial).
        probability: Probability that the range contains the figure.
    """
    tails = np.array([(1 - probability) / 2, (1 + probability) / 2])
    if calibrated_on is None:
        ends = stats.binom.ppf(tails, n, coverage)
    else:
        k = rank_needed(calibrated_on, coverage)
        if k > calibrated_on:
            return 1.0, 1.0
        outer = np.minimum(np.array([k, k + MIN_PERSONS - 1]), calibrated_on)
        # The quantiles of scipy's betabinom, which sums the distribution in each step of a search.
        cdfs = (
            stats.betabinom.pmf(np.arange(n + 1), n, k, calibrated_on + 1 - k).cumsum()
            for k in outer
        )
        ends = np.array(
            [min(int(np.searchsorted(cdf, tail)), n) for cdf, tail in zip(cdfs, tails, strict=True)]
        )
    return float(ends[0] / n), float(ends[1] / n)


def map_noise(
    bins: int, calibrated_on: int | None, n_replicates: int, rng: np.random.Generator
) -> Array:
    """True ranks at the calibrated ranks 0, 1 / bins, ..., 1, shape (n_replicates, bins + 1).

    A map is the empirical distribution of its persons, so each 1 / bins of its probability truly
    has a Dirichlet share.

    Args:
        bins: Number of equal parts of the calibrated probability.
        calibrated_on: Persons behind the map; None: the ranks are exact.
        n_replicates: Number of simulated maps.
        rng: Random numbers.
    """
    if calibrated_on is None:
        return np.tile(np.linspace(0, 1, bins + 1), (n_replicates, 1))
    shares = rng.dirichlet(np.full(bins, (calibrated_on + 1) / bins), n_replicates)
    ranks = np.concatenate([np.zeros((n_replicates, 1)), np.cumsum(shares, axis=1)], axis=1)
    return np.asarray(np.minimum(ranks, 1.0), dtype=np.float64)


def simultaneous_band(replicates: Array, probability: float) -> tuple[Array, Array]:
    """Limits (K,) that contain a curve like the `replicates` (B, K) at all K points at once.

    Max-type: mean plus and minus c standard deviations, c the ceil((B + 1) probability)-th smallest
    of the replicates' largest standardised distances. A further draw leaves the band with
    probability at most 1 - `probability` (Dwass 1957), up to the noise in mean and standard
    deviation. Raises ValueError unless B exceeds probability / (1 - probability).
    """
    b = len(replicates)
    k = math.ceil((b + 1) * probability - 1e-9)
    if k > b:
        raise ValueError(f"{b} replicates are too few for a band of probability {probability:g}")
    mean, sd = replicates.mean(axis=0), replicates.std(axis=0, ddof=1)
    scale = np.maximum(sd, 1e-12)
    largest = np.sort((np.abs(replicates - mean) / scale).max(axis=1))
    reach = largest[k - 1] * sd + 1e-12
    return mean - reach, mean + reach
