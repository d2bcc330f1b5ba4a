"""Ranks of earnings among persons of the same age and year, and medians of years."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
import polars as pl
from pydantic import Field

from saga.arrays import Array, Floats
from saga.data.panel import Panel
from saga.errors import InputError, Problem
from saga.files.stored_values import Shape, Year, read_values
from saga.schema import MAX_AGE, MIN_AGE
from saga.small_groups import person_quantiles

RANKS = 20  # groups of equal size by positive earnings among persons of the same age and year
MIN_PERSONS = 50  # persons with positive earnings that a quantile of a year and age band needs
AGE_BAND = 3  # years of age within which earnings are ranked
N_BANDS = (MAX_AGE - MIN_AGE) // AGE_BAND + 1
LARGEST_GROWTH = 0.03  # of real wages in a year, either way


def no_outcomes_error(message: str, fix: str) -> InputError:
    """The error for a panel from which a baseline cannot learn."""
    return InputError("There is nothing to learn from", [Problem("no-outcomes", message, fix)])


def no_history_error(
    person: str,
    origin: int,
    count: int,
    title: str = "A person has no record to forecast from",
    message: str = "no record at or before the origin",
) -> InputError:
    """The error for `count` persons without a record that is needed, `person` the first of them."""
    fix = "Give a history with a row in the origin year, or leave the person out."
    problem = Problem("no-history", message, fix, person_id=person, year=origin, count=count)
    return InputError(title, [problem])


@dataclass(frozen=True)
class _Stored:
    """A reference as plain values."""

    first: Year
    last: Year
    cuts: Annotated[Floats, Shape("year", N_BANDS, RANKS - 1)]
    median: Annotated[Floats, Shape("year")]
    growth: Annotated[float, Field(ge=-LARGEST_GROWTH, le=LARGEST_GROWTH)]


class Reference:
    """Ranks of earnings among persons of the same age and year, and medians of years.

    Only positive earnings count. After the last year of the panel, quantiles and medians grow at
    the average rate within age bands.

    Attributes:
        first: the first year of the panel.
        last: its last year.
        cuts: (years, age bands, 19), quantiles of log earnings between the ranks.
        median: (years,), median log earnings.
        growth: yearly growth of log medians within age bands.
    """

    def __init__(self, panel: Panel) -> None:
        known = panel.frame.filter(pl.col("earnings").is_not_null() & ~pl.col("earnings").is_nan())
        years_known, births, amounts, ids = (
            known[name].to_numpy() for name in ("year", "birth_year", "earnings", "person_id")
        )
        positive = amounts > 0
        person = np.unique(ids[positive], return_inverse=True)[1]
        year, band = years_known[positive], self._band((years_known - births)[positive])
        log = np.log(amounts[positive])
        self.first, self.last = int(years_known.min()), int(years_known.max())
        years, bands = self.last - self.first + 1, N_BANDS
        quantiles = np.arange(1, RANKS) / RANKS
        overall = person_quantiles(log, person, quantiles) if len(log) else np.zeros(RANKS - 1)
        self.cuts = np.tile(overall, (years, bands, 1))
        self.median = np.full(years, overall[RANKS // 2 - 1])
        medians = np.full((years, bands), np.nan)
        for b in range(bands):
            in_band = band == b
            if in_band.sum() >= MIN_PERSONS:
                self.cuts[:, b] = person_quantiles(log[in_band], person[in_band], quantiles)
            for t in range(years):
                here = in_band & (year == self.first + t)
                if here.sum() >= MIN_PERSONS:
                    self.cuts[t, b] = person_quantiles(log[here], person[here], quantiles)
                    medians[t, b] = self.cuts[t, b, RANKS // 2 - 1]
        for t in range(years):
            here = year == self.first + t
            if here.sum() >= MIN_PERSONS:
                (self.median[t],) = person_quantiles(log[here], person[here], [0.5])
        self.growth = _slope(medians)

    def as_dict(self) -> dict[str, Any]:
        """The reference as plain values."""
        values = vars(self).items()
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in values}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The reference of `as_dict`. Raises ValueError for other values."""
        stored = read_values(_Stored, values)
        if len(stored.median) != stored.last - stored.first + 1:
            raise ValueError("its reference has not a median for each year")
        reference = cls.__new__(cls)
        vars(reference).update(vars(stored))
        return reference

    @staticmethod
    def _band(age: Array) -> Array:
        return (np.clip(age, MIN_AGE, MAX_AGE) - MIN_AGE) // AGE_BAND

    def _index(self, year: Array) -> tuple[Array, Array]:
        """The index of the nearest year of the panel, and log growth after the last one."""
        inside = np.clip(year, self.first, self.last)
        return inside - self.first, self.growth * np.maximum(year - self.last, 0)

    def level(self, year: Array) -> Array:
        """Median positive earnings of the year, real."""
        t, ahead = self._index(year)
        return np.asarray(np.exp(self.median[t] + ahead))

    def rank(self, year: Array, age: Array, earnings: Array) -> Array:
        """The rank 0..19 of earnings at that age and year; 0 for zero or unknown earnings."""
        t, ahead = self._index(year)
        log = np.log(np.where(earnings > 0, earnings, np.nan)) - ahead
        band = self._band(age)
        rank = np.zeros(log.shape, dtype=np.int64)
        for cut in range(RANKS - 1):  # a loop over cuts needs no (n, 19) array
            rank += log > self.cuts[t, band, cut]
        return rank


def _slope(medians: Array) -> float:
    """Mean slope of log medians (years, age bands) over bands known in 5 years; at most 3 %."""
    t = np.arange(len(medians))
    slopes = []
    for column in medians.T:
        seen = np.isfinite(column)
        if seen.sum() >= 5:
            slopes.append(np.polyfit(t[seen], column[seen], 1)[0])
    return float(np.clip(np.mean(slopes), -LARGEST_GROWTH, LARGEST_GROWTH)) if slopes else 0.0
