"""Statistics of a cell of persons over simulated paths, and what each person contributes to them.

Path k of all persons has the same macro future, so each path gives one value of a statistic. Beside
it stands the influence of persons on it, summed over random groups of persons: the statistic moves
by this much if they count a little more (linearisation; Deville 1999, Survey Methodology 25:193).
The variance of these sums is the variance of the statistic over samples of persons, and sums of
two statistics are combined like the statistics themselves (`difference`, `ratio`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.keyed_random import uniform_each

RANDOM_GROUPS = 100  # of persons; a variance of influences has 99 degrees of freedom
QUANTILES = {"p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9}
SUMS = ("persons", "total")  # 0 if nobody is in the cell; all other statistics are unknown then
POVERTY_LINE = 0.6  # of the median of all persons of the year, as in Eurostat's at-risk-of-poverty
_NEAR_LINE = 0.1  # the density at the poverty line is that of earnings as near as this share of it


@dataclass(frozen=True)
class PathStatistic:
    """A statistic of persons on each path, and the influence of random groups of persons on it.

    Attributes:
        values: (n_path,).
        influence: (n_random_group, n_path); the sum over groups is 0.
        weight: How many persons one of those behind it stands for, on average. Of two statistics
            together it is the mean, as if their persons were as many.
        is_quantile: Whether it is a quantile of earnings, or is made from quantiles.
        parts: The points of two statistics, of which this is the difference.
    """

    values: Floats
    influence: Floats
    weight: float = 1.0
    is_quantile: bool = False
    parts: tuple[float, float] | None = None

    @cached_property
    def point(self) -> float:
        """The forecast as one number: the mean over paths, and the median of quantiles.

        Means add up over groups. Quantiles do not anyway, and those of small groups are so skewed
        over paths that the mean can lie outside the 90 % band; the median cannot.
        """
        return float(np.median(self.values) if self.is_quantile else self.values.mean())

    @property
    def size(self) -> float:
        """What relative errors are relative to: the point, or of a difference the mean of both."""
        return self.point if self.parts is None else (self.parts[0] + self.parts[1]) / 2

    def difference(self, other: PathStatistic | float) -> PathStatistic:
        """This statistic minus another one, or minus a constant, on each path."""
        if isinstance(other, PathStatistic):
            return replace(
                self,
                values=self.values - other.values,
                influence=self.influence - other.influence,
                weight=(self.weight + other.weight) / 2,
                parts=(self.point, other.point),
            )
        return replace(self, values=self.values - other)

    def ratio(self, other: PathStatistic) -> PathStatistic:
        """This statistic over another one on each path; NaN where the other one is 0."""
        with np.errstate(invalid="ignore", divide="ignore"):
            below = np.where(other.values == 0, np.nan, other.values)
            ratio, weight = self.values / below, (self.weight + other.weight) / 2
            influence = (self.influence - ratio * other.influence) / below
            return replace(self, values=ratio, influence=influence, weight=weight)

    def log(self) -> PathStatistic:
        """The logarithm of a positive statistic; -inf on a path on which it is 0."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return replace(self, values=np.log(self.values), influence=self.influence / self.values)


