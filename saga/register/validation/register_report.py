"""The register's report: pictures of simulated against target, every verdict, provenance, in one HTML file that needs nothing else.

All is drawn from the table of `saga.register.validation.register_check` (with its descriptive rows); nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl
import vl_convert
from jinja2 import Environment, PackageLoader, select_autoescape

from saga.macro.history import sweden_as_published
from saga.register.validation.register_check import AIMED, number, tally
from saga.register.validation.targets import BIN_NAMES, EMPLOYMENT_AGES, WAGE_PERIODS

Chart = Any  # the kinds of chart of altair, whose methods are not all typed
_COLORS = {"all": "#444444", "women": "#c44e00", "men": "#0064a8"}
_YEARS = alt.X(
    "year:Q",
    title=None,
    axis=alt.Axis(format="d", values=list(range(1990, 2023, 5))),
    scale=alt.Scale(domain=[1990, 2023], nice=False),
)
_WIDTH, _HEIGHT = 330, 220


@dataclass(frozen=True)
class Figure:
    """A picture with its title and what it shows."""

    title: str
    note: str
    svg: str


def write_report(table: pl.DataFrame, out: Path, provenance: Mapping[str, Any]) -> None:
    """Writes the report of a table with its descriptive rows to `out`."""
    environment = Environment(
        loader=PackageLoader("saga.register.validation", "."),
        autoescape=select_autoescape(),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("register_report.html").render(
        title=f"Register check: {provenance['register']}",
        tally=tally(table),
        missed=table.filter(pl.col("enforced") & (pl.col("verdict") != "inside"))["key"].to_list(),
        figures=list(_figures(table)),
        topics=list(_topics(table)),
        provenance=provenance,
    )
    out.write_text(page, encoding="utf-8")


def _topics(table: pl.DataFrame) -> Iterator[dict[str, Any]]:
    for (topic,), part in table.filter(AIMED).group_by(["topic"], maintain_order=True):
        rows = [
            {
                **row,
                **{name: number(row[name]) for name in ("target", "value", "se")},
                "band": _band(row["low"], row["high"]),
                "mark": row["mark"] or "",
            }
            for row in part.iter_rows(named=True)
        ]
        yield {
            "name": topic,
            "rows": rows,
            "concepts": part["concept"].unique(maintain_order=True).to_list(),
            "sources": _sources(part),
        }


def _sources(part: pl.DataFrame) -> list[str]:
    return [source for source in part["source"].unique(maintain_order=True).to_list() if source]


def _band(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return ""
    return (
        f"above {number(low)}"
        if high is None
        else f"below {number(high)}"
        if low is None
        else f"{number(low)} to {number(high)}"
    )


def _figures(table: pl.DataFrame) -> Iterator[Figure]:
    """Every picture for which the table has rows."""
    for title, note, draw in _PICTURES:
        chart = draw(table.filter(pl.col("value").is_not_null()))
        if chart is not None:
            chart = (
                chart.properties(description=title)
                .configure(font="sans-serif")
                .configure_view(stroke=None)
            )
            chart = chart.configure_legend(orient="top", labelLimit=0, symbolOpacity=1)
            chart = chart.configure_axis(gridColor="#e3e6eb", labelFontSize=11, titleFontSize=11)
            yield Figure(title, note, _named(vl_convert.vegalite_to_svg(chart.to_dict()), title))


def _named(svg: str, title: str) -> str:
    """The drawing as one image for a screen reader: its marks would be read out one by one."""
    return svg.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)


def _rows(table: pl.DataFrame, pattern: str, *names: str) -> pl.DataFrame:
    """The rows whose key matches `pattern`, its groups as columns `names`, whole numbers as such."""
    part = table.filter(pl.col("key").str.contains(f"^{pattern}$"))
    parts = [
        pl.col("key").str.extract(f"^{pattern}$", k + 1).alias(name) for k, name in enumerate(names)
    ]
    part = part.with_columns(parts)
    whole = [name for name in names if part.height and part[name].str.contains(r"^-?\d+$").all()]
    return part.with_columns(pl.col(whole).cast(pl.Int64)).select(
        *names, "value", "se", "target", "low", "high"
    )


def _sex() -> alt.Color:
    return alt.Color(
        "group:N",
        scale=alt.Scale(domain=["women", "men"], range=[_COLORS["women"], _COLORS["men"]]),
        title=None,
    )


def _beside(chart: Chart) -> Chart:
    """One panel a group, women left of men."""
    return chart.facet(column=alt.Column("group:N", title=None, sort=list(_COLORS)))


def _against(frame: pl.DataFrame, x: alt.X, title: str, form: str) -> Chart:
    """Simulated value (dot) on band (bar) and target (tick) over a categorical x."""
    base = alt.Chart(frame).encode(x)
    color = alt.Color(
        "group:N", scale=alt.Scale(domain=list(_COLORS), range=list(_COLORS.values())), legend=None
    )
    band = base.mark_bar(color="#d3d9e2", size=13).encode(
        alt.Y("low:Q", title=title, axis=alt.Axis(format=form)), alt.Y2("high:Q")
    )
    aim = base.mark_tick(color="#1c2430", thickness=2, size=13).encode(alt.Y("target:Q"))
    dot = base.mark_point(filled=True, size=45, opacity=1).encode(alt.Y("value:Q"), color)
    return alt.layer(band, aim, dot)


def _quantiles(table: pl.DataFrame) -> Chart:
    order = ["p10", "p25", "p50", "p75", "p90", "mean", "top5", "top1"]
    frame = _rows(table, rf"level\.(all|women|men)\.({'|'.join(order)})", "group", "statistic")
    if frame.is_empty():
        return None
    frame = frame.with_columns(pl.col("value", "target", "low", "high") / pl.col("target") - 1.0)
    x = alt.X("statistic:N", sort=order, title=None, axis=alt.Axis(labelAngle=0))
    return _beside(
        _against(frame, x, "distance from the target", "+.0%").properties(width=260, height=_HEIGHT)
    )


def _classes(table: pl.DataFrame) -> Chart:
    frame = _rows(table, r"bins\.(women|men)\.(.+)", "group", "class")
    if frame.is_empty():
        return None
    x = alt.X(
        "class:N", sort=list(BIN_NAMES), title="thousand SEK of 2020", axis=alt.Axis(labelAngle=-60)
    )
    return _beside(
        _against(frame, x, "share of persons", ".0%").properties(width=400, height=_HEIGHT)
    )


def _employment(table: pl.DataFrame) -> Chart:
    frame = _rows(table, r"employment\.(women|men)\.(\d+-\d+)", "group", "age")
    if frame.is_empty():
        return None
    x = alt.X(
        "age:N",
        title=None,
        axis=alt.Axis(labelAngle=0),
        sort=[f"{first}-{last}" for first, last in EMPLOYMENT_AGES],
    )
    return _beside(
        _against(frame, x, "share employed, 2015", ".0%").properties(width=_WIDTH, height=_HEIGHT)
    )


def _zeros(table: pl.DataFrame) -> Chart:
    frame = _rows(table, r"zeros\.(women|men)\.(\d+-\d+)", "group", "age")
    if frame.is_empty():
        return None
    x, y = (
        alt.X("age:N", title=None, axis=alt.Axis(labelAngle=0)),
        alt.Y("value:Q", title="share of zeros", axis=alt.Axis(format=".0%")),
    )
    return (
        alt.Chart(frame)
        .mark_line(point=True)
        .encode(x, y, _sex())
        .properties(width=600, height=_HEIGHT)
    )


def _pay_ratio(table: pl.DataFrame) -> Chart:
    frame = _rows(table, r"pay_ratio\.(\d+)", "year")
    if frame.is_empty():
        return None
    aims = _rows(table, r"wage_ratio\.(\d+).*", "first")
    y = alt.Y("value:Q", title="women's pay / men's", scale=alt.Scale(zero=False))
    line = (
        alt.Chart(frame)
        .mark_line(
            color=_COLORS["women"], point=alt.OverlayMarkDef(color=_COLORS["women"], size=20)
        )
        .encode(_YEARS, y)
    )
    if aims.is_empty():
        return line.properties(width=600, height=_HEIGHT)
    aims = aims.with_columns(last=pl.col("first").replace_strict(dict(WAGE_PERIODS)) + 1)
    aim = alt.Chart(aims).encode(
        alt.X("first:Q", title=None, axis=_YEARS["axis"], scale=_YEARS["scale"]), alt.X2("last:Q")
    )
    bands = aim.mark_rect(color="#d3d9e2").encode(alt.Y("low:Q"), alt.Y2("high:Q"))
    lines = aim.mark_rule(color="#1c2430", strokeWidth=2).encode(alt.Y("target:Q"))
    return alt.layer(bands, lines, line).properties(width=600, height=_HEIGHT)


def _schooling(table: pl.DataFrame) -> Chart:
    frame = _rows(
        table,
        r"schooling\.(women|men)\.(\d+)\.(compulsory|long_tertiary)",
        "group",
        "born",
        "level",
    )
    if frame.is_empty():
        return None
    x = alt.X("born:Q", title="birth year", axis=alt.Axis(format="d"), scale=alt.Scale(zero=False))
    y = alt.Y("value:Q", title="share", axis=alt.Axis(format=".0%"))
    lines = (
        alt.Chart(frame)
        .mark_line(point=True)
        .encode(x, y, _sex(), alt.StrokeDash("level:N", title=None))
        .properties(width=_WIDTH)
    )
    aims = _rows(table, r"education\.2019\.(women|men)\.(.+)", "group", "level")
    order = ["compulsory", "upper_secondary", "short_tertiary", "long_tertiary"]
    if aims.is_empty():
        return lines.properties(height=_HEIGHT)
    side = alt.X("group:N", title=None, axis=alt.Axis(labelAngle=0))
    now = _against(aims, side, "share 2019, 20-64", ".0%").properties(width=75, height=_HEIGHT)
    return alt.hconcat(
        lines.properties(height=_HEIGHT),
        now.facet(column=alt.Column("level:N", sort=order, title=None)),
    ).resolve_scale(color="independent")


def _years(table: pl.DataFrame) -> Chart:
    frame = _rows(
        table, r"year\.(women|men)\.(\d+)\.(p10|p50|p90|gini)", "group", "year", "statistic"
    )
    if frame.is_empty():
        return None
    money = frame.filter(pl.col("statistic") != "gini").with_columns(pl.col("value") / 1000)
    dash = alt.StrokeDash("statistic:N", title=None, sort=["p50", "p10", "p90"])
    left = (
        alt.Chart(money)
        .mark_line()
        .encode(_YEARS, alt.Y("value:Q", title="thousand SEK of 2022"), _sex(), dash)
    )
    y = alt.Y("value:Q", title="Gini, zeros counted", scale=alt.Scale(zero=False))
    right = (
        alt.Chart(frame.filter(pl.col("statistic") == "gini")).mark_line().encode(_YEARS, y, _sex())
    )
    return alt.hconcat(
        left.properties(width=_WIDTH, height=_HEIGHT),
        right.properties(width=_WIDTH, height=_HEIGHT),
    )


def _cycle(table: pl.DataFrame) -> Chart:
    frame = _rows(
        table, r"moves\.year\.(women|men)\.(\d+)\.(kelley|p90-p10)", "group", "year", "statistic"
    )
    if frame.is_empty():
        return None
    known = sweden_as_published()
    rate = pl.DataFrame(
        {
            "year": list(range(known.first_year, known.first_year + len(known.values))),
            "rate": known.values[:, 0],
        }
    )

    def panel(statistic: str, title: str) -> Chart:
        y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=False))
        part = alt.Chart(frame.filter(pl.col("statistic") == statistic))
        return (
            part.mark_line(point=alt.OverlayMarkDef(size=15))
            .encode(_YEARS, y, _sex())
            .properties(width=640, height=130)
        )

    jobless = (
        alt.Chart(rate)
        .mark_area(color="#b9c2cf")
        .encode(_YEARS, alt.Y("rate:Q", title="unemployment", axis=alt.Axis(format=".0%")))
    )
    return alt.vconcat(
        panel("kelley", "Kelley skewness"),
        panel("p90-p10", "P90-P10"),
        jobless.properties(width=640, height=80),
    )


def _ranks(table: pl.DataFrame) -> Chart:
    frame = _rows(table, r"moves\.rank\.(\d+)\.(\d+)\.(.+)", "decile", "lag", "statistic")
    if frame.is_empty():
        return None
    frame = frame.with_columns(pl.format("over {} y", "lag").alias("over"))
    color = alt.Color(
        "over:N", title=None, scale=alt.Scale(range=["#8fb4d6", "#3f7fb8", "#123a66"])
    )

    def panel(statistic: str, title: str) -> Chart:
        x, y = (
            alt.X("decile:O", title="decile of past earnings", axis=alt.Axis(labelAngle=0)),
            alt.Y("value:Q", title=title),
        )
        return (
            alt.Chart(frame.filter(pl.col("statistic") == statistic))
            .mark_line(point=True)
            .encode(x, y, color)
            .properties(width=250, height=200)
        )

    return alt.hconcat(
        panel("p90-p10", "P90-P10"),
        panel("kelley", "Kelley skewness"),
        panel("crow-siddiqui", "excess Crow-Siddiqui"),
    )


def _children(table: pl.DataFrame) -> Chart:
    frame = _rows(table, r"penalty\.(mothers|fathers)\.(-?\d+)", "parent", "event")
    if frame.is_empty():
        return None
    frame = frame.with_columns(
        group=pl.col("parent").replace_strict({"mothers": "women", "fathers": "men"})
    )
    frame = frame.with_columns(
        low=pl.col("value") - 2 * pl.col("se"), high=pl.col("value") + 2 * pl.col("se")
    )
    x = alt.X("event:Q", title="years from the first birth")
    band = (
        alt.Chart(frame)
        .mark_area(opacity=0.2)
        .encode(
            x,
            alt.Y("low:Q", title="effect on earnings", axis=alt.Axis(format=".0%")),
            alt.Y2("high:Q"),
            _sex(),
        )
    )
    line = alt.Chart(frame).mark_line(point=True).encode(x, alt.Y("value:Q"), _sex())
    return alt.layer(band, line).properties(width=600, height=240)


def _mobility(table: pl.DataFrame) -> Chart:
    frame = _rows(table, r"fifths\.(\d+)\.(\d)-(\d)", "lag", "now", "later").filter(
        pl.col("lag") > 1
    )
    if frame.is_empty():
        return None
    frame = frame.with_columns(pl.format("{} years later", "lag").alias("over"))
    base = alt.Chart().encode(
        alt.X("later:O", title="fifth later", axis=alt.Axis(labelAngle=0)),
        alt.Y("now:O", title="fifth now", sort="descending"),
    )
    cells = base.mark_rect().encode(
        alt.Color("value:Q", title="share", scale=alt.Scale(scheme="blues"), legend=None)
    )
    dark = alt.condition("datum.value > 0.4", alt.value("white"), alt.value("#1c2430"))
    text = base.mark_text().encode(alt.Text("value:Q", format=".0%"), color=dark)
    order = ["5 years later", "10 years later"]
    return (
        alt.layer(cells, text, data=frame)
        .properties(width=250, height=200)
        .facet(column=alt.Column("over:N", title=None, sort=order))
    )


_SIMULATED = "Dot: simulated; bar: band; tick: target."
_PICTURES: tuple[tuple[str, str, Callable[[pl.DataFrame], Chart]], ...] = (
    (
        "Income 2020: quantiles and means",
        f"Taxable income, 20-64, resident all year, relative to the published figure. {_SIMULATED}",
        _quantiles,
    ),
    ("Income 2020: classes by sex", f"Taxable income, 20-64. {_SIMULATED}", _classes),
    (
        "Employment by age 2015",
        f"Share at work or on paid leave in a week drawn at random. {_SIMULATED}",
        _employment,
    ),
    (
        "Years without earnings by age",
        "Share of person-years with labour earnings of exactly 0, all years. No target by age.",
        _zeros,
    ),
    (
        "Women's pay relative to men's",
        "Full-time full-year jobs. Line: simulated; bars: published and their bands.",
        _pay_ratio,
    ),
    (
        "Education",
        f"Left: by cohort, at 37 or as soon as the panel sees it. Right, 2019: {_SIMULATED.lower()}",
        _schooling,
    ),
    (
        "Earnings by year",
        "Labour earnings at 20-64, zeros counted, and their Gini coefficient.",
        _years,
    ),
    (
        "Changes and the cycle",
        "1-year changes of log earnings, 25-55, by the second year, above unemployment.",
        _cycle,
    ),
    (
        "Changes by rank",
        "Changes of log earnings by decile of the mean of three past years, 25-55.",
        _ranks,
    ),
    (
        "Earnings around the first birth",
        "Event study, zeros counted; base: the year before. Area: 2 standard errors either side.",
        _children,
    ),
    (
        "Mobility",
        "Where those in a fifth of three-year mean earnings are later, 25-55 in both years.",
        _mobility,
    ),
)
