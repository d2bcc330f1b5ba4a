"""Estimates the moving mean of a macro process, with the wages of many countries as a prior.

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
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import IO

import numpy as np
import polars as pl

from saga.arrays import Floats
from saga.data.macro_rows import SERIES
from saga.errors import UsageError
from saga.keyed_random import uniforms
from saga.macro.history import MacroHistory
from saga.macro.moving_mean import GrowthTrend, MovingMean, Parameters, UnemploymentLevel
from saga.macro.process import MacroProcess
from saga.special import ndtri

DEGREES = 5
# Normal priors, in logs (the second in logits): sd of the steps of f, persistence and sd of d, sd
# of w, factor of the countries' spreads. That is a common drift of some tenths of a point a year,
# own drifts of a point that halve in a decade, and common shocks of half a point.
PRIOR_MEAN = np.array([np.log(0.002), 2.6, np.log(0.01), np.log(0.006), 0.0])
PRIOR_SD = np.array([0.9, 0.8, 0.5, 0.7, 0.15])
# The mean growth before the first year of any series.
FIRST_MEAN, FIRST_SD = 0.02, 0.02
# A country's spread: shocks of recent years weigh more (half as much every 15 years), and the
# typical spread of all countries weighs as much as 8 years.
HALF_LIFE, POOLED_YEARS = 15.0, 8.0
# Parameters for which the filter is run: what they say about the last year is averaged.
N_DRAWS = 32
# A country needs so many years of growth.
MIN_YEARS = 10
# Prior of the level of log unemployment: a mean of 6 % that may as well be 3.5 or 10 %, and steps
# of 4 % of the level a year, 2 to 8 % at the ends of a 90 % interval. Means of decades have moved
# by a fifth in the United States since the 1960s, a part of it by the cycle, and by two fifths and
# more in Europe, where they trebled in two decades (Blanchard and Wolfers 2000, Economic Journal
# 110; Ball 2009, NBER working paper 14818).
LEVEL_MEAN, LEVEL_SD = float(np.log(0.06)), 0.35
LEVEL_STEP, LEVEL_STEP_SD = 0.04, 0.45


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
        if not growth.size:
            return cls(PRIOR_MEAN, np.diag(PRIOR_SD))
        spreads = country_spreads(growth)

        def loss(values: Floats) -> float:
            surprise = (values - PRIOR_MEAN) / PRIOR_SD
            *_, log_likelihood = filter_growth(growth, spreads, Parameters.of(values))
            return float(0.5 * surprise @ surprise - log_likelihood)

        return cls(*laplace(loss, PRIOR_MEAN))

    def draws(self, n_draws: int) -> list[Parameters]:
        """Draws of the parameters; the first n do not depend on their number."""
        numbers = [ndtri(uniforms(len(self.mode), "trend", k)) for k in range(n_draws)]
        return [Parameters.of(self.mode + self.root @ number) for number in numbers]


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


def filter_growth(
    growth: Floats, spreads: Floats, parameters: Parameters
) -> tuple[Floats, Floats, float]:
    """Kalman filter of f and all d over the years.

    Args:
        growth: Yearly growth (n_year, n_country), NaN where unknown.
        spreads: As `country_spreads`.
        parameters: Parameters of the process.

    Returns:
        Means (n_year, 1 + n_country) and covariances of f and all d at the end of each year, and
        the log likelihood.

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
    means = np.empty((len(growth), len(mean)))
    covariances = np.empty((*means.shape, len(mean)))
    for i, year in enumerate(growth):
        mean = persistence * mean
        covariance = persistence[:, None] * covariance * persistence + np.diag(steps)
        known = np.flatnonzero(~np.isnan(year))
        loading = covariance[0] + covariance[known + 1]
        expected = loading[:, :1] + loading[:, known + 1] + parameters.year_shock**2
        error = year[known] - mean[0] - mean[known + 1]
        z2 = error**2 / (np.diag(expected) + noise[known])
        robust = noise[known] * np.maximum((DEGREES + z2) / (DEGREES + 1), 1.0)
        lower = np.linalg.cholesky(expected + np.diag(robust))
        inverse = np.linalg.inv(lower)
        scaled, gain = inverse @ error, inverse @ loading
        mean = mean + gain.T @ scaled
        covariance = covariance - gain.T @ gain
        log_likelihood -= 0.5 * (scaled @ scaled + len(known) * np.log(2 * np.pi))
        log_likelihood -= float(np.log(np.diag(lower)).sum())
        means[i], covariances[i] = mean, covariance
    return means, covariances, float(log_likelihood)


