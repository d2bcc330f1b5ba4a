"""The last years of a person as one row of features, for boosted trees and DeepAR."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from saga.arrays import Array
from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.files.stored_values import read_values
from saga.schema import CATEGORICAL, CONTINUOUS, EXTRA_PREFIX, MONEY
from saga.small_groups import frequent_codes
from saga.trees.earnings_ranks import Reference, no_history_error

YEARS = 10  # calendar years of the window, the last is the origin
RECENT = 5  # last years over which columns other than earnings are averaged
LEAST_MEAN = 1e-3  # smallest mean of relative amounts in logs
N_KNOWN = 5  # last known earnings of a real panel, whatever the years between them
MIN_EMPLOYMENT = (
    1 / 52
)  # smallest employment, in years, from which the pay of a full year is computed


@dataclass(frozen=True)
class _Stored:
    """What a window is stored as; the rest follows from it."""

    floor: Annotated[float, Field(gt=0, le=1e15)]
    reference: dict[str, Any]
    others: list[str]
    codes: dict[str, list[str]]
    names: list[str]


class Window:
    """Features of a person's records up to an origin, defined by a panel of persons.

    Money is relative to the median earnings of its year, so that features mean the same in every
    year. The panel's own columns are features, too. Unknown values are NaN. A simulated register
    has no gaps between interviews, and realised macro after an origin is one draw there, which no
    forecaster may know: the last known earnings with the gaps between them, and the calendar year,
    are features of other panels only.

    Args:
        panel: the persons whose columns, codes and medians define the features.

    Attributes:
        names: names of the F features.
        categorical: the features whose values are codes 0, 1, ... of a classification.
        floor: lowest amount in logs, real money.
        reference: medians and ranks of earnings by year.
    """

    def __init__(self, panel: Panel) -> None:
        self.floor = 1.0 if panel.meta.floor is None else panel.meta.floor
        self.reference = Reference(panel)
        frame = panel.frame
        self.others = [
            name
            for name in (*CONTINUOUS, *panel.meta.extra_names("number"))
            if name != "earnings" and frame[name].null_count() < frame.height
        ]
        self.codes = {
            name: codes
            for name in (*CATEGORICAL, *panel.meta.extra_names("category"))
            if (codes := list(frequent_codes(frame, name)))
        }
        self._name_features(has_years=not panel.meta.simulated)

    def _name_features(self, *, has_years: bool) -> None:
        self.pay = ["pay_0", "pay_1", "pay_recent"] if "employment_rate" in self.others else []
        self.categorical = list(self.codes)
        self.names = [
            "age",
            *(("year", *_KNOWN, *_AMOUNTS) if has_years else ()),
            *(f"{kind}_{lag}" for kind in ("level", "zero") for lag in range(YEARS)),
            *(*SUMMARIES, *self.pay, *self.others),
            *(f"{name}{suffix}" for suffix in ("_1", "_recent") for name in self.others),
            *self.categorical,
        ]

    def as_dict(self) -> dict[str, Any]:
        """The window as plain values."""
        return {**vars(self), "reference": self.reference.as_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The window of `as_dict`. Raises ValueError for other values."""
        stored = read_values(_Stored, values)
        window = cls.__new__(cls)
        vars(window).update(vars(stored), reference=Reference.from_dict(stored.reference))
        window._name_features(has_years="year" in stored.names)
        columns = ((stored.others, CONTINUOUS), (stored.codes, CATEGORICAL))
        if window.names != stored.names or not all(
            name in known or name.startswith(EXTRA_PREFIX)
            for names, known in columns
            for name in names
        ):
            raise ValueError("its window has other features than its columns")
        return window

    def features(self, history: Panel, origins: Origins) -> NDArray[np.float32]:
        """Features (n, F) in the order of `origins`, from each person's rows up to the origin.

        An own column that `history` lacks is unknown.

        Raises InputError for a person without a row at or before the origin.
        """
        rows, last, position = locate_rows(history, origins, YEARS)
        kinds = dict.fromkeys(self.others, pl.Float64) | dict.fromkeys(self.codes, pl.String)
        rows = rows.with_columns(
            pl.lit(None, dtype).alias(name)
            for name, dtype in kinds.items()
            if name not in rows.columns
        )
        year, age = origins.year, origins.year - rows["birth_year"].to_numpy()[last]
        row_values, running = self._measure(rows)
        columns = {"age": age.astype(np.float64), "year": year.astype(np.float64)}
        earnings = _at(row_values["earnings"], position)
        relative = _at(row_values["relative"], position)
        columns |= {f"level_{lag}": relative[:, lag] for lag in range(YEARS)}
        columns |= {
            f"zero_{lag}": np.where(np.isnan(earnings[:, lag]), np.nan, earnings[:, lag] == 0)
            for lag in range(YEARS)
        }
        columns |= _window_summaries(relative)
        if "known_0" in self.names:
            columns |= _last_known(rows, row_values, last)
        columns |= self._lifelong(running, last, year, age)
        for name in self.others:
            values = rows[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
            values = values / row_values["median"] if name in MONEY else values
            recent = _at(values, position[:, :RECENT])
            columns |= {name: recent[:, 0], f"{name}_1": recent[:, 1]}
            columns[f"{name}_recent"] = _mean(recent)
        if self.pay:  # pay of a full year, because trees approximate a ratio of columns badly
            rate = rows["employment_rate"].cast(pl.Float64).fill_null(np.nan).to_numpy()
            worked = _at(np.where(rate >= MIN_EMPLOYMENT, rate, np.nan), position[:, :RECENT])
            pay = np.where(earnings[:, :RECENT] > 0, relative[:, :RECENT], np.nan) - np.log(worked)
            columns |= {"pay_0": pay[:, 0], "pay_1": pay[:, 1], "pay_recent": _mean(pay)}
        for name, codes in self.codes.items():
            number = {code: i for i, code in enumerate(codes)}
            coded = rows[name].replace_strict(number, default=np.nan, return_dtype=pl.Float64)
            columns[name] = _at(coded.fill_null(np.nan).to_numpy(), position[:, :1])[:, 0]
        return np.stack([columns[name] for name in self.names], axis=1).astype(np.float32)

    @property
    def lowest(self) -> float:
        """Smaller log amounts are raised to this one in a linear regression."""
        last_median = self.reference.level(np.array(self.reference.last))
        return float(np.log(self.floor) - np.log(last_median))

    def level(self, origins: Origins) -> Array:
        """Log median earnings (n,) of the origin years, the reference of outcomes."""
        return np.log(self.reference.level(origins.year))

    def _measure(self, rows: pl.DataFrame) -> tuple[dict[str, Array], pl.DataFrame]:
        """Values of each row, and running values over the person's rows up to it."""
        earnings = rows["earnings"].fill_null(np.nan).to_numpy()
        median = self.reference.level(rows["year"].to_numpy())
        relative = np.log(np.maximum(earnings, self.floor) / median)
        level = pl.Series("level", relative).fill_nan(None)
        seen = rows.select("person_id", "year", "earnings", level).with_columns(
            pl.col("earnings").fill_nan(None)
        )
        money, log = pl.col("earnings"), pl.col("level")
        so_far = {
            "years": log.is_not_null().cast(pl.Float64).cum_sum(),
            "zeros": (money == 0).fill_null(False).cast(pl.Float64).cum_sum(),
            "sum": log.fill_null(0.0).cum_sum(),
            "squares": (log**2).fill_null(0.0).cum_sum(),
            "last": money.forward_fill(),
            "last_year": pl.when(money.is_not_null()).then("year").forward_fill(),
            "last_positive": pl.when(money > 0).then("year").forward_fill(),
            "highest": log.cum_max().forward_fill(),
        }
        running = seen.select(
            expression.over("person_id").alias(name) for name, expression in so_far.items()
        )
        return {"earnings": earnings, "median": median, "relative": relative}, running

    def _lifelong(
        self, running: pl.DataFrame, last: Array, year: Array, age: Array
    ) -> dict[str, Array]:
        """Features of the whole record up to the origin, (n,), from its sums in `running`."""
        at_origin = running[last].select(pl.all().cast(pl.Float64).fill_null(np.nan))
        value = {column.name: column.to_numpy() for column in at_origin}
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = value["sum"] / value["years"]
            variance = np.maximum(value["squares"] / value["years"] - mean**2, 0)
        last_year = np.where(np.isnan(value["last_year"]), year, value["last_year"])
        last_year = last_year.astype(np.int64)
        without_rank = np.where(value["last"] == 0, -1, np.nan)
        rank = self.reference.rank(last_year, age - (year - last_year), value["last"])
        rank = np.where(value["last"] > 0, rank, without_rank)
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
_KNOWN = tuple(f"{kind}_{k}" for kind in ("known", "known_gap") for k in range(N_KNOWN))
_AMOUNTS = ("mean_amount", "zero_share")


def _last_known(rows: pl.DataFrame, values: dict[str, Array], last: Array) -> dict[str, Array]:
    """The last N_KNOWN levels and the years before each of them, and two means over all years.

    `known_gap_0` is the time from the last known year to the last row. `mean_amount` is the log of
    mean earnings relative to the medians of their years.
    """
    known = np.flatnonzero(np.isfinite(values["earnings"]))
    person = rows["person_id"].rle_id().to_numpy()
    year = rows["year"].to_numpy().astype(np.float64)
    newest = np.searchsorted(known, last, side="right") - 1
    columns: dict[str, Array] = {}
    later = year[last]
    for k in range(N_KNOWN):
        row = known[np.maximum(newest - k, 0)] if len(known) else np.zeros_like(last)
        exists = (newest >= k) & (person[row] == person[last])
        columns[f"known_{k}"] = np.where(exists, values["relative"][row], np.nan)
        columns[f"known_gap_{k}"] = np.where(exists, later - year[row], np.nan)
        later = year[row]
    sums = pl.DataFrame(
        {
            "person": person,
            "amount": np.nan_to_num(values["earnings"] / values["median"]),
            "zero": (values["earnings"] == 0).astype(np.float64),
            "known": np.isfinite(values["earnings"]).astype(np.float64),
        }
    ).select(pl.col("amount", "zero", "known").cum_sum().over("person"))[last]
    n = np.maximum(sums["known"].to_numpy(), 1)
    columns["mean_amount"] = np.log(np.maximum(sums["amount"].to_numpy() / n, LEAST_MEAN))
    columns["zero_share"] = sums["zero"].to_numpy() / n
    return columns


def _window_summaries(relative: Array) -> dict[str, Array]:
    with warnings.catch_warnings():
        # numpy warns of rows without a known year; their features are NaN.
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
    """The rows of the persons, and the positions of each person's last years among them.

    Returns the rows, the position of the last row at or before each origin (n,), and the positions
    of the last `years` calendar years (n, years), latest first, -1 without a row. Raises InputError
    for a person without a row at or before the origin.
    """
    ids = origins.frame().select("person_id")
    rows = history.frame.join(ids, on="person_id", how="semi", maintain_order="left")
    persons = rows["person_id"].unique(maintain_order=True)
    number = pl.DataFrame({"person_id": persons, "number": np.arange(len(persons))})
    of_row, of_origin = (
        frame.join(number, on="person_id", how="left", maintain_order="left")["number"]
        .fill_null(-1)
        .to_numpy()
        for frame in (rows.select("person_id"), ids)
    )
    key = of_row * 10_000 + rows["year"].to_numpy()
    origin_key = of_origin * 10_000 + origins.year
    last = np.searchsorted(key, origin_key, side="right") - 1
    missing = np.ones(len(origins), dtype=bool)
    if len(key):
        missing = (of_origin < 0) | (last < 0) | (of_row[last] != of_origin)
    if missing.any():
        first = int(np.argmax(missing))
        person, year = str(origins.person_id[first]), int(origins.year[first])
        raise no_history_error(person, year, int(missing.sum()))
    back = origin_key[:, None] - np.arange(years)
    position = np.searchsorted(key, back)
    exists = key[np.minimum(position, len(key) - 1)] == back
    return rows, last, np.where(exists, position, -1)
