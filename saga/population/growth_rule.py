"""The simple rule for groups: what persons of an age had lately, grown as in the past.

A forecast of a group mean has to be better than this. The growth is that of mean earnings within
ages over all years of the records: the slope of log means on years, beside a level of each age.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import polars as pl

from saga.arrays import Floats
from saga.data.origins import last_year
from saga.data.panel import Panel
from saga.small_groups import MIN_PERSONS

_AGES, _RECENT = 5, 5  # ages in a band, and years of "lately"


@dataclass(frozen=True)
class GrowthRule:
    """What the rule knows.

    Attributes:
        recent: person_id, band of ages, earnings of the last five years, grown to the last one.
        growth: Of mean earnings, in logs a year.
        year: The last year of the records.
    """

    recent: pl.DataFrame
    growth: float
    year: int

    @classmethod
    def fit(cls, panel: Panel) -> Self:
        """From all records of a panel, which ends where the forecasts begin."""
        year, age = last_year(panel), (pl.col("year") - pl.col("birth_year")) // _AGES
        rows = panel.frame.drop_nulls("earnings").with_columns(age=age)
        cells = rows.group_by("age", "year").agg(n=pl.len(), mean=pl.col("earnings").mean())
        cells = cells.filter(pl.col("n") >= MIN_PERSONS, pl.col("mean") > 0)
        n, at, level = pl.col("n"), pl.col("year"), pl.col("mean").log()
        at, level = (x - (n * x).sum().over("age") / n.sum().over("age") for x in (at, level))
        moments = cells.sort("age", "year").select(xy=(n * at * level).sum(), xx=(n * at**2).sum())
        xy, xx = moments.row(0)
        growth = float(xy / xx) if xx else 0.0
        lately = rows.filter(pl.col("year") > year - _RECENT)
        grown = pl.col("earnings") * (growth * (year - pl.col("year"))).exp()
        return cls(lately.select("person_id", "age", grown), growth, year)

    def predict(
        self, persons: pl.DataFrame, levels: pl.DataFrame, year: int
    ) -> tuple[Floats, Floats]:
        """Mean earnings and share without earnings of persons like each one, both (n,).

        NaN if nobody of the level has recent records. Ages beyond those of the records count as
        the nearest one.

        Args:
            persons: birth_year and the text column `level`.
            levels: person_id and `level` of the persons of the records.
            year: The year of the forecast.
        """
        earnings = pl.col("earnings")
        known = (
            self.recent.join(levels, on="person_id")
            .group_by("level", "age")
            .agg(mean=earnings.mean(), zero=(earnings == 0).mean())
            .sort("age")
        )
        each = persons.select("level", age=(year - pl.col("birth_year")) // _AGES)
        each = each.with_row_index("row").sort("age")
        like = each.join_asof(
            known, on="age", by="level", strategy="nearest", check_sortedness=False
        ).sort("row")
        grown = like["mean"] * np.exp(self.growth * (year - self.year))
        return grown.to_numpy().astype(float), like["zero"].to_numpy().astype(float)
