"""Draws docs/pictures/ten_people.svg: prediction sets of ten people, before and now.

Usage: python docs/pictures/ten_people.py

api/web/example_people.csv are ten made-up records, the examples of the explorer.
ten_people_before.csv are their forecasts at commit 587f00a: `saga forecast FILE --horizons
1,...,20 --coverage .5,.9 --quantiles .5 --paths 500`. The forecasts of now are by the shipped
bundle.
"""

from __future__ import annotations

from pathlib import Path

import altair as alt
import polars as pl

from saga.data.reading import read_panel
from saga.forecaster import Forecaster
from saga.requests import ForecastRequest

FOLDER = Path(__file__).resolve().parent
COLUMNS = [
    "person_id",
    "year",
    "q50",
    *(f"{name}_{c}" for c in (50, 90) for name in ("lower", "upper", "includes_zero")),
]


def main() -> None:
    """Forecast, and draw one row per person."""
    panel = read_panel(FOLDER.parents[1] / "api/web/example_people.csv")
    request = ForecastRequest(range(1, 21), coverage=[0.5, 0.9], quantiles=[0.5])
    now = Forecaster.load(FOLDER.parents[1] / "bundles/small").forecast(panel, request).table
    before = pl.read_csv(FOLDER / "ten_people_before.csv")
    sets = pl.concat(
        [
            table.select(COLUMNS).with_columns(
                pl.col("year").cast(pl.Int64),
                pl.col("^(q50|lower_.*|upper_.*)$") / 1_000,
                version=pl.lit(version),
            )
            for version, table in (("before (587f00a)", before), ("now", now))
        ],
        how="vertical_relaxed",
    )
    year = alt.X("year:Q", title=None, axis=alt.Axis(format="d"), scale=alt.Scale(zero=False))
    base = alt.Chart(sets).encode(year)
    amount = "thousand SEK"
    layers = [
        base.mark_bar(color=color, width=5).encode(
            alt.Y(f"lower_{c}:Q", title=amount), alt.Y2(f"upper_{c}")
        )
        for c, color in ((90, "#b9cce0"), (50, "#5d8fc2"))
    ]
    layers += [
        base.transform_filter(f"datum.includes_zero_{c}")
        .mark_point(color=color, filled=True, size=size, opacity=1)
        .encode(y=alt.datum(0))
        for c, color, size in ((90, "#8fb0d2", 34), (50, "#1f5a99", 14))
    ]
    median = base.mark_line(color="#123a66").encode(alt.Y("q50:Q"))
    chart = (
        alt.layer(*layers, median, data=sets)
        .properties(width=270, height=90)
        .facet(
            row=alt.Row("person_id:N", title=None),
            column=alt.Column("version:N", title=None),
            title="Median, 50 and 90 % prediction sets of ten people (dot: the set contains zero)",
        )
        .resolve_scale(y="independent", x="independent")
    )
    chart.save(FOLDER / "ten_people.svg")


if __name__ == "__main__":
    main()
