"""Draws docs/pictures/fan.svg: a forecast by the shipped bundle as its published sets.

Usage: python docs/pictures/fan_chart.py
"""

from __future__ import annotations

from pathlib import Path

import altair as alt
import polars as pl

from saga.data.reading import read_panel
from saga.forecaster import Forecaster

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Read, forecast, draw."""
    panel = read_panel(ROOT / "examples/people.csv")
    person = panel.persons()[0]
    forecasts = Forecaster.load(ROOT / "bundles/small").forecast(panel.only([person]))
    table = forecasts.table.with_columns(pl.col("^(q|lower_|upper_).*$") / 1_000)
    past = panel.frame.filter(pl.col("person_id") == person).select(
        "year", past=pl.col("earnings") / 1_000
    )

    year = alt.X("year:Q", title=None, axis=alt.Axis(format="d"))
    base = alt.Chart(table).encode(year)
    bands = [
        base.mark_area(color="#1f5a99", opacity=0.22).encode(
            alt.Y(f"lower_{coverage}:Q", title="Earnings, thousand SEK of 2022 a year"),
            alt.Y2(f"upper_{coverage}"),
        )
        for coverage in (90, 80, 50)
    ]
    median = base.mark_line(color="#123a66").encode(alt.Y("q50:Q"))
    record = alt.Chart(past).mark_line(point=True, color="#222").encode(year, alt.Y("past:Q"))
    chart = alt.layer(*bands, median, record).properties(
        width=640,
        height=280,
        title="A record with a zero and a missing year: median and 50, 80, 90 % prediction sets",
    )
    chart.save(ROOT / "docs/pictures/fan.svg")


if __name__ == "__main__":
    main()
