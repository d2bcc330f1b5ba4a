"""Forecast and lifetime tables: from marginals, paths and intervals to the columns users read.

`round_amounts` rounds them to `decimals` (None: not rounded), 0 for whole units of a currency.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.conformal.calibrator import Calibrator
from saga.conformal.families.present_value import SimulatedValues
from saga.conformal.intervals import Intervals
from saga.conformal.published_sets import (
    ValueIntervals,
    band_intervals,
    one_sided_limits,
    value_intervals,
)
from saga.data.panel import Panel
from saga.distributions import Marginals
from saga.lifetime import observed_past, of_persons, past_years, present_value
from saga.paths import Paths
from saga.requests import ForecastRequest, LifetimeRequest, percent_label
from saga.tax.tax_rules import TaxRule
from saga.training_records import TrainingRecords

_WITHOUT_UNIT = ("p_zero", "rate", "wage_index")  # other columns of fractions are money
Column = NDArray[np.generic] | pl.Series


def forecast_table(
    marginals: Marginals, calibrator: Calibrator, request: ForecastRequest, records: TrainingRecords
) -> pl.DataFrame:
    """One row per person and horizon, until age 64, of recalibrated marginals.

    No guarantee is better than "extrapolated" where the training `records` do not reach.

    Columns: person_id, origin_year, horizon, year, mean, p_zero, one q.. per quantile; lower_,
    upper_, includes_zero_ and guarantee_ for each coverage (three nulls and "none" if there is no
    set); and cell, the group of persons whose outcomes decide the intervals ("all": everybody).
    With `limits` also at_least_, at_most_, guarantee_limits_, positive_lower_, positive_upper_,
    guarantee_positive_ (see `saga.conformal.published_sets`). With `bands` = K also band_lower_,
    band_upper_, band_includes_zero_, guarantee_band_: no set after year K (see
    `saga.conformal.families.path_band`).
    """
    columns = np.asarray(request.horizons) - 1
    marginals = marginals.first(request.n_years)
    person, position = np.nonzero(marginals.exists[:, columns])
    horizon = columns[position]
    quantiles = marginals.quantiles(request.quantiles)[person, horizon].T
    intervals = calibrator.intervals(marginals, request.coverage)
    table: dict[str, Column] = {
        "person_id": marginals.person_id[person],
        "origin_year": marginals.origin_year[person].astype(np.int32),
        "horizon": (horizon + 1).astype(np.int32),
        "year": (marginals.origin_year[person] + horizon + 1).astype(np.int32),
        "mean": marginals.mean[person, horizon],
        "p_zero": marginals.p_zero[person, horizon].astype(np.float64),
        **_quantile_columns(quantiles, request.quantiles),
    }
    for j, label in _labels(request.coverage):
        table |= _set_columns(intervals, (person, horizon, j), label)
    table["cell"] = intervals.cell[person, horizon].astype(str)
    if request.limits:
        limits = one_sided_limits(calibrator, marginals, request.coverage)
        table |= _limit_columns(*limits, person, horizon)
    if request.bands is not None:
        bands = band_intervals(calibrator, marginals, request.bands, request.coverage)
        table |= _band_columns(bands, person, horizon)
    age = marginals.origin_year - marginals.birth_year
    is_reached = records.reach(age[person], horizon + 1)
    return _lower_guarantees(pl.DataFrame(table), is_reached, records)


def lifetime_table(
    paths: Paths,
    calibrator: Calibrator,
    panel: Panel,
    request: LifetimeRequest,
    records: TrainingRecords,
    decimals: int | None = None,
    *,
    tax: TaxRule | None = None,
) -> tuple[pl.DataFrame, Floats, Floats | None]:
    """One row per person of `panel`, and present values (n, M) of its recalibrated paths.

    The present values are those of earnings and, with a `tax` rule, of the tax on them.

    Columns: person_id, origin_year, to_age, rate, mean, one q.. per quantile; lower_, upper_ and
    guarantee_ for each coverage; tax_mean and net_mean, null without a `tax` rule. With `from_age`
    last unknown_years, the number of years since then without known earnings; unless the request
    fills them, the amounts are null, and the values NaN. No guarantee is better than "extrapolated"
    where the training `records` do not reach.
    """
    paths.require_recalibrated()
    years, unknown, past = _past(paths, panel, request)
    # The past is left out, so that a future without earnings is exactly 0. An unknown past counts
    # only here, because no distribution can be fitted to unknown sums.
    known = np.nan_to_num(past)
    future = SimulatedValues.of(paths, lambda p: _present_value(p, years, request) - known)
    intervals = _value_intervals(paths, future, calibrator, request).moved(past)
    values = future.values + past
    quantiles = (future.quantiles(request.quantiles) + past).T
    table: dict[str, Column] = {
        "person_id": paths.person_id,
        "origin_year": paths.origin_year.astype(np.int32),
        "to_age": np.full(len(values), request.to_age, dtype=np.int32),
        "rate": np.full(len(values), request.rate),
        "mean": values.mean(1),
        **_quantile_columns(quantiles, request.quantiles),
    }
    for j, label in _labels(request.coverage):
        table[f"lower_{label}"] = intervals.lower[:, j]
        table[f"upper_{label}"] = intervals.upper[:, j]
        table[f"guarantee_{label}"] = intervals.guarantee[:, j].astype(str)
    table["tax_mean"] = pl.Series([None] * len(values), dtype=pl.Float64)
    taxes = None
    if tax is not None:
        taxes = _present_tax(paths, years, request, tax)
        taxes = np.where(np.isnan(past), np.nan, taxes)
        table["tax_mean"] = taxes.mean(1)
    frame = pl.DataFrame(table).with_columns(pl.col(pl.Float64).fill_nan(None))
    frame = round_amounts(frame, decimals)
    frame = frame.with_columns((pl.col("mean") - pl.col("tax_mean")).alias("net_mean"), *unknown)
    age = paths.origin_year - paths.birth_year
    is_reached = records.reach(age, request.to_age - age)
    return _lower_guarantees(frame, is_reached, records), values, taxes


def _lower_guarantees(
    table: pl.DataFrame, is_reached: NDArray[np.bool_], records: TrainingRecords
) -> pl.DataFrame:
    """The table with guarantee "extrapolated" where a row is not reached by the training records.

    The same for origins in other years than theirs. The guarantee "none" does not change.
    """
    is_inside = is_reached & records.contain(table["origin_year"].to_numpy())
    if is_inside.all():
        return table
    guarantees = pl.col("^guarantee_.*$")
    return table.with_columns(
        pl.when(pl.Series(~is_inside) & (guarantees != "none"))
        .then(pl.lit("extrapolated"))
        .otherwise(guarantees)
        .name.keep()
    )


def round_amounts(frame: pl.DataFrame, decimals: int | None) -> pl.DataFrame:
    """The columns of money rounded; other columns do not change."""
    if decimals is None:
        return frame
    rounded = frame.clone()
    for j, column in enumerate(frame):
        if column.dtype.is_float() and column.name not in _WITHOUT_UNIT:
            rounded.replace_column(j, _rounded(column, decimals))
    return rounded


def _rounded(amounts: pl.Series, decimals: int) -> pl.Series:
    """Half to even, as polars; numpy takes a tenth of the time for a few amounts."""
    values = np.round(amounts.to_numpy(), decimals)
    return pl.Series(amounts.name, values, nan_to_null=amounts.null_count() > 0)


def round_population(population: pl.DataFrame, decimals: int | None) -> pl.DataFrame:
    """Statistics of `saga.lifetime.population` that are amounts, rounded."""
    if decimals is None:
        return population
    is_amount = ~pl.col("statistic").is_in(["gini", "top_1_share"])
    return population.with_columns(
        pl.when(is_amount).then(pl.col(name).round(decimals)).otherwise(pl.col(name)).alias(name)
        for name in population.columns
        if name != "statistic"
    )


def _present_value(paths: Paths, past: pl.DataFrame | None, request: LifetimeRequest) -> Floats:
    return present_value(
        paths, rate=request.rate, to_age=request.to_age, from_age=request.from_age, past=past
    )


def _present_tax(
    paths: Paths, past: pl.DataFrame | None, request: LifetimeRequest, tax: TaxRule
) -> Floats:
    """Present value (n, M) of the tax on the paths and, from `from_age`, on the observed past."""
    taxes = tax.tax(paths.earnings).astype(np.float32)
    if past is not None:
        of_past = tax.tax(past["earnings"].to_numpy())
        past = past.with_columns(earnings=pl.Series(of_past))
    return _present_value(paths.with_earnings(taxes), past, request)


def _past(
    paths: Paths, panel: Panel, request: LifetimeRequest
) -> tuple[pl.DataFrame | None, list[pl.Series], Floats]:
    """The years of the past, how many were unknown, and their sums (n, 1), NaN if years still are.

    Years that stay unknown are 0 in the first result.
    """
    if request.from_age is None:
        return None, [], np.zeros((len(paths), 1))
    persons = panel.only([str(person) for person in paths.person_id])
    years = past_years(persons, request.from_age, request.unknown_years)
    counts = years.group_by("person_id").agg(unknown_years=pl.col("is_unknown").sum())
    unknown = of_persons(counts, paths)["unknown_years"].fill_null(0).cast(pl.Int32)
    past = observed_past(years, paths, rate=request.rate)[:, None]
    return years.with_columns(pl.col("earnings").fill_null(0.0)), [unknown], past


def _value_intervals(
    paths: Paths, future: SimulatedValues, calibrator: Calibrator, request: LifetimeRequest
) -> ValueIntervals:
    """Intervals of present values of the future, discounted to `from_age`.

    Persons below `from_age` get central ones: values that begin later have no thresholds.
    """
    age = paths.origin_year - paths.birth_year
    begins_later = age < (request.from_age or 0)
    central = ValueIntervals.central(calibrator, future, request.coverage)
    if begins_later.all() or not calibrator.has_present_values:
        return central
    years = (request.to_age - age).astype(np.int64)
    fitted = value_intervals(calibrator, future, years, request.coverage, request.rate)
    pairs = zip(vars(central).values(), vars(fitted).values(), strict=True)
    return ValueIntervals(*(np.where(begins_later[:, None], *pair) for pair in pairs))


def _labels(fractions: Sequence[float]) -> Iterator[tuple[int, str]]:
    return enumerate(map(percent_label, fractions))


def _quantile_columns(values: Floats, quantiles: Sequence[float]) -> dict[str, Column]:
    return {f"q{label}": values[j] for j, label in _labels(quantiles)}


def _limit_columns(
    least: Intervals,
    most: Intervals,
    positive: Intervals,
    person: NDArray[np.int64],
    horizon: NDArray[np.int64],
) -> dict[str, Column]:
    columns: dict[str, Column] = {}
    for j, label in _labels(least.coverage):
        at = (person, horizon, j)
        columns[f"at_least_{label}"] = _amounts(least.lower[at])
        columns[f"at_most_{label}"] = _amounts(most.upper[at])
        columns[f"guarantee_limits_{label}"] = least.guarantee[at].astype(str)
        columns[f"positive_lower_{label}"] = _amounts(positive.lower[at])
        columns[f"positive_upper_{label}"] = _amounts(positive.upper[at])
        columns[f"guarantee_positive_{label}"] = positive.guarantee[at].astype(str)
    return columns


def _band_columns(
    bands: Intervals, person: NDArray[np.int64], horizon: NDArray[np.int64]
) -> dict[str, Column]:
    n_years = bands.lower.shape[1]
    inside, at = horizon < n_years, (person, np.minimum(horizon, n_years - 1))
    columns: dict[str, Column] = {}
    for j, label in _labels(bands.coverage):
        columns |= _set_columns(bands, (*at, j), label, "band_", inside)
    return columns


def _set_columns(
    sets: Intervals,
    at: tuple[NDArray[np.int64], NDArray[np.int64], int],
    label: str,
    prefix: str = "",
    inside: NDArray[np.bool_] | bool = True,
) -> dict[str, Column]:
    """The columns of one coverage. Without a set, or not `inside`, three are null."""
    guarantee = np.where(inside, sets.guarantee[at], "none").astype(str)
    zero = pl.Series(sets.includes_zero[at])
    if not (has_set := guarantee != "none").all():
        zero = zero.set(pl.Series(~has_set), None)
    return {
        f"{prefix}lower_{label}": _amounts(np.where(inside, sets.lower[at], np.nan)),
        f"{prefix}upper_{label}": _amounts(np.where(inside, sets.upper[at], np.nan)),
        f"{prefix}includes_zero_{label}": zero,
        f"guarantee_{prefix}{label}": guarantee,
    }


def _amounts(values: Floats) -> pl.Series:
    """Values, null where there is none."""
    return pl.Series(values, dtype=pl.Float64, nan_to_null=True)
