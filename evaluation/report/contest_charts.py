"""The charts of an evaluation as SVG text, in the theme of the calibration report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl
from saga.evaluation.lifetime_scores import TRUTH
from saga.evaluation.report.evaluation_results import Results
from saga.evaluation.report.paper import GROUP_LABELS
from saga.evaluation.report.result_tables import order_models
from saga.evaluation.scoring.comparison import BUNDLE_NAME, VARIANT, YEAR
from saga.evaluation.scoring.gap import CLAIRVOYANT

from saga.pages.theme import BAND, INK, LINE, draw_svg
from saga.requests import RATE

_GREY = "#8a94a3"
_SHAPES = (
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "cross",
    "triangle-down",
    "triangle-left",
    "triangle-right",
    "stroke",
)


@dataclass(frozen=True)
class Picture:
    """A chart of the page: its title, how to read it, and the drawing as SVG text."""

    title: str
    reading: str
    svg: str


def draw_charts(results: Results) -> list[Picture]:
    """Every chart that the results allow."""
    charts = [
        (
            "CRPS of log earnings",
            "A lower line is better: its forecasts were nearer to the outcomes.",
            accuracy_chart(results.metrics),
            "CRPS by years ahead, one line per model",
        ),
        (
            "Coverage of 90 % sets by group",
            "Each dot should lie within its grey bar, which shows where chance would put it.",
            coverage_chart(results.metrics),
            "Share inside by group with its band",
        ),
        (
            "Differences from saga",
            "Right of the dashed line SAGA is better. A line that crosses it: chance may explain "
            "the difference.",
            differences_chart(results.comparisons),
            "Difference in CRPS with 95 % intervals",
        ),
        (
            "Lifetime earnings, simulated and true",
            "The dashed lines are the true figures.",
            lifetimes_chart(results.lifetimes),
            "Percentiles of present values by model",
        ),
    ]
    return [
        Picture(title, reading, draw_svg(chart, text))
        for title, reading, chart, text in charts
        if chart is not None
    ]


def accuracy_chart(metrics: pl.DataFrame) -> Any:
    """CRPS by horizon, one panel per setting, one line per model; None without rows."""
    models = order_models(metrics["model"].unique().to_list())
    rows = metrics.filter(
        pl.col("metric") == "crps_log",
        pl.col("group") == "all",
        pl.col("n") > 0,
        pl.col("model").is_in(models),
    )
    if rows.is_empty():
        return None
    horizons = rows["horizon"].unique().sort().to_list()
    colour = alt.Color(
        "model:N",
        sort=models,
        scale=alt.Scale(domain=models, range=[_colour(m) for m in models]),
        title=None,
    )
    shape = alt.Shape(
        "model:N",
        sort=models,
        scale=alt.Scale(
            domain=models, range=[_SHAPES[i % len(_SHAPES)] for i in range(len(models))]
        ),
    )
    base = alt.Chart(rows).encode(
        x=alt.X("horizon:Q", title="Years ahead", axis=alt.Axis(values=horizons, format="d")),
        y=alt.Y("value:Q", title="CRPS", scale=alt.Scale(zero=False)),
    )
    lines = base.mark_line(strokeWidth=1.5).encode(color=colour, detail="model:N")
    points = base.mark_point(size=45, filled=False).encode(color=colour, shape=shape)
    return alt.layer(lines, points).properties(width=270, height=230).facet(column=_by_setting())


def coverage_chart(metrics: pl.DataFrame) -> Any:
    """Share inside the bundle's 90 % sets in-time by group, one panel per horizon."""
    rows = metrics.filter(
        pl.col("metric") == "coverage_90",
        pl.col("setting") == "in-time",
        pl.col("model") == BUNDLE_NAME,
        pl.col("group").is_in(list(GROUP_LABELS)),
    ).filter(pl.col("n") > 0, pl.col("band_lower").is_not_null())
    if rows.is_empty():
        return None
    horizons = rows["horizon"].unique().sort().to_list()
    panel_of = {h: f"{h} {'year' if h == 1 else 'years'} ahead" for h in horizons}
    rows = rows.with_columns(
        label=pl.col("group").replace(GROUP_LABELS),
        panel=pl.col("horizon").replace_strict(panel_of),
    )
    labels = [words for group, words in GROUP_LABELS.items() if group in rows["group"].to_list()]
    base = alt.Chart(rows).encode(
        y=alt.Y("label:N", sort=labels, title=None, axis=alt.Axis(labelLimit=190))
    )
    scale = alt.Scale(zero=False, nice=True)
    share = alt.X(
        "band_lower:Q", title="Share inside", scale=scale, axis=alt.Axis(format="%", tickCount=4)
    )
    band = base.mark_bar(color=BAND, height=9).encode(x=share, x2="band_upper:Q")
    points = base.mark_point(filled=True, size=40, opacity=1, color=LINE).encode(x="value:Q")
    width = max(90, 520 // max(1, len(panel_of)))
    layers = alt.layer(band, points).properties(width=width, height=15 * len(labels))
    column = alt.Column("panel:N", sort=list(panel_of.values()), title=None)
    return layers.facet(column=column, spacing=8)


def differences_chart(comparisons: pl.DataFrame | None) -> Any:
    """CRPS of every other model less the bundle's, 95 % intervals, one panel per setting."""
    if comparisons is None or comparisons.is_empty():
        return None
    rows = comparisons.filter(
        pl.col("metric") == "crps_log",
        pl.col("group") == "all",
        pl.col("test") != YEAR,
        pl.col("model") != CLAIRVOYANT,
    )
    rows = rows.filter(~pl.col("model").str.starts_with(VARIANT))
    if rows.is_empty():
        return None
    rows = rows.with_columns(
        low=pl.col("difference") - 1.96 * pl.col("se"),
        high=pl.col("difference") + 1.96 * pl.col("se"),
        label=pl.format("{}, h = {}", "model", "horizon"),
    ).sort("model", "horizon")
    labels = rows["label"].unique(maintain_order=True).to_list()
    base = alt.Chart(rows).encode(
        y=alt.Y("label:N", sort=labels, title=None, axis=alt.Axis(labelLimit=190))
    )
    bars = base.mark_rule(color=LINE, strokeWidth=2).encode(
        x=alt.X("low:Q", title="CRPS of the other less saga's"), x2="high:Q"
    )
    points = base.mark_point(filled=True, size=40, opacity=1, color=LINE).encode(x="difference:Q")
    zero = alt.Chart(rows).mark_rule(color=INK, strokeDash=[3, 3]).encode(x=alt.datum(0))
    return (
        alt.layer(zero, bars, points)
        .properties(width=250, height=14 * len(labels))
        .facet(column=_by_setting())
    )


def lifetimes_chart(table: pl.DataFrame | None) -> Any:
    """P10, median, mean and P90 of lifetime earnings: one row for the realised, one per model."""
    if table is None:
        return None
    statistics = ["p10", "p50", "mean", "p90"]
    rows = table.filter(
        pl.col("group") == "all", pl.col("rate") == RATE, pl.col("statistic").is_in(statistics)
    )
    models = [TRUTH, *order_models([m for m in rows["model"].unique().to_list() if m != TRUTH])]
    rows = rows.with_columns(million=pl.col("value") / 1e6)
    names = alt.Shape(
        "statistic:N",
        sort=statistics,
        scale=alt.Scale(domain=statistics, range=["stroke", "circle", "diamond", "stroke"]),
        title=None,
    )
    base = alt.Chart(rows).encode(
        y=alt.Y("model:N", sort=models, title=None),
        x=alt.X("million:Q", title="Present value, million"),
    )
    points = base.mark_point(size=70, filled=False, color=LINE).encode(shape=names)
    truth = (
        alt.Chart(rows.filter(pl.col("model") == TRUTH))
        .mark_rule(color=INK, strokeDash=[3, 3])
        .encode(x="million:Q")
    )
    return alt.layer(truth, points).properties(width=520, height=20 * len(models))


def _colour(model: str) -> str:
    return LINE if model == BUNDLE_NAME else INK if model == CLAIRVOYANT else _GREY


def _by_setting() -> Any:
    return alt.Column("setting:N", title=None, sort=["in-time", "forward"])
