"""Forecasts go to the formats of other libraries and come back as they were."""

from __future__ import annotations

import os
import subprocess
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from saga import Forecaster, UsageError, exchange, read_panel
from saga.forecast_results import Forecasts

ROOT = Path(__file__).resolve().parents[2]
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
    names = {"person_id": "unique_id", "year": "ds", "earnings": "y"}
    again = read_panel(long.join(born, on="unique_id"), mapping={"columns": names}, prices=2022)
    columns = ["person_id", "year", "birth_year", "earnings"]
    known = panel.frame.filter(pl.col("earnings").is_not_null())
    assert_frame_equal(again.frame.select(columns), known.select(columns))


def test_years_without_a_forecast_between_are_refused(forecasts: Forecasts) -> None:
    gaps = forecasts.table.filter(pl.col("horizon") != 2)
    with pytest.raises(UsageError, match=r"no gaps.*range\(1, 11\)"):
        list(exchange._series(gaps))


@pytest.mark.exchange
def test_gluonts_darts_and_nixtla_read_the_forecasts(forecasts: Forecasts, tmp_path: Path) -> None:
    """In an environment of their own, which need not have SAGA's libraries."""
    if "SAGA_EXCHANGE_PYTHON" not in os.environ:
        pytest.skip("SAGA_EXCHANGE_PYTHON names no Python with gluonts, darts and utilsforecast")
    forecasts.table.write_parquet(tmp_path / "table.parquet")
    done = subprocess.run(
        [os.environ["SAGA_EXCHANGE_PYTHON"], OTHERS, tmp_path / "table.parquet"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
