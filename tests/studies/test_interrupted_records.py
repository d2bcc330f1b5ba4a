"""Interruptions are counted, and the chance of no earnings is right for records that have them."""

from __future__ import annotations

import polars as pl
import pytest
from scipy.stats import norm

from saga.data.panel import Panel, PanelMeta
from saga.forecaster import Forecaster
from studies.interrupted_records import compare, count_interruptions, judged_records

ORIGINS = (2002, 2005, 2008, 2011, 2014, 2017, 2020)


def panel_of(records: dict[str, str], *, birth_year: int = 1970) -> Panel:
    """Records that end in 2020: "1" a year with earnings, "0" without, "." unknown."""
    amounts = {"1": 300_000.0, "0": 0.0, ".": None}
    rows = [
        (person, 2021 - len(record) + i, birth_year, amounts[mark])
        for person, record in records.items()
        for i, mark in enumerate(record)
    ]
    columns = ["person_id", "year", "birth_year", "earnings"]
    return Panel.of(pl.DataFrame(rows, columns, orient="row"), PanelMeta("p"))


def test_interruptions_lie_between_years_with_earnings() -> None:
    records = {
        "a": "1" * 12,
        "b": "0011101001111",  # the years before the first earnings are none
        "c": "1101011101010111",
        "d": "1.011111.1111",  # an unknown year is no year without earnings
        "short": "101111111",
        "ends": "1" * 11 + "0",
    }
    counted = count_interruptions(panel_of(records), 2020, 17)
    assert counted.rows() == [("a", 0, 0), ("b", 2, 3), ("c", 5, 5), ("d", 1, 1)]
    late = count_interruptions(panel_of({"c": "101" + "1" * 14}), 2020, 15)
    assert late.rows() == [("c", 0, 0)], "years before the last 15 do not count"
    student = count_interruptions(panel_of({"s": "101" + "1" * 14}, birth_year=1983), 2020, 17)
    assert student.rows() == [("s", 0, 0)], "years before age 25 do not count"


@pytest.mark.slow
def test_the_chance_of_no_earnings_is_right_after_interruptions(register_panel: Panel) -> None:
    """The register has another seed than the bundle. The chance of all records fails."""
    forecaster = Forecaster.load(threads=1)
    records = judged_records(forecaster, register_panel, ORIGINS, 17, "register")
    interrupted = records.filter(pl.col("interruptions") >= 2)
    broken = interrupted.with_columns(p_zero=pl.lit(records["p_zero"].mean()))
    assert len(interrupted) > 200
    tolerance = norm.ppf(0.9995)  # of standard errors: a right forecast fails one time in 1,000
    for forecasts, is_right in ((interrupted, True), (broken, False)):
        found = compare(forecasts)
        assert (abs(found.share - found.forecast) < tolerance * found.error) == is_right
