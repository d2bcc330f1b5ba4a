"""Sampling bands: where an honest forecaster's results fall by luck alone, for one figure or for a whole curve at once."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from calibration.fit.split_conformal import NEIGHBOURS, rank_needed

Array = NDArray[np.float64]


def coverage_band(
    level: float, n: int, calibrated_on: int | None = None, *, probability: float = 0.95
) -> tuple[float, float]:
    """Central range, of this probability, of the share of n test persons covered at `level`.

    With the number m of calibration persons: n x share ~ BetaBinomial(n, k, m + 1 - k), k = ceil((m + 1) level), which counts the luck of
    the calibration sample too (Vovk 2012), the upper end with the outermost of the order statistics that a threshold averages; without:
    binomial. Too few calibration persons for a threshold (k > m): everything is covered.
    """
    tails = np.array([(1 - probability) / 2, (1 + probability) / 2])
    if calibrated_on is None:
        ends = stats.binom.ppf(tails, n, level)
    else:
        k = rank_needed(calibrated_on, level)
        if k > calibrated_on:
            return 1.0, 1.0
        outer = np.minimum(np.array([k, k + NEIGHBOURS - 1]), calibrated_on)
        # The quantiles of scipy's betabinom, which sums the distribution anew for each step of its search.
        shares = (
            stats.betabinom.pmf(np.arange(n + 1), n, k, calibrated_on + 1 - k).cumsum()
            for k in outer
        )
        ends = np.array(
            [
                min(int(np.searchsorted(cdf, tail)), n)
                for cdf, tail in zip(shares, tails, strict=True)
            ]
        )
    return float(ends[0] / n), float(ends[1] / n)


def map_noise(
    cells: int, calibrated_on: int | None, replicates: int, rng: np.random.Generator
) -> Array:
    """True ranks at the calibrated ranks 0, 1 / `cells`, ..., 1 of a map learnt from so many persons, shape (replicates, cells + 1).

    The map is their empirical distribution, so what it calls 1 / `cells` of the probability truly has a Dirichlet share. Without
    calibration persons the ranks are exact.
    """
    if calibrated_on is None:
        return np.tile(np.linspace(0, 1, cells + 1), (replicates, 1))
    shares = rng.dirichlet(np.full(cells, (calibrated_on + 1) / cells), replicates)
    ranks = np.concatenate([np.zeros((replicates, 1)), np.cumsum(shares, axis=1)], axis=1)
    return np.asarray(np.minimum(ranks, 1.0), dtype=np.float64)


def simultaneous_band(replicates: Array, probability: float) -> tuple[Array, Array]:
    """Lower and upper limits (K,) that a curve like the `replicates` (B, K) stays within, at all K places at once.

    Max-type: mean plus and minus c standard deviations, c the ceil((B + 1) probability)-th smallest of the replicates' largest
    standardised distances, so that a further draw leaves the band with probability at most 1 - `probability` (Dwass 1957) up to the
    noise in mean and standard deviation. B must exceed probability / (1 - probability).
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
