"""The page "What the new year says": recommendation, coverage by year, tests, groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import polars as pl

from saga.conformal.calibration_table import ALL
from saga.forecast_warnings import SIMULATED
from saga.pages.layout import render_page
from saga.pages.theme import BAND, GREY, LINE, draw_svg
from saga.summaries import count

_NOMINAL = 0.9
_HEADINGS = {
    "keep": "Keep the bundle",
    "recalibrate": "Recalibrate the bundle",
    "fine-tune": "Fine-tune the bundle",
    "retrain": "Train a new bundle",
}


def render_delivery(years: pl.DataFrame, values: Mapping[str, Any]) -> str:
    """The page as HTML without external resources.

    Args:
        years: The table `years.parquet` of the delivery.
        values: The content of its `delivery.json`.
    """
    shown = years.filter(pl.col("covered").is_not_null())
    everybody = shown.filter(group=ALL)
    newest = values["tests"][-1] if values["tests"] else None
    of_newest = shown.filter(horizon=1, year=newest["year"] if newest else -1)
    return render_page(
        "delivery.html",
        {
            **values,
            "simulated": SIMULATED if values["trained_on"] == "simulated people" else "",
            "heading": _HEADINGS[values["recommendation"]],
            "years": everybody.to_dicts(),
            "groups": of_newest.to_dicts(),
            "newest": newest,
            "headline": values["coverage"].index(_NOMINAL),
            "picture": draw_coverage(everybody) if everybody.height else "",
            "provenance": {
                "bundle": values["bundle"],
                "state": values["adaptive"],
                "settled outcomes": values["settled"],
                "forecasts without outcome": values["waiting"],
            },
        },
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