def growth_trends(
    growth: Floats, posterior: TrendPosterior, countries: Sequence[int], first_row: int = 0
) -> list[GrowthTrend]:
    """The trends of these columns of `growth` (n_year, n_country), given all columns.

    They know the years from `first_row` on. Of the filtered means and covariances for drawn
    parameters, they have the total mean and covariance.
    """
    spreads = country_spreads(growth)
    filtered = [
        filter_growth(growth, spreads, parameters) for parameters in posterior.draws(N_DRAWS)
    ]
    trends = []
    for country in countries:
        chosen = [0, country + 1]
        means = np.array([mean[first_row:, chosen] for mean, *_ in filtered])
        inner = np.array([inner[first_row:, chosen][..., chosen] for _, inner, _ in filtered])
        apart = means - means.mean(axis=0)
        covariance = inner.mean(axis=0) + np.einsum("kyi,kyj->yij", apart, apart) / len(apart)
        root = np.linalg.cholesky(covariance + 1e-12 * np.eye(2))
        trends.append(GrowthTrend(posterior.mode, posterior.root, means.mean(axis=0), root))
    return trends


def growth_of_countries(file: IO[bytes] | Path) -> tuple[Floats, list[str], list[int]]:
    """Yearly growth of log wages (n_year, n_country), with the countries and the years.

    The CSV file has the columns country, year and log_real_wage, and may begin with lines of
    comment (#). Unknown growth is NaN. Raises UsageError if no country has a year between the first
    and the last one.
    """
    table = (
        pl.read_csv(file, glob=False, comment_prefix="#")
        .select("country", "year", "log_real_wage")
        .sort("year", "country")
    )
    wide = table.pivot("country", index="year", values="log_real_wage").sort("year")
    years = wide["year"].to_list()
    missing = sorted({*range(years[0], years[-1] + 1)} - {*years})
    if missing:
        raise UsageError(f"Wages of countries: no row of the year {missing[0]}. Add it.")
    countries = sorted(set(wide.columns) - {"year"})
    levels = wide.select(countries).to_numpy().astype(np.float64)
    return np.diff(levels, axis=0), countries, years[1:]


def shipped_growth() -> tuple[Floats, list[str], list[int]]:
    """Yearly real wage growth (n_year, n_country) of all shipped countries, as a fraction.

    With the countries and the years, as `growth_of_countries`.
    """
    table = resources.files("saga.data").joinpath("tables", "real_wages_of_countries.csv")
    with table.open("rb") as file:
        growth, countries, years = growth_of_countries(file)
    return np.expm1(growth), countries, years


