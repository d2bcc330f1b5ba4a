"""Quantile forecasts in the formats of other libraries, and back.

Nixtla's libraries have a long table with columns `unique_id` and `ds`; GluonTS a `QuantileForecast`
for each item; Darts a `TimeSeries` with a component for each quantile. The way back gives the
columns person_id, year, mean and q.. of the forecast table. The libraries do not come with SAGA.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.errors import UsageError
from saga.requests import percent_label

MODEL = "SAGA"  # whose columns a long table has
_COMPONENT = "earnings"  # of Darts
_Series = tuple[str, int, NDArray[np.float64]]  # person, first year, values (n_column, n_year)


def to_long(table: pl.DataFrame) -> pl.DataFrame:
    """A forecast table as Nixtla's libraries have it: unique_id, ds, SAGA (the mean), SAGA-q-5 ..

    `ds` is the first day of the year.
    """
    quantiles = {f"{MODEL}-q-{100 * q:g}": pl.col(name) for name, q in _quantiles(table).items()}
    return table.select(
        unique_id=pl.col("person_id"),
        ds=_first_day("year"),
        **{MODEL: pl.col("mean")},
        **quantiles,
    )


def records_to_long(frame: pl.DataFrame) -> pl.DataFrame:
    """The records of a panel's frame as Nixtla's libraries have them: unique_id, ds, y."""
    known = frame.filter(pl.col("earnings").is_not_null())
    return known.select(unique_id="person_id", ds=_first_day("year"), y="earnings")


def from_long(frame: pl.DataFrame, model: str = MODEL) -> pl.DataFrame:
    """The forecasts of a model in a long table: person_id, year, mean and q..; see `to_long`."""
    start = f"{model}-q-"
    quantiles = {
        f"q{percent_label(float(name.removeprefix(start)) / 100)}": pl.col(name)
        for name in frame.columns
        if name.startswith(start)
    }
    return frame.select(
        pl.col("unique_id").cast(pl.String).alias("person_id"),
        pl.col("ds").dt.year().alias("year"),
        mean=pl.col(model),
        **quantiles,
    )


def to_gluonts(table: pl.DataFrame) -> list[Any]:
    """A `QuantileForecast` of GluonTS for each person, with quantiles and mean.

    Raises:
        UsageError: If years are missing between the horizons, or GluonTS is not installed.
    """
    kind = _library("gluonts.model.forecast", "gluonts").QuantileForecast
    period = _library("pandas", "pandas").Period
    keys = [*(f"{q:g}" for q in _quantiles(table).values()), "mean"]
    return [
        kind(values, period(str(year), freq="Y"), keys, item_id=person)
        for person, year, values in _series(table)
    ]


def from_gluonts(forecasts: Iterable[Any]) -> pl.DataFrame:
    """The forecasts of GluonTS as person_id, year, mean and q..; see `to_gluonts`."""
    return _table(
        (
            forecast.item_id,
            forecast.start_date.year,
            {
                "mean" if key == "mean" else f"q{percent_label(float(key))}": values
                for key, values in zip(forecast.forecast_keys, forecast.forecast_array, strict=True)
            },
        )
        for forecast in forecasts
    )


def to_darts(table: pl.DataFrame) -> dict[str, Any]:
    """Person -> `TimeSeries` of Darts with the components earnings_q0.050 .. and earnings_mean.

    Raises:
        UsageError: If years are missing between the horizons, or Darts is not installed.
    """
    kind, pandas = _library("darts", "darts").TimeSeries, _library("pandas", "pandas")
    names = [*(f"{_COMPONENT}_q{q:.3f}" for q in _quantiles(table).values()), f"{_COMPONENT}_mean"]
    return {
        person: kind.from_times_and_values(
            pandas.date_range(f"{year}-01-01", periods=values.shape[1], freq="YS"),
            values.T,
            columns=names,
            freq="YS",
        )
        for person, year, values in _series(table)
    }


def from_darts(series: Mapping[str, Any]) -> pl.DataFrame:
    """The series of Darts by person as person_id, year, mean and q..; see `to_darts`."""

    def name_of(component: str) -> str:
        name = component.removeprefix(f"{_COMPONENT}_")
        return name if name == "mean" else f"q{percent_label(float(name[1:]))}"

    return _table(
        (
            person,
            one.start_time().year,
            {
                name_of(component): values
                for component, values in zip(one.components, one.values().T, strict=True)
            },
        )
        for person, one in series.items()
    )


def _quantiles(table: pl.DataFrame) -> dict[str, float]:
    """Quantile columns of a forecast table -> the quantile."""
    names = [name for name in table.columns if name[0] == "q" and name[1:2].isdigit()]
    return {name: round(float(name[1:]) / 100, 8) for name in names}


def _first_day(column: str) -> pl.Expr:
    return pl.date(pl.col(column), 1, 1).cast(pl.Datetime("us"))


def _series(table: pl.DataFrame) -> Iterator[_Series]:
    """Quantiles and mean of each person. UsageError if there are years without a row between."""
    for rows in table.sort("person_id", "year").partition_by("person_id"):
        years = rows["year"].to_numpy()
        if years[-1] - years[0] + 1 != len(years):
            raise UsageError(
                "A series has no gaps between its years. Forecast all of them, with "
                "horizons=range(1, 11)."
            )
        yield (
            rows["person_id"][0],
            int(years[0]),
            rows.select(*_quantiles(table), "mean").to_numpy().T,
        )


def _table(series: Iterable[tuple[str, int, Mapping[str, Sequence[float]]]]) -> pl.DataFrame:
    """The rows of persons, from the first year and the values by column of each."""
    parts = []
    for person, year, columns in series:
        values = pl.DataFrame(
            {"mean": columns["mean"], **columns} if "mean" in columns else columns
        )
        years = pl.int_range(year, year + len(values), dtype=pl.Int32, eager=True)
        parts.append(
            values.select(pl.lit(str(person)).alias("person_id"), years.alias("year"), pl.all())
        )
    return pl.concat(parts, how="diagonal").sort("person_id", "year")


def _library(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise UsageError(f"This needs {package}. Run: pip install {package}") from None
