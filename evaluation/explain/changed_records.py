"""Forecasts of one person from changed records: what moved the forecast, and what would have.

An effect is the difference between two published forecasts of the same year, in money and in the
chance of no earnings. It says how the model uses the record, not what an entry causes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from saga.data.panel import Panel
from saga.forecaster import Forecaster
from saga.requests import ForecastRequest
from saga.schema import CATEGORICAL, CONTINUOUS, EDUCATION_LEVELS, MAX_AGE

RECENT = 5  # last years of the record that are hidden one by one
RAISE = 0.10  # by which the last earnings are raised
_YEAR, _EARNINGS = pl.col("year"), pl.col("earnings")


@dataclass(frozen=True)
class ChangedForecast:
    """The published forecast of a year from a changed record, beside that from the record.

    Args:
        change: What was changed, in words.
        hidden: Whether an entry was made unknown, instead of changed.
        mean: Mean of the changed forecast; it moves even if the median is zero.
        p_zero: Chance of no earnings in the changed forecast.
        mean_effect: This mean less that of the forecast from the record.
        p_zero_effect: This chance less that of the forecast from the record.
    """

    change: str
    hidden: bool
    mean: float
    p_zero: float
    mean_effect: float
    p_zero_effect: float


def forecast_changes(
    forecaster: Forecaster, record: Panel, horizon: int
) -> tuple[ChangedForecast, ...]:
    """Forecasts `horizon` years ahead from each changed record of a panel of one person.

    Those with a hidden entry come first; both kinds are sorted by the size of their effect. There
    are none if the person is above 64 in that year.
    """
    age = record.frame.select((_YEAR - pl.col("birth_year")).max()).item()
    if age + horizon > MAX_AGE:
        return ()
    variants = [*_hidden_entries(record), *_changed_entries(record)]
    frames = [record.frame, *(frame for _, _, frame in variants)]
    panel = record.with_frame(
        pl.concat(
            frame.with_columns(person_id=pl.lit(f"{k:04d}")) for k, frame in enumerate(frames)
        )
    )
    request = ForecastRequest([horizon])
    table = forecaster.forecast(panel, request).table.sort("person_id")
    (mean, p_zero), *others = table.select("mean", "p_zero").rows()
    changes = [
        ChangedForecast(words, hidden, m, p, m - mean, p - p_zero)
        for (words, hidden, _), (m, p) in zip(variants, others, strict=True)
    ]
    return tuple(
        sorted(changes, key=lambda each: (not each.hidden, -abs(each.mean_effect), each.change))
    )


def _hidden_entries(record: Panel) -> Iterator[tuple[str, bool, pl.DataFrame]]:
    """The record without one entry: recent earnings, earlier ones together, and each column."""
    frame = record.frame
    known = frame.filter(_EARNINGS.is_not_null())["year"].sort(descending=True).to_list()
    for year in known[:RECENT] if len(known) > 1 else []:
        yield f"the earnings of {year}", True, _with_earnings(frame, _YEAR == year, None)
    earlier = known[RECENT:]
    if earlier:
        words = f"all earnings up to {earlier[0]}"
        yield words, True, _with_earnings(frame, earlier[0] >= _YEAR, None)
    for name in (*CONTINUOUS, *CATEGORICAL):
        if name != "earnings" and frame[name].null_count() < len(frame):
            hidden = frame.with_columns(pl.lit(None, frame.schema[name]).alias(name))
            yield f"the column {name.replace('_', ' ')}", True, hidden


def _changed_entries(record: Panel) -> Iterator[tuple[str, bool, pl.DataFrame]]:
    """The record with one year more or less of work, a higher last wage, another education."""
    frame = record.frame.sort("year")
    known = frame.filter(_EARNINGS.is_not_null())
    last, amount = known.select("year", "earnings").row(-1)
    zeros = known.filter(_EARNINGS == 0)["year"].to_list()
    if zeros:
        before = known.filter(_EARNINGS > 0, zeros[-1] > _YEAR)["earnings"]
        after = known.filter(_EARNINGS > 0)["earnings"]
        earned = before[-1] if len(before) else after[0] if len(after) else None
        if earned is not None:
            words = f"work in {zeros[-1]}, with earnings as in the nearest year of work"
            yield words, False, _with_earnings(frame, _YEAR == zeros[-1], earned)
    if amount > 0:
        yield f"no work in {last}", False, _with_earnings(frame, _YEAR == last, 0.0)
        raised = _with_earnings(frame, _YEAR == last, amount * (1 + RAISE))
        yield f"{100 * RAISE:.0f} % higher earnings in {last}", False, raised
    level = frame["education_level"].drop_nulls()
    if len(level):
        position = EDUCATION_LEVELS.index(level[-1])
        for step in (-1, 1):
            if 0 <= position + step < len(EDUCATION_LEVELS):
                other = EDUCATION_LEVELS[position + step]
                changed = frame.with_columns(education_level=pl.lit(other))
                yield f"{other.replace('_', ' ')} education", False, changed


def _with_earnings(frame: pl.DataFrame, years: pl.Expr, amount: float | None) -> pl.DataFrame:
    """The rows with other earnings in some years."""
    changed = pl.when(years).then(pl.lit(amount, pl.Float64)).otherwise(_EARNINGS)
    return frame.with_columns(earnings=changed)
