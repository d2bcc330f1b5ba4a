"""Units of earnings without currency, country and growth: relative to a panel's own level.

In these units weights that were trained on one panel are meaningful on another. A bundle without
them (`IDENTITY`) has logs of amounts relative to the wage index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.files.stored_values import Log, Shape, Spread, Year, Years
from saga.schema import MAX_AGE, MIN_AGE, N_AGES

Integers = NDArray[np.integer[Any]]
_MIN_RECORDS = 10  # an age with fewer records has the level of the nearest age with enough
# Standard deviations that the fit assumes, in units of the spread: of the change from one year of
# age to the next in the slope of the level, of its growth per year, of a year's deviation.
_CURVATURE, _GROWTH, _DEVIATION = 0.02, 0.1, 0.05
_CLIPPED = 2.0  # residuals beyond 2 spreads count as 2 spreads (Huber 1964)
_ITERATIONS = 10  # of the robust fit
_NORMAL_QUARTILES = 1.349  # distance between the quartiles of a standard normal variable
STANDARD_QUARTILES = (-_NORMAL_QUARTILES / 2, 0.0, _NORMAL_QUARTILES / 2)


@dataclass(frozen=True, eq=False)
class Units:
    """Relative log earnings: z = (log earnings - log wage index - level(age, year)) / scale.

    Attributes:
        scale: Logs per unit.
        ages: Part of the level that depends on age, for ages 16 to 64, shape (49,).
        years: Part that depends on the year, from `first_year` on, shape (n_year,).
        first_year: First year of the panel; earlier years have its level.
        growth: Growth of the level in each year after the last one.
        longest: Number of years after the last one that grow: the longest distance between two
            records of a person. No growth has been seen over more years.
    """

    scale: Spread
    ages: Annotated[Floats, Shape(N_AGES)]
    years: Annotated[Floats, Shape("year")]
    first_year: Year
    growth: Log
    longest: Years

    @classmethod
    def fit(
        cls,
        logs: Floats,
        age: Integers,
        year: Integers,
        *,
        longest: int,
        by_age: bool = True,
        continues: bool = True,
        quartiles: tuple[float, float, float] = STANDARD_QUARTILES,
    ) -> Self:
        """Fit to log earnings relative to the wage index, shape (n,), of training persons.

        The level is a smooth curve by age plus a trend and deviations of years, fitted with robust
        losses (Huber 1964) and penalised second differences (Whittaker 1923). The scale is the
        distance between the quartiles of the residuals. Without `by_age` the level depends only
        on the year.

        Args:
            logs: Log earnings less the log wage index.
            age: Ages in these years.
            year: The years.
            longest: Longest distance in years between two records of a person.
            by_age: Whether the level depends on age.
            continues: Whether the trend continues after the last year; if the wage index contains
                the growth of wages, it does not.
            quartiles: Quartiles that z will have; by default those of a standard normal variable.
        """
        first, n_years = int(year.min()), int(year.max() - year.min()) + 1
        column = np.clip(age, MIN_AGE, MAX_AGE) - MIN_AGE if by_age else np.zeros(len(age), int)
        cell = column * n_years + (year - first)
        n_cells = N_AGES * n_years
        count = np.bincount(cell, minlength=n_cells).astype(np.float64)
        design = _design(n_years)
        information = design.T @ (count[:, None] * design) + _penalty(n_years, by_age=by_age)
        # A penalty has the unit of a count, because effects are measured in spreads.
        middle = float(np.median(logs))
        residual, spread = logs - middle, _spread(logs - middle)
        effects = np.zeros(design.shape[1])
        for _ in range(_ITERATIONS):
            clipped = np.clip(residual, -_CLIPPED * spread, _CLIPPED * spread)
            fitted = logs - middle - residual + clipped  # the level of each record, plus its part
            total = np.bincount(cell, fitted, minlength=n_cells)
            effects = np.linalg.solve(information, design.T @ total).astype(np.float64)
            residual = logs - middle - (design @ effects)[cell]
            spread = _spread(residual)
        ages, growth, deviations = effects[:N_AGES], effects[N_AGES], effects[N_AGES + 1 :]
        if by_age:
            ages = ages[_nearest_frequent(count.reshape(N_AGES, n_years).sum(1))]
        else:
            ages = np.full(N_AGES, ages[0])
        low, centre, high = np.quantile(residual, [0.25, 0.5, 0.75])
        scale = float((high - low) / (quartiles[2] - quartiles[0]))
        return cls(
            scale=scale,
            ages=ages + middle + float(centre) - scale * quartiles[1],
            years=growth * _trend(n_years) + deviations,
            first_year=first,
            growth=float(growth) if continues else 0.0,
            longest=longest,
        )

    def level(self, age: Integers, year: Integers) -> Floats:
        """Level (...,) at ages (...,) in years (...,), in logs."""
        index = np.asarray(year) - self.first_year
        last = len(self.years) - 1
        after = np.clip(index - last, 0, self.longest)
        by_year = self.years[np.clip(index, 0, last)] + self.growth * after
        level: Floats = self.ages[np.clip(age, MIN_AGE, MAX_AGE) - MIN_AGE] + by_year
        return level

    def relative(self, logs: Floats, age: Integers, year: Integers) -> Floats:
        """Relative log earnings of `logs`, which are relative to the wage index."""
        z: Floats = (logs - self.level(age, year)) / self.scale
        return z

    @property
    def by_age(self) -> bool:
        """Whether the level depends on age."""
        return bool(np.ptp(self.ages) > 0)

    @property
    def typical(self) -> float:
        """Log of a typical amount: the mean level over ages in the last year."""
        return float(self.ages.mean() + self.years[-1])

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for transforms.json."""
        return {
            "scale": self.scale,
            "ages": self.ages.tolist(),
            "years": self.years.tolist(),
            "first_year": self.first_year,
            "growth": self.growth,
            "longest": self.longest,
        }


