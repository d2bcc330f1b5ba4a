"""The charts of the calibration report, drawn from tables of the diagnostics.

No statistic is computed here. A status has a colour and a shape. Grey bands are sampling bands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import altair as alt
import polars as pl

from saga.conformal.calibration_table import ALL
from saga.pages.theme import BAND, GREY, INK, LINE, MEDIAN, draw_svg

STATUS = {  # colour and shape
    "holds": ("#1a7f37", "circle"),
    "unclear": (GREY, "square"),
    "watch": ("#9a6700", "triangle-up"),
    "fails": ("#b42318", "cross"),
}
PERCENT = "%"
_WIDTH = 640  # of all panels of a chart together, pixels
_NUMBERS = "The numbers of this picture are in the table that follows it or among the downloads."


def draw_charts(
    tables: Mapping[str, pl.DataFrame],
    headline: float,
    group_labels: Mapping[tuple[str, str], str],
    rule_labels: Mapping[str, str],
    unit: str,
) -> dict[str, str]:
    """Name -> inline SVG of each chart of the report; a chart without data is left out.

    Args:
        tables: The tables of the diagnostics, and "vintages" if the bundle stores some.
        headline: The coverage of charts that show only one.
        group_labels: (Grouping, group) -> its label, in the order of the chart.
        rule_labels: Rule -> its name, in the order of the chart.
        unit: Unit of money.
    """
    everybody = pl.col("grouping") == ALL
    of_all = tables["coverage"].filter(everybody).drop_nulls("inside")
    at_headline = tables["coverage"].filter(pl.col("coverage") == headline)
    groups = _labelled(group_labels).join(
        at_headline.filter(~everybody), on=["grouping", "group"], maintain_order="left"
    )
    events = {event: tables["reliability"].filter(event=event) for event in ("zero", "low_pay")}
    charts: dict[str, tuple[pl.DataFrame, Callable[[pl.DataFrame], Any], str]] = {
        "vintages": (
            tables.get("vintages", pl.DataFrame()),
            vintages_chart,
            "Errors of the mean of everybody, a mark for each vintage, by years ahead.",
        ),
        "coverage": (
            of_all,
            coverage_chart,
            "Share of outcomes inside the intervals, by years ahead and stated coverage.",
        ),
        "misses": (
            _missed_shares(at_headline.filter(everybody)),
            misses_chart,
            "Shares of outcomes below and above the interval.",
        ),
        "groups": (
            groups.drop_nulls("inside"),
            groups_chart,
            "Share inside the intervals by group.",
        ),
        "periods": (
            _with_periods(tables["periods"]),
            partial(periods_chart, coverage=headline),
            "Share inside the intervals by year of the outcome.",
        ),
        "zero_bins": (
            tables["zero_bins"],
            zero_bins_chart,
            "Share inside the intervals by stated probability of no earnings.",
        ),
        "pit_histogram": (
            tables["pit"],
            pit_histogram_chart,
            "Ranks of outcomes within their forecasts, as bars.",
        ),
        "pit_curve": (
            tables["pit"],
            pit_curve_chart,
            "Ranks of outcomes, as difference from evenly spread ranks.",
        ),
        "zero": (
            events["zero"],
            reliability_chart,
            "Stated probability of no earnings against the share without earnings.",
        ),
        "low_pay": (
            events["low_pay"],
            reliability_chart,
            "Stated probability of low pay against the share with low pay.",
        ),
        "mean_error": (
            tables["mean_error"],
            mean_error_chart,
            "Mean error and slope of outcomes on forecasts, by years ahead.",
        ),
        "widths": (
            tables["widths"].filter(everybody).drop_nulls("width"),
            partial(widths_chart, unit=unit),
            "Typical width by years ahead.",
        ),
        "efficiency": (
            tables["efficiency"],
            partial(efficiency_chart, names_of_rules=rule_labels, unit=unit),
            "Mean interval score of SAGA and of two simple rules, by years ahead.",
        ),
    }
    return {
        name: draw_svg(chart(rows), f"{text} {_NUMBERS}")
        for name, (rows, chart, text) in charts.items()
        if rows.height
    }


def coverage_chart(table: pl.DataFrame) -> Any:
    """Coverage by years ahead, one panel per stated coverage: the table's rows of all persons."""
    rows = table.with_columns(_panel(pl.col("coverage"), "{} % intervals", 100))
    base = alt.Chart(rows).encode(x=_horizon())
    target = _rule(rows, "mean(coverage):Q")
    legend = _legend()
    legend.labelExpr = "datum.label == 'unclear' ? 'cannot tell' : datum.label"
    points = _points(base, legend=legend).encode(y="inside:Q")
    return _panels([_band(base, 16), target, points], rows, height=170, independent=True)


