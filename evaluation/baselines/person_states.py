"""States of persons in a year: age, sex, education, last earnings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from saga.arrays import Array
from saga.data.panel import Panel
from saga.schema import BY_NAME

CODES = {"sex": BY_NAME["sex"].codes, "education_level": BY_NAME["education_level"].codes}


@dataclass(frozen=True, eq=False)
class States:
    """States of n persons, (n,), or of n persons on M paths, (n, M); the arrays broadcast.

    Args:
        year: the year of the last known earnings.
        age: the age in that year.
        earnings: the last known earnings, real money, NaN if there are none.
        idle: whether the known earnings before them were zero.
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
        filled = pl.col(name).forward_fill().over("person_id")  # from earlier years only
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


def as_states(rows: pl.DataFrame) -> States:
    """The rows of `known_states` as arrays."""
    names = ("year", "age", "earnings", "idle", "sex", "education_level")
    return States(**{name: rows[name].to_numpy() for name in names})
