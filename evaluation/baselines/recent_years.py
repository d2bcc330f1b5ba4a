"""The last years of a person as one row of numbers, for forecasters that read a table."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluation.baselines.origin_states import (
    Reference,
    States,
    as_states,
    known_states,
    no_history_error,
)
from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.schema import CATEGORICAL, CONTINUOUS, MONEY

Array = NDArray[Any]
YEARS = 10  # of the window, calendar years up to the origin
RECENT = 5  # last years over which the other columns are averaged
SHORTEST = 1 / 52  # years of employment from which a year's pay can be computed


class Window:
    """Features of a person's records up to an origin, defined by a panel of persons.

    Money is relative to the median earnings of its year, so that features mean the same in every
    year. The calendar year and the birth year are left out, because a forecaster knows how past
    years relate to each other, not the future. NaN: unknown.

    Args:
        panel: the persons whose columns, codes and medians define the features.

    Attributes:
        names: of the F features.
        categorical: the features that hold codes 0, 1, ... of a classification.
    """

    def __init__(self, panel: Panel) -> None:
        self.floor = 1.0 if panel.meta.floor is None else panel.meta.floor
        self.reference = Reference(as_states(known_states(panel)))
        frame = panel.frame
        self.others = [
            name
            for name in CONTINUOUS
            if name != "earnings" and frame[name].null_count() < frame.height
        ]
        self.codes = {
            name: codes
            for name in CATEGORICAL
            if (codes := frame[name].drop_nulls().unique().sort().to_list())
        }
        lags = [f"{kind}_{lag}" for kind in ("level", "zero") for lag in range(YEARS)]
        before = [f"{name}_1" for name in self.others]
        averages = [f"{name}_recent" for name in self.others]
        self.pay = ["pay_0", "pay_1", "pay_recent"] if "employment_rate" in self.others else []
        self.categorical = list(self.codes)
        self.names = [
            "age",
            *lags,
            *SUMMARIES,
            *self.pay,
            *self.others,
            *before,
            *averages,
            *self.categorical,
        ]

    def features(self, history: Panel, origins: Origins) -> NDArray[np.float32]:
        """(n, F) float32, one row per origin, from the person's rows up to the origin alone.

        Raises InputError for a person without a row at or before the origin.
        """
        rows, last, position = locate_rows(history, origins, YEARS)
        year, age = origins.year, origins.year - rows["birth_year"].to_numpy()[last]
        values_of_rows, running = self._measure(rows)
        columns = {"age": age.astype(np.float64)}
        earnings, relative = (
            _at(values_of_rows["earnings"], position),
            _at(values_of_rows["relative"], position),
        )
        columns |= {f"level_{lag}": relative[:, lag] for lag in range(YEARS)}
        columns |= {
            f"zero_{lag}": np.where(np.isnan(earnings[:, lag]), np.nan, earnings[:, lag] == 0)
            for lag in range(YEARS)
        }
        columns |= _window_summaries(relative)
        columns |= self._lifelong(running, last, year, age)
        for name in self.others:
            values = rows[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
            values = values / values_of_rows["typical"] if name in MONEY else values
            recent = _at(values, position[:, :RECENT])
            columns[name], columns[f"{name}_1"], columns[f"{name}_recent"] = (
                recent[:, 0],
                recent[:, 1],
                _mean(recent),
            )
        if self.pay:  # pay of a full year: trees approximate a ratio of two columns by many steps
            rate = rows["employment_rate"].cast(pl.Float64).fill_null(np.nan).to_numpy()
            worked = _at(np.where(rate >= SHORTEST, rate, np.nan), position[:, :RECENT])
            pay = np.where(earnings[:, :RECENT] > 0, relative[:, :RECENT], np.nan) - np.log(worked)
            columns |= {"pay_0": pay[:, 0], "pay_1": pay[:, 1], "pay_recent": _mean(pay)}
        for name, codes in self.codes.items():
            number = {code: i for i, code in enumerate(codes)}
            coded = (
                rows[name]
                .replace_strict(number, default=None, return_dtype=pl.Float64)
                .fill_null(np.nan)
                .to_numpy()
            )
            columns[name] = _at(coded, position[:, :1])[:, 0]
        return np.stack([columns[name] for name in self.names], axis=1).astype(np.float32)

    def level(self, origins: Origins) -> Array:
        """Log median earnings (n,) of the origin years, the reference of outcomes."""
        return np.log(self.reference.level(origins.year))

    def _measure(self, rows: pl.DataFrame) -> tuple[dict[str, Array], pl.DataFrame]:
        """Values of each row, and running sums over the person's rows up to it."""
        earnings = rows["earnings"].fill_null(np.nan).to_numpy()
        typical = self.reference.level(rows["year"].to_numpy())
        relative = np.log(np.maximum(earnings, self.floor) / typical)
        level = pl.Series("level", relative).fill_nan(None)
        seen = rows.select("person_id", "year", "earnings", level).with_columns(
            pl.col("earnings").fill_nan(None)
        )
        so_far = {
            "years": pl.col("level").is_not_null().cast(pl.Float64),
            "zeros": (pl.col("earnings") == 0).fill_null(False).cast(pl.Float64),
            "sum": pl.col("level").fill_null(0.0),
            "squares": (pl.col("level") ** 2).fill_null(0.0),
        }
        running = seen.select(
            *(
                expression.cum_sum().over("person_id").alias(name)
                for name, expression in so_far.items()
            ),
            pl.col("earnings").forward_fill().over("person_id").alias("last"),
            pl.when(pl.col("earnings").is_not_null())
            .then("year")
            .forward_fill()
            .over("person_id")
            .alias("last_year"),
            pl.when(pl.col("earnings") > 0)
            .then("year")
            .forward_fill()
            .over("person_id")
            .alias("last_positive"),
            pl.col("level").cum_max().forward_fill().over("person_id").alias("highest"),
        )
        return {"earnings": earnings, "typical": typical, "relative": relative}, running

    def _lifelong(
        self, running: pl.DataFrame, last: Array, year: Array, age: Array
    ) -> dict[str, Array]:
        so_far = running[last]
        value = {
            name: so_far[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
            for name in so_far.columns
        }
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = value["sum"] / value["years"]
            variance = np.maximum(value["squares"] / value["years"] - mean**2, 0)
        when = np.where(np.isnan(value["last_year"]), year, value["last_year"]).astype(np.int64)
        unknown_code = np.zeros(len(year), dtype=np.int64)
        state = States(
            when, age - (year - when), value["last"], unknown_code, unknown_code, unknown_code
        )
        rank = np.where(
            value["last"] > 0, self.reference.rank(state), np.where(value["last"] == 0, -1, np.nan)
        )
        return {
            "years_known": value["years"],
            "zeros_so_far": value["zeros"],
            "mean_level": mean,
            "sd_level": np.sqrt(variance),
            "highest_level": value["highest"],
            "rank": rank,
            "since_known": year - value["last_year"],
            "since_positive": year - value["last_positive"],
        }


_WINDOW = (
    "window_mean",
    "window_sd",
    "window_low",
    "window_high",
    "recent_mean",
    "change",
    "known_in_window",
)
_LIFELONG = (
    "years_known",
    "zeros_so_far",
    "mean_level",
    "sd_level",
    "highest_level",
    "rank",
    "since_known",
    "since_positive",
)
SUMMARIES = (*_WINDOW, *_LIFELONG)


def _window_summaries(relative: Array) -> dict[str, Array]:
    with warnings.catch_warnings():
        # Rows without any known year are meant to be NaN.
        warnings.simplefilter("ignore", RuntimeWarning)
        return {
            "window_mean": np.nanmean(relative, axis=1),
            "window_sd": np.nanstd(relative, axis=1),
            "window_low": np.nanmin(relative, axis=1),
            "window_high": np.nanmax(relative, axis=1),
            "recent_mean": np.nanmean(relative[:, :3], axis=1),
            "change": relative[:, 0] - relative[:, 1],
            "known_in_window": np.isfinite(relative).sum(axis=1).astype(np.float64),
        }


def _mean(values: Array) -> Array:
    seen = np.isfinite(values)
    total = np.where(seen, values, 0.0).sum(axis=1)
    return np.where(seen.any(axis=1), total / np.maximum(seen.sum(axis=1), 1), np.nan)


def _at(values: Array, position: Array) -> Array:
    """`values` of the rows at `position`, NaN if the position is -1."""
    return np.where(position >= 0, values[np.maximum(position, 0)], np.nan)


def locate_rows(history: Panel, origins: Origins, years: int) -> tuple[pl.DataFrame, Array, Array]:
    """The rows of the persons, and where the last years of each origin are among them.

    Returns the rows, the last row at or before each origin (n,), and the rows of the last `years`
    calendar years (n, years), latest first, -1 if there is none. Raises InputError for a person
    without a row at or before the origin.
    """
    origin_rows = origins.frame().with_row_index("row")
    rows = history.frame.join(
        origin_rows.select("person_id").unique(), on="person_id", how="semi", maintain_order="left"
    )
    names = rows["person_id"].unique(maintain_order=True)
    number = pl.DataFrame({"person_id": names, "number": np.arange(len(names))})
    of_row = (
        rows.select("person_id")
        .join(number, on="person_id", how="left", maintain_order="left")["number"]
        .to_numpy()
    )
    of_origin = (
        origin_rows.join(number, on="person_id", how="left", maintain_order="left")["number"]
        .fill_null(-1)
        .to_numpy()
    )
    key = of_row * 10_000 + rows["year"].to_numpy()
    origin_key = of_origin * 10_000 + origins.year
    last = np.searchsorted(key, origin_key, side="right") - 1
    missing = (
        (of_origin < 0) | (last < 0) | (of_row[last] != of_origin)
        if len(key)
        else np.ones(len(origins), dtype=bool)
    )
    if missing.any():
        first = int(np.argmax(missing))
        person, year = str(origins.person_id[first]), int(origins.year[first])
        raise no_history_error(person, year, int(missing.sum()))
    back = origin_key[:, None] - np.arange(years)
    position = np.searchsorted(key, back)
    exists = key[np.minimum(position, len(key) - 1)] == back
    return rows, last, np.where(exists, position, -1)