def vintages_chart(errors: pl.DataFrame) -> Any:
    """Outcome less forecast of the mean of everybody, a point for each vintage, and by the rule."""
    everybody = errors.filter(grouping="total", statistic="mean")
    by_rule = pl.col("outcome") / pl.col("rule") - 1
    rows = pl.concat(
        everybody.select("horizon", "cutoff", error.alias("error"), name=pl.lit(name))
        for name, error in (("SAGA", pl.col("error")), ("Simple rule", by_rule))
    )
    base = alt.Chart(rows).encode(x=_horizon(), xOffset="name:N")
    points = base.mark_point(filled=True, size=50).encode(
        y=_share("error", "Outcome less forecast"),
        color=alt.Color("name:N", scale=alt.Scale(range=[LINE, GREY]), legend=_legend()),
    )
    return alt.layer(_rule(rows, alt.datum(0)), points).properties(width=_WIDTH - 60, height=170)


def groups_chart(table: pl.DataFrame) -> Any:
    """Coverage by group, one panel per horizon.

    `table`: rows of one stated coverage, with a text column `label`.
    """
    rows = _by_horizon(table)
    labels = table["label"].unique(maintain_order=True).to_list()
    base = alt.Chart(rows).encode(
        y=alt.Y("label:N", sort=labels, title=None, axis=alt.Axis(labelLimit=190))
    )
    band = base.mark_bar(color=BAND, height=9).encode(
        x=_share("band_lower", "Share inside", alt.X), x2="band_upper:Q"
    )
    target = (
        alt.Chart(rows)
        .mark_rule(color=INK, strokeDash=[3, 3])
        .encode(x="mean(coverage):Q", y=alt.value(0), y2=alt.value("height"))
    )
    points = _points(base, size=45).encode(x="inside:Q")
    width = (_WIDTH - 130) // rows["panel"].n_unique()
    return (
        alt.layer(band, target, points)
        .properties(width=width, height=14 * len(labels))
        .facet(column=_facet(alt.Column, rows), spacing=8)
        .resolve_axis(y="shared")
    )


def misses_chart(table: pl.DataFrame) -> Any:
    """Shares below and above the interval by years ahead.

    `table`: long rows `horizon`, `side`, `share`.
    """
    colours = {"below the interval": "#5b7fa6", "above the interval": "#c98b2b"}
    return _bars(table, _share("share", "Share of persons"), "side", colours, height=150)


def pit_histogram_chart(table: pl.DataFrame) -> Any:
    """Share of outcomes by forecast rank, one panel per horizon."""
    rows = _by_horizon(table)
    base = alt.Chart(rows).encode(
        x=alt.X("rank:O", title="Rank, low to high", axis=alt.Axis(labels=False, ticks=False))
    )
    bars = base.mark_bar(color="#7f9fc4").encode(y=_share("share", "Share of persons"))
    lower, upper = (
        base.mark_tick(color=INK, thickness=1.5).encode(y=f"{end}:Q")
        for end in ("share_lower", "share_upper")
    )
    return _panels([bars, lower, upper], rows, height=130)


