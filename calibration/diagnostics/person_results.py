"""Results of single test persons: one row per person and horizon, and the groups that they form.

Every table of the diagnostics is computed from them. They contain values of single persons and are
therefore never stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl
from saga.calibration.diagnostics.verdicts import publishable
from saga.calibration.fit.maps import pit

from saga.arrays import Array
from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import Calibrator
from saga.conformal.intervals import Intervals
from saga.diagnostics_tables import QUESTIONS
from saga.distributions import Marginals
from saga.keyed_random import uniform_each
from saga.requests import COVERAGE, percent_label
from saga.scores import interval_score, log_earnings, mean_log, pit_uniforms

Rows = list[dict[str, Any]]
# (Grouping, group) -> rows of its persons; None if there are too few to be shown.
Members = dict[tuple[str, str], Array | None]
EVENTS = ("zero", "low_pay")
# Probability of a false alarm: a verdict "watch" or "fails" in a report on a forecaster without
# fault. Each question gets an equal part, which is divided by the number of its figures.
ALPHA = 0.05
QUESTION_ALPHA = ALPHA / len(QUESTIONS)


def headline_coverage(coverages: Sequence[float]) -> float:
    """The coverage that is shown first: 90 %, or the highest."""
    return 0.9 if 0.9 in coverages else max(coverages)


def judge_persons(
    marginals: Marginals,
    intervals: Intervals,
    outcomes: Array,
    horizon: int,
    *,
    floor: float | None,
    low_pay: float,
) -> pl.DataFrame:
    """Results of recalibrated marginals and their published intervals at one horizon.

    Persons without an outcome, or without a forecast that far (age 64), are left out. Columns:

    - `person_id`, and `year` of the outcome
    - `y` and `log_y`: the outcome in real money and in logs
    - `pit`: rank of the outcome in the forecast
    - `mean`, `median` and `mean_log` of the forecast
    - for each of EVENTS, whether it happened, and `p_..`, its probability
    - for each coverage, null without interval: whether the outcome is inside, below or above
      (`inside_..`, `under_..`, `over_..`), whether zero is inside (`with_zero_..`), `width_..`, and
      the interval score `winkler_..`
    - `guarantee` of the interval of 90 %, or of the highest coverage

    Args:
        marginals: Recalibrated marginals (n, H).
        intervals: Their intervals (n, H, L).
        outcomes: Realised earnings (n,) at this horizon, NaN if unknown.
        horizon: Years ahead.
        floor: Amounts below this count as this amount in logs.
        low_pay: Earnings below this are low pay.
    """
    marginals.require_recalibrated()
    h = horizon - 1
    row = np.flatnonzero(~np.isnan(outcomes) & marginals.exists[:, h])
    v, forecasts = (
        pit_uniforms(marginals.take(row))[:, [h]],
        marginals.take(row).at_horizon(horizon),
    )
    y = outcomes[row]
    data: dict[str, Any] = {
        "person_id": pl.Series(marginals.person_id[row].tolist(), dtype=pl.String),
        "year": (marginals.origin_year[row] + horizon).astype(np.int32),
        "y": y,
        "log_y": log_earnings(y, floor),
        "pit": pit(forecasts, y[:, None], v)[:, 0],
        "mean": forecasts.mean[:, 0],
        "median": forecasts.quantiles([0.5])[:, 0, 0],
        "mean_log": mean_log(forecasts, floor)[:, 0],
        "zero": y == 0,
        "p_zero": forecasts.p_zero[:, 0].astype(np.float64),
        "low_pay": y < low_pay,
        "p_low_pay": forecasts.probability(np.full((len(y), 1, 1), low_pay))[:, 0, 0],
    }
    for i, coverage in enumerate(intervals.coverage):
        name = percent_label(coverage)
        lower, upper, zero = (
            ends[row, h, i] for ends in (intervals.lower, intervals.upper, intervals.includes_zero)
        )
        absent = np.isnan(lower)
        inside = np.where(y == 0, zero, (lower <= y) & (y <= upper) & (y > 0))
        over = ~inside & (y > upper)
        for kind, flag in (
            ("inside", inside),
            ("under", ~inside & ~over),
            ("over", over),
            ("with_zero", zero),
        ):
            data[f"{kind}_{name}"] = pl.Series(flag, dtype=pl.Boolean).set(pl.Series(absent), None)
        data[f"width_{name}"] = upper - lower
        data[f"winkler_{name}"] = interval_score(y, lower, upper, coverage, zero)
    headline = headline_coverage(intervals.coverage)
    guarantee = intervals.guarantee[row, h, intervals.coverage.index(headline)]
    data["guarantee"] = pl.Series(guarantee.tolist(), dtype=pl.String)
    return pl.DataFrame(data).with_columns(pl.col("^(width|winkler)_.*$").fill_nan(None))


@dataclass(frozen=True, eq=False)
class Cases:
    """Results of single persons by horizon, and the rows of each group at each horizon.

    `min_persons`: fewest persons behind a figure. `seed`: key of the simulated sampling bands.
    """

    results: Mapping[int, pl.DataFrame]
    members: Mapping[int, Members]
    calibrator: Calibrator
    seed: int
    min_persons: int

    @classmethod
    def of(
        cls,
        results: Mapping[int, pl.DataFrame],
        groups: pl.DataFrame | None,
        calibrator: Calibrator,
        *,
        seed: int,
        min_persons: int,
    ) -> Self:
        """`groups` has `person_id` and a text column for each grouping."""
        members = {h: _members(part, groups, min_persons) for h, part in results.items()}
        return cls(results, members, calibrator, seed, min_persons)

    @property
    def coverage(self) -> tuple[float, ...]:
        """Stated coverages of the intervals."""
        return self.calibrator.coverage or COVERAGE

    @property
    def headline(self) -> float:
        """The coverage that is shown first: 90 %, or the highest."""
        return headline_coverage(self.coverage)

    def calibrated_on(self, horizon: int, grouping: str = ALL, group: str = ALL) -> int | None:
        """Number of calibration persons behind the threshold of a group; None without one."""
        cells = self.calibrator.cells
        group_cell, everybody = (cells.get((horizon, key)) for key in (f"{grouping}={group}", ALL))
        if group_cell is not None and group_cell.n_threshold:
            return group_cell.n_threshold
        if everybody is None or not everybody.n_threshold:
            return None
        rows = self.members[horizon].get((grouping, group))
        shifted = any(
            f"{grouping}={group}" in shift
            for (h, _), shift in self.calibrator.shifts.items()
            if h == horizon
        )
        if not shifted or rows is None:
            return everybody.n_threshold
        # The shift was fitted on the group's calibration persons. Their number is not stored:
        # the group's share is taken from the persons judged.
        return max(1, round(everybody.n_threshold * len(rows) / self.results[horizon].height))

    def mapped_on(self, horizon: int) -> int | None:
        """Persons behind the recalibration map of a horizon; None without a map."""
        cell = self.calibrator.fitted.map_cell(horizon)
        return cell.n_map if cell else None

    def rng(self, *key: str | int) -> np.random.Generator:
        """Random numbers for a figure named by `key`, the same whatever else is computed."""
        position = uniform_each(["/".join(map(str, key))], "diagnostics", self.seed)[0]
        return np.random.default_rng(int(position * 2**53))


def _members(frame: pl.DataFrame, groups: pl.DataFrame | None, min_persons: int) -> Members:
    """Rows of everybody, then of every group of each grouping with at least two groups."""
    everybody = np.arange(frame.height)
    members: Members = {(ALL, ALL): everybody if frame.height >= min_persons else None}
    if groups is None:
        return members
    joined = frame.select("person_id").join(
        groups, on="person_id", how="left", maintain_order="left"
    )
    for grouping in (name for name in groups.columns if name != "person_id"):
        labels = np.array(joined[grouping].fill_null("").to_list(), dtype=np.str_)
        counts = {
            str(label): int(n)
            for label, n in zip(*np.unique(labels, return_counts=True), strict=True)
        }
        names = sorted(label for label in counts if label)
        if len(names) < 2:
            continue  # there is no other group to compare it with
        shown = publishable(counts, min_persons)
        members |= {
            (grouping, label): np.flatnonzero(labels == label) if label in shown else None
            for label in names
        }
    return members
