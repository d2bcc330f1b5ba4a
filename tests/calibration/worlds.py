"""Synthetic worlds for calibration.

An atom of 5-45 %, lognormal positive earnings, and forecasts that are exact, or wrong about both.
"""

from dataclasses import replace

import numpy as np
from saga.calibration.fit.person_scores import pooled_quantile, rank_needed
from scipy import stats

from saga.arrays import Floats, Reals
from saga.distributions import Marginals
from saga.paths import Paths
from saga.small_groups import MIN_PERSONS

_Z = np.linspace(-5.0, 5.0, 201)
# In log earnings: of a realised economy, and of simulated economies around their mean.
SURPRISE, SPREAD = 0.25, 0.2
P = 1e-6  # probability that a test fails by chance


def lognormal_marginals(
    zero: Reals,
    centre: Reals,
    sd: Reals,
    names: str = "p",
) -> Marginals:
    """Raw marginals of an atom `zero` and lognormal positive earnings, arrays (n, H)."""
    n = len(zero)
    cdf = zero[..., None] + (1 - zero[..., None]) * stats.norm.cdf(_Z)
    cdf[..., 0], cdf[..., -1] = zero, 1.0
    grid = centre[..., None] + sd[..., None] * _Z
    ids = np.array([f"{names}-{i}" for i in range(n)])
    origin_year = 2000 + np.arange(n) % 2  # outcomes of one origin year promise nothing
    return Marginals(ids, np.full(n, 1970), origin_year, grid, cdf, zero)


def draw_world(
    n: int, seed: int, *, horizons: int = 2, wrong: bool = True
) -> tuple[Marginals, Floats]:
    """Raw marginals and outcomes (n, H) of exchangeable persons.

    `wrong`: the forecasts have too few zeros and are too low and too narrow.
    """
    rng = np.random.default_rng(seed)
    zero, centre, sd = (
        np.tile(values, (1, horizons))
        for values in (
            rng.uniform(0.05, 0.45, (n, 1)),
            rng.normal(12.3, 0.4, (n, 1)),
            rng.uniform(0.3, 0.7, (n, 1)),
        )
    )
    positive = np.exp(centre + sd * rng.normal(size=(n, horizons)))
    outcomes = np.where(rng.random((n, horizons)) < zero, 0.0, positive)
    shift, squeeze, share = (-0.2, 0.8, 0.7) if wrong else (0.0, 1.0, 1.0)
    return lognormal_marginals(share * zero, centre + shift, squeeze * sd, str(seed)), outcomes


def draw_paths(marginals: Marginals, count: int = 60, seed: int = 0) -> Paths:
    """Raw paths (n, H, `count`) from raw marginals, independent from year to year."""
    uniform = np.random.default_rng(seed).random((*marginals.p_zero.shape, count))
    return Paths(
        marginals.person_id,
        marginals.birth_year,
        marginals.origin_year,
        marginals.quantiles(uniform).astype(np.float32),
        groups=marginals.groups,
    )


def without_year(marginals: Marginals, row: int, horizon: int) -> Marginals:
    """The marginals of a person who is beyond age 64 at one horizon."""
    cdf, p_zero = marginals.cdf.copy(), marginals.p_zero.copy()
    cdf[row, horizon - 1], p_zero[row, horizon - 1] = np.nan, np.nan
    return replace(marginals, cdf=cdf, p_zero=p_zero)


def draw_economy(n: int, seed: int) -> tuple[Marginals, Marginals, Floats]:
    """Persons in an economy that did better than expected, and a model without fault.

    Returns marginals over simulated economies, marginals of the same persons conditioned on the
    realised economy, and the outcomes.
    """
    rng = np.random.default_rng(seed)
    centre = rng.normal(12.3, 0.4, (n, 1))
    outcomes = np.exp(centre + SURPRISE + 0.3 * rng.normal(size=(n, 1)))
    never, one = np.zeros((n, 1)), np.ones((n, 1))
    free = lognormal_marginals(never, centre, (0.3**2 + SPREAD**2) ** 0.5 * one, str(seed))
    return free, lognormal_marginals(never, centre + SURPRISE, 0.3 * one, str(seed)), outcomes


def is_plausible(
    hits: int, trials: int, n: int, coverage: float, tail: float, *, slack: int = MIN_PERSONS - 1
) -> bool:
    """Whether `hits` fits a threshold between the k-th and the (k + `slack`)-th of n scores.

    Numbers of hits are implausible if so few, or so many, have a probability below `tail`.
    """
    k = rank_needed(n, coverage)
    low, high = (stats.betabinom(trials, r, n + 1 - r) for r in (k, min(k + slack, n)))
    return bool(low.ppf(tail) <= hits <= high.isf(tail))


def split_quantile(scores: Floats, coverage: float, neighbours: int = 1) -> float:
    """The threshold of split conformal prediction from scores (n,), one of each person."""
    return pooled_quantile(scores, np.arange(len(scores)), coverage, 1, neighbours=neighbours)
