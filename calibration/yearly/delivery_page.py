"""The page "What the new year says": recommendation, coverage by year, tests, groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from saga.conformal.calibration_table import ALL
from saga.files.html import render_page
from saga.files.plot_theme import BAND, GREY, LINE, draw_svg
from saga.forecast_warnings import SIMULATED
from saga.requests import COVERAGE
from saga.summaries import count

if TYPE_CHECKING:
    from saga.calibration.yearly.yearly_delivery import YearlyReport

_NOMINAL = 0.9
_HEADINGS = {
    "keep": "Keep the bundle",
    "recalibrate": "Recalibrate the bundle",
    "fine-tune": "Fine-tune the bundle",
    "retrain": "Train a new bundle",
}


def render_delivery(report: YearlyReport, values: Mapping[str, Any]) -> str:
    """The page as HTML without external resources.

    `values` are those of `delivery_values`, which the file `delivery.json` has too.
    """
    everybody = report.years.filter((pl.col("group") == ALL) & pl.col("covered").is_not_null())
    newest = report.tests[-1] if report.tests else None
    of_newest = report.years.filter(
        pl.col("covered").is_not_null()
        & (pl.col("horizon") == 1)
        & (pl.col("year") == (newest.year if newest else -1))
    )
    return render_page(
        "saga.calibration.yearly",
        "delivery.html",
        {
            "simulated": SIMULATED if values["trained_on"] == "simulated people" else "",
            "settled": values["settled"],
            "waiting": values["waiting"],
            "heading": _HEADINGS[report.recommendation.action],
            "recommendation": report.recommendation,
            "years": everybody.to_dicts(),
            "groups": of_newest.to_dicts(),
            "tests": report.tests,
            "newest": newest,
            "spans": [
                {**asdict(row), "inside": dict(zip(COVERAGE, row.inside, strict=True))[_NOMINAL]}
                for row in report.spans
            ],
            "alpha": values["false_alarm_rate"],
            "scale": report.scale,
            "picture": draw_coverage(everybody) if everybody.height else "",
            "provenance": {
                "bundle": values["bundle"],
                "state": values["adaptive"],
                "settled outcomes": values["settled"],
                "forecasts without outcome": values["waiting"],
            },
        },
        {"pct": lambda share: "-" if share is None else f"{100 * share:.1f} %"},
    )


def draw_coverage(everybody: pl.DataFrame) -> str:
    """Coverage of the 90 % intervals by outcome year and horizon, as SVG."""
    ahead = pl.col("horizon").map_elements(lambda number: count(number, "year"), pl.String)
    shown = everybody.select(
        "year",
        pl.format("{} ahead", ahead).alias("years ahead"),
        pl.col("covered").alias("published"),
        pl.col("bundle_covered").alias("bundle alone"),
    ).unpivot(index=["year", "years ahead"], variable_name="forecast", value_name="coverage")
    years = shown["year"].unique().sort().to_list()
    axis = alt.Axis(format="d", values=years, labelOverlap=True)
    scale = alt.Scale(domain=["published", "bundle alone"], range=[LINE, GREY])
    lines = (
        alt.Chart(shown)
        .mark_line(point=True)
        .encode(
            alt.X("year:Q", title="Outcome year", axis=axis),
            alt.Y("coverage:Q", title="Inside", axis=alt.Axis(format="%"), scale={"zero": False}),
            alt.Color("forecast:N", title="Forecast", scale=scale),
        )
    )
    rule = alt.Chart(shown).mark_rule(color=BAND, strokeDash=[4, 3]).encode(y=alt.datum(_NOMINAL))
    chart = alt.layer(rule, lines).properties(width=200, height=160)
    facets = chart.facet(facet=alt.Facet("years ahead:N", title=None), columns=3)
    return draw_svg(facets, "Share of outcomes inside the 90 % intervals, by outcome year")
