"""One person's forecast: shown in a notebook, or written as page, SVG or PNG.

The chart has the record, the median and the middle of the forecast by year as a fan of quantiles,
the published set of the year that the sentence is about, and the chance of no earnings. A set may
change much from a year to the next, because it includes zero or not; quantiles do not. All numbers
are those of the forecast table.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import altair as alt
import polars as pl

from saga.data.panel import Panel
from saga.errors import InputError, Problem, UsageError
from saga.forecast_warnings import ForecastWarning
from saga.pages.format import NOT_TESTED, about, chance, set_text
from saga.pages.layout import check_page, render_page, write_page
from saga.pages.theme import INK, MEDIAN, ZERO, draw_svg, places_apart, write_picture
from saga.requests import middle_quantiles, percent_label
from saga.training_records import TESTED

SUFFIXES = (".html", ".svg", ".png")
SIMULATED = "Simulated people, not real: the bundle was trained on simulated people."
_SENTENCE_HORIZON = 5  # the year that the sentence is about
_PREFERRED = ("80", "90", "50", "95")  # coverage of the set that a sentence names
_WIDTH = 108  # characters of a line above the chart
_ZERO_TOPS = (0.1, 0.2, 0.5, 1.0)  # of the axis of the chance: a chance of 4 % is to be seen
_OUTLINE = "#4a7fb5"
_SHADES = ("#7fabda", "#b4cfeb", "#dbe7f5", "#eef4fb")  # from the narrowest range to the widest
_APART = 0.06  # least distance of the names of lines, as a share of the largest amount
_TIGHT = alt.Scale(zero=False, nice=False)


@dataclass(frozen=True, eq=False)
class ForecastPicture:
    """One person's record and published forecast, as a chart, sentences and warnings.

    A notebook shows it; `save` writes it. The numbers are those of the forecast table.

    Args:
        person_id: The person.
        rows: One row per year: `earnings` of the record, or the columns of the forecast table with
            `median` instead of q50, and `from_..` and `to_..`, the quantiles of its fan.
        provenance: What made the forecast, as `Forecaster.provenance`.
        warnings: Warnings about the person and about the whole result.
    """

    person_id: str
    rows: pl.DataFrame = field(repr=False)
    provenance: Mapping[str, object] = field(repr=False)
    warnings: tuple[ForecastWarning, ...] = field(repr=False)

    @classmethod
    def of(
        cls,
        person_id: str | None,
        panel: Panel,
        table: pl.DataFrame,
        provenance: Mapping[str, object],
        warnings: tuple[ForecastWarning, ...],
    ) -> ForecastPicture:
        """The picture of a person of a panel and its forecast table.

        Raises:
            UsageError: If no person is named and there are several, or the table has no median.
            InputError: If the person is not in the table.
        """
        person_id = choose_person(table["person_id"], person_id)
        forecast = table.filter(pl.col("person_id") == person_id)
        if "q50" not in table.columns:
            raise UsageError("A picture needs the median. Add 0.5 to the quantiles.")
        record = panel.frame.filter(pl.col("person_id") == person_id).select("year", "earnings")
        fan = [
            pl.col(f"q{percent_label(level)}").alias(f"{end}_{label}")
            for label in coverage_labels(forecast)
            for end, level in zip(("from", "to"), middle_quantiles(float(label) / 100), strict=True)
            if f"q{percent_label(level)}" in forecast.columns
        ]
        ahead = forecast.with_columns(fan).rename({"q50": "median"}).drop("person_id")
        rows = pl.concat([record, ahead], how="diagonal").sort("year")
        about_person = tuple(w for w in warnings if w.person_id in (None, person_id))
        return cls(person_id, rows, provenance, about_person)

    @property
    def ahead(self) -> pl.DataFrame:
        """The rows of the forecast."""
        return self.rows.filter(pl.col("horizon").is_not_null())

    @property
    def unit(self) -> str:
        """Currency and prices of the amounts."""
        return f"{self.provenance['currency']} of {self.provenance['price_year']}"

    @property
    def simulated(self) -> bool:
        """Whether the bundle was trained on simulated people."""
        return any(warning.code == "simulated-people" for warning in self.warnings)

    @property
    def sentence(self) -> str:
        """The forecast of the fifth year, or of the last one before it, in plain words."""
        return describe_year(self.sentence_year, self.unit)

    @property
    def sentence_year(self) -> dict[str, Any]:
        """The row of that year."""
        near = self.ahead.filter(pl.col("horizon") <= _SENTENCE_HORIZON)
        return near.row(-1, named=True) if near.height else self.ahead.row(0, named=True)

    @property
    def cautions(self) -> list[str]:
        """The warnings as text, without the one about simulated people."""
        return [w.message for w in self.warnings if w.code != "simulated-people"]

    @cached_property
    def chart(self) -> Any:
        """The Altair chart, without title."""
        return self._draw(ChartSize())

    @cached_property
    def page_svgs(self) -> tuple[str, str]:
        """The chart for a page: for wide screens and print, and for phones."""
        return draw_svg(self.chart, self.alt_text), draw_svg(self._draw(PHONE), self.alt_text)

    def _draw(self, size: ChartSize) -> Any:
        unit = f"Earnings a year, {self.unit}"
        return draw_person(self.rows, unit, size, marked=self.sentence_year)

    @property
    def alt_text(self) -> str:
        """What a screen reader says instead of the picture."""
        what = ["Record", "quantiles of the forecast"]
        what += ["chance of no earnings"] if has_zeros(self.rows) else []
        return f"{', '.join(what)} by year. {self.sentence}"

    def save(self, out: str | Path) -> Path:
        """Write the picture to a file: a page (.html), .svg or .png.

        Raises:
            UsageError: If the name has another suffix, or the folder is not writable.
        """
        out = check_page(Path(out), "picture", SUFFIXES)
        if out.suffix.lower() == ".html":
            write_page(out, self._page())
        else:
            write_picture(self._titled_chart(), out)
        return out

    def _repr_html_(self) -> str:
        simulated = f"<p><strong>{SIMULATED}</strong></p>" if self.simulated else ""
        return f"{simulated}{draw_svg(self.chart, self.alt_text)}<p>{self.sentence}</p>"

    def _titled_chart(self) -> Any:
        lines = [SIMULATED] if self.simulated else []
        lines += [line for text in self.cautions for line in textwrap.wrap(text, _WIDTH)]
        title = {"text": textwrap.wrap(self.sentence, _WIDTH), "subtitle": lines}
        return self.chart.properties(
            title={**title, "fontSize": 12, "fontWeight": "normal", "anchor": "start"}
        )

    def _page(self) -> str:
        values = {
            "picture": self,
            "rows": self.ahead.to_dicts(),
            "labels": coverage_labels(self.rows),
            "simulated": SIMULATED,
            "provenance": self.provenance,
        }
        return render_page("person.html", values)


def choose_person(person_ids: pl.Series, person_id: str | None) -> str:
    """The person to draw: the one that is named, or the only one.

    Raises:
        UsageError: If no person is named and there are several.
        InputError: If the person is not among them.
    """
    persons = person_ids.unique()
    if person_id is not None and not isinstance(person_id, str):
        raise UsageError(
            f"A person_id is a text such as '0001', not of type {type(person_id).__name__}."
        )
    if person_id is None:
        if len(persons) != 1:
            raise UsageError(
                f"There are {len(persons):,} persons. Name the one to draw, by its person_id."
            )
        return str(persons[0])
    if person_id not in persons:
        fix = "Name a person of the input, with the zeros at its start: 1 is not 0001."
        problem = Problem("no-person", "there is no such person", fix, person_id=person_id)
        raise InputError("A person cannot be drawn", [problem])
    return person_id


def describe_year(row: Mapping[str, Any], unit: str) -> str:
    """What the forecast of a year says: median, set, chance of no earnings.

    `row`: horizon, year, median, p_zero, lower_.., upper_.. and includes_zero_.. of that year.
    `unit`: currency and prices, such as "SEK of 2022".
    """
    ahead = "1 year" if row["horizon"] == 1 else f"{row['horizon']} years"
    middle = (
        f"In {row['year']}, {ahead} after the record ends, earnings are as likely to be above as "
        f"below {about(row['median'])} {unit}"
        if row["median"] > 0
        else f"In {row['year']}, {ahead} after the record ends, having no earnings is more likely "
        "than having some"
    )
    return (
        f"{middle}; {describe_set(row)}, and the chance of no earnings is {chance(row['p_zero'])}."
    )


def describe_set(row: Mapping[str, Any]) -> str:
    """The set of a year at the first of the preferred coverages that the row has.

    A set whose coverage was tested goes before one whose coverage was not, which is said.
    """
    label = named_set(row)
    if label is None:
        return "there is no set of stated coverage"
    return f"the {label} % set is {set_text(row, label)}"


def named_set(row: Mapping[str, Any]) -> str | None:
    """The label of the set that a sentence names; None without a set."""
    labels = [name.removeprefix("lower_") for name in row if name.startswith("lower_")]
    labels = [label for label in labels if row[f"lower_{label}"] is not None]

    def rank(label: str) -> tuple[bool, int]:
        preferred = _PREFERRED.index(label) if label in _PREFERRED else len(_PREFERRED)
        return row[f"guarantee_{label}"] not in TESTED, preferred

    return min(labels, key=rank, default=None)


@dataclass(frozen=True)
class ChartSize:
    """Width and heights of the two panels in pixels; a large chart has titles, and names lines."""

    width: int = 550
    height: int = 280
    zero_height: int = 70
    is_large: bool = True
    bar: int = 9  # width of the bars of the lower panel


PHONE = ChartSize(width=180, height=220, zero_height=50, bar=4)
SMALL = ChartSize(width=270, height=130, zero_height=38, is_large=False, bar=4)


def coverage_labels(rows: pl.DataFrame, end: str = "lower") -> list[str]:
    """Labels of the coverages with known columns `end`_.., such as "90", from narrow to wide."""
    labels = [name.removeprefix(f"{end}_") for name in rows.columns if name.startswith(f"{end}_")]
    return sorted((x for x in labels if not rows[f"{end}_{x}"].is_null().all()), key=float)


def draw_person(
    rows: pl.DataFrame,
    unit: str,
    size: ChartSize = ChartSize(),
    marked: Mapping[str, Any] | None = None,
) -> Any:
    """Record and forecast on top, the chance of no earnings below if it has one, with Altair.

    Ranges whose coverage was tested are shades, the others dashed outlines; a year without a range
    has none.

    Args:
        rows: One row per year with `earnings` of the record, or `median`, `p_zero` and the ranges
            `from_..`, `to_..`, `guarantee_..` of the forecast, by label of their coverage.
        unit: Title of the amounts.
        size: Width and heights.
        marked: A row of the forecast table whose set is drawn: the one that a sentence names.
    """
    forecast = _every_year(rows.filter(pl.col("p_zero").is_not_null()))
    labels = coverage_labels(rows, "from")
    kinds = {label: _kinds_of_years(forecast, label) for label in labels}
    shades = dict(zip(labels, _SHADES, strict=False))
    untested = [label for label in labels if kinds[label]["beyond"].any()]
    beyond = f"middle {', '.join(untested)} %: {NOT_TESTED}"
    dash = alt.StrokeDash(
        "kind:N",
        scale=alt.Scale(domain=[beyond], range=[[4, 3]]),
        legend=alt.Legend(
            title=None,
            orient="top",
            symbolType="stroke",
            symbolStrokeColor=_OUTLINE,
            labelLimit=size.width,
        )
        if size.is_large
        else None,
    )
    year = alt.X("year:Q", title=None, axis=alt.Axis(format="d", tickCount=6), scale=_TIGHT)
    amount = alt.Axis(format=",.0f" if size.is_large else "~s", tickCount=5 if size.is_large else 4)
    y_title = unit if size.is_large else None

    def ranges_of(label: str, flag: str) -> Any:
        """The ends of the ranges in the years that have a flag."""
        ends = [pl.col(f"{end}_{label}").alias(end) for end in ("from", "to")]
        chosen = [pl.when(kinds[label][flag]).then(end) for end in ends]
        return alt.Chart(forecast.select("year", *chosen)).encode(x=year)

    spans = {"y": alt.Y("from:Q", title=y_title, axis=amount), "y2": "to"}
    layers = []
    for i, label in reversed(list(enumerate(labels))):
        # A bar is a year alone: a shade would suggest ranges around it.
        if kinds[label]["shaded"].any():
            shade = ranges_of(label, "shaded").mark_area(opacity=1, color=shades[label])
            layers.append(shade.encode(**spans))
        if kinds[label]["alone"].any():
            bars = ranges_of(label, "alone").transform_filter("isValid(datum.from)")
            layers.append(bars.mark_bar(width=7 + 3 * i, color=shades[label]).encode(**spans))
        if label in untested:
            outline = ranges_of(label, "outlined").transform_calculate(kind=f"'{beyond}'")
            layers += [
                outline.mark_line(color=_OUTLINE, strokeWidth=1.2).encode(
                    y=f"{end}:Q", strokeDash=dash
                )
                for end in ("from", "to")
            ]
            boxes = ranges_of(label, "outlined_alone").transform_filter("isValid(datum.from)")
            boxes = boxes.mark_bar(
                filled=False, width=7 + 4 * i, stroke=_OUTLINE, strokeDash=[4, 3]
            )
            layers.append(boxes.encode(**spans))
    is_alone = forecast["median"].null_count() > 0 or forecast.height == 1
    median = alt.Chart(forecast).mark_line(
        strokeWidth=2, color=MEDIAN, point={"color": MEDIAN} if is_alone else False
    )
    record = _every_year(rows.filter(pl.col("earnings").is_not_null()).select("year", "earnings"))
    past = alt.Chart(record).mark_line(
        strokeWidth=1.5, color=INK, point={"size": 16, "color": INK, "opacity": 1}
    )
    layers += [
        median.encode(x=year, y="median:Q"),
        past.encode(x=year, y=alt.Y("earnings:Q", title=y_title, axis=amount)),
    ]
    if size.is_large:
        layers += _draw_names(record, forecast, labels, year)
    if marked is not None and (label_of_set := named_set(marked)) is not None:
        is_last = marked["year"] == forecast["year"].max()  # the ranges' names are to its right
        layers += _draw_set(marked, label_of_set, year, "right" if is_last else "center")
    amounts = alt.layer(*layers).properties(width=size.width, height=size.height)
    below = [_draw_chance(rows, size, marked)] if has_zeros(rows) else []
    return alt.vconcat(amounts, *below, spacing=8).resolve_scale(x="shared")


def has_zeros(rows: pl.DataFrame) -> bool:
    """Whether no earnings have a chance in some year; in some panels nobody is without."""
    return bool((rows["p_zero"] > 0).any())


def _draw_names(
    record: pl.DataFrame, forecast: pl.DataFrame, labels: list[str], year: alt.X
) -> list[Any]:
    """The name of the record above its highest year, those of median and ranges at their ends."""
    columns = {"median": "median"} | {f"middle {label} %": f"to_{label}" for label in labels}
    ends = pl.concat(
        forecast.drop_nulls(column).tail(1).select("year", pl.lit(name).alias("name"), value=column)
        for name, column in columns.items()
    )
    ends = ends.sort("value").with_columns(
        value=places_apart(pl.col("value"), _APART * pl.max("value"))
    )
    highest = record.select(
        "year", value="earnings", name=pl.lit("record"), is_early=pl.col("year") < pl.mean("year")
    ).top_k(1, by="value")
    return [
        alt.Chart(names)
        .mark_text(color=INK, fontSize=11, align=align, dx=dx, dy=dy)  # type: ignore[arg-type]
        .encode(x=year, y="value:Q", text="name:N")
        for names, align, dx, dy in (
            (ends, "left", 7, 0),
            (highest, "left" if highest["is_early"].any() else "right", 0, -10),
        )
    ]


def _draw_chance(rows: pl.DataFrame, size: ChartSize, marked: Mapping[str, Any] | None) -> Any:
    """Bars of the chance of no earnings by year, with that of the marked year as a number."""
    largest = max(rows["p_zero"].drop_nulls(), default=0.0)
    top = next(top for top in _ZERO_TOPS if largest <= top)
    base = alt.Chart(rows).encode(
        x=alt.X("year:Q", title=None, axis=None, scale=_TIGHT),
        y=alt.Y(
            "p_zero:Q",
            title=["Chance of", "no earnings"] if size.is_large else None,
            scale=alt.Scale(domain=[0, top]),
            axis=alt.Axis(format="%", values=[0, top / 2, top]),
        ),
    )
    layers = [base.mark_bar(color=ZERO, size=size.bar)]
    if marked is not None:
        number = base.transform_filter(f"datum.year == {marked['year']}").mark_text(
            color=INK, dy=-7, fontSize=11
        )
        layers.append(number.encode(text=alt.value(chance(marked["p_zero"]))))
    return alt.layer(*layers).properties(width=size.width, height=size.zero_height)


def _draw_set(
    row: Mapping[str, Any], label: str, year: alt.X, align: Literal["right", "center"]
) -> list[Any]:
    """The set of a year: a line with its name above, and a circle where it includes zero."""
    lower, upper = row[f"lower_{label}"], row[f"upper_{label}"]
    values = {"year": row["year"], "lower": lower, "upper": upper, "name": f"{label} % set"}
    base = alt.Chart(pl.DataFrame([values])).encode(x=year)
    dashes = [] if row[f"guarantee_{label}"] in TESTED else [4, 3]
    layers = [
        base.mark_rule(color=INK, strokeWidth=1.5, strokeDash=dashes).encode(
            y="lower:Q", y2="upper:Q"
        ),
        *(
            base.mark_tick(color=INK, size=9, orient="horizontal").encode(y=f"{end}:Q")
            for end in ("lower", "upper")
        ),
        base.mark_text(color=INK, dy=-8, fontSize=11, align=align).encode(
            y="upper:Q", text="name:N"
        ),
    ]
    if row.get(f"includes_zero_{label}"):
        zero = base.mark_point(filled=True, size=30, opacity=1, stroke=INK, fill="white")
        layers.append(zero.encode(y=alt.datum(0)))
    return layers


def _every_year(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows, with an empty one for each missing year, so that lines break there."""
    if rows.is_empty():
        return rows
    years = pl.int_range(pl.col("year").min(), pl.col("year").max() + 1, dtype=pl.Int64)
    rows = rows.with_columns(pl.col("year").cast(pl.Int64))
    return rows.select(years.alias("year")).join(rows, on="year", how="left", maintain_order="left")


def _kinds_of_years(forecast: pl.DataFrame, label: str) -> pl.DataFrame:
    """How the range of a coverage is drawn in each year: flags by year of consecutive years.

    - `tested`: its coverage was tested; `shaded` if that of a neighbouring year was too, or `alone`
    - `beyond`: it was not; `outlined` are these years and their neighbours, where outlines begin,
      and `outlined_alone` those without a neighbour
    """
    tested = pl.col(f"guarantee_{label}").is_in(TESTED).fill_null(False)
    has_range = pl.col(f"from_{label}").is_not_null()
    flags = forecast.select(tested=tested & has_range, beyond=~tested & has_range)

    def near(name: str) -> pl.Expr:
        flag = pl.col(name)
        return flag.shift(1, fill_value=False) | flag.shift(-1, fill_value=False)

    return flags.with_columns(
        shaded=pl.col("tested") & near("tested"),
        alone=pl.col("tested") & ~near("tested"),
        outlined=pl.col("beyond") | (pl.col("tested") & near("beyond")),
    ).with_columns(outlined_alone=pl.col("beyond") & ~near("outlined"))
