"""How ratios of groups move, estimated on the pay of women and men in 20 countries.

With y the log ratio of two groups and d its trend,

    d_t = persistence * d_(t-1) + trend_step * u_t
    y_t = (1 - pull) * y_(t-1) + d_t + level_step * v_t

and y is observed with an error. In the countries a gap that had narrowed for twenty years narrowed
further, at about a third of its pace and some tenths of a per cent a year.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

import numpy as np
import polars as pl

from saga.arrays import Floats
from saga.macro.group_trends import TrendParameters
from saga.macro.wage_trends import laplace

# Prior of the parameters, on the scale of `TrendParameters.of`: half of a trend is left after one
# to nine years, steps of .3 and 1 % a year, a pull of 1 % a year, errors of 1 %.
PRIOR_MEAN = np.array([1.0, np.log(0.003), np.log(0.01), np.log(0.01), np.log(0.01)])
PRIOR_SD = np.array([1.0, 0.8, 0.8, 0.8, 0.8])
# Variances of y and d before the first known year: d has a standard deviation of 1 %.
UNKNOWN = np.diag([1e4, 0.01**2])


def filter_ratios(
    observed: Floats, error: Floats, p: TrendParameters, pull: Floats
) -> tuple[Floats, Floats, float]:
    """Kalman filter of K series (n_year, K), NaN where unknown.

    Args:
        observed: Log ratios, or effects of groups.
        error: Standard deviations (n_year, K) of their errors.
        p: The parameters; steps may be those of each series (K,).
        pull: Pull of each series (K,).

    Returns:
        Means (n_year, K, 2) and covariances (n_year, K, 2, 2) of y and d at the end of each year,
        and the log likelihood of all series after their first known years.
    """
    k = observed.shape[1]
    move, step = np.zeros((k, 2, 2)), np.ones((k, 2, 2)) * np.reshape(p.trend_step**2, (-1, 1, 1))
    move[:, 0, 0], move[:, :, 1] = 1 - pull, p.persistence
    step[:, 0, 0] += p.level_step**2
    mean, covariance, log_likelihood = np.zeros((k, 2)), UNKNOWN * np.ones((k, 1, 1)), 0.0
    states = []
    for values, errors in zip(observed, error, strict=True):
        mean = np.einsum("kij,kj->ki", move, mean)
        covariance = move @ covariance @ move.transpose(0, 2, 1) + step
        begins, known = covariance[:, 0, 0] > 1, ~np.isnan(values)
        covariance[begins] = UNKNOWN
        variance = covariance[:, 0, 0] + np.where(known, errors, 1.0) ** 2
        surprise = np.where(known, values - mean[:, 0], 0.0)
        log_density = -0.5 * (surprise**2 / variance + np.log(variance))
        log_likelihood += float(log_density[known & ~begins].sum())
        gain = covariance[:, :, 0] / variance[:, None] * known[:, None]
        mean = mean + gain * surprise[:, None]
        covariance = covariance - gain[:, :, None] * covariance[:, None, 0]
        states.append((mean, covariance))
    means, covariances = (np.array(part) for part in zip(*states, strict=True))
    return means, covariances, log_likelihood


@cache
def prior_of_countries(
    last_year: int, without: frozenset[str] = frozenset()
) -> tuple[Floats, Floats]:
    """Mode (5,) and root (5, 5) of the parameters given the countries up to `last_year`.

    `without` are the codes of countries that are left out, for a judge who uses them.
    """
    table = resources.files("saga.data").joinpath("tables", "gender_pay_gap_of_countries.csv")
    with table.open("rb") as file:
        rows = pl.read_csv(file, comment_prefix="#").filter(
            pl.col("year") <= last_year, ~pl.col("country").is_in(sorted(without))
        )
    years = pl.DataFrame({"year": range(1970, last_year + 1)}, schema={"year": pl.Int64})
    wide = years.join(rows.pivot("country", index="year"), on="year", how="left").sort("year")
    ratios = np.log(1 - wide.drop("year").to_numpy().astype(np.float64) / 100)

    def loss(values: Floats) -> float:
        p, ones = TrendParameters.of(values), np.ones(ratios.shape)
        *_, log_likelihood = filter_ratios(ratios, p.noise * ones, p, p.pull * ones[0])
        surprise = (values - PRIOR_MEAN) / PRIOR_SD
        return float(0.5 * surprise @ surprise - log_likelihood)

    return laplace(loss, PRIOR_MEAN)
