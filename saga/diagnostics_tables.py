"""The diagnostics of a bundle as tables, with the type and meaning of each column.

`saga.calibration.diagnostics` computes them, the bundle stores them, `saga.pages.report` shows
them. The names are those of `diagnostics.parquet` and of the CSV files in the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Self

import polars as pl

from saga.errors import Problem, UsageError

if TYPE_CHECKING:
    from saga.bundle import Bundle

# Question -> the largest deviation that is small in practice, as a share unless stated. The mean
# error is in log earnings; its question also judges the slope of the regression of outcomes on
# forecasts, whose tolerance is twice as large.
QUESTIONS: dict[str, float] = {
    "sum": 0.02,  # relative error of the mean of everybody, and of groups
    "coverage": 0.02,
    "groups": 0.02,
    "together": 0.02,  # coverage of bands and present values of several years
    "shape": 0.02,
    "mean_error": 0.05,
    "zero": 0.02,  # probability of no earnings
    "low_pay": 0.02,  # probability of low pay
    "periods": 0.02,  # coverage by year of the outcome
    "zero_bins": 0.02,  # coverage by the probability of no earnings
    "efficiency": 0.02,  # relative difference of mean interval scores
}
# From good to bad; reports say "cannot tell" for "unclear".
STATUSES = ("holds", "unclear", "watch", "fails")
SIMULATED = "Simulated people, not real"


@dataclass(frozen=True)
class Column:
    """A column: its type and its meaning, in words that the report shows."""

    dtype: pl.DataType
    meaning: str


@dataclass(frozen=True)
class Table:
    """A table: what one row is about, and its columns by name."""

    meaning: str
    columns: dict[str, Column]

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """Column names and types."""
        return {name: column.dtype for name, column in self.columns.items()}


_text = partial(Column, pl.String())
_integer = partial(Column, pl.Int32())
_count = partial(Column, pl.Int64())
_number = partial(Column, pl.Float64())
_flag = partial(Column, pl.Boolean())

HORIZON = _integer("years ahead")
COVERAGE = _number("stated coverage of the interval")
N = _count("persons judged; null if too few to be shown")
INSIDE = _number("share of these persons whose outcome is inside the interval")
STATUS = _text(
    "verdict: holds; watch (small but not by chance, or too many covered); fails; "
    "unclear (cannot tell)"
)
SAMPLING_BAND = {
    "band_lower": _number("lower end of the sampling band"),
    "band_upper": _number("upper end of the sampling band"),
}
OUTSIDE = _flag("whether the figure lies outside its sampling band")
TABLES: dict[str, Table] = {
    "provenance": Table(
        "A fact about how the tables were made.",
        {"name": _text("name of the fact"), "text": _text("the fact")},
    ),
    "verdicts": Table(
        "The verdict on a question at a horizon.",
        {
            "question": _text("the question"),
            "horizon": HORIZON,
            "status": STATUS,
            "n": N,
            "size": _number("deviation on which the verdict is based, in shares or log earnings"),
            "tolerance": _number("largest deviation that counts as negligible"),
            "coverage": _number("stated coverage at which the deviation is largest"),
            "group": _text("group, period or figure at which the deviation is largest"),
            "figures": _integer("figures of which the verdict is the worst; null: there is one"),
            "judged": _integer("those of them that can tell; the others do not count"),
        },
    ),
    "sums": Table(
        "Mean earnings of a group at a horizon, forecast and realised.",
        {
            "horizon": HORIZON,
            "grouping": _text("how persons are grouped; all: everybody"),
            "group": _text("the group"),
            "n": N,
            "mean_forecast": _number("mean forecast, given the realised macro series if any"),
            "mean_outcome": _number("mean of the outcomes, real money a year"),
            "size": _number("outcome less this forecast, as a share of it"),
            "reach": _number("how far from 0 chance could move `size`: persons and years are few"),
            "status": STATUS,
            "forecast": _number("mean forecast as it is issued, real money a year"),
            "lower_90": _number("lower end of its 90 % band; null: no paths were simulated"),
            "upper_90": _number("upper end of its 90 % band"),
            "inside": _number("1: the outcome lies in the band; 0: it does not"),
            "value": _number(
                "the simple rule: recent mean earnings of the age, sex and education, grown"
            ),
        },
    ),
    "guarantees": Table(
        "What the intervals of a horizon rest on.",
        {
            "horizon": HORIZON,
            "persons_map": _count("calibration persons behind the recalibration map"),
            "persons_threshold": _count("calibration persons behind the threshold"),
            "guarantee": _text("most frequent guarantee: assumption, extrapolated or none"),
            "n": N,
            "drift_term": _number(
                "typical difference, in past years, between calibrated and realised coverage"
            ),
        },
    ),
    "coverage": Table(
        "Coverage of a group at a horizon and a stated coverage.",
        {
            "horizon": HORIZON,
            "grouping": _text("how persons are grouped; all: everybody"),
            "group": _text("the group"),
            "coverage": COVERAGE,
            "n": N,
            "inside": INSIDE,
            "under": _number("share of these persons with an outcome below the interval"),
            "over": _number("share of these persons with an outcome above the interval"),
            **SAMPLING_BAND,
            "status": STATUS,
        },
    ),
    "pit": Table(
        "A bin of the PIT (ranks of outcomes in their forecasts) at a horizon.",
        {
            "horizon": HORIZON,
            "rank": _number("upper end of the PIT bin, 0 to 1"),
            "n": N,
            "share": _number("share of persons in the bin"),
            "share_lower": _number("lower end of the sampling band of `share`"),
            "share_upper": _number("upper end of the sampling band of `share`"),
            "ecdf": _number("share of persons up to this rank"),
            **SAMPLING_BAND,
            "outside": OUTSIDE,
        },
    ),
    "reliability": Table(
        "Persons with similar stated probabilities of an event at a horizon.",
        {
            "event": _text("zero: no earnings; low_pay: earnings below the low-pay threshold"),
            "horizon": HORIZON,
            "forecast": _number("mean stated probability"),
            "observed": _number("share with the event (isotonic fit)"),
            "n": N,
            **SAMPLING_BAND,
            "outside": OUTSIDE,
        },
    ),
    "widths": Table(
        "Typical width of the intervals of a group.",
        {
            "horizon": HORIZON,
            "grouping": _text("how persons are grouped; all: everybody"),
            "group": _text("the group"),
            "coverage": COVERAGE,
            "n": _count("persons with an interval; null if too few to be shown"),
            "width": _number("typical width of the positive part, real money a year"),
            "typical": _number("typical median forecast, real money a year"),
            "with_zero": _number("share of intervals that include zero earnings"),
            "without": _number("share of persons without an interval"),
        },
    ),
    "mean_error": Table(
        "Mean log error (outcome minus forecast) at a horizon, and the regression on forecasts.",
        {
            "horizon": HORIZON,
            "n": N,
            "mean_forecast": _number("mean of the forecasts, real money a year"),
            "mean_outcome": _number("mean of the outcomes, real money a year"),
            "mean_error": _number("mean of log outcome minus log forecast"),
            "error_lower": _number("lower end of the sampling band of `mean_error`"),
            "error_upper": _number("upper end of the sampling band of `mean_error`"),
            "intercept": _number("intercept of the regression"),
            "slope": _number("slope of the regression; 1 is right"),
            "slope_lower": _number("lower end of the sampling band of `slope`"),
            "slope_upper": _number("upper end of the sampling band of `slope`"),
            "economy": _number(
                "log difference of forecasts with and without the realised macro series"
            ),
            "status": STATUS,
        },
    ),
    "together": Table(
        "Coverage of intervals for the next years together.",
        {
            "question": _text("band: all years at once; present_value: their discounted sum"),
            "horizon": _integer("number of years"),
            "coverage": COVERAGE,
            "n": N,
            "inside": INSIDE,
            **SAMPLING_BAND,
            "status": STATUS,
        },
    ),
    "zero_bins": Table(
        "Coverage of persons with a similar stated probability of no earnings.",
        {
            "horizon": HORIZON,
            "coverage": COVERAGE,
            "p_from": _number("lowest probability of no earnings in the bin"),
            "p_to": _number("highest probability of no earnings in the bin"),
            "n": N,
            "inside": INSIDE,
            "forced": _number(
                "share that should be inside: the stated coverage, or the probability of no "
                "earnings where that is higher"
            ),
            **SAMPLING_BAND,
            "status": STATUS,
        },
    ),
    "efficiency": Table(
        "Width and interval score of the intervals, and of simple rules for the same persons.",
        {
            "horizon": HORIZON,
            "rule": _text(
                "saga; last_year: last earnings plus the changes that training persons had; "
                "group_quantiles: earnings of training persons of the same age and quintile"
            ),
            "coverage": COVERAGE,
            "n": N,
            "inside": INSIDE,
            "width": _number("mean width, real money a year"),
            "value": _number("mean interval score, real money a year; lower is better"),
            "size": _number("score of SAGA less that of the rule, as a share of the rule's"),
            "reach": _number("how far from 0 chance could move `size` if both were equal"),
            "status": STATUS,
        },
    ),
    "stability": Table(
        "How far the end of a present value's interval moves between five seeds.",
        {
            "horizon": _integer("number of years"),
            "end": _text("lower or upper end"),
            "coverage": COVERAGE,
            "n": N,
            "middle": _number("range over the seeds, relative to the median value: middle person"),
            "high": _number("the same, of the person at 90 % of all persons"),
            "differs": _number("share of intervals that begin at zero with some seeds only"),
        },
    ),
    "people": Table(
        "A year of an example person: the record, or the forecast. None of them is a real person.",
        {
            "person": _integer("number of the example"),
            "kind": _text("kind of person"),
            "year": _integer("year"),
            "age": _integer("age in that year"),
            "earnings": _number("earnings of the record, real money a year"),
            "horizon": HORIZON,
            "median": _number("median forecast, real money a year"),
            "p_zero": _number("probability of no earnings"),
            **{
                f"{end}_{share}": _number(f"{end} end of the {share} % interval")
                for share in (50, 80, 90)
                for end in ("lower", "upper")
            },
            **{
                f"guarantee_{share}": _text(f"guarantee of the {share} % interval")
                for share in (50, 80, 90)
            },
        },
    ),
    "periods": Table(
        "Coverage by year of the outcome; years are joined until there are enough persons.",
        {
            "horizon": HORIZON,
            "first_year": _integer("first year of the period"),
            "last_year": _integer("last year of the period"),
            "n": N,
            "inside": INSIDE,
            **SAMPLING_BAND,
            "status": STATUS,
        },
    ),
}
# Columns of all tables as one, as a bundle stores them; a name has one type in all of them.
STORED: dict[str, pl.DataType] = {"table": pl.String()}
for _table in TABLES.values():
    STORED |= _table.schema


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """Tables by name, with the columns of TABLES.

    Figures of fewer than `min_persons` persons are null, and so is their number.
    """

    tables: Mapping[str, pl.DataFrame]

    def __getitem__(self, name: str) -> pl.DataFrame:
        return self.tables[name]

    @property
    def provenance(self) -> dict[str, str]:
        """How these tables were made, by name of the fact."""
        return dict(self.tables["provenance"].iter_rows())

    def to_table(self) -> pl.DataFrame:
        """All tables as one with a column `table`: the `diagnostics.parquet` of the bundle."""
        named = [
            table.select(pl.lit(name).alias("table"), pl.all())
            for name, table in self.tables.items()
        ]
        return pl.concat(named, how="diagonal")

    @classmethod
    def from_table(cls, stored: pl.DataFrame) -> Self:
        """The tables that `to_table` wrote; loading a bundle checks that they have STORED."""
        return cls(
            {
                name: stored.filter(pl.col("table") == name).select(
                    pl.col(c).cast(dtype) for c, dtype in table.schema.items()
                )
                for name, table in TABLES.items()
            }
        )

    @classmethod
    def of_bundle(cls, bundle: Bundle) -> Self:
        """The diagnostics inside a bundle.

        Raises UsageError, with the command that computes them, if there are none.
        """
        if bundle.diagnostics is None:
            fix = (
                "Run `saga report BUNDLE --panel DIR --store --out FILE.html` on a panel with "
                "outcomes."
            )
            missing = Problem(
                "no-diagnostics", "Its forecasts were not judged since it was calibrated", fix
            )
            raise UsageError("The bundle contains no diagnostics to report.", [missing])
        return cls.from_table(bundle.diagnostics)