def pit_curve_chart(table: pl.DataFrame) -> Any:
    """Share of outcomes up to a rank minus the rank, with its band, one panel per horizon."""
    ends = [pl.col(name) - pl.col("rank") for name in ("ecdf", "band_lower", "band_upper")]
    rows = _by_horizon(table).with_columns(ends)
    base = alt.Chart(rows).encode(
        x=alt.X("rank:Q", title="Rank", axis=alt.Axis(values=[0, 0.5, 1], format=PERCENT))
    )
    band = base.mark_area(color=BAND).encode(
        y=_share("band_lower", "Too many (+) or too few (-)"), y2="band_upper:Q"
    )
    zero = _rule(rows, alt.datum(0))
    line = base.mark_line(color=LINE, strokeWidth=2).encode(y="ecdf:Q")
    return _panels([band, zero, line, _outside(base, "ecdf")], rows, height=130)


def reliability_chart(table: pl.DataFrame) -> Any:
    """Observed share by stated probability with its band, one panel per horizon: one event."""
    rows = _by_horizon(table)
    base = alt.Chart(rows).encode(
        x=alt.X(
            "forecast:Q", title="Stated probability", axis=alt.Axis(format=PERCENT, tickCount=3)
        )
    )
    band = base.mark_area(color=BAND).encode(
        y=_share("band_lower", "Share with the event"), y2="band_upper:Q"
    )
    diagonal = base.mark_line(color=INK, strokeDash=[3, 3], strokeWidth=1).encode(y="forecast:Q")
    line = base.mark_line(
        color=LINE, strokeWidth=2, point=alt.OverlayMarkDef(color=LINE, size=22)
    ).encode(y="observed:Q")
    return _panels([band, diagonal, line, _outside(base, "observed")], rows, height=130)


def widths_chart(table: pl.DataFrame, unit: str) -> Any:
    """Typical width by years ahead, a line per stated coverage: the table's rows of all persons."""
    rows = table.with_columns(_panel(pl.col("coverage"), "{} %", 100))
    names = rows["panel"].unique(maintain_order=True).to_list()
    shapes = ["circle", "square", "triangle-up", "diamond"]
    return (
        alt.Chart(rows)
        .mark_line(point=alt.OverlayMarkDef(size=50, filled=True), strokeWidth=2)
        .encode(
            x=_horizon(),
            y=alt.Y(
                "width:Q", title=["Typical width", unit], axis=alt.Axis(format=",.0f", tickCount=5)
            ),
            color=alt.Color(
                "panel:N",
                sort=names,
                scale=alt.Scale(domain=names, range=["#9db7d5", "#5b8cc0", LINE, MEDIAN]),
                legend=_legend("Interval"),
            ),
            shape=alt.Shape(
                "panel:N",
                sort=names,
                scale=alt.Scale(domain=names, range=shapes),
                legend=_legend("Interval"),
            ),
        )
        .properties(width=_WIDTH - 60, height=190)
    )


