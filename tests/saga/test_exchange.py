"""Forecasts go to the formats of other libraries and come back as they were."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from saga import Forecaster, UsageError, exchange, read_panel
from saga.forecast_results import Forecasts

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "build" / "exchange-tools" / "bin" / "python"
OTHERS = Path(__file__).with_name("recipes") / "other_libraries.py"


@pytest.fixture(scope="module")
def forecasts() -> Forecasts:
    return Forecaster.load(threads=1).forecast(
        ROOT / "examples" / "people.csv", horizons=range(1, 4)
    )


def test_a_long_table_has_the_names_of_nixtla_and_comes_back(forecasts: Forecasts) -> None:
    long = forecasts.to_long()
    assert long.columns[:4] == ["unique_id", "ds", "SAGA", "SAGA-q-1"]
    back = exchange.from_long(long)
    assert_frame_equal(back, forecasts.table.select(back.columns))


def test_records_in_the_long_format_are_a_panel_again() -> None:
    panel = read_panel(ROOT / "examples" / "people.csv", prices=2022)
    long = panel.to_long()
    assert long.columns == ["unique_id", "ds", "y"]
    assert long["ds"][0] == datetime(panel.frame["year"][0], 1, 1)
    born = panel.frame.select("birth_year", unique_id="person_id").unique()
    long = long.join(born, on="unique_id")
    again = read_panel(long, id="unique_id", time="ds", target="y", prices=2022)
    columns = ["person_id", "year", "birth_year", "earnings"]
    known = panel.frame.filter(pl.col("earnings").is_not_null())
    assert_frame_equal(again.frame.select(columns), known.select(columns))


def test_years_without_a_forecast_between_are_refused(forecasts: Forecasts) -> None:
    gaps = forecasts.table.filter(pl.col("horizon") != 2)
    with pytest.raises(UsageError, match=r"no gaps.*range\(1, 11\)"):
        list(exchange._series(gaps))


def test_a_long_table_loses_no_digit_of_a_quantile() -> None:
    names = ["q0.0125", "q01", "q33.333333", "q99.9995"]
    table = pl.DataFrame(
        {"person_id": "a", "year": 2023, "mean": 5.0, **dict.fromkeys(names, 1.0)}
    ).cast({"year": pl.Int32})
    assert_frame_equal(exchange.from_long(exchange.to_long(table)), table)
    assert_frame_equal(exchange.from_long(exchange.to_long(table.to_pandas())), table)
    with pytest.raises(UsageError, match=r"three decimals.*q0.0125, q33.333333, q99.9995\. Drop"):
        exchange.to_darts(table)


LONG = {"unique_id": ["a", "b"], "ds": [datetime(2023, 12, 31)] * 2, "AutoARIMA": [5, 6]}


def test_levels_of_other_models_are_quantiles() -> None:
    long = pl.DataFrame({**LONG, "AutoARIMA-lo-90": [1, 2], "AutoARIMA-hi-90": [8, 9]})
    back = exchange.from_long(long, "AutoARIMA")
    assert back.rows() == [("a", 2023, 5.0, 1.0, 8.0), ("b", 2023, 6.0, 2.0, 9.0)]
    assert back.columns == ["person_id", "year", "mean", "q05", "q95"]
    numbered = {**LONG, "unique_id": [7, 8], "ds": [2023, 2023]}
    assert exchange.from_long(pl.DataFrame(numbered), "AutoARIMA").row(0) == ("7", 2023, 5.0)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"unique_id": ["a", "a"], "ds": [datetime(2023, 1, 1), datetime(2023, 2, 1)]}, "of 2023"),
        ({"unique_id": [1.0, 2.0]}, "Convert it to text"),
        ({"unique_id": ["a", None]}, "without a person"),
        ({"ds": ["2023-01-01"] * 2}, "not String"),
        ({"ds": [datetime(2022, 12, 31, 23)] * 2}, "another time zone"),  # 2023 of Stockholm
        ({"ds": [1, 2]}, "outside 1900 to 2200"),
        ({"AutoARIMA": ["5", "6"]}, "AutoARIMA: forecasts are numbers"),
        ({"AutoARIMA-lo-90": ["1,5", "2"]}, "AutoARIMA-lo-90: forecasts are numbers"),
        ({"AutoARIMA": None}, "lacks AutoARIMA"),
    ],
)
def test_a_long_table_without_yearly_forecasts_is_refused(
    changed: dict[str, Any], reason: str
) -> None:
    columns = {name: cells for name, cells in {**LONG, **changed}.items() if cells is not None}
    with pytest.raises(UsageError, match=reason):
        exchange.from_long(pl.DataFrame(columns), "AutoARIMA")


def test_another_table_than_forecasts_is_refused() -> None:
    with pytest.raises(UsageError, match="lacks year, mean"):
        exchange.to_long(pl.DataFrame({"person_id": ["a"]}))


def gluonts(item: Any = "a", freq: str = "Y-DEC", key: str = "0.5", ndim: int = 1) -> Any:
    """What `from_gluonts` reads of a QuantileForecast."""
    start = SimpleNamespace(year=2023, freqstr=freq)
    values = np.ones((1, *[2] * ndim))
    return SimpleNamespace(
        item_id=item, start_date=start, forecast_keys=[key], forecast_array=values
    )


def darts(freq: object = "YS-JAN", component: str = "earnings_q0.500", n_samples: int = 1) -> Any:
    """What `from_darts` reads of a TimeSeries."""
    return SimpleNamespace(
        freq_str=freq,
        n_samples=n_samples,
        components=[component],
        values=lambda: np.ones((2, 1)),
        start_time=lambda: SimpleNamespace(year=2023),
    )


def test_the_ways_back_read_years_and_quantiles() -> None:
    table = pl.DataFrame({"person_id": "a", "year": [2023, 2024], "q50": 1.0})
    table = table.cast({"year": pl.Int32})
    assert_frame_equal(exchange.from_gluonts([gluonts()]), table)
    assert_frame_equal(
        exchange.from_gluonts([gluonts(key="1e-05")]), table.rename({"q50": "q0.001"})
    )
    assert_frame_equal(exchange.from_darts({"a": darts()}), table)


GLUONTS, DARTS = exchange.from_gluonts, exchange.from_darts


@pytest.mark.parametrize(
    ("read", "forecasts", "reason"),
    [
        (GLUONTS, [gluonts(item=None)], "no person"),
        (GLUONTS, [gluonts(item=1.0)], "no person"),
        (GLUONTS, [gluonts(freq="M")], "frequency M"),
        (GLUONTS, [gluonts(freq="2Y-DEC")], "frequency 2Y"),
        (GLUONTS, [gluonts(key="middle")], "middle names no quantile"),
        (GLUONTS, [gluonts(ndim=2)], "several series"),
        (GLUONTS, [gluonts(), gluonts()], "several forecasts of 2023"),
        (GLUONTS, [SimpleNamespace(samples=np.ones((9, 2)))], "samples"),
        (GLUONTS, [], "no forecasts"),
        (DARTS, {"a": darts(freq="MS")}, "frequency MS"),
        (DARTS, {"a": darts(freq="2YS-JAN")}, "frequency 2YS"),
        (DARTS, {"a": darts(freq=1)}, "frequency 1"),
        (DARTS, {"a": darts(component="wage")}, "wage names no quantile"),
        (DARTS, {"a": darts(n_samples=9)}, "samples"),
        (DARTS, {None: darts()}, "no person"),
        (DARTS, {}, "no forecasts"),
        (DARTS, [darts()], "dictionary"),
    ],
)
def test_forecasts_without_yearly_quantiles_are_refused(
    read: Callable[[Any], object], forecasts: Any, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        read(forecasts)


@pytest.mark.thorough
@pytest.mark.skipif(not TOOLS.exists(), reason="make build/exchange-tools")
def test_gluonts_darts_and_nixtla_read_the_forecasts(forecasts: Forecasts, tmp_path: Path) -> None:
    """In an environment of their own, which need not have SAGA's libraries."""
    forecasts.table.write_parquet(tmp_path / "table.parquet")
    done = subprocess.run(
        [TOOLS, OTHERS, tmp_path / "table.parquet"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
