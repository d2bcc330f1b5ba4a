"""Cells of persons of a panel by year, age and levels of columns: their earnings and work."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.data.panel import Panel
from saga.small_groups import MIN_PERSONS

Floats = NDArray[np.float64]
# Ages from which a person belongs to the whole, and the years of a band.
FIRST_AGE, LAST_AGE, BAND = 20, 64, 5


def person_years(panel: Panel, persons: Sequence[str], columns: Sequence[str]) -> pl.DataFrame:
    """Years of known earnings at ages 20 to 64, with the last known levels."""
    age = pl.col("year") - pl.col("birth_year")
    return (
        panel.frame.lazy()
        .select(
            *("person_id", "year", "birth_year", "earnings"),
            *(pl.col(column).forward_fill().over("person_id") for column in columns),
            age=age,
            band=age // BAND,
        )
        .filter(
            age.is_between(FIRST_AGE, LAST_AGE),
            pl.col("earnings").is_not_null(),
            pl.col("person_id").is_in(pl.Series(persons).implode()),
        )
        .drop_nulls(["earnings", *columns])
        .collect()
    )


def cells_of(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Persons, workers, and mean and standard deviation of positive earnings in cells.

    Cells without ten workers are left out. `weight` is a cell's mean number of persons in a year.
    """
    positive = pl.col("earnings").filter(pl.col("earnings") > 0)
    return (
        rows.group_by(by)
        .agg(persons=pl.len(), workers=positive.len(), mean=positive.mean(), sd=positive.std())
        .filter(pl.col("workers") >= MIN_PERSONS)
        .sort(by)
        .with_columns(weight=pl.col("persons").mean().over([c for c in by if c != "year"]))
    )


def statistic_of(cells: pl.DataFrame, statistic: str) -> tuple[Floats, Floats]:
    """Log mean earnings, or log odds of having any, of cells (n,), and the error variances."""
    workers, persons = (cells[name].to_numpy().astype(float) for name in ("workers", "persons"))
    if statistic == "earnings":
        variance = (cells["sd"] / cells["mean"]).to_numpy() ** 2 / workers
        value = cells["mean"].log().to_numpy() + variance / 2  # the log of a mean is too low
    else:
        without = persons - workers + 0.5
        variance, value = 1 / (workers + 0.5) + 1 / without, np.log((workers + 0.5) / without)
    return value, variance
