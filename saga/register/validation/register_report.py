"""The HTML report of a register: plots against published figures, and all verdicts.

The page is one file that needs no other. All its figures are those of the table of
`saga.register.validation.register_check` with its descriptive rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl
import vl_convert

from saga.macro.history import sweden_as_published
from saga.pages.format import significant
from saga.pages.layout import render_page
from saga.register.validation.level_statistics import (
    CLASS_NAMES,
    EMPLOYMENT_AGES,
    PAY_RATIO_PERIODS,
)
from saga.register.validation.register_check import IS_TARGET
from saga.schema import EDUCATION_LEVELS

Chart = Any  # a chart of altair; not all methods are typed

COLORS = {"all": "#444444", "women": "#c44e00", "men": "#0064a8"}
INK, BAND, GRID, AREA = "#1c2430", "#d3d9e2", "#e3e6eb", "#b9c2cf"
LAG_COLORS = ["#8fb4d6", "#3f7fb8", "#123a66"]
ENOUGH_PERSONS = 100_000  # for standard errors of tails
PANEL = {"width": 330, "height": 220}
YEARS_AXIS = alt.X(
    "year:Q",
    title=None,
    axis=alt.Axis(format="d", values=list(range(1990, 2023, 5))),
    scale=alt.Scale(domain=[1990, 2023], nice=False),
)
QUANTILES = ["p10", "p25", "p50", "p75", "p90", "mean", "top5", "top1"]
UPRIGHT = alt.Axis(labelAngle=0)
PERCENT = alt.Axis(format=".0%")
EDUCATION_NAMES = {level: level.replace("_", " ") for level in EDUCATION_LEVELS}
HEADLINES = {
    "level.all.mean": "Mean taxable income 2020, SEK",
    "level.all.p50": "Median taxable income 2020, SEK",
    "level.all.gini": "Inequality of taxable income 2020 (Gini; 0: all have the same)",
    "level.ratio.mean": "Women's mean income 2020 / men's",
    "wage_ratio.2022": "Women's pay / men's, full-time full-year jobs, 2022",
    "growth.1995-2022": "Mean real pay of such jobs, 2022 / 1995",
    "employment.all.20-64": "Share at work or on paid leave, 2015",
    "zeros.20-64": "Share of years without any earnings, 1990-2022",
    "education.2022.tertiary": "Share with tertiary education, ages 25-64, 2022",
    "childless.women.1965": "Share without children, women born 1965",
}
TOPIC_NAMES = {
    "Signs": "Directions: recessions, women and men, birth region",
    "Changes (recalled)": "Changes of earnings (figures recalled)",
    "Social statistics (recalled)": "Social statistics (figures recalled)",
    "Against a linear process": "Comparison with a simple linear process",
    "Education premia": "Pay by education",
}
WORDS = {
    "P10, P50, P90": "the amounts below which 10, 50 and 90 % of persons are. P90-P10 is the "
    "distance between two of them, of logarithms; P90/P10 is their ratio.",
    "Gini": "a measure of inequality: 0 if all have the same, 1 if one person has everything.",
    "Kelley": "the skewness of changes: above 0 if large gains are larger than large losses, "
    "below 0 the other way round.",
    "Crow-Siddiqui": "how peaked the changes are: high if most are tiny and a few are huge. "
    "Excess: above that of a normal distribution.",
    "s.e.": "standard error: how far the simulated figure may be off by chance.",
    "rank-rank slope": "how closely the later rank follows the earlier one: 1 if nobody changes "
    "place.",
}


@dataclass(frozen=True)
class Plot:
    """A plot of the rows whose key matches a pattern.

    Attributes:
        title: Title of the plot.
        note: What it shows.
        pattern: Regular expression of the keys; its groups name columns.
        draw: Chart of these rows; its second argument is the table of all measured rows.
        is_main: Whether every reader sees it; the others are folded.
    """

    title: str
    note: str
    pattern: str
    draw: Callable[[pl.DataFrame, pl.DataFrame], Chart]
    is_main: bool = True


def write_report(table: pl.DataFrame, out: Path, provenance: Mapping[str, Any]) -> None:
    """Write the report of a table with its descriptive rows to `out`."""
    targets = table.filter(IS_TARGET)
    enforced = targets.filter("enforced")
    missed = enforced.filter(pl.col("verdict") != "inside")
    figures = list(_figures(table))
    page = render_page(
        "register_report.html",
        {
            "register": provenance["register"],
            "enforced": enforced.height,
            "inside": enforced.height - missed.height,
            "is_small": int(provenance["persons"].replace(",", "")) < ENOUGH_PERSONS,
            "headlines": list(_headlines(targets)),
            "missed": [_as_text(row) for row in missed.iter_rows(named=True)],
            "figures": [figure for figure in figures if figure["is_main"]],
            "more_figures": [figure for figure in figures if not figure["is_main"]],
            "topics": list(_topics(targets)),
            "words": WORDS,
            "provenance": provenance,
        },
        "saga.register.validation",
    )
    out.write_text(page, encoding="utf-8")


def _headlines(targets: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """The figures that a reader looks for first, in per cent where they are shares."""
    rows = {row["key"]: row for row in targets.iter_rows(named=True)}
    for key, name in HEADLINES.items():
        row = rows.get(key)
        if row is not None and row["value"] is not None:
            scale, unit = (100.0, " %") if name.startswith("Share") else (1.0, "")

            def text(number: float | None, scale: float = scale, unit: str = unit) -> str:
                return "-" if number is None else f"{significant(scale * number)}{unit}"

            yield {
                "name": name,
                "target": text(row["target"]),
                "band": f"{text(row['low'], unit='')} to {text(row['high'])}",
                "value": text(row["value"]),
                "verdict": row["verdict"],
            }


def _topics(targets: pl.DataFrame) -> Iterator[dict[str, Any]]:
    for (topic,), part in targets.group_by(["topic"], maintain_order=True):
        rows = [_as_text(row) for row in part.iter_rows(named=True)]
        sources = part["source"].unique(maintain_order=True).to_list()
        enforced = part.filter("enforced")
        yield {
            "name": TOPIC_NAMES.get(str(topic), topic),
            "rows": rows,
            "checks": enforced.height,
            "inside": (enforced["verdict"] == "inside").sum(),
            "reported": part.height - enforced.height,
            "concepts": part["concept"].unique(maintain_order=True).to_list(),
            "sources": [source for source in sources if source],
        }


def _as_text(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the table with its numbers as text."""
    numbers = {name: significant(row[name]) for name in ("target", "value", "se")}
    band = _format_band(row["low"], row["high"])
    topic = TOPIC_NAMES.get(row["topic"], row["topic"])
    return {**row, **numbers, "band": band, "mark": row["mark"] or "", "topic": topic}