def mean_error_chart(table: pl.DataFrame) -> Any:
    """Mean of outcome less forecast, and slope, by years ahead with their bands."""
    base = alt.Chart(table).encode(x=_horizon())

    def panel(
        name: str, lower: str, upper: str, target: float, title: str, number_format: str
    ) -> Any:
        band = base.mark_bar(color=BAND, size=16).encode(
            y=alt.Y(
                f"{lower}:Q",
                title=title,
                axis=alt.Axis(format=number_format, tickCount=5),
                scale=alt.Scale(zero=False),
            ),
            y2=f"{upper}:Q",
        )
        rule = _rule(table, alt.datum(target))
        point = base.mark_point(filled=True, size=60, opacity=1, color=LINE).encode(y=f"{name}:Q")
        return alt.layer(band, rule, point).properties(width=_WIDTH // 2 - 70, height=160)

    error = panel(
        "mean_error", "error_lower", "error_upper", 0, "Outcome less forecast (log)", "+.2f"
    )
    return alt.hconcat(
        error, panel("slope", "slope_lower", "slope_upper", 1, "Slope", ".2f"), spacing=40
    )


def periods_chart(table: pl.DataFrame, coverage: float) -> Any:
    """Coverage by year of the outcome, one panel per horizon; a line at the stated `coverage`.

    `table`: rows with a text column `period`.
    """
    rows = _by_horizon(table)
    years = alt.Axis(labelAngle=-90, labelOverlap="parity")
    base = alt.Chart(rows).encode(x=alt.X("period:O", title=None, axis=years))
    target = _rule(rows, alt.datum(coverage))
    return (
        alt.layer(_band(base, 8), target, _points(base).encode(y="inside:Q"))
        .properties(width=_WIDTH // 3 - 60, height=110)
        .facet(facet=_facet(alt.Facet, rows), columns=3, spacing=18)
        .resolve_scale(x="independent")
    )


def efficiency_chart(table: pl.DataFrame, names_of_rules: Mapping[str, str], unit: str) -> Any:
    """Mean interval score by years ahead, one bar for SAGA and one for each simple rule.

    `table`: long rows `horizon`, `rule`, `value`.
    """
    rows = table.with_columns(pl.col("rule").replace_strict(names_of_rules).alias("name"))
    colours = ["#0b5cad", "#c9d1da", "#8a94a0"]
    y = alt.Y("value:Q", title=["Interval score", unit], axis=alt.Axis(format=",.0f"))
    return _bars(rows, y, "name", dict(zip(names_of_rules.values(), colours, strict=True)))


def zero_bins_chart(table: pl.DataFrame) -> Any:
    """Coverage by bins of the probability of zero, one panel per horizon.

    A tick shows `forced`, the share that should be inside: more than stated where the probability
    of zero is higher, because a set with zero covers at least that probability.
    """
    middle = ((pl.col("p_from") + pl.col("p_to")) / 2).alias("p")
    rows = _by_horizon(table).with_columns(middle)
    base = alt.Chart(rows).encode(
        x=alt.X(
            "p:Q",
            title="No earnings",
            axis=alt.Axis(format=PERCENT, values=[0, 0.5, 1]),
            scale=alt.Scale(domain=[0, 1]),
        )
    )
    target = base.mark_tick(color=INK, thickness=1.5).encode(y="forced:Q")
    layers = [_band(base, 6), target, _points(base).encode(y="inside:Q")]
    return _panels(layers, rows, height=150)


def _by_horizon(table: pl.DataFrame) -> pl.DataFrame:
    """The table with the heading of each row's panel, such as "5 years ahead"."""
    return table.with_columns(_panel(pl.col("horizon"), "{} years ahead"))


def _panel(column: pl.Expr, text: str, scale: float = 1) -> pl.Expr:
    """The column `panel`, a heading: `text` with `scale` times the value in place of {}."""
    label = (
        (column * scale)
        .round(1)
        .cast(pl.Float64)
        .map_elements(lambda v: text.format(f"{v:g}"), return_dtype=pl.String)
    )
    return label.str.replace("^1 years", "1 year").alias("panel")


def _facet(channel: Any, table: pl.DataFrame) -> Any:
    """Panels side by side by the column `panel`, in the order of the table."""
    return channel("panel:N", sort=table["panel"].unique(maintain_order=True).to_list(), title=None)


def _panels(
    layers: Sequence[Any],
    table: pl.DataFrame,
    *,
    height: int,
    independent: bool = False,
) -> Any:
    """The layers in one panel per heading; `independent`: each has its own y axis."""
    width = (_WIDTH - 60) // table["panel"].n_unique() - (38 if independent else 10)
    chart = (
        alt.layer(*layers)
        .properties(width=width, height=height)
        .facet(column=_facet(alt.Column, table), spacing=10)
    )
    return chart.resolve_scale(y="independent" if independent else "shared", x="independent")


def _rule(table: pl.DataFrame, y: Any) -> Any:
    """A dashed line across the panel."""
    return (
        alt.Chart(table)
        .mark_rule(color=INK, strokeDash=[3, 3])
        .encode(x=alt.value(0), x2=alt.value("width"), y=y)
    )


def _horizon() -> Any:
    return alt.X("horizon:O", title="Years ahead", axis=alt.Axis(labelAngle=0))


def _share(field: str, title: str, channel: Any = alt.Y) -> Any:
    return channel(
        f"{field}:Q",
        title=title,
        axis=alt.Axis(format=PERCENT, tickCount=5),
        scale=alt.Scale(zero=False),
    )


def _legend(title: str | None = None) -> Any:
    return alt.Legend(title=title, orient="bottom", columnPadding=28)


def _bars(
    table: pl.DataFrame, y: Any, field: str, colours: Mapping[str, str], height: int = 160
) -> Any:
    """Bars side by side at each horizon, one for each value of `field`, in these colours."""
    names = list(colours)
    scale = alt.Scale(domain=names, range=list(colours.values()))
    return (
        alt.Chart(table)
        .mark_bar()
        .encode(
            x=_horizon(),
            xOffset=alt.XOffset(f"{field}:N", sort=names),
            y=y,
            color=alt.Color(f"{field}:N", sort=names, scale=scale, legend=_legend()),
        )
        .properties(width=_WIDTH - 60, height=height)
    )


def _band(base: Any, size: int) -> Any:
    return base.mark_bar(color=BAND, size=size).encode(
        y=_share("band_lower", "Share inside"), y2="band_upper:Q"
    )


def _points(base: Any, size: int = 60, legend: Any = None) -> Any:
    """Points with the colour and shape of their status."""
    names = list(STATUS)
    colours, shapes = zip(*STATUS.values(), strict=True)
    return base.mark_point(filled=True, size=size, opacity=1).encode(
        color=alt.Color("status:N", scale=alt.Scale(domain=names, range=colours), legend=legend),
        shape=alt.Shape("status:N", scale=alt.Scale(domain=names, range=shapes), legend=legend),
    )


def _outside(base: Any, field: str) -> Any:
    """Crosses at the points of a curve that lie outside its band."""
    marked = base.transform_filter("datum.outside")
    return marked.mark_point(
        shape="cross", size=55, filled=True, color=STATUS["fails"][0], opacity=1
    ).encode(y=f"{field}:Q")


def _labelled(labels: Mapping[tuple[str, str], str]) -> pl.DataFrame:
    """Columns `grouping`, `group` and `label`."""
    rows = [(grouping, group, label) for (grouping, group), label in labels.items()]
    columns = dict.fromkeys(("grouping", "group", "label"), pl.String)
    return pl.DataFrame(rows, schema=columns, orient="row")


def _missed_shares(coverage: pl.DataFrame) -> pl.DataFrame:
    """Columns `horizon`, `side` (in words) and `share` of outcomes outside the interval."""
    sides = {"under": "below the interval", "over": "above the interval"}
    shares = coverage.unpivot(
        list(sides), index="horizon", variable_name="side", value_name="share"
    )
    return shares.with_columns(pl.col("side").replace(sides)).drop_nulls()


def _with_periods(periods: pl.DataFrame) -> pl.DataFrame:
    """The table with the column `period`: "2016", or "2016-18" for several years."""
    several_years = pl.format(
        "{}-{}", "first_year", pl.col("last_year").cast(pl.String).str.slice(2)
    )
    one_year = pl.col("first_year") == pl.col("last_year")
    return periods.with_columns(
        pl.when(one_year)
        .then(pl.col("first_year").cast(pl.String))
        .otherwise(several_years)
        .alias("period")
    )