@dataclass(frozen=True)
class CountryWages:
    """Yearly real wage growth of countries, and what it tells about the parameters.

    `growth` (n_year, n_country), a fraction, begins in `first_year`; NaN where unknown.
    """

    growth: Floats
    first_year: int
    posterior: TrendPosterior

    @classmethod
    @cache
    def shipped(cls, last_year: int, without: tuple[str, ...] = ()) -> CountryWages:
        """The shipped countries up to `last_year`, without those of few years; takes seconds.

        A judge leaves out the countries `without`, which have fed the futures.
        """
        growth, countries, years = shipped_growth()
        growth = growth[: max(0, last_year + 1 - years[0])]
        usable = ~np.isin(countries, without) & (np.sum(~np.isnan(growth), axis=0) >= MIN_YEARS)
        return cls(growth[:, usable], years[0], TrendPosterior.fit(growth[:, usable]))

    def beside(self, country: Floats, first_year: int) -> Floats:
        """The growth (n_year, 1 + n_country) with `country` (n_year,) as the first column.

        Years are those from the first one known to the last one of `country`.
        """
        start = min(self.first_year, first_year)
        n_years = first_year + len(country) - start
        joined = np.full((n_years, 1 + self.growth.shape[1]), np.nan)
        joined[first_year - start :, 0] = country
        row = self.first_year - start
        joined[row : row + len(self.growth), 1:] = self.growth[: n_years - row]
        return joined


def with_moving_mean(
    process: MacroProcess, dynamics: MacroHistory, wages: CountryWages | None = None
) -> MacroProcess:
    """The process with a mean that moves, as it is known at the end of each year of `dynamics`.

    Its mean becomes that expected in the last year.

    Args:
        process: A process with a fixed mean.
        dynamics: The history to which it was fitted.
        wages: Wages of countries up to the last year of `dynamics`. None: the shipped ones.
    """
    wages = wages or CountryWages.shipped(dynamics.last_year)
    country = dynamics.values[:, SERIES.index("real_wage_growth")]
    growth = wages.beside(country, dynamics.first_year)
    (trend,) = growth_trends(growth, wages.posterior, [0], len(growth) - len(country))
    level = _unemployment_level(process, dynamics)
    mean = process.mean.copy()
    mean[:2] = level.state_mean[-1], trend.state_mean[-1].sum()
    return replace(process, mean=mean, moving=MovingMean(dynamics.first_year, level, trend))


def _unemployment_level(process: MacroProcess, dynamics: MacroHistory) -> UnemploymentLevel:
    """Kalman filter of the level, where deviations have their long-run variance every year."""
    effect = np.linalg.inv(np.eye(3) - process.transition) @ process.innovation
    noise = float(effect[0] @ effect[0])
    step = LEVEL_STEP**2 * np.exp(2 * LEVEL_STEP_SD**2)
    mean, variance = LEVEL_MEAN, LEVEL_SD**2
    states = []
    for value in np.log(dynamics.values[:, SERIES.index("unemployment")]):
        variance += step
        gain = variance / (variance + noise)
        mean, variance = mean + gain * (value - mean), variance * (1 - gain)
        states.append((mean, variance**0.5))
    means, sds = np.array(states).T
    return UnemploymentLevel(LEVEL_STEP, LEVEL_STEP_SD, means, sds)


def laplace(loss: Callable[[Floats], float], start: Floats) -> tuple[Floats, Floats]:
    """Mode (n,) and root (n, n) of the covariance of a posterior, from minus its log density.

    The prior's standard deviations are at most one, so the curvature is at least one.
    """
    from scipy.optimize import minimize  # takes long to import, and only fits need it

    options = {"gtol": 0.05, "eps": 1e-3, "maxiter": 30}
    mode = minimize(loss, start, method="BFGS", options=options).x
    curvature, axes = np.linalg.eigh(_hessian(loss, mode))
    return mode, axes / np.sqrt(np.maximum(curvature, 1.0))


def _hessian(loss: Callable[[Floats], float], at: Floats, step: float = 0.1) -> Floats:
    """Second derivatives of a function of (n,) by central differences."""
    moves = np.eye(len(at)) * step
    second = np.empty((len(at), len(at)))
    for i, a in enumerate(moves):
        for j, b in enumerate(moves[: i + 1]):
            corners = loss(at + a + b) - loss(at + a - b) - loss(at - a + b) + loss(at - a - b)
            second[i, j] = second[j, i] = corners / (4 * step * step)
    return second