def _format_band(low: float | None, high: float | None) -> str:
    if high is None:
        return "" if low is None else f"above {significant(low)}"
    return f"{'below' if low is None else f'{significant(low)} to'} {significant(high)}"


def _figures(table: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Title, note and SVG of every plot for which the table has rows."""
    measured = table.filter(pl.col("value").is_not_null())
    for plot in PLOTS:
        rows = _rows(measured, plot.pattern)
        if not rows.is_empty():
            chart = (
                plot.draw(rows, measured)
                .properties(description=plot.title)
                .configure(font="sans-serif")
                .configure_view(stroke=None)
                .configure_legend(orient="top", labelLimit=0, symbolOpacity=1)
                .configure_axis(gridColor=GRID, labelFontSize=11, titleFontSize=11)
                .configure_axisY(titlePadding=14)  # labels may come out wider than measured
            )
            svg = vl_convert.vegalite_to_svg(chart.to_dict())
            # One image for a screen reader, which would otherwise read every mark aloud.
            labelled = svg.replace("<svg ", f'<svg role="img" aria-label="{plot.title}" ', 1)
            yield {
                "title": plot.title,
                "note": plot.note,
                "svg": labelled,
                "is_main": plot.is_main,
            }


def _rows(table: pl.DataFrame, pattern: str) -> pl.DataFrame:
    """The rows whose key matches `pattern`, with its named groups as columns.

    Columns of whole numbers become integers.
    """
    key = pl.col("key").str
    rows = table.filter(key.contains(f"^{pattern}$")).select(
        "value", "se", "target", "low", "high", key.extract_groups(f"^{pattern}$").alias("groups")
    )
    rows = rows.unnest("groups")
    whole = [
        column.name
        for column in rows.select(pl.col(pl.String))
        if rows.height and column.str.contains(r"^-?\d+$").all()
    ]
    return rows.with_columns(pl.col(whole).cast(pl.Int64))


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


def _plot_quantiles(rows: pl.DataFrame, _: pl.DataFrame) -> Chart:
    rows = rows.with_columns(pl.col("value", "target", "low", "high") / pl.col("target") - 1.0)
    x = alt.X("statistic:N", sort=QUANTILES, title=None, axis=UPRIGHT)
    chart = _against_target(rows, x, "distance from the target", "+.0%")
    return _facet_by_group(chart.properties(width=260, height=PANEL["height"]))


def _plot_classes(rows: pl.DataFrame, _: pl.DataFrame) -> Chart:
    tilted = alt.Axis(labelAngle=-60, titlePadding=10)
    rows = rows.with_columns(pl.col("low").clip(lower_bound=0.0))  # no share is negative
    x = alt.X("class:N", sort=list(CLASS_NAMES), title="thousand SEK of 2020", axis=tilted)
    chart = _against_target(rows, x, "share of persons", ".0%")
    return _facet_by_group(chart.properties(width=400, height=PANEL["height"]))


def _plot_employment(rows: pl.DataFrame, _: pl.DataFrame) -> Chart:
    order = [f"{first}-{last}" for first, last in EMPLOYMENT_AGES]
    x = alt.X("age:N", title=None, axis=UPRIGHT, sort=order)
    chart = _against_target(rows, x, "share employed, 2015", ".0%")
    return _facet_by_group(chart.properties(**PANEL))


def _plot_zeros(rows: pl.DataFrame, _: pl.DataFrame) -> Chart:
    x = alt.X("age:N", title=None, axis=UPRIGHT)
    y = alt.Y("value:Q", title="share of zeros", axis=PERCENT)
    chart = alt.Chart(rows).mark_line(point=True).encode(x, y, _sex_color())
    return chart.properties(width=600, height=PANEL["height"])


def _plot_pay_ratio(rows: pl.DataFrame, table: pl.DataFrame) -> Chart:
    y = alt.Y("value:Q", title="women's pay / men's", scale=alt.Scale(zero=False))
    points = alt.OverlayMarkDef(color=COLORS["women"], size=20)
    chart = alt.Chart(rows).mark_line(color=COLORS["women"], point=points).encode(YEARS_AXIS, y)
    targets = _rows(table, r"wage_ratio\.(?P<first>\d+).*")
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


def _plot_education(rows: pl.DataFrame, table: pl.DataFrame) -> Chart:
    rows = rows.with_columns(pl.col("level").replace(EDUCATION_NAMES))
    x = alt.X("born:Q", title="birth year", axis=alt.Axis(format="d"), scale=alt.Scale(zero=False))
    y = alt.Y("value:Q", title="share", axis=PERCENT)
    dash = alt.StrokeDash("level:N", title=None)
    cohorts = alt.Chart(rows).mark_line().encode(x, y, _sex_color(), dash)
    cohorts = cohorts.properties(**PANEL)
    targets = _rows(table, r"education\.2019\.(?P<group>women|men)\.(?P<level>.+)")
    if targets.is_empty():
        return cohorts
    targets = targets.with_columns(pl.col("level").replace(EDUCATION_NAMES))
    group = alt.X("group:N", title=None, axis=UPRIGHT)
    in_2019 = _against_target(targets, group, "share 2019, 20-64", ".0%")
    level = alt.Column("level:N", sort=list(EDUCATION_NAMES.values()), title=None)
    in_2019 = in_2019.properties(width=85, height=PANEL["height"]).facet(column=level)
    return alt.hconcat(cohorts, in_2019).resolve_scale(color="independent")


def _plot_years(rows: pl.DataFrame, _: pl.DataFrame) -> Chart:
    amounts = rows.filter(pl.col("statistic") != "gini").with_columns(pl.col("value") / 1000)
    thousands = alt.Y("value:Q", title="thousand SEK of 2022")
    dash = alt.StrokeDash("statistic:N", title=None, sort=["p50", "p10", "p90"])
    quantiles = alt.Chart(amounts).mark_line().encode(YEARS_AXIS, thousands, _sex_color(), dash)
    gini_rows = rows.filter(pl.col("statistic") == "gini")
    y = alt.Y("value:Q", title="Gini, zeros counted", scale=alt.Scale(zero=False))
    gini = alt.Chart(gini_rows).mark_line().encode(YEARS_AXIS, y, _sex_color())
    return alt.hconcat(quantiles.properties(**PANEL), gini.properties(**PANEL))


def _plot_cycle(rows: pl.DataFrame, _: pl.DataFrame) -> Chart:
    history = sweden_as_published()
    years = list(range(history.first_year, history.last_year + 1))
    rate = pl.DataFrame({"year": years, "rate": history.values[:, 0]})

    def panel(statistic: str, title: str) -> Chart:
        y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=False))
        lines = alt.Chart(rows.filter(pl.col("statistic") == statistic)).mark_line(
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


def _plot_ranks(rows: pl.DataFrame, _: pl.DataFrame) -> Chart:
    rows = rows.with_columns(
        pl.format("over {} years", "lag")
        .str.replace("1 years", "1 year", literal=True)
        .alias("over")
    )
    color = alt.Color("over:N", title=None, scale=alt.Scale(range=LAG_COLORS))
    x = alt.X("decile:O", title="tenth of past earnings", axis=UPRIGHT)

    def panel(statistic: str, title: str) -> Chart:
        lines = alt.Chart(rows.filter(pl.col("statistic") == statistic)).mark_line(point=True)
        chart = lines.encode(x, alt.Y("value:Q", title=title), color)
        return chart.properties(width=250, height=200)

    return alt.hconcat(
        panel("p90-p10", "P90-P10"),
        panel("kelley", "Kelley skewness"),
        panel("crow-siddiqui", "excess Crow-Siddiqui"),
    )


def _plot_first_birth(rows: pl.DataFrame, _: pl.DataFrame) -> Chart:
    rows = rows.with_columns(
        group=pl.col("parent").replace_strict({"mothers": "women", "fathers": "men"}),
        low=pl.col("value") - 2 * pl.col("se"),
        high=pl.col("value") + 2 * pl.col("se"),
    )
    x = alt.X("event:Q", title="years from the first birth")
    low = alt.Y("low:Q", title="effect on earnings", axis=PERCENT)
    base = alt.Chart(rows)
    band = base.mark_area(opacity=0.2).encode(x, low, alt.Y2("high:Q"), _sex_color())
    line = base.mark_line(point=True).encode(x, alt.Y("value:Q"), _sex_color())
    return alt.layer(band, line).properties(width=600, height=240)


def _plot_mobility(rows: pl.DataFrame, _: pl.DataFrame) -> Chart:
    rows = rows.with_columns(pl.format("{} years later", "lag").alias("over"))
    base = alt.Chart().encode(
        alt.X("later:O", title="fifth later", axis=UPRIGHT),
        alt.Y("now:O", title="fifth now", sort="descending"),
    )
    blues = alt.Color("value:Q", title="share", scale=alt.Scale(scheme="blues"), legend=None)
    contrast = alt.condition("datum.value > 0.4", alt.value("white"), alt.value(INK))
    text = base.mark_text().encode(alt.Text("value:Q", format=".0%"), color=contrast)
    chart = alt.layer(base.mark_rect().encode(blues), text, data=rows)
    order = ["5 years later", "10 years later"]
    return chart.properties(width=250, height=200).facet(
        column=alt.Column("over:N", title=None, sort=order)
    )


LEGEND = "Dot: this register; bar: allowed range; black line: the published figure."
PLOTS = (
    Plot(
        "Income 2020: quantiles and means",
        "Taxable income, 20-64, resident all year, relative to the published figure. " + LEGEND,
        rf"level\.(?P<group>all|women|men)\.(?P<statistic>{'|'.join(QUANTILES)})",
        _plot_quantiles,
    ),
    Plot(
        "Income 2020: classes by sex",
        f"Taxable income, 20-64. {LEGEND}",
        r"bins\.(?P<group>women|men)\.(?P<class>.+)",
        _plot_classes,
    ),
    Plot(
        "Employment by age 2015",
        f"Share at work or on paid leave in a week drawn at random. {LEGEND}",
        r"employment\.(?P<group>women|men)\.(?P<age>\d+-\d+)",
        _plot_employment,
    ),
    Plot(
        "Years without earnings by age",
        "Share of years with labour earnings of exactly 0. No figures by age are published.",
        r"zeros\.(?P<group>women|men)\.(?P<age>\d+-\d+)",
        _plot_zeros,
    ),
    Plot(
        "Women's pay relative to men's",
        "Full-time full-year jobs. Line: this register; black: published; bars: allowed range.",
        r"pay_ratio\.(?P<year>\d+)",
        _plot_pay_ratio,
    ),
    Plot(
        "Education",
        f"Left: by birth year, at 37 or as soon as the panel shows it. Right: 2019. {LEGEND}",
        r"schooling\.(?P<group>women|men)\.(?P<born>\d+)\.(?P<level>compulsory|long_tertiary)",
        _plot_education,
    ),
    Plot(
        "Earnings by year",
        "Labour earnings at 20-64, zeros counted: 10, 50 and 90 % of persons earn less than the "
        "lines p10, p50 and p90. Right: inequality (Gini).",
        r"year\.(?P<group>women|men)\.(?P<year>\d+)\.(?P<statistic>p10|p50|p90|gini)",
        _plot_years,
    ),
    Plot(
        "Changes and the cycle",
        "Changes of log earnings from year to year, 25-55: their skewness, their spread, and "
        "unemployment in the same years.",
        r"moves\.year\.(?P<group>women|men)\.(?P<year>\d+)\.(?P<statistic>kelley|p90-p10)",
        _plot_cycle,
        is_main=False,
    ),
    Plot(
        "Changes by rank",
        "Changes of log earnings, 25-55, by tenth of the mean of three past years: their spread, "
        "skewness and peak.",
        r"moves\.rank\.(?P<decile>\d+)\.(?P<lag>\d+)\.(?P<statistic>.+)",
        _plot_ranks,
        is_main=False,
    ),
    Plot(
        "Earnings around the first birth",
        "Difference from the year before the birth that is due to it, zeros counted (an event "
        "study). Shaded: 2 standard errors either side.",
        r"penalty\.(?P<parent>mothers|fathers)\.(?P<event>-?\d+)",
        _plot_first_birth,
    ),
    Plot(
        "Mobility",
        "Of the persons in each fifth of three-year mean earnings, the share in each fifth later; "
        "25-55 in both years.",
        r"fifths\.(?P<lag>5|10)\.(?P<now>\d)-(?P<later>\d)",
        _plot_mobility,
        is_main=False,
    ),
)
