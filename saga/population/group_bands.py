"""Bands of statistics of groups, and the parts of their spread.

The forecast of a statistic is its distribution over paths: path k of all persons has one macro
future, so what the economy does to all does not average out, and what happens to single persons
does. With T_k the value of path k, and U_kg the influence of random group g of persons on it:

- paths: persons' own futures. The variance of U_kg over g has both what persons differ in and what
  happens to them on path k; the variance of its mean over paths has only the former. The difference
  is what persons' own futures do to one T_k; it falls with 1 / persons.
- economy: the variance of T_k over paths, without the part before. More persons and more paths
  leave it as it is.
- persons: the variance of the mean over paths of U_kg: other persons could have been sampled. It
  counts only if the persons stand for a population.
- model: the model's own error, known from vintages (`saga.model_error`).

The band of these persons lies between quantiles of T_k. That of persons with weights, or with the
model's error, is stretched around the value, so that it has the sum of the parts as its variance;
persons' own futures are those of as many persons as the weights say. The value is the mean over
paths, and of quantiles the median (`PathStatistic.point`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from saga.arrays import Floats
from saga.population.cell_statistics import PathStatistic
from saga.special import ndtri

_LIMITS = (0.05, 0.95)  # of the 90 % band
_ROUNDING = 1e-9  # a smaller relative spread is a rounding error


class GroupBand(NamedTuple):
    """A statistic of a group: value, 90 % band, parts of its spread; named as in tables.

    The parts are standard deviations. `sd_model`, that of the model's own error, is None without
    vintages. `mc_error` is the standard error of the value because paths are few.
    """

    value: float
    lower_90: float | None = None
    upper_90: float | None = None
    sd_persons: float | None = None
    sd_paths: float | None = None
    sd_economy: float | None = None
    sd_model: float | None = None
    mc_error: float | None = None


def band(
    statistic: PathStatistic, model: float | None = None, *, sampled: bool = False
) -> GroupBand:
    """The band of a statistic.

    Args:
        statistic: Values of paths and influences of persons; nothing but the value is known of a
            single path.
        model: Standard deviation of the model's own error; None: it is not known.
        sampled: Whether other persons could have been sampled.
    """
    value, n_paths = statistic.point, len(statistic.values)
    if n_paths == 1 or not np.isfinite(value):
        return GroupBand(value)
    draws, (persons, paths, economy) = _forecast(statistic, model, sampled)
    return GroupBand(
        value,
        *central_range(draws),
        float(np.sqrt(persons)),
        float(np.sqrt(paths)),
        float(np.sqrt(economy)),
        model,
        _error_of_few_paths(statistic),
    )


def central_range(values: Floats) -> tuple[float, float]:
    """The range that contains one more value with probability 90 %, if there are enough (n,)."""
    lower, upper = np.quantile(values, _LIMITS, method="weibull")
    return float(lower), float(upper)


def _error_of_few_paths(statistic: PathStatistic) -> float:
    """The standard error of the value: of a median, half the distance of ranks one error apart."""
    values, n_paths = statistic.values, len(statistic.values)
    if statistic.is_quantile:
        reach = 0.5 / np.sqrt(n_paths)  # the standard error of a share of one half
        lower, upper = np.quantile(values, (0.5 - reach, 0.5 + reach))
        return float(upper - lower) / 2
    return float(np.sqrt(values.var(ddof=1) / n_paths))


def error_of_persons(statistic: PathStatistic) -> float:
    """The standard error of a statistic's mean over paths, because persons are few."""
    return float(np.sqrt(_variance(statistic.influence.mean(1))))


def chance_below_zero(
    statistic: PathStatistic, model: float | None = None, *, sampled: bool = False
) -> float:
    """The probability that a statistic, such as a difference of two years, is below 0.

    Arguments as in `band`. NaN if a path has no value, and for a single path.
    """
    if len(statistic.values) == 1 or not np.isfinite(statistic.values).all():
        return float("nan")
    return float((_forecast(statistic, model, sampled)[0] < 0).mean())


def _forecast(
    statistic: PathStatistic, model: float | None, sampled: bool
) -> tuple[Floats, tuple[float, float, float]]:
    """Values (n_path,) that have the distribution of the forecast, and the variances of its parts.

    The parts are persons, paths and economy.
    """
    values, n_paths = statistic.values, len(statistic.values)
    differences = _variance(statistic.influence.mean(1))
    of_own_futures = (
        max(_variance(statistic.influence).mean() - differences, 0.0) * n_paths / (n_paths - 1)
    )
    between = float(values.var(ddof=1))
    economy = max(between - of_own_futures, 0.0)
    if not (sampled or model) and statistic.weight == 1:
        return values, (0.0, float(of_own_futures), economy)
    persons = max(differences - of_own_futures / n_paths, 0.0) if sampled else 0.0
    paths = of_own_futures / (max(statistic.weight, 1.0) if sampled else statistic.weight)
    rounding = _ROUNDING * max(np.abs(values).max(), abs(statistic.size))
    if between > rounding**2:
        shape = (values - statistic.point) / np.sqrt(between)
    else:  # without any spread over paths the band is that of a normal distribution
        shape = ndtri((np.arange(n_paths) + 0.5) / n_paths)
    spread = np.sqrt(persons + paths + economy + (model or 0.0) ** 2)
    draws = statistic.point + shape * (spread if spread > rounding else 0.0)
    return draws, (float(persons), float(paths), economy)


def _variance(influence: Floats) -> Floats:
    """Variance of a sum over independent groups, (n_group, ...), estimated from their sums."""
    n_groups = len(influence)
    squares = (influence - influence.mean(0)) ** 2
    return np.asarray(n_groups / (n_groups - 1) * squares.sum(0))