IDENTITY = Units(1.0, np.zeros(N_AGES), np.zeros(1), 0, 0.0, 0)


def _trend(n_years: int) -> Floats:
    """Years relative to the last one."""
    trend: Floats = np.arange(1.0 - n_years, 1.0)
    return trend


def _design(n_years: int) -> Floats:
    """Effects (n_cell, 49 + 1 + n_year) of each cell of age and year: age, trend, year."""
    by_age = np.repeat(np.eye(N_AGES), n_years, axis=0)
    trend = np.tile(_trend(n_years), N_AGES)[:, None]
    return np.hstack([by_age, trend, np.tile(np.eye(n_years), (N_AGES, 1))])


def _penalty(n_years: int, *, by_age: bool) -> Floats:
    """Precision of the effects that the fit assumes; effects are in spreads."""
    second = np.diff(np.eye(N_AGES), n=2, axis=0).astype(np.float64) / _CURVATURE
    first_only = np.diag([0.0] + [1.0] * (N_AGES - 1))
    size = N_AGES + 1 + n_years
    penalty = np.zeros((size, size))
    penalty[:N_AGES, :N_AGES] = second.T @ second if by_age else first_only
    penalty[N_AGES, N_AGES] = _GROWTH**-2
    years = np.arange(N_AGES + 1, size)
    penalty[years, years] = _DEVIATION**-2
    return penalty


def _nearest_frequent(records: Floats) -> NDArray[np.int64]:
    """For each age, the index of the nearest age that has enough records."""
    frequent = np.flatnonzero(records >= min(_MIN_RECORDS, records.max()))
    nearest = np.abs(frequent - np.arange(N_AGES)[:, None]).argmin(axis=1)
    ages: NDArray[np.int64] = frequent[nearest]
    return ages


def _spread(residual: Floats) -> float:
    low, high = np.quantile(residual, [0.25, 0.75])
    return float(max((high - low) / _NORMAL_QUARTILES, 1e-3))
