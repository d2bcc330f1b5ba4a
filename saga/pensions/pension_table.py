"""The table of pensions: measures of each person's career, with quantiles and intervals.

With a reform there is a table of groups, too: differences with bands, winners and losers. Both
rules are applied to the same paths, so the band is that of the difference. Persons are ordered by
the mean earnings of their careers on each path, and divided into fifths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.conformal.calibrator import Calibrator
from saga.conformal.families.quantile_intervals import central_probabilities
from saga.data.panel import Panel
from saga.lifetime import past_years
from saga.paths import Paths
from saga.pensions.pension_rights import AMOUNTS, Career, measures
from saga.pensions.pension_rules import PensionLaw, Years
from saga.requests import PensionRequest, percent_label
from saga.schema import MAX_AGE
from saga.small_groups import MIN_PERSONS

BASIS = "from earnings only"  # benefits would count, too, and are not simulated
WageIndex = Callable[[int, NDArray[np.int64]], Floats]
"""From the origin year and years to the log real wage index of each path, (n_year, n_path)."""
_RATIO_DIGITS = 4
_FIRST = ("person_id", "origin_year", "age", "year")  # columns
FIFTHS = 5
_BAND = (0.05, 0.95)
_SAME = 0.5  # of a unit of the currency: a smaller difference is none


def rights_table(
    paths: Paths,
    panel: Panel,
    request: PensionRequest,
    laws: Sequence[tuple[PensionLaw, WageIndex]],
    calibrator: Calibrator,
    decimals: int | None,
) -> tuple[pl.DataFrame, Floats | None]:
    """One row per person of recalibrated paths, age and measure; and values for group tables.

    Columns: person_id, origin_year, age, year, measure (`saga.pensions.pension_rights.measures`;
    with a reform also difference_rights and so on, on the same paths), mean, one q.. per quantile,
    lower_, upper_ and guarantee_ for each coverage, unknown_years, basis. Intervals are the central
    ones of the paths, as those of present values without calibrated sets (none where too few
    persons calibrate). Ratios are over the paths on which they exist, and have no mean, which a few
    paths with hardly any earnings would decide. Everything is null if earnings of a year are
    unknown.

    The laws are the rule and the reform, if there is one, each with its wages. A law knows the
    years from its own first one on, so a rule and the difference add up to the reform alone.

    The values, with a reform only, are (n_person, 3, n_path) at the last age: mean earnings of the
    career, rights by the rule, and by the reform.
    """
    paths.require_recalibrated()
    persons = panel.only([str(person) for person in paths.person_id])
    past = past_years(persons, request.first_age, request.unknown_years)
    by_person = past.partition_by("person_id", as_dict=True)
    rows: list[pl.DataFrame] = []
    values: list[Floats] = []
    shown = calibrator.shows_ranges(request.coverage)
    for row in range(len(paths)):
        years, earnings, is_unknown = _recorded(paths, row, by_person, request)
        careers = [_career(paths, row, years, earnings, request, *law) for law in laws]
        results, *changes = (
            measures(law, career, request.ages)
            for (law, _), career in zip(laws, careers, strict=True)
        )
        for changed in changes:
            results |= {
                f"difference_{name}": changed[name] - results[name]
                for name in results
                if name in changed and name in (*AMOUNTS, "contribution_years")
            }
            lifetime = earnings[: len(is_unknown)].mean(0)  # also of years before the laws
            values.append(np.stack([lifetime, results["rights"][-1], changed["rights"][-1]]))
        is_unknown |= years[: len(is_unknown)] < laws[0][0].rule.first_year
        table = _statistics(results, request, shown, decimals)
        age = pl.Series("age", np.repeat(request.ages, len(results)), dtype=pl.Int32)
        table = table.with_columns(
            age,
            person_id=pl.lit(str(paths.person_id[row])),
            origin_year=pl.lit(int(paths.origin_year[row]), pl.Int32),
            year=age + int(paths.birth_year[row]),
            unknown_years=pl.lit(int(is_unknown.sum()), pl.Int32),
            basis=pl.lit(BASIS),
        )
        rows.append(table.select(*_FIRST, pl.exclude(*_FIRST)))
    return pl.concat(rows), np.stack(values) if values else None


def _recorded(
    paths: Paths,
    row: int,
    by_person: dict[tuple[object, ...], pl.DataFrame],
    request: PensionRequest,
) -> tuple[Years, Floats, NDArray[np.bool_]]:
    """One person's years from the first age to 65, earnings, and which years lack a record.

    Wages of every year count, those of 65 because rights of 64 may be credited then; earnings,
    (n_year, n_path), only until the last age that is asked for, and whether a year lacks a record,
    too.
    """
    birth_year, origin = int(paths.birth_year[row]), int(paths.origin_year[row])
    years = np.arange(birth_year + request.first_age, birth_year + MAX_AGE + 2)
    counted = years[: request.to_age - request.first_age + 1]
    earnings = np.full((len(years), paths.n_paths), np.nan)
    is_unknown = np.zeros(len(counted), dtype=bool)
    past = by_person.get((str(paths.person_id[row]),))
    if past is not None:
        known = past["earnings"].to_numpy()[: len(counted)]
        earnings[: len(known)] = known[:, None]
        is_unknown[: len(known)] = past["is_unknown"].to_numpy()[: len(counted)]
    future = np.flatnonzero(counted > origin)
    earnings[future] = paths.earnings[row, counted[future] - origin - 1]
    return years, earnings, is_unknown


def _career(
    paths: Paths,
    row: int,
    years: Years,
    earnings: Floats,
    request: PensionRequest,
    law: PensionLaw,
    wages: WageIndex,
) -> Career:
    """One person's career as a law knows it: its earlier years add nothing, or are unknown."""
    before = (years < law.rule.first_year)[:, None]
    nothing = 0.0 if request.unknown_years == "zero" else np.nan
    origin, last = int(paths.origin_year[row]), np.array([law.last_year])
    growth = np.exp(wages(origin, np.maximum(years, last)) - wages(origin, last))
    return Career(years, np.where(before, nothing, earnings), growth, int(paths.birth_year[row]))


