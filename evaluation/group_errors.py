"""Errors of forecasts of groups: statistics of the same persons, forecast and realised.

Each group stands beside everybody: one table of `saga.population.table_grid` for each grouping.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import polars as pl
from saga.calibration.diagnostics.simple_rules import GrowthRule

from saga.arrays import Floats
from saga.bundle_form import GROUP_ERRORS
from saga.data.groups import UNKNOWN
from saga.model_error import scale_of
from saga.pages.group import TOTAL
from saga.paths import Paths
from saga.population.cell_statistics import PathStatistic, random_groups
from saga.population.group_bands import band, error_of_persons
from saga.population.population_paths import Present, statistics_of
from saga.population.scored_paths import person_levels, rows_of
from saga.population.table_grid import Grid
from saga.small_groups import MIN_PERSONS

# No quantile: its outcome would be one person's value.
_JUDGED = ("mean", "gini", "zero_share", "poverty_share", "mean_ratio", "mean_gap")
_RULED = ("mean", "mean_ratio", "mean_gap")  # and the share without earnings
_BIRTH = ("age", "cohort", "birth_year")  # groupings in which the rule knows ages only


def judge_groups(
    paths: Paths,
    outcomes: Floats,
    people: pl.DataFrame,
    rule: GrowthRule,
    horizons: Sequence[int],
    by: Sequence[str],
) -> pl.DataFrame:
    """A row for each statistic of everybody, of a group, or of a pair of groups, by horizon.

    Only persons with an outcome count, and no group has fewer than ten. Columns: `grouping` and
    `group` ("total": everybody), `horizon`, `statistic`, `persons`; `outcome`, `forecast` and its
    `lower_90` and `upper_90` (paths and economy); `error` (outcome less forecast), its standard
    error `se` because persons are few, and `sd_economy`, these three relative to the forecast
    for amounts and ratios; `rule`, the forecast of the simple rule (null: it has none). Figures
    have four digits.

    Args:
        paths: Recalibrated paths of n persons with one origin year.
        outcomes: Realised earnings (n, number of horizons), NaN if unknown.
        people: person_id, birth_year and groups of all persons of the rule's records.
        rule: The simple rule.
        horizons: Years ahead.
        by: Columns of `people`, or age, cohort, birth_year.
    """
    rows = [
        {"horizon": h, **row}
        for h, of_horizon in zip(horizons, outcomes.T, strict=True)
        for grouping in dict.fromkeys((TOTAL, *by))
        for row in _errors(paths, of_horizon, people, rule, h, grouping)
    ]
    return pl.DataFrame(rows, schema=GROUP_ERRORS).with_columns(
        pl.selectors.float().round_sig_figs(4)
    )


def _errors(
    paths: Paths, outcomes: Floats, people: pl.DataFrame, rule: GrowthRule, h: int, grouping: str
) -> Iterator[dict[str, object]]:
    """The rows of a grouping; only "total" has those of everybody."""
    simulated = paths.earnings[:, h - 1]
    known = np.flatnonzero(~np.isnan(outcomes) & np.isfinite(simulated).all(1))
    if len(known) < MIN_PERSONS:
        return
    ids, year = paths.person_id[known].tolist(), rule.year + h
    level = pl.lit(TOTAL) if grouping == TOTAL else person_levels(grouping, year)
    everyone = people.with_columns(level=level)
    persons = rows_of(everyone, ids)
    names = persons["level"].unique().sort().to_list()
    codes = persons["level"].cast(pl.Enum(names)).to_physical().to_numpy()[:, None]
    pairs = combinations([i for i, name in enumerate(names) if name != UNKNOWN], 2)
    grid = Grid((grouping,), (tuple(names),), tuple((0, *pair) for pair in pairs))
    forecasts = Present(
        ids,
        simulated[known].astype(float),
        np.ones(len(ids)),
        random_groups(ids),
        (codes,),
        behind=np.arange(len(ids)),
        entered=np.zeros(len(ids), dtype=bool),
    )
    realised = replace(forecasts, earnings=outcomes[known, None])
    alike = pl.lit("") if grouping in _BIRTH else pl.col("level")
    by_rule: dict[tuple[str, str], float] = {}
    for of_persons, shown in zip(
        rule.predict(
            persons.with_columns(level=alike), everyone.select("person_id", level=alike), year
        ),
        ({name: name for name in _RULED}, {"mean": "zero_share"}),
        strict=True,
    ):
        for _, (group,), statistics in statistics_of(
            replace(forecasts, earnings=of_persons[:, None]), grid
        ):
            by_rule |= {
                (group, shown[name]): float(statistic.values[0])
                for name, statistic in statistics.items()
                if name in shown
            }
    for (cells, (group,), forecast), (*_, outcome) in zip(
        statistics_of(forecasts, grid), statistics_of(realised, grid), strict=True
    ):
        n_persons = min(len(realised.members(cell, grid)[0]) for cell in cells)
        if n_persons >= MIN_PERSONS and cells != ((len(names),),):
            yield from (
                {
                    "grouping": grouping,
                    "group": group,
                    "statistic": name,
                    "persons": n_persons,
                    **_error(forecast[name], outcome[name], name),
                    "rule": by_rule.get((group, name)),
                }
                for name in _JUDGED
                if name in forecast
            )


def _error(forecast: PathStatistic, outcome: PathStatistic, name: str) -> dict[str, object]:
    """The figures of a row, without that of the rule."""
    shown, realised = band(forecast), float(outcome.values[0])
    mean = PathStatistic(
        forecast.values.mean(keepdims=True), forecast.influence.mean(1, keepdims=True)
    )
    scale = scale_of(name, shown.value)
    return {
        "outcome": realised,
        "forecast": shown.value,
        "lower_90": shown.lower_90,
        "upper_90": shown.upper_90,
        "error": (realised - shown.value) / scale,
        # Few realised futures can be alike by chance: not below what the paths say.
        "se": max(error_of_persons(outcome.difference(mean)), shown.sd_paths or 0.0) / scale,
        "sd_economy": (shown.sd_economy or 0.0) / scale,
    }
