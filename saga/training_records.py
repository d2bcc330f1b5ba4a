"""What the records behind a bundle have shown: which years and ages, and how many years ahead.

Labels of guarantees are defined here. A set is "assumption" if outcomes of records like this one
have been seen from more than one origin year, and the forecast stays within the records; drift is
then as large as in the past (`saga.calibration.fit.drift`). Outcomes of a single origin year are
those of one economy, and say nothing about another. Every other set is "extrapolated".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.data.panel import Panel
from saga.files.stored_values import Year, Years
from saga.small_groups import MIN_PERSONS

Integers = NDArray[np.integer[Any]]
Guarantee = Literal["finite-sample", "assumption", "extrapolated", "none"]
TESTED: tuple[Guarantee, ...] = ("finite-sample", "assumption")  # whose coverage was tested


def guarantee_of(origin_years: int, extrapolated: bool) -> Guarantee:
    """The guarantee of a set whose threshold rests on outcomes from so many origin years.

    `extrapolated`: the forecast is made differently from those of the calibration.
    """
    return "assumption" if origin_years > 1 and not extrapolated else "extrapolated"


@dataclass(frozen=True)
class TrainingRecords:
    """The span of the records of training persons, or of calibration persons.

    Distances and ages are those of records with known earnings that at least ten persons have
    (all, if there are fewer), so that none is a single person's.

    Attributes:
        first_year: First year.
        last_year: Last year.
        longest: Longest distance in years from an origin to an outcome: between two records of a
            person.
        first_age: Lowest age.
        last_age: Highest age.
    """

    first_year: Year
    last_year: Year
    longest: Years
    first_age: Years
    last_age: Years

    @classmethod
    def of(cls, panel: Panel) -> Self:
        """The span of a panel in which some earnings are known."""
        year, age = pl.col("year"), pl.col("year") - pl.col("birth_year")
        known = panel.frame.filter(pl.col("earnings").is_not_null())
        persons = known.group_by("person_id").agg(
            distance=year.max() - year.min(), youth=-age.min(), age=age.max()
        )
        years = panel.frame["year"].to_numpy()
        return cls(
            first_year=int(years.min()),
            last_year=int(years.max()),
            longest=_reached(persons["distance"]),
            first_age=-_reached(persons["youth"]),
            last_age=_reached(persons["age"]),
        )

    def joined(self, other: Self) -> Self:
        """The span of the records of both."""
        return replace(
            self,
            first_year=min(self.first_year, other.first_year),
            last_year=max(self.last_year, other.last_year),
            longest=max(self.longest, other.longest),
            first_age=min(self.first_age, other.first_age),
            last_age=max(self.last_age, other.last_age),
        )

    def with_outcomes(self, until: int | None) -> Self:
        """The span with later outcomes up to the year `until`, if there are some."""
        return replace(self, last_year=max(self.last_year, until or self.last_year))

    def contain(self, origin: Integers) -> NDArray[np.bool_]:
        """Whether an origin year (...,) is one of the years."""
        return np.asarray((self.first_year <= origin) & (origin <= self.last_year))

    def reach(self, age: Integers, ahead: Integers) -> NDArray[np.bool_]:
        """Whether records have outcomes so many years ahead, and some at the age then.

        `age` is that at the origin; shapes broadcast.
        """
        age_then = age + ahead
        return np.asarray(
            (ahead <= self.longest) & (self.first_age <= age_then) & (age_then <= self.last_age)
        )

    def __str__(self) -> str:
        """The distances and ages, for messages."""
        return f"up to {self.longest} years ahead, at ages {self.first_age} to {self.last_age}"


def _reached(values: pl.Series) -> int:
    """The largest value that ten persons reach, or all if they are fewer."""
    ordered = np.sort(values.to_numpy())
    return int(ordered[-min(MIN_PERSONS, len(ordered))])