def _statistics(
    results: dict[str, Floats], request: PensionRequest, shown: list[bool], decimals: int | None
) -> pl.DataFrame:
    """A row for each age and measure, the ages one after another."""
    stacked = np.stack(list(results.values()), axis=1).reshape(
        -1, next(iter(results.values())).shape[1]
    )
    n_ages = len(request.ages)
    exists = ~np.isnan(stacked)
    lower, upper = (np.array(p) for p in central_probabilities(request.coverage))
    levels = np.concatenate([request.quantiles, lower, upper])
    quantiles = np.full((len(levels), len(stacked)), np.nan)
    means = np.full(len(stacked), np.nan)
    known, names = exists.any(1), list(results) * n_ages
    has_mean = known & ~np.array([name.startswith("ratio_") for name in names])
    means[has_mean] = np.nanmean(stacked[has_mean], axis=1)
    quantiles[:, known] = np.nanquantile(stacked[known], levels, axis=1)
    is_amount = np.array([name.removeprefix("difference_") in AMOUNTS for name in names])
    columns: dict[str, Floats] = {"mean": means}
    n_quantiles, n_coverage = len(request.quantiles), len(request.coverage)
    for j, p in enumerate(request.quantiles):
        columns[f"q{percent_label(p)}"] = quantiles[j]
    table: dict[str, object] = {"measure": names}
    table |= {name: _rounded(values, is_amount, decimals) for name, values in columns.items()}
    for j, coverage in enumerate(request.coverage):
        label = percent_label(coverage)
        for k, side in enumerate(("lower", "upper")):
            limit = quantiles[n_quantiles + k * n_coverage + j]
            limit = limit if shown[j] else np.full_like(limit, np.nan)
            table[f"{side}_{label}"] = _rounded(limit, is_amount, decimals)
        guarantee = np.where(known & shown[j], "extrapolated", "none")
        table[f"guarantee_{label}"] = guarantee.astype(str)
    return pl.DataFrame(table).with_columns(pl.col(pl.Float64).fill_nan(None))


def _rounded(values: Floats, is_amount: NDArray[np.bool_], decimals: int | None) -> Floats:
    """Amounts with `decimals`, other numbers with four; None: all digits."""
    if decimals is None:
        return values
    return np.where(is_amount, np.round(values, decimals), np.round(values, _RATIO_DIGITS))


def reform_table(values: Floats, minimum: int = MIN_PERSONS) -> pl.DataFrame:
    """Rows for each fifth of lifetime earnings and for all persons, of values (n, 3, n_path).

    The values are mean earnings, rights by the rule and rights by the reform. Persons whose rights
    are unknown are left out. Columns: group, persons, and mean, lower_90 and upper_90 over paths of
    `statistic`: rule, reform, difference (means over persons), winners and losers (shares of
    persons). Null where a group has fewer than `minimum` persons.
    """
    values = values[~np.isnan(values).any(axis=(1, 2))]
    n = len(values)
    earnings, before, after = values.transpose(1, 0, 2) if n else np.zeros((3, 0, 1))
    order = np.argsort(np.argsort(earnings, axis=0, kind="stable"), axis=0)
    fifth = order * FIFTHS // max(n, 1)
    difference = after - before
    statistics = {
        "rule": before,
        "reform": after,
        "difference": difference,
        "winners": (difference > _SAME).astype(float),
        "losers": (difference < -_SAME).astype(float),
    }
    rows: list[tuple[object, ...]] = []
    for k in range(FIFTHS + 1):
        inside = fifth == k if k < FIFTHS else np.ones(fifth.shape, dtype=bool)
        persons = int(inside[:, 0].sum())
        name = f"fifth {k + 1}" if k < FIFTHS else "total"
        is_shown = n // (FIFTHS if k < FIFTHS else 1) >= minimum
        for statistic, amounts in statistics.items():
            shown: tuple[float | None, ...] = (None, None, None)
            if is_shown:
                by_path = np.where(inside, amounts, 0.0).sum(0) / persons
                shown = (float(by_path.mean()), *map(float, np.quantile(by_path, _BAND)))
            rows.append((name, persons if is_shown else None, statistic, *shown))
    schema = {"group": pl.String, "persons": pl.Int64, "statistic": pl.String}
    amounts_of = dict.fromkeys(("mean", "lower_90", "upper_90"), pl.Float64)
    return pl.DataFrame(rows, schema={**schema, **amounts_of}, orient="row")
