"""The HTML report of a register: plots against published figures, and all verdicts.

One file that needs nothing else. Everything is drawn from the table of
`saga.register.validation.register_check` with its descriptive rows; nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl
import vl_convert

from saga.files.html import render_page
from saga.macro.history import sweden_as_published
from saga.register.validation.level_statistics import (
    CLASS_NAMES,
    EMPLOYMENT_AGES,
    PAY_RATIO_PERIODS,
)
from saga.register.validation.register_check import IS_TARGET, count_verdicts, format_number
from saga.schema import EDUCATION_LEVELS

Chart = Any  # any kind of altair chart; not all their methods are typed

COLORS = {"all": "#444444", "women": "#c44e00", "men": "#0064a8"}
INK, BAND, GRID, AREA = "#1c2430", "#d3d9e2", "#e3e6eb", "#b9c2cf"
LAG_COLORS = ["#8fb4d6", "#3f7fb8", "#123a66"]
PANEL = {"width": 330, "height": 220}
YEARS_AXIS = alt.X(
    "year:Q",
    title=None,
    axis=alt.Axis(format="d", values=list(range(1990, 2023, 5))),
    scale=alt.Scale(domain=[1990, 2023], nice=False),
)
UPRIGHT = alt.Axis(labelAngle=0)
PERCENT = alt.Axis(format=".0%")


@dataclass(frozen=True)
class Figure:
    """A plot with its title and what it shows."""

    title: str
    note: str
    svg: str


def write_report(table: pl.DataFrame, out: Path, provenance: Mapping[str, Any]) -> None:
    """Write the report of a table with its descriptive rows to `out`."""
    missed = table.filter(pl.col("enforced") & (pl.col("verdict") != "inside"))
    page = render_page(
        "saga.register.validation",
        "register_report.html",
        {
            "title": f"Register check: {provenance['register']}",
            "tally": count_verdicts(table),
            "missed": missed["key"].to_list(),
            "figures": list(_figures(table)),
            "topics": list(_topics(table)),
            "provenance": provenance,
        },
    )
    out.write_text(page, encoding="utf-8")


def _topics(table: pl.DataFrame) -> Iterator[dict[str, Any]]:
    for (topic,), part in table.filter(IS_TARGET).group_by(["topic"], maintain_order=True):
        rows = [
            {
                **row,
                **{name: format_number(row[name]) for name in ("target", "value", "se")},
                "band": _format_band(row["low"], row["high"]),
                "mark": row["mark"] or "",
            }
            for row in part.iter_rows(named=True)
        ]
        sources = part["source"].unique(maintain_order=True).to_list()
        yield {
            "name": topic,
            "rows": rows,
            "concepts": part["concept"].unique(maintain_order=True).to_list(),
            "sources": [source for source in sources if source],
        }


def _format_band(low: float | None, high: float | None) -> str:
    if high is None:
        return "" if low is None else f"above {format_number(low)}"
    return f"{'below' if low is None else f'{format_number(low)} to'} {format_number(high)}"


def _figures(table: pl.DataFrame) -> Iterator[Figure]:
    """Every plot for which the table has rows."""
    measured = table.filter(pl.col("value").is_not_null())
    for title, note, plot in PLOTS:
        chart = plot(measured)
        if chart is not None:
            chart = (
                chart.properties(description=title)
                .configure(font="sans-serif")
                .configure_view(stroke=None)
                .configure_legend(orient="top", labelLimit=0, symbolOpacity=1)
                .configure_axis(gridColor=GRID, labelFontSize=11, titleFontSize=11)
            )
            svg = vl_convert.vegalite_to_svg(chart.to_dict())
            # One image for a screen reader, which would otherwise read every mark aloud.
            labelled = svg.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)
            yield Figure(title, note, labelled)


def _rows(table: pl.DataFrame, pattern: str, *names: str) -> pl.DataFrame:
    """The rows whose key matches `pattern`, its groups as columns `names`.

    A column of whole numbers is converted to integers.
    """
    key = pl.col("key")
    rows = table.filter(key.str.contains(f"^{pattern}$")).with_columns(
        key.str.extract(f"^{pattern}$", k + 1).alias(name) for k, name in enumerate(names)
    )
    whole = [name for name in names if rows.height and rows[name].str.contains(r"^-?\d+$").all()]
    return rows.with_columns(pl.col(whole).cast(pl.Int64)).select(
        *names, "value", "se", "target", "low", "high"
    )


def _sex_color() -> alt.Color:
    scale = alt.Scale(domain=["women", "men"], range=[COLORS["women"], COLORS["men"]])
    return alt.Color("group:N", scale=scale, title=None)


def _facet_by_group(chart: Chart) -> Chart:
    """One panel per group, women left of men."""
    return chart.facet(column=alt.Column("group:N", title=None, sort=list(COLORS)))


def _against_target(frame: pl.DataFrame, x: alt.X, title: str, number_format: str) -> Chart:
    """Simulated value (dot), band (bar) and target (tick) over a categorical x."""
    base = alt.Chart(frame).encode(x)
    scale = alt.Scale(domain=list(COLORS), range=list(COLORS.values()))
    low = alt.Y("low:Q", title=title, axis=alt.Axis(format=number_format))
    band = base.mark_bar(color=BAND, size=13).encode(low, alt.Y2("high:Q"))
    target = base.mark_tick(color=INK, thickness=2, size=13).encode(alt.Y("target:Q"))
    value = base.mark_point(filled=True, size=45, opacity=1).encode(
        alt.Y("value:Q"), alt.Color("group:N", scale=scale, legend=None)
    )
    return alt.layer(band, target, value)


def _plot_quantiles(table: pl.DataFrame) -> Chart:
    order = ["p10", "p25", "p50", "p75", "p90", "mean", "top5", "top1"]
    frame = _rows(table, rf"level\.(all|women|men)\.({'|'.join(order)})", "group", "statistic")
    if frame.is_empty():
        return None
    frame = frame.with_columns(pl.col("value", "target", "low", "high") / pl.col("target") - 1.0)
    x = alt.X("statistic:N", sort=order, title=None, axis=UPRIGHT)
    chart = _against_target(frame, x, "distance from the target", "+.0%")
    return _facet_by_group(chart.properties(width=260, height=PANEL["height"]))


def _plot_classes(table: pl.DataFrame) -> Chart:
    frame = _rows(table, r"bins\.(women|men)\.(.+)", "group", "class")
    if frame.is_empty():
        return None
    tilted = alt.Axis(labelAngle=-60)
    x = alt.X("class:N", sort=list(CLASS_NAMES), title="thousand SEK of 2020", axis=tilted)
    chart = _against_target(frame, x, "share of persons", ".0%")
    return _facet_by_group(chart.properties(width=400, height=PANEL["height"]))


def _plot_employment(table: pl.DataFrame) -> Chart:
    frame = _rows(table, r"employment\.(women|men)\.(\d+-\d+)", "group", "age")
    if frame.is_empty():
        return None
    order = [f"{first}-{last}" for first, last in EMPLOYMENT_AGES]
    x = alt.X("age:N", title=None, axis=UPRIGHT, sort=order)
    chart = _against_target(frame, x, "share employed, 2015", ".0%")
    return _facet_by_group(chart.properties(**PANEL))


def _plot_zeros(table: pl.DataFrame) -> Chart:
    frame = _rows(table, r"zeros\.(women|men)\.(\d+-\d+)", "group", "age")
    if frame.is_empty():
        return None
    x = alt.X("age:N", title=None, axis=UPRIGHT)
    y = alt.Y("value:Q", title="share of zeros", axis=PERCENT)
    chart = alt.Chart(frame).mark_line(point=True).encode(x, y, _sex_color())
    return chart.properties(width=600, height=PANEL["height"])


def _plot_pay_ratio(table: pl.DataFrame) -> Chart:
    frame = _rows(table, r"pay_ratio\.(\d+)", "year")
    if frame.is_empty():
        return None
    y = alt.Y("value:Q", title="women's pay / men's", scale=alt.Scale(zero=False))
    points = alt.OverlayMarkDef(color=COLORS["women"], size=20)
    chart = alt.Chart(frame).mark_line(color=COLORS["women"], point=points).encode(YEARS_AXIS, y)
    targets = _rows(table, r"wage_ratio\.(\d+).*", "first")
    if not targets.is_empty():
        last = pl.col("first").replace_strict(dict(PAY_RATIO_PERIODS)) + 1
        first_year = alt.X(
            "first:Q", title=None, axis=YEARS_AXIS["axis"], scale=YEARS_AXIS["scale"]
        )
        base = alt.Chart(targets.with_columns(last=last)).encode(first_year, alt.X2("last:Q"))
        bands = base.mark_rect(color=BAND).encode(alt.Y("low:Q"), alt.Y2("high:Q"))
        lines = base.mark_rule(color=INK, strokeWidth=2).encode(alt.Y("target:Q"))
        chart = alt.layer(bands, lines, chart)
    return chart.properties(width=600, height=PANEL["height"])


def _plot_education(table: pl.DataFrame) -> Chart:
    pattern = r"schooling\.(women|men)\.(\d+)\.(compulsory|long_tertiary)"
    frame = _rows(table, pattern, "group", "born", "level")
    if frame.is_empty():
        return None
    x = alt.X("born:Q", title="birth year", axis=alt.Axis(format="d"), scale=alt.Scale(zero=False))
    y = alt.Y("value:Q", title="share", axis=PERCENT)
    dash = alt.StrokeDash("level:N", title=None)
    cohorts = alt.Chart(frame).mark_line(point=True).encode(x, y, _sex_color(), dash)
    cohorts = cohorts.properties(**PANEL)
    targets = _rows(table, r"education\.2019\.(women|men)\.(.+)", "group", "level")
    if targets.is_empty():
        return cohorts
    group = alt.X("group:N", title=None, axis=UPRIGHT)
    in_2019 = _against_target(targets, group, "share 2019, 20-64", ".0%")
    level = alt.Column("level:N", sort=list(EDUCATION_LEVELS), title=None)
    in_2019 = in_2019.properties(width=75, height=PANEL["height"]).facet(column=level)
    return alt.hconcat(cohorts, in_2019).resolve_scale(color="independent")


def _plot_years(table: pl.DataFrame) -> Chart:
    pattern = r"year\.(women|men)\.(\d+)\.(p10|p50|p90|gini)"
    frame = _rows(table, pattern, "group", "year", "statistic")
    if frame.is_empty():
        return None
    amounts = frame.filter(pl.col("statistic") != "gini").with_columns(pl.col("value") / 1000)
    thousands = alt.Y("value:Q", title="thousand SEK of 2022")
    dash = alt.StrokeDash("statistic:N", title=None, sort=["p50", "p10", "p90"])
    quantiles = alt.Chart(amounts).mark_line().encode(YEARS_AXIS, thousands, _sex_color(), dash)
    gini_rows = frame.filter(pl.col("statistic") == "gini")
    y = alt.Y("value:Q", title="Gini, zeros counted", scale=alt.Scale(zero=False))
    gini = alt.Chart(gini_rows).mark_line().encode(YEARS_AXIS, y, _sex_color())
    return alt.hconcat(quantiles.properties(**PANEL), gini.properties(**PANEL))


def _plot_cycle(table: pl.DataFrame) -> Chart:
    pattern = r"moves\.year\.(women|men)\.(\d+)\.(kelley|p90-p10)"
    frame = _rows(table, pattern, "group", "year", "statistic")
    if frame.is_empty():
        return None
    history = sweden_as_published()
    years = list(range(history.first_year, history.last_year + 1))
    rate = pl.DataFrame({"year": years, "rate": history.values[:, 0]})

    def panel(statistic: str, title: str) -> Chart:
        y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=False))
        lines = alt.Chart(frame.filter(pl.col("statistic") == statistic)).mark_line(
            point=alt.OverlayMarkDef(size=15)
        )
        return lines.encode(YEARS_AXIS, y, _sex_color()).properties(width=640, height=130)

    y = alt.Y("rate:Q", title="unemployment", axis=PERCENT)
    unemployment = alt.Chart(rate).mark_area(color=AREA).encode(YEARS_AXIS, y)
    return alt.vconcat(
        panel("kelley", "Kelley skewness"),
        panel("p90-p10", "P90-P10"),
        unemployment.properties(width=640, height=80),
    )


def _plot_ranks(table: pl.DataFrame) -> Chart:
    frame = _rows(table, r"moves\.rank\.(\d+)\.(\d+)\.(.+)", "decile", "lag", "statistic")
    if frame.is_empty():
        return None
    frame = frame.with_columns(pl.format("over {} y", "lag").alias("over"))
    color = alt.Color("over:N", title=None, scale=alt.Scale(range=LAG_COLORS))
    x = alt.X("decile:O", title="decile of past earnings", axis=UPRIGHT)

    def panel(statistic: str, title: str) -> Chart:
        lines = alt.Chart(frame.filter(pl.col("statistic") == statistic)).mark_line(point=True)
        chart = lines.encode(x, alt.Y("value:Q", title=title), color)
        return chart.properties(width=250, height=200)

    return alt.hconcat(
        panel("p90-p10", "P90-P10"),
        panel("kelley", "Kelley skewness"),
        panel("crow-siddiqui", "excess Crow-Siddiqui"),
    )


def _plot_first_birth(table: pl.DataFrame) -> Chart:
    frame = _rows(table, r"penalty\.(mothers|fathers)\.(-?\d+)", "parent", "event")
    if frame.is_empty():
        return None
    frame = frame.with_columns(
        group=pl.col("parent").replace_strict({"mothers": "women", "fathers": "men"}),
        low=pl.col("value") - 2 * pl.col("se"),
        high=pl.col("value") + 2 * pl.col("se"),
    )
    x = alt.X("event:Q", title="years from the first birth")
    low = alt.Y("low:Q", title="effect on earnings", axis=PERCENT)
    base = alt.Chart(frame)
    band = base.mark_area(opacity=0.2).encode(x, low, alt.Y2("high:Q"), _sex_color())
    line = base.mark_line(point=True).encode(x, alt.Y("value:Q"), _sex_color())
    return alt.layer(band, line).properties(width=600, height=240)


def _plot_mobility(table: pl.DataFrame) -> Chart:
    frame = _rows(table, r"fifths\.(\d+)\.(\d)-(\d)", "lag", "now", "later")
    frame = frame.filter(pl.col("lag") > 1)
    if frame.is_empty():
        return None
    frame = frame.with_columns(pl.format("{} years later", "lag").alias("over"))
    base = alt.Chart().encode(
        alt.X("later:O", title="fifth later", axis=UPRIGHT),
        alt.Y("now:O", title="fifth now", sort="descending"),
    )
    blues = alt.Color("value:Q", title="share", scale=alt.Scale(scheme="blues"), legend=None)
    contrast = alt.condition("datum.value > 0.4", alt.value("white"), alt.value(INK))
    text = base.mark_text().encode(alt.Text("value:Q", format=".0%"), color=contrast)
    chart = alt.layer(base.mark_rect().encode(blues), text, data=frame)
    order = ["5 years later", "10 years later"]
    return chart.properties(width=250, height=200).facet(
        column=alt.Column("over:N", title=None, sort=order)
    )


LEGEND = "Dot: simulated; bar: band; tick: target."
PLOTS: tuple[tuple[str, str, Callable[[pl.DataFrame], Chart]], ...] = (
    (
        "Income 2020: quantiles and means",
        "Taxable income, 20-64, resident all year, relative to the published figure. " + LEGEND,
        _plot_quantiles,
    ),
    ("Income 2020: classes by sex", f"Taxable income, 20-64. {LEGEND}", _plot_classes),
    (
        "Employment by age 2015",
        f"Share at work or on paid leave in a week drawn at random. {LEGEND}",
        _plot_employment,
    ),
    (
        "Years without earnings by age",
        "Share of person-years with labour earnings of exactly 0, all years. No target by age.",
        _plot_zeros,
    ),
    (
        "Women's pay relative to men's",
        "Full-time full-year jobs. Line: simulated; bars: published figures and their bands.",
        _plot_pay_ratio,
    ),
    (
        "Education",
        "Left: by cohort, at 37 or as soon as the panel shows it. Right, 2019: " + LEGEND.lower(),
        _plot_education,
    ),
    (
        "Earnings by year",
        "Labour earnings at 20-64, zeros counted, and their Gini coefficient.",
        _plot_years,
    ),
    (
        "Changes and the cycle",
        "1-year changes of log earnings, 25-55, by the second year, above unemployment.",
        _plot_cycle,
    ),
    (
        "Changes by rank",
        "Changes of log earnings by decile of the mean of three past years, 25-55.",
        _plot_ranks,
    ),
    (
        "Earnings around the first birth",
        "Event study, zeros counted; base: the year before. Area: 2 standard errors either side.",
        _plot_first_birth,
    ),
    (
        "Mobility",
        "Where persons in a fifth of three-year mean earnings are later, 25-55 in both years.",
        _plot_mobility,
    ),
)
