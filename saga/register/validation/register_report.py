"""The HTML report of a register: plots against published figures, and all verdicts.

The page is one file that needs no other. All its figures are those of the table of
`saga.register.validation.register_check`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl
import vl_convert

from saga.pages.format import significant
from saga.pages.layout import render_page
from saga.register.validation.level_statistics import CLASS_NAMES, EMPLOYMENT_AGES
from saga.schema import EDUCATION_LEVELS

COLORS = {"all": "#444444", "women": "#c44e00", "men": "#0064a8"}
INK, BAND, GRID = "#1c2430", "#d3d9e2", "#e3e6eb"
ENOUGH_PERSONS = 100_000  # for standard errors of tails
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


LEGEND = "Dot: this register; bar: allowed range; black line: the published figure."


@dataclass(frozen=True)
class Plot:
    """A plot of the rows whose key matches a pattern, against their targets.

    Attributes:
        title: Title of the plot.
        note: What it shows.
        pattern: Regular expression of the keys, with the groups `group` and `x`.
        order: The values of `x`, in the order of the axis.
        y: Title of the vertical axis.
        relative: Whether values are shown as distances from the target, as shares of it.
        width: Of the panel of each group.
    """

    title: str
    note: str
    pattern: str
    order: tuple[str, ...]
    y: str
    relative: bool = False
    width: int = 330

    def draw(self, rows: pl.DataFrame) -> alt.FacetChart:
        """Simulated value (dot), band (bar) and target (tick), one panel per group."""
        if self.relative:
            figures = pl.col("value", "target", "low", "high")
            rows = rows.with_columns(figures / pl.col("target") - 1.0)
        else:
            rows = rows.with_columns(pl.col("low").clip(lower_bound=0.0))  # no share is negative
        tilt = 0 if len(self.order) <= 8 else -60
        x = alt.X("x:N", sort=list(self.order), title=None, axis=alt.Axis(labelAngle=tilt))
        base = alt.Chart(rows).encode(x)
        scale = alt.Scale(domain=list(COLORS), range=list(COLORS.values()))
        number_format = "+.0%" if self.relative else ".0%"
        low = alt.Y("low:Q", title=self.y, axis=alt.Axis(format=number_format))
        band = base.mark_bar(color=BAND, size=13).encode(low, alt.Y2("high:Q"))
        target = base.mark_tick(color=INK, thickness=2, size=13).encode(alt.Y("target:Q"))
        value = base.mark_point(filled=True, size=45, opacity=1).encode(
            alt.Y("value:Q"), alt.Color("group:N", scale=scale, legend=None)
        )
        layers = alt.layer(band, target, value).properties(width=self.width, height=220)
        return layers.facet(column=alt.Column("group:N", title=None, sort=list(COLORS)))


QUANTILES = ("p10", "p25", "p50", "p75", "p90", "mean", "top5", "top1")
PLOTS = (
    Plot(
        "Income 2020: quantiles and means",
        "Taxable income, 20-64, resident all year, relative to the published figure. " + LEGEND,
        rf"level\.(?P<group>all|women|men)\.(?P<x>{'|'.join(QUANTILES)})",
        QUANTILES,
        "distance from the target",
        relative=True,
        width=260,
    ),
    Plot(
        "Income 2020: classes by sex, thousand SEK",
        f"Taxable income, 20-64. {LEGEND}",
        r"bins\.(?P<group>women|men)\.(?P<x>.+)",
        CLASS_NAMES,
        "share of persons",
        width=400,
    ),
    Plot(
        "Employment by age 2015",
        f"Share at work or on paid leave in a week drawn at random. {LEGEND}",
        r"employment\.(?P<group>women|men)\.(?P<x>\d+-\d+)",
        tuple(f"{first}-{last}" for first, last in EMPLOYMENT_AGES),
        "share employed, 2015",
    ),
    Plot(
        "Education 2019",
        f"Highest education, 20-64. {LEGEND}",
        r"education\.2019\.(?P<group>women|men)\.(?P<x>.+)",
        EDUCATION_LEVELS,
        "share, 2019",
    ),
)


def write_report(table: pl.DataFrame, out: Path, provenance: Mapping[str, Any]) -> None:
    """Write the report of a table to `out`."""
    enforced = table.filter("enforced")
    missed = enforced.filter(pl.col("verdict") != "inside")
    page = render_page(
        "register_report.html",
        {
            "register": provenance["register"],
            "enforced": enforced.height,
            "inside": enforced.height - missed.height,
            "is_small": int(provenance["persons"].replace(",", "")) < ENOUGH_PERSONS,
            "headlines": list(_headlines(table)),
            "missed": [_as_text(row) for row in missed.iter_rows(named=True)],
            "figures": list(_figures(table)),
            "topics": list(_topics(table)),
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


def _figures(table: pl.DataFrame) -> Iterator[dict[str, str]]:
    """Title, note and SVG of every plot for which the table has rows."""
    measured, key = table.drop_nulls("value"), pl.col("key").str
    for plot in PLOTS:
        pattern = f"^{plot.pattern}$"
        matching = measured.filter(key.contains(pattern)).select(
            "value", "target", "low", "high", key.extract_groups(pattern).alias("names")
        )
        if not matching.is_empty():
            chart = (
                plot.draw(matching.unnest("names"))
                .properties(description=plot.title)
                .configure(font="sans-serif")
                .configure_view(stroke=None)
                .configure_axis(gridColor=GRID, labelFontSize=11, titleFontSize=11)
                .configure_axisY(titlePadding=14)  # labels may come out wider than measured
            )
            svg = vl_convert.vegalite_to_svg(chart.to_dict())
            # One image for a screen reader, which would otherwise read every mark aloud.
            labelled = svg.replace("<svg ", f'<svg role="img" aria-label="{plot.title}" ', 1)
            yield {"title": plot.title, "note": plot.note, "svg": labelled}
