"""The pictures of the calibration report: which rows of the tables each chart shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import polars as pl
from saga.calibration.diagnostics import plots
from saga.calibration.diagnostics.report_labels import RULE_LABELS

from saga.conformal.calibration_table import ALL
from saga.files.plot_theme import draw_svg

_NUMBERS = "The numbers of this picture are in the table that follows it or among the downloads."


class _Picture(NamedTuple):
    """The rows that a chart shows, and what a screen reader says instead of it."""

    rows: pl.DataFrame
    chart: Callable[[pl.DataFrame], Any]
    text: str


def draw_pictures(
    tables: Mapping[str, pl.DataFrame],
    headline: float,
    labels: Mapping[tuple[str, str], str],
    unit: str,
) -> dict[str, str]:
    """Name -> inline SVG; a picture without data is left out.

    Args:
        tables: The tables of the diagnostics.
        headline: The coverage of pictures that show only one.
        labels: (Grouping, group) -> its label, in the order of the picture.
        unit: Unit of money.
    """
    pictures = {
        **_coverage_pictures(tables, headline, labels),
        **_distribution_pictures(tables),
        **_width_pictures(tables, unit),
    }
    return {
        name: draw_svg(picture.chart(picture.rows), f"{picture.text} {_NUMBERS}")
        for name, picture in pictures.items()
        if picture.rows.height
    }


def _coverage_pictures(
    tables: Mapping[str, pl.DataFrame], headline: float, labels: Mapping[tuple[str, str], str]
) -> dict[str, _Picture]:
    everybody = pl.col("grouping") == ALL
    main = tables["coverage"].filter(everybody)
    by_group = _named_groups(labels).join(
        tables["coverage"].filter(~everybody, level=headline),
        on=["grouping", "group"],
        maintain_order="left",
    )
    coverages: Sequence[float] = tables["coverage"]["level"].unique().sort().to_list()
    horizons: Sequence[int] = tables["lights"]["horizon"].unique().sort().to_list()
    return {
        "coverage": _Picture(
            main.drop_nulls("inside"),
            partial(plots.coverage_chart, coverages=coverages),
            "Share of outcomes inside the intervals, by years ahead and stated coverage.",
        ),
        "misses": _Picture(
            _missed_shares(main.filter(level=headline)),
            plots.misses_chart,
            "Shares of outcomes below and above the interval.",
        ),
        "groups": _Picture(
            by_group.drop_nulls("inside"),
            partial(plots.groups_chart, horizons=horizons),
            "Share inside the intervals by group.",
        ),
        "drift": _Picture(
            _with_periods(tables["drift"]),
            partial(plots.periods_chart, coverage=headline),
            "Share inside the intervals by year of the outcome.",
        ),
        "zero_bins": _Picture(
            tables["zero_bins"],
            plots.zero_bins_chart,
            "Share inside the intervals by stated probability of no earnings.",
        ),
    }


def _distribution_pictures(tables: Mapping[str, pl.DataFrame]) -> dict[str, _Picture]:
    return {
        "pit_histogram": _Picture(
            tables["pit"],
            plots.pit_histogram_chart,
            "Ranks of outcomes within their forecasts, as bars.",
        ),
        "pit_curve": _Picture(
            tables["pit"],
            plots.pit_curve_chart,
            "Ranks of outcomes, as difference from evenly spread ranks.",
        ),
        "zero": _Picture(
            tables["reliability"].filter(event="zero"),
            plots.reliability_chart,
            "Stated probability of no earnings against the share without earnings.",
        ),
        "low_pay": _Picture(
            tables["reliability"].filter(event="low_pay"),
            plots.reliability_chart,
            "Stated probability of low pay against the share with low pay.",
        ),
        "level": _Picture(
            tables["level"],
            plots.mean_error_chart,
            "Mean error and slope of outcomes on forecasts, by years ahead.",
        ),
        "scores": _Picture(
            _crps_parts(tables["scores"]),
            plots.scores_chart,
            "Error without a forecast, with this one, and if it were perfectly calibrated.",
        ),
    }


def _width_pictures(tables: Mapping[str, pl.DataFrame], unit: str) -> dict[str, _Picture]:
    return {
        "widths": _Picture(
            tables["widths"].filter(grouping=ALL).drop_nulls("width"),
            partial(plots.widths_chart, unit=unit),
            "Typical width by years ahead.",
        ),
        "efficiency": _Picture(
            tables["efficiency"],
            partial(plots.efficiency_chart, names_of_rules=RULE_LABELS, unit=unit),
            "Mean interval score of SAGA and of two simple rules, by years ahead.",
        ),
    }


def _named_groups(labels: Mapping[tuple[str, str], str]) -> pl.DataFrame:
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


def _crps_parts(scores: pl.DataFrame) -> pl.DataFrame:
    """Columns `horizon`, `part` (in words) and `value`, the CRPS of log earnings."""
    crps = scores.filter(score="crps_log")
    parts = {
        "without a forecast": pl.col("uncertainty"),
        "with this forecast": pl.col("value"),
        "if it were perfectly calibrated": pl.col("recalibrated"),
    }
    return pl.concat(
        crps.select("horizon", pl.lit(name).alias("part"), value.alias("value"))
        for name, value in parts.items()
    )


def _with_periods(drift: pl.DataFrame) -> pl.DataFrame:
    """The table with the column `period`: "2016", or "2016-18" for several years."""
    several_years = pl.format(
        "{}-{}", "first_year", pl.col("last_year").cast(pl.String).str.slice(2)
    )
    one_year = pl.col("first_year") == pl.col("last_year")
    return drift.with_columns(
        pl.when(one_year)
        .then(pl.col("first_year").cast(pl.String))
        .otherwise(several_years)
        .alias("period")
    )
