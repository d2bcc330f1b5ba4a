"""Statistics of a cell of persons in a year, over simulated paths, with three kinds of error.

Path k of all persons has the same macro future, so each path gives one statistic of the population.
The estimate is the mean over paths. Persons are divided into random groups, and each statistic is
also computed without one group (delete-a-group jackknife; Kott 2001, Journal of Official Statistics
17:521). What moves single paths more than their mean is noise of persons' own shocks; what moves
paths beyond this noise is the macro future:

- sampling: other persons could have been sampled, or born;
- paths: there are few simulated paths;
- macro: standard deviation over macro futures, which more persons and paths do not reduce.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from saga.keyed_random import uniform_each

Floats = NDArray[np.float64]

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
STATISTICS = (
    "persons",
    "total",
    "mean",
    *(f"p{round(100 * level)}" for level in QUANTILES),
    "gini",
    "zero_share",
    "poverty_share",
)
POVERTY_LINE = 0.6  # of the median of all persons of the year, as in Eurostat's at-risk-of-poverty


class Estimates(NamedTuple):
    """Estimates and errors, each with one value for a statistic; named as in the tables."""

    value: Floats
    error_sampling: Floats
    error_paths: Floats
    spread_macro: Floats


def sort_by_path(earnings: Floats, weights: Floats, groups: NDArray[np.int_]) -> SortedCell:
    """Sort the persons of a cell within each path.

    Args:
        earnings: (n_person, n_path); NaN for a person who is not in the cell on a path.
        weights: (n_person,).
        groups: (n_person,), the random group of each person.
    """
    order = np.argsort(earnings, axis=0)  # NaN last
    ordered = np.take_along_axis(earnings, order, axis=0)
    present = np.isfinite(ordered)
    return SortedCell(np.where(present, ordered, 0.0), weights[order] * present, groups[order])


@dataclass(frozen=True)
class SortedCell:
    """Persons of a cell, sorted by earnings within each path; each array (n_person, n_path)."""

    earnings: Floats
    weights: Floats
    groups: NDArray[np.int_]

    def replicate_weights(self, n_groups: int) -> list[Floats]:
        """The weights of all persons, then those without each random group."""
        without = (np.asarray(self.weights * (self.groups != group)) for group in range(n_groups))
        return [self.weights, *without]


def replicate(cell: SortedCell, n_groups: int, lines: Floats) -> Floats:
    """Statistics of all persons and without each group: (1 + n_groups, n_path, n_statistic).

    `lines` are the poverty lines, (1 + n_groups, n_path).
    """
    rise = [1.0, *[n_groups / (n_groups - 1)] * n_groups]
    values = [
        _statistics(cell.earnings, weight, line)
        for weight, line in zip(cell.replicate_weights(n_groups), lines, strict=True)
    ]
    for factor, value in zip(rise, values, strict=True):
        value[:, :2] *= factor  # numbers of persons and totals
    return np.stack(values)


def poverty_lines(cell: SortedCell, n_groups: int) -> Floats:
    """The poverty line of each path, of all persons and without each group."""
    return np.stack(
        [
            POVERTY_LINE * _quantile(cell.earnings, np.cumsum(weights, 0), 0.5)
            for weights in cell.replicate_weights(n_groups)
        ]
    )


def estimate(replicates: Floats) -> Estimates:
    """Estimates and errors from the statistics of `replicate`."""
    whole, parts = replicates[0], replicates[1:]
    n_paths = parts.shape[1]
    of_mean = _jackknife_variance(parts.mean(1))
    if n_paths == 1:
        zero = np.zeros(whole.shape[1])
        return Estimates(whole[0], np.sqrt(of_mean), zero * np.nan, zero * np.nan)
    of_one = np.stack([_jackknife_variance(parts[:, k]) for k in range(n_paths)]).mean(0)
    # of_one = sampling + own shocks, of_mean = sampling + own shocks / n_paths
    shocks = np.maximum(of_one - of_mean, 0) * n_paths / (n_paths - 1)
    between = whole.var(0, ddof=1)
    macro = np.maximum(between - shocks, 0)
    sampling = np.maximum(of_mean - shocks / n_paths, 0)
    return Estimates(whole.mean(0), np.sqrt(sampling), np.sqrt(between / n_paths), np.sqrt(macro))


def _jackknife_variance(values: Floats) -> Floats:
    """Variance of a statistic from its values without each group, (n_groups, ...)."""
    n_groups = len(values)
    squares = (values - values.mean(0)) ** 2
    return np.asarray((n_groups - 1) / n_groups * squares.sum(0))


def _statistics(earnings: Floats, weights: Floats, line: Floats) -> Floats:
    """STATISTICS of each path, (n_path, n_statistic); NaN for a path without persons."""
    cumulated = np.cumsum(weights, axis=0)
    persons = cumulated[-1]
    amounts = weights * earnings
    total = amounts.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        rank = (amounts * (cumulated - weights / 2)).sum(0)
        columns = [
            persons,
            total,
            total / persons,
            *(_quantile(earnings, cumulated, level) for level in QUANTILES),
            np.where(total > 0, 2 * rank / (persons * total) - 1, 0.0),
            (weights * (earnings == 0)).sum(0) / persons,
            (weights * (earnings < line)).sum(0) / persons,
        ]
    columns[2:] = [np.where(persons > 0, column, np.nan) for column in columns[2:]]
    return np.stack(columns, axis=1)


def _quantile(earnings: Floats, cumulated: Floats, level: float) -> Floats:
    """The least earnings of each path below or at which at least `level` of the weight lies."""
    reached = cumulated >= level * cumulated[-1] * (1 - 1e-12)
    return np.asarray(earnings[reached.argmax(0), np.arange(earnings.shape[1])])


def earnings_classes(earnings: Floats) -> NDArray[np.int_]:
    """Class of each person on each path: 0 no earnings, 1 to 5 fifths of the positive, -1 absent.

    Fifths are of the persons with earnings on the same path.
    """
    classes = np.full(earnings.shape, -1)
    classes[earnings == 0] = 0
    positive = np.where(earnings > 0, earnings, np.nan)
    rank = np.argsort(np.argsort(positive, axis=0), axis=0)  # NaN last
    count = np.isfinite(positive).sum(0)
    fifth = 1 + rank * 5 // np.maximum(count, 1)
    return np.where(np.isfinite(positive), fifth, classes)


def random_groups(person_ids: Sequence[str], n_groups: int) -> NDArray[np.int_]:
    """The random group of each person, from the person's id alone."""
    return (uniform_each(person_ids, "jackknife") * n_groups).astype(np.int_)
