"""The chart of one person: record, published sets, median, and chance of no earnings by year."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

from saga.files.plot_theme import INK

MEDIAN = "#08306b"
_ZERO = "#8a5a12"
_SHADES = ("#7fabda", "#b4cfeb", "#dbe7f5", "#eef4fb")  # sets, from the narrowest to the widest
_TIGHT = alt.Scale(zero=False, nice=False)


@dataclass(frozen=True)
class ChartSize:
    """Width and heights of the two panels in pixels; a large chart has a legend and titles."""

    width: int = 620
    height: int = 280
    zero_height: int = 70
    is_large: bool = True
    bar: int = 9  # width of the bars of the lower panel
    legend_columns: int = 0  # 0: one row


PHONE = ChartSize(width=250, height=220, zero_height=50, bar=4, legend_columns=3)
SMALL = ChartSize(width=270, height=130, zero_height=38, is_large=False, bar=4)


def coverage_labels(rows: pl.DataFrame) -> list[str]:
    """Labels of the coverages whose sets `rows` has, such as "90", from narrow to wide."""
    labels = [name.removeprefix("lower_") for name in rows.columns if name.startswith("lower_")]
    return sorted((x for x in labels if not rows[f"lower_{x}"].is_null().all()), key=float)


def draw_person(rows: pl.DataFrame, unit: str, size: ChartSize = ChartSize()) -> Any:
    """Record and forecast on top, the chance of no earnings below, as an Altair chart.

    `rows`: one row per year with `earnings` of the record, or `median`, `p_zero`, `lower_..` and
    `upper_..` of the forecast. With `includes_zero_..`, a dot marks a set that contains zero.
    """
    forecast = rows.filter(pl.col("p_zero").is_not_null())
    labels = coverage_labels(rows)
    names = {"record": INK, "median": MEDIAN}
    names |= {f"{x} % set": shade for x, shade in zip(labels, _SHADES, strict=False)}
    scale = alt.Scale(domain=list(names), range=list(names.values()))
    legend = (
        alt.Legend(title=None, orient="top", symbolType="square", columns=size.legend_columns)
        if size.is_large
        else None
    )

    colour = alt.Color("layer:N", scale=scale, legend=legend)

    def layer_of(data: Any, name: str) -> Any:
        return data.transform_calculate(layer=f"'{name}'").encode(color=colour)

    year = alt.X("year:Q", title=None, axis=alt.Axis(format="d", tickCount=6), scale=_TIGHT)
    amount = alt.Axis(format=",.0f" if size.is_large else "~s", tickCount=5 if size.is_large else 4)
    y_title = unit if size.is_large else None
    base = alt.Chart(forecast).encode(x=year)
    # Bars if years are missing: an area would suggest sets in the years between.
    is_dense = forecast.height > 1 and bool((forecast["year"].diff().drop_nulls() == 1).all())
    layers = []
    for label in reversed(labels):
        sets = base.transform_filter(f"isValid(datum.lower_{label})")
        mark = sets.mark_area(opacity=1) if is_dense else sets.mark_bar(opacity=1, width=7)
        ends = {"y": alt.Y(f"lower_{label}:Q", title=y_title, axis=amount), "y2": f"upper_{label}"}
        layers.append(layer_of(mark.encode(**ends), f"{label} % set"))
    for label in reversed(labels):
        if f"includes_zero_{label}" in rows.columns:
            has_zero = base.transform_filter(f"datum.includes_zero_{label}")
            dots = has_zero.mark_point(filled=True, size=26, opacity=1, stroke=MEDIAN)
            layers.append(layer_of(dots.encode(y=alt.datum(0)), f"{label} % set"))
    median = base.mark_line(strokeWidth=2, point=not is_dense).encode(y="median:Q")
    years = rows.select(pl.int_range(pl.col("year").min(), pl.col("year").max() + 1).alias("year"))
    record = rows.filter(pl.col("earnings").is_not_null()).select("year", "earnings")
    # A year without a row breaks the line: it must not look like a year with earnings in between.
    past = alt.Chart(years.join(record, on="year", how="left")).encode(
        x=year, y=alt.Y("earnings:Q", title=y_title, axis=amount)
    )
    line, points = past.mark_line(strokeWidth=1.5), past.mark_point(filled=True, size=16, opacity=1)
    layers += [layer_of(median, "median"), layer_of(line, "record"), layer_of(points, "record")]
    sets_panel = alt.layer(*layers).properties(width=size.width, height=size.height)
    zero_panel = (
        alt.Chart(rows)
        .mark_bar(color=_ZERO, size=size.bar)
        .encode(
            x=alt.X("year:Q", title=None, axis=None, scale=_TIGHT),
            y=alt.Y(
                "p_zero:Q",
                title=["Chance of", "no earnings"] if size.is_large else None,
                scale=alt.Scale(domain=[0, 1]),
                axis=alt.Axis(format="%", values=[0, 0.5, 1]),
            ),
        )
        .properties(width=size.width, height=size.zero_height)
    )
    return alt.vconcat(sets_panel, zero_panel, spacing=8).resolve_scale(x="shared")
