"""What a naive forecaster uses of a person at an origin: age, sex, education, last earnings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.errors import InputError, Problem
from saga.schema import BY_NAME, MAX_AGE, MIN_AGE

RANKS = 20  # the finest cut of positive earnings among persons of the same age and year
SMALLEST = 50  # positive earners that a cut within year and age band needs
CODES = {"sex": BY_NAME["sex"].codes, "education_level": BY_NAME["education_level"].codes}
Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class States:
    """States of n persons, or of n persons on M paths (the arrays broadcast).

    Args:
        year: of the last known earnings.
        age: in that year.
        earnings: real, NaN if none is known.
        idle: whether the known earnings before were zero.
        sex: index of the code plus one, 0 if unknown.
        education_level: index of the code plus one, 0 if unknown.
    """

    year: Array
    age: Array
    earnings: Array
    idle: Array
    sex: Array
    education_level: Array

    def take(self, rows: Any) -> States:
        """The states of the persons in `rows`."""
        return States(**{name: values[rows] for name, values in vars(self).items()})


def known_states(panel: Panel) -> pl.DataFrame:
    """One row per person-year with known earnings: the state if that year were the origin."""

    def code(name: str) -> pl.Expr:
        numbers = {value: i + 1 for i, value in enumerate(CODES[name])}
        filled = pl.col(name).forward_fill().over("person_id")  # nothing from later years
        return filled.replace_strict(numbers, default=0, return_dtype=pl.Int8).alias(name)

    return (
        panel.frame.lazy()
        .select("person_id", "year", "birth_year", "earnings", code("sex"), code("education_level"))
        .filter(pl.col("earnings").is_not_null() & pl.col("earnings").is_not_nan())
        .with_columns(
            (pl.col("year") - pl.col("birth_year")).alias("age"),
            (pl.col("earnings").shift(1).over("person_id") == 0).fill_null(False).alias("idle"),
        )
        .collect()
    )


def no_history_error(person: str, origin: int, count: int) -> InputError:
    """The error for `count` persons without a row at or before the origin, `person` the first."""
    problem = Problem(
        "no-history",
        "no record at or before the origin",
        "Give a history with a row in the origin year, or leave the person out.",
        person_id=person,
        year=origin,
        count=count,
    )
    return InputError("A person has no record to forecast from", [problem])


def states_at(history: Panel, origins: Origins) -> tuple[States, Array]:
    """The last known state at or before each origin, and the birth years.

    Both are in the order of `origins`. A person without known earnings has NaN earnings at the
    origin year. Rows after the origin are not used. Raises InputError for a person without a row.
    """
    origin_rows = origins.frame().with_row_index("row")
    before = history.with_frame(
        history.frame.join(origin_rows, on="person_id", how="inner")
        .filter(pl.col("year") <= pl.col("origin"))
        .select(history.frame.columns)
    )
    last = known_states(before).group_by("person_id", maintain_order=True).last()
    births = before.frame.group_by("person_id").agg(pl.col("birth_year").last().alias("born"))
    rows = (
        origin_rows.join(last, on="person_id", how="left")
        .join(births, on="person_id", how="left")
        .sort("row")
    )
    if rows["born"].null_count():
        person, year = rows.filter(pl.col("born").is_null()).select("person_id", "origin").row(0)
        raise no_history_error(person, year, rows["born"].null_count())
    born = rows["born"].to_numpy()
    year = rows["year"].fill_null(rows["origin"]).to_numpy()
    states = States(
        year=year,
        age=year - born,
        earnings=rows["earnings"].cast(pl.Float64).fill_null(np.nan).to_numpy(),
        idle=rows["idle"].fill_null(False).to_numpy(),
        sex=rows["sex"].fill_null(0).to_numpy(),
        education_level=rows["education_level"].fill_null(0).to_numpy(),
    )
    return states, born


def as_states(rows: pl.DataFrame) -> States:
    """The rows of `known_states` as arrays."""
    names = ("year", "age", "earnings", "idle", "sex", "education_level")
    return States(**{name: rows[name].to_numpy() for name in names})


class Reference:
    """Ranks of earnings among persons of the same age and year, and medians of years.

    Ranks within year and age keep their meaning if real wages grow. After the last year of the
    panel, cuts and medians grow at the average rate within age bands. Positive earnings only.
    """

    def __init__(self, states: States) -> None:
        positive = states.earnings > 0
        year, band, log = (
            states.year[positive],
            self._band(states.age[positive]),
            np.log(states.earnings[positive]),
        )
        self.first, self.last = int(states.year.min()), int(states.year.max())
        years, bands = self.last - self.first + 1, int(self._band(np.array(MAX_AGE))) + 1
        quantiles = np.arange(1, RANKS) / RANKS
        overall = np.quantile(log, quantiles) if len(log) else np.zeros(RANKS - 1)
        self.cuts = np.tile(overall, (years, bands, 1))
        self.median = np.full(years, np.median(log) if len(log) else 0.0)
        medians = np.full((years, bands), np.nan)
        for b in range(bands):
            in_band = band == b
            if in_band.sum() >= SMALLEST:
                self.cuts[:, b] = np.quantile(log[in_band], quantiles)
            for t in range(years):
                logs = log[in_band & (year == self.first + t)]
                if len(logs) >= SMALLEST:
                    self.cuts[t, b] = np.quantile(logs, quantiles)
                    medians[t, b] = np.median(logs)
        for t in range(years):
            of_year = log[year == self.first + t]
            if len(of_year) >= SMALLEST:
                self.median[t] = np.median(of_year)
        self.growth = _slope(medians)

    @staticmethod
    def _band(age: Array) -> Array:
        return (np.clip(age, MIN_AGE, MAX_AGE) - MIN_AGE) // 3

    def _year(self, year: Array) -> tuple[Array, Array]:
        inside = np.clip(year, self.first, self.last)
        return inside - self.first, self.growth * np.maximum(year - self.last, 0)

    def level(self, year: Array) -> Array:
        """Median positive earnings of the year, real."""
        t, ahead = self._year(year)
        return np.asarray(np.exp(self.median[t] + ahead))

    def rank(self, states: States) -> Array:
        """0..19: the twentieth of earners of that age and year; 0 for zero or unknown earnings."""
        t, ahead = self._year(states.year)
        log = np.log(np.where(states.earnings > 0, states.earnings, np.nan)) - ahead
        band = self._band(states.age)
        rank = np.zeros(log.shape, dtype=np.int64)
        for cut in range(RANKS - 1):  # a loop over cuts needs no (n, 19) array
            rank += log > self.cuts[t, band, cut]
        return rank


def _slope(medians: Array) -> float:
    """Mean yearly growth of log medians within age bands seen in 5 years; at most 3 %."""
    t = np.arange(len(medians))
    slopes = []
    for column in medians.T:
        seen = np.isfinite(column)
        if seen.sum() >= 5:
            slopes.append(np.polyfit(t[seen], column[seen], 1)[0])
    return float(np.clip(np.mean(slopes), -0.03, 0.03)) if slopes else 0.0
