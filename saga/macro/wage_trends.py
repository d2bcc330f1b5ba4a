"""Real wage growth whose mean drifts, with a prior from many countries.

Growth of country c in year t is

    g = f_t + d_ct + w_t + e_ct,

where f is a random walk common to all countries, d the country's own drift (a first-order
autoregression around zero), w a shock of the year common to all, and e the country's own shock of
the year, a Student t variable with 5 degrees of freedom. A process with a fixed mean is too sure of
levels 10 and 20 years ahead, because growth slowed in most countries at once and for long (Müller
and Watson 2016, Review of Economic Studies 83; pooling over countries: Raftery et al. 2012, PNAS
109).

Nobody knows the parameters, so paths have different ones: draws from a normal distribution around
the values of highest posterior density given the countries' growth, with the curvature there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.special import ndtri
from scipy.stats import t as student

from saga.keyed_random import uniforms

Floats = NDArray[np.float64]
DEGREES = 5
# Normal priors, in logs (the second in logits): sd of the steps of f, persistence and sd of d, sd
# of w, factor of the countries' spreads. That is a common drift of some tenths of a point a year,
# own drifts of a point that halve in a decade, and common shocks of half a point.
PRIOR_MEAN = np.array([np.log(0.002), 2.6, np.log(0.01), np.log(0.006), 0.0])
PRIOR_SD = np.array([0.9, 0.8, 0.5, 0.7, 0.15])
MOST_PERSISTENT = 0.99
# The mean growth before the first year of any series.
FIRST_MEAN, FIRST_SD = 0.02, 0.02
# A country's spread: shocks of recent years weigh more (half as much every 15 years), and the
# typical spread of all countries weighs as much as 8 years.
HALF_LIFE, POOLED_YEARS = 15.0, 8.0
N_DRAWS = 64


@dataclass(frozen=True)
class Parameters:
    """Standard deviations of the parts of yearly growth, persistence of d, factor of spreads."""

    common_step: float
    persistence: float
    own_drift: float
    year_shock: float
    spread_factor: float

    @classmethod
    def of(cls, values: Floats) -> Parameters:
        """From the unbounded values (5,), in the order of PRIOR_MEAN."""
        logs = np.exp(values)
        persistence = min(1 / (1 + np.exp(-values[1])), MOST_PERSISTENT)
        return cls(logs[0], float(persistence), logs[2], logs[3], logs[4])


@dataclass(frozen=True)
class TrendPosterior:
    """What the growth of countries tells about the parameters.

    `mode` (5,) and `root` (5, 5), a square root of the covariance, are on the scale of PRIOR_MEAN.
    """

    mode: Floats
    root: Floats

    @classmethod
    def fit(cls, growth: Floats) -> TrendPosterior:
        """From yearly growth of log wages (n_year, n_country), NaN where unknown."""
        spreads = country_spreads(growth)

        def loss(values: Floats) -> float:
            surprise = (values - PRIOR_MEAN) / PRIOR_SD
            filtered = filter_growth(growth, spreads, Parameters.of(values))
            return float(0.5 * surprise @ surprise - filtered.log_likelihood)

        options = {"gtol": 0.05, "eps": 1e-3, "maxiter": 30}
        mode = minimize(loss, PRIOR_MEAN, method="BFGS", options=options).x
        curvature, axes = np.linalg.eigh(_hessian(loss, mode))
        # The prior's own curvature is at least 1 / .9**2.
        return cls(mode, axes / np.sqrt(np.maximum(curvature, 1.0)))

    def draws(self, seed: int, n_draws: int = N_DRAWS) -> list[Parameters]:
        """Draws of the parameters; the first n do not depend on their number."""
        numbers = [ndtri(uniforms(len(self.mode), "trend", seed, k)) for k in range(n_draws)]
        return [Parameters.of(self.mode + self.root @ number) for number in numbers]


@dataclass(frozen=True)
class Filtered:
    """Means (1 + n_country,) and covariance of f and all d after the last year."""

    mean: Floats
    covariance: Floats
    log_likelihood: float


def country_spreads(growth: Floats) -> Floats:
    """Standard deviation (n_country,) of the shocks of a year, from deviations from local means.

    A local mean is that of 11 years; `growth` (n_year, n_country) has NaN where unknown.
    """
    n_years = len(growth)
    squares = np.full(growth.shape, np.nan)
    for year in range(n_years):
        near = growth[max(0, year - 5) : year + 6]
        enough = np.sum(~np.isnan(near), axis=0) >= 4
        local = np.nansum(near, axis=0) / np.maximum(np.sum(~np.isnan(near), axis=0), 1)
        squares[year] = np.where(enough, (growth[year] - local) ** 2 * 11 / 10, np.nan)
    known = ~np.isnan(squares)
    weights = 0.5 ** ((n_years - 1 - np.arange(n_years)) / HALF_LIFE)[:, None] * known
    total = weights.sum(axis=0)
    weighted = np.where(known, squares, 0.0) * weights
    variance = weighted.sum(axis=0) / np.maximum(total, 1e-9)
    typical = np.exp(np.median(np.log(variance[total > 0])))
    spreads: Floats = np.sqrt((total * variance + POOLED_YEARS * typical) / (total + POOLED_YEARS))
    return spreads


def filter_growth(growth: Floats, spreads: Floats, parameters: Parameters) -> Filtered:
    """Kalman filter of f and all d over the years.

    Args:
        growth: Yearly growth (n_year, n_country), NaN where unknown.
        spreads: As `country_spreads`.
        parameters: Parameters of the process.

    The variance of an observation z standard deviations away is multiplied by (5 + z**2) / 6 if
    z > 1, as in one step of a reweighted fit of a Student t variable.
    """
    n_countries = growth.shape[1]
    drift_variance = parameters.own_drift**2
    mean = np.r_[FIRST_MEAN, np.zeros(n_countries)]
    covariance = np.diag(np.r_[FIRST_SD**2, np.full(n_countries, drift_variance)])
    persistence = np.r_[1.0, np.full(n_countries, parameters.persistence)]
    steps = np.r_[
        parameters.common_step**2,
        np.full(n_countries, drift_variance * (1 - parameters.persistence**2)),
    ]
    noise = (parameters.spread_factor * spreads) ** 2
    log_likelihood = 0.0
    for year in growth:
        mean = persistence * mean
        covariance = persistence[:, None] * covariance * persistence + np.diag(steps)
        known = np.flatnonzero(~np.isnan(year))
        if not len(known):
            continue
        loading = covariance[0] + covariance[known + 1]
        expected = loading[:, :1] + loading[:, known + 1] + parameters.year_shock**2
        error = year[known] - mean[0] - mean[known + 1]
        z2 = error**2 / (np.diag(expected) + noise[known])
        robust = noise[known] * np.maximum((DEGREES + z2) / (DEGREES + 1), 1.0)
        lower = np.linalg.cholesky(expected + np.diag(robust))
        scaled = solve_triangular(lower, error, lower=True)
        gain = solve_triangular(lower, loading, lower=True)
        mean = mean + gain.T @ scaled
        covariance = covariance - gain.T @ gain
        log_likelihood -= 0.5 * (scaled @ scaled + len(known) * np.log(2 * np.pi))
        log_likelihood -= float(np.log(np.diag(lower)).sum())
    return Filtered(mean, covariance, float(log_likelihood))


@dataclass(frozen=True)
class WageTrend:
    """The growth of one country after the last year of the series.

    Arrays have one entry for each draw of the parameters. `mean` (n_draw, 2) and `root`
    (n_draw, 2, 2) are those of (f, d) in the last year; `spread` is the scale of e.
    """

    parameters: list[Parameters]
    mean: Floats
    root: Floats
    spread: Floats

    @classmethod
    def of_countries(
        cls,
        growth: Floats,
        posterior: TrendPosterior,
        countries: Sequence[int],
        *,
        seed: int = 0,
        n_draws: int = N_DRAWS,
    ) -> list[WageTrend]:
        """The trends of these columns of `growth` (n_year, n_country), given all columns.

        `n_draws` draws of the parameters, keyed by `seed`, are shared by all columns.
        """
        spreads = country_spreads(growth)
        draws = posterior.draws(seed, n_draws)
        filtered = [filter_growth(growth, spreads, parameters) for parameters in draws]
        factors = np.array([draw.spread_factor for draw in draws])
        trends = []
        for country in countries:
            chosen = [0, country + 1]
            covariances = np.array([each.covariance[np.ix_(chosen, chosen)] for each in filtered])
            means = np.array([each.mean[chosen] for each in filtered])
            root = np.asarray(np.linalg.cholesky(covariances + 1e-12 * np.eye(2)), np.float64)
            trends.append(cls(draws, means, root, factors * spreads[country]))
        return trends

    def draw(self, seed: int, n_paths: int, n_years: int) -> Floats:
        """Yearly growth (n_paths, n_years) after the last year.

        Path k has the k-th draw of the parameters, beginning anew after the last one, and random
        numbers that depend on (seed, year, k) alone.
        """
        which = np.arange(n_paths) % len(self.parameters)
        values = np.array(
            [
                (each.common_step, each.persistence, each.own_drift, each.year_shock)
                for each in self.parameters
            ]
        )[which]
        common_step, persistence, own_drift, year_shock = values.T
        start = ndtri(uniforms(2 * n_paths, "trend start", seed)).reshape(n_paths, 2)
        common, drift = (self.mean[which] + np.einsum("kij,kj->ki", self.root[which], start)).T
        growth = np.empty((n_paths, n_years))
        for year in range(n_years):
            numbers = uniforms(4 * n_paths, "trend", seed, year).reshape(n_paths, 4)
            normal = ndtri(numbers[:, :3]).T
            common = common + common_step * normal[0]
            drift = persistence * drift + own_drift * np.sqrt(1 - persistence**2) * normal[1]
            shock = self.spread[which] * student.ppf(numbers[:, 3], DEGREES)
            growth[:, year] = common + drift + year_shock * normal[2] + shock
        return growth


def _hessian(loss: Callable[[Floats], float], at: Floats, step: float = 0.1) -> Floats:
    """Second derivatives of a function of (n,) by central differences."""
    moves = np.eye(len(at)) * step
    second = np.empty((len(at), len(at)))
    for i, a in enumerate(moves):
        for j, b in enumerate(moves[: i + 1]):
            corners = loss(at + a + b) - loss(at + a - b) - loss(at - a + b) + loss(at - a - b)
            second[i, j] = second[j, i] = corners / (4 * step * step)
    return second
