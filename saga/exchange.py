"""Quantile forecasts in the formats of other libraries, and back.

Nixtla's libraries have a long table with columns `unique_id` and `ds`; GluonTS a `QuantileForecast`
for each item; Darts a `TimeSeries` with a component for each quantile. The way back gives the
columns person_id, year, mean and q.. of the forecast table, and raises UsageError for what is no
yearly forecast by quantiles. The libraries do not come with SAGA.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.errors import UsageError
from saga.files.data_frames import ArrowStream, to_polars
from saga.requests import percent_label
from saga.schema import BY_NAME

MODEL = "SAGA"  # whose columns a long table has
_COMPONENT = "earnings"  # of Darts
_COMPONENT_DECIMALS = 3  # of the quantiles in Darts' names
_YEARLY = re.compile(r"[AY][SE]?(-[A-Z]{3})?")  # frequencies of pandas: Y-DEC, YS-JAN, A-DEC ..
_FIRST_DAY = pl.date(pl.col("year"), 1, 1).cast(pl.Datetime("us"))
_Columns = tuple[str, int, Mapping[str, NDArray[np.float64]]]  # person, first year, values
_Series = tuple[str, int, NDArray[np.float64]]  # person, first year, values (n_column, n_year)


def to_long(table: ArrowStream) -> pl.DataFrame:
    """A forecast table as Nixtla's libraries have it: unique_id, ds, SAGA (the mean), SAGA-q-5 ..

    `ds` is the first day of the year.
    """
    forecasts = _forecasts(table)
    quantiles = {
        f"{MODEL}-q-{np.format_float_positional(round(100 * q, 6), trim='-')}": pl.col(name)
        for name, q in _quantiles(forecasts).items()
    }
    return forecasts.select(
        unique_id=pl.col("person_id"),
        ds=_FIRST_DAY,
        **{MODEL: pl.col("mean")},
        **quantiles,
    )


def records_to_long(frame: pl.DataFrame) -> pl.DataFrame:
    """The records of a panel's frame as Nixtla's libraries have them: unique_id, ds, y."""
    known = frame.filter(pl.col("earnings").is_not_null())
    return known.select(unique_id="person_id", ds=_FIRST_DAY, y="earnings")


def from_long(frame: ArrowStream, model: str = MODEL) -> pl.DataFrame:
    """The forecasts of a model in a long table: person_id, year, mean and q..; see `to_long`.

    Columns such as AutoARIMA-lo-90 and AutoARIMA-hi-90 are the quantiles at the ends of the middle
    90 %. `ds` has dates, or years as whole numbers.

    Raises:
        UsageError: If a column is missing or of another type, `ds` has times or no years, or a
            person has a year twice.
    """
    long = to_polars(frame, "the long table")
    if missing := [name for name in ("unique_id", "ds", model) if name not in long.columns]:
        raise UsageError(
            f"The long table lacks {', '.join(missing)}. It has unique_id, ds and the forecasts of "
            "a model, whose name is the second argument."
        )
    kind = long.schema["unique_id"]
    if not (kind.is_integer() or kind in (pl.String, pl.Categorical, pl.Enum)):
        raise UsageError(f"unique_id has texts or whole numbers, not {kind}. Convert it to text.")
    kind = long.schema["ds"]
    if not (kind.is_integer() or kind in (pl.Date, pl.Datetime)):
        raise UsageError(f"ds has dates or years as whole numbers, not {kind}. Convert it.")
    ds, year = long["ds"], BY_NAME["year"]
    years = ds if kind.is_integer() else ds.dt.year()
    is_timed = kind == pl.Datetime and (ds != ds.dt.truncate("1d")).any()
    if is_timed or not years.is_between(year.minimum, year.maximum).all():
        raise UsageError(
            "ds has times within days, as a first of January in another time zone, or years "
            f"outside {year.minimum:g} to {year.maximum:g}. Convert it to dates, or to years."
        )
    values = {"mean": model}
    for name in long.columns:
        label = name.removeprefix(f"{model}-")
        if label != name and (match := re.fullmatch(r"(q|lo|hi)-(\d+\.?\d*)", label)):
            percent = float(match[2])
            if match[1] != "q":
                percent = 50 - percent / 2 if match[1] == "lo" else 50 + percent / 2
            values[_column_of(percent / 100)] = name
    if texts := [name for name in values.values() if not long.schema[name].is_numeric()]:
        raise UsageError(f"{', '.join(texts)}: forecasts are numbers. Convert them.")
    table = long.select(
        pl.col("unique_id").cast(pl.String).alias("person_id"),
        years.cast(pl.Int32).alias("year"),
        **{column: pl.col(name).cast(pl.Float64) for column, name in values.items()},
    )
    return _with_one_row_a_year(table)


def to_gluonts(table: ArrowStream) -> list[Any]:
    """A `QuantileForecast` of GluonTS for each person, with quantiles and mean.

    Raises:
        UsageError: If years are missing between the horizons, or GluonTS is not installed.
    """
    kind = _library("gluonts.model.forecast", "gluonts").QuantileForecast
    period = _library("pandas", "pandas").Period
    forecasts = _forecasts(table)
    keys = [*map(str, _quantiles(forecasts).values()), "mean"]  # where GluonTS looks 0.05 up
    return [
        kind(values, period(str(year), freq="Y"), keys, item_id=person)
        for person, year, values in _series(forecasts)
    ]


def from_gluonts(forecasts: Iterable[Any]) -> pl.DataFrame:
    """The forecasts of GluonTS as person_id, year, mean and q..; see `to_gluonts`.

    Raises:
        UsageError: If a forecast has samples, no item_id or no quantile of one series, or is not
            yearly.
    """
    return _table(map(_gluonts_series, forecasts))


def _gluonts_series(forecast: Any) -> _Columns:
    if not hasattr(forecast, "forecast_keys"):
        raise UsageError(
            f"A {type(forecast).__name__} has no quantiles. Give QuantileForecasts; samples have "
            "them by to_quantile_forecast(['0.05', '0.5', '0.95'])."
        )
    _require_yearly(forecast.start_date.freqstr)
    columns = {
        "mean" if key == "mean" else _column_of(_quantile(key, key)): values
        for key, values in zip(forecast.forecast_keys, forecast.forecast_array, strict=True)
    }
    return forecast.item_id, forecast.start_date.year, columns


def to_darts(table: ArrowStream) -> dict[str, Any]:
    """Person -> `TimeSeries` of Darts with the components earnings_q0.050 .. and earnings_mean.

    Raises:
        UsageError: If years are missing between the horizons, a quantile has more than three
            decimals, which Darts' names do not have, or Darts is not installed.
    """
    forecasts = _forecasts(table)
    quantiles = _quantiles(forecasts)
    if unnamed := [name for name, q in quantiles.items() if q != round(q, _COMPONENT_DECIMALS)]:
        raise UsageError(
            f"Darts names quantiles with three decimals, which cannot name {', '.join(unnamed)}. "
            "Drop these columns, or forecast others."
        )
    kind, pandas = _library("darts", "darts").TimeSeries, _library("pandas", "pandas")
    names = [f"{_COMPONENT}_q{q:.{_COMPONENT_DECIMALS}f}" for q in quantiles.values()]
    names.append(f"{_COMPONENT}_mean")
    return {
        person: kind.from_times_and_values(
            pandas.date_range(f"{year}-01-01", periods=values.shape[1], freq="YS"),
            values.T,
            columns=names,
            freq="YS",
        )
        for person, year, values in _series(forecasts)
    }


def from_darts(series: Mapping[str, Any]) -> pl.DataFrame:
    """The series of Darts by person as person_id, year, mean and q..; see `to_darts`.

    Raises:
        UsageError: If a series has samples or other components than `to_darts` writes, or is not
            yearly.
    """
    if not isinstance(series, Mapping):
        raise UsageError("The series of Darts are a dictionary: person -> TimeSeries.")
    return _table(_darts_series(person, one) for person, one in series.items())


def _darts_series(person: str, one: Any) -> _Columns:
    _require_yearly(str(one.freq_str))
    if one.n_samples > 1:
        raise UsageError("A series has samples. Take quantiles of them: series.quantile([0.05]).")
    columns = {}
    for component, values in zip(one.components, one.values().T, strict=True):
        name = str(component).removeprefix(f"{_COMPONENT}_")
        quantile = name.removeprefix("q") if name.startswith("q") else ""
        column = "mean" if name == "mean" else _column_of(_quantile(quantile, component))
        columns[column] = values
    return person, one.start_time().year, columns


def _require_yearly(frequency: str) -> None:
    if not _YEARLY.fullmatch(frequency):
        raise UsageError(
            f"A forecast has the frequency {frequency}. Give one of every year, such as YS."
        )


def _quantile(text: str, name: str) -> float:
    """The quantile of a text such as 0.05. UsageError if it is none; `name` has it."""
    if not re.fullmatch(r"0?\.\d+|\d(\.\d+)?e-\d+", str(text)) or float(text) == 0:
        raise UsageError(
            f"{name} names no quantile. Name them as `to_gluonts` and `to_darts` do: 0.05 or "
            f"{_COMPONENT}_q0.050."
        )
    return float(text)


def _column_of(quantile: float) -> str:
    return f"q{percent_label(quantile)}"


def _forecasts(table: ArrowStream) -> pl.DataFrame:
    """A forecast table. UsageError if it is another one."""
    forecasts = to_polars(table, "the forecast table")
    if missing := [name for name in ("person_id", "year", "mean") if name not in forecasts.columns]:
        raise UsageError(
            f"A forecast table has person_id, year, mean and quantiles; this one lacks "
            f"{', '.join(missing)}."
        )
    return forecasts


def _quantiles(table: pl.DataFrame) -> dict[str, float]:
    """Quantile columns of a forecast table -> the quantile."""
    names = [name for name in table.columns if name[0] == "q" and name[1:2].isdigit()]
    return {name: round(float(name[1:]) / 100, 8) for name in names}


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


def _table(series: Iterable[_Columns]) -> pl.DataFrame:
    """The rows of persons, from the first year and the values by column of each."""
    parts = []
    for person, year, columns in series:
        if not isinstance(person, str | int) or isinstance(person, bool):
            raise UsageError("A forecast has no person: name it by a text, as item_id or as key.")
        if any(np.ndim(values) != 1 for values in columns.values()):
            raise UsageError("A forecast has several series. Give one of a single series.")
        values = pl.DataFrame(
            {"mean": columns["mean"], **columns} if "mean" in columns else columns
        )
        years = pl.int_range(year, year + len(values), dtype=pl.Int32, eager=True)
        parts.append(
            values.select(pl.lit(str(person)).alias("person_id"), years.alias("year"), pl.all())
        )
    if not parts:
        raise UsageError("There are no forecasts. Give at least one.")
    return _with_one_row_a_year(pl.concat(parts, how="diagonal").sort("person_id", "year"))


def _with_one_row_a_year(table: pl.DataFrame) -> pl.DataFrame:
    """The table. UsageError if a person has a year twice, or a row has no person or year."""
    keys = table.select("person_id", "year")
    if keys.height == 0 or keys.null_count().sum_horizontal().item() > 0:
        raise UsageError("A forecast has no row, or one without a person or year. Give both.")
    if twice := keys.filter(keys.is_duplicated())["year"].head(1).to_list():
        raise UsageError(
            f"A person has several forecasts of {twice[0]}. Give one of every year: one time step "
            "is one year, and one model and origin are one table."
        )
    return table


def _library(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise UsageError(f"This needs {package}. Run: pip install {package}") from None