@dataclass(frozen=True)
class PersonPaths:
    """Persons of a cell: earnings (n_person, n_path), NaN on paths on which one is not in it.

    `weights` and `random_groups` (the number of each one's group) have the shape (n_person,).
    """

    earnings: Floats
    weights: Floats
    random_groups: NDArray[np.int_]

    @cached_property
    def _order(self) -> NDArray[np.int_]:
        return np.argsort(self.earnings, axis=0)  # NaN last

    @cached_property
    def _earnings(self) -> Floats:
        """Sorted within each path; 0 for who is absent."""
        return np.nan_to_num(np.take_along_axis(self.earnings, self._order, axis=0))

    @cached_property
    def _weights(self) -> Floats:
        present = np.take_along_axis(np.isfinite(self.earnings), self._order, axis=0)
        return np.asarray(self.weights[self._order] * present)

    @cached_property
    def _cumulated(self) -> Floats:
        return np.cumsum(self._weights, axis=0)

    @cached_property
    def _group_and_path(self) -> NDArray[np.int_]:
        n_paths = self.earnings.shape[1]
        return np.asarray(self.random_groups[self._order] * n_paths + np.arange(n_paths)).ravel()

    def _by_group(self, values: Floats) -> Floats:
        """Sums over random groups on each path, (n_random_group, n_path), of sorted persons."""
        n_paths = self.earnings.shape[1]
        size = RANDOM_GROUPS * n_paths
        sums = np.bincount(self._group_and_path, values.ravel(), size)
        return np.asarray(sums.reshape(RANDOM_GROUPS, n_paths))

    @cached_property
    def _persons_by_group(self) -> Floats:
        return self._by_group(self._weights)

    def _share(self, flags: NDArray[np.bool_]) -> PathStatistic:
        """The share of persons for whom a flag is set."""
        sums, persons = self._by_group(self._weights * flags), self._cumulated[-1]
        share = sums.sum(0) / persons
        return PathStatistic(share, (sums - share * self._persons_by_group) / persons)

    def _least(self, level: float) -> Floats:
        """The least earnings of each path at or below which at least `level` of the weight lies."""
        reached = self._cumulated >= level * self._cumulated[-1] * (1 - 1e-12)
        return np.asarray(self._earnings[reached.argmax(0), np.arange(reached.shape[1])])

    def quantile(self, level: float) -> PathStatistic:
        """A quantile; its density is that within two standard errors (Woodruff 1952, JASA)."""
        error = (level * (1 - level) / len(self.earnings)) ** 0.5
        near = min(2 * error, min(level, 1 - level) / 2)
        spread = (self._least(level + near) - self._least(level - near)) / (2 * near)
        value = self._least(level)
        influence = -spread * self._share(self._earnings <= value).influence
        return PathStatistic(value, influence, is_quantile=True)

    def statistics(
        self, median: PathStatistic | None, everybody: NDArray[np.int_]
    ) -> dict[str, PathStatistic]:
        """GROUP_STATISTICS of `saga.group_statistics`; NaN on a path without persons.

        Args:
            median: That of all persons of the year, for the poverty line; None: numbers, sums and
                means alone.
            everybody: The random groups of all persons of the year, (n_all,). Numbers and sums are
                also moved by the persons who are not in the cell.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            weights, earnings = self._weights, self._earnings
            persons, amounts = self._cumulated[-1], weights * earnings
            by_group, amounts_by_group = self._persons_by_group, self._by_group(amounts)
            total = amounts.sum(0)
            share = np.bincount(everybody, minlength=RANDOM_GROUPS)[:, None] / len(everybody)
            mean = total / persons
            of_mean = (amounts_by_group - mean * by_group) / persons
            statistics = {
                # In one order of persons, so that the same persons are as many on each path.
                "persons": PathStatistic(
                    (self.weights[:, None] * np.isfinite(self.earnings)).sum(0),
                    by_group - persons * share,
                ),
                "total": PathStatistic(total, amounts_by_group - total * share),
                "mean": PathStatistic(mean, of_mean),
            }
            if median is not None:
                rank = (self._cumulated - weights / 2) / persons
                above = (total - np.cumsum(amounts, axis=0) + amounts / 2) / persons
                ranked = (amounts * rank).sum(0) / persons  # mean of earnings x rank
                gini = np.where(total > 0, 2 * ranked / mean - 1, 0.0)
                of_rank = self._by_group(weights * (earnings * rank + above))
                moved = of_rank - 2 * ranked * by_group
                of_gini = 2 * moved / total - (gini + 1) * of_mean / mean
                line = POVERTY_LINE * median.values
                low, high = ((1 + side * _NEAR_LINE) * line for side in (-1, 1))
                poor = self._share(earnings < line)
                near_line = self._share((earnings >= low) & (earnings < high)).values
                density = np.where(line > 0, near_line / (high - low), 0.0)
                of_poor = poor.influence + density * POVERTY_LINE * median.influence
                statistics |= {name: self.quantile(level) for name, level in QUANTILES.items()}
                statistics["gini"] = PathStatistic(gini, np.where(total > 0, of_gini, 0.0))
                statistics["zero_share"] = self._share(earnings == 0)
                statistics["poverty_share"] = PathStatistic(poor.values, of_poor)
        empty, weight = persons == 0, float((weights**2).sum() / weights.sum())
        return {
            name: replace(
                statistic,
                values=np.where(empty & (name not in SUMS), np.nan, statistic.values),
                influence=np.where(empty & (name not in SUMS), np.nan, statistic.influence),
                weight=weight,
            )
            for name, statistic in statistics.items()
        }


def earnings_classes(earnings: Floats, weights: Floats) -> NDArray[np.int_]:
    """Class of each person on each path: 0 no earnings, 1 to 5 fifths of the positive, -1 absent.

    Fifths are of the weighted persons with earnings on the same path.
    """
    classes = np.full(earnings.shape, -1)
    classes[earnings == 0] = 0
    positive = np.where(earnings > 0, earnings, np.nan)
    order = np.argsort(positive, axis=0)  # NaN last
    persons = (weights[:, None] * np.isfinite(positive)).sum(0)
    poorer = np.cumsum(weights[order], axis=0) - weights[order]
    number = 1 + np.minimum(poorer * 5 // np.where(persons > 0, persons, 1), 4)
    fifth = np.empty(earnings.shape, dtype=np.int_)
    np.put_along_axis(fifth, order, number.astype(np.int_), axis=0)
    return np.where(np.isfinite(positive), fifth, classes)


def random_groups(person_ids: Sequence[str]) -> NDArray[np.int_]:
    """The random group of each person, from the person's id alone."""
    return (uniform_each(person_ids, "random group") * RANDOM_GROUPS).astype(np.int_)
