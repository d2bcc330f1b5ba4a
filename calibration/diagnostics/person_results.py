"""Results of single test persons, one row per person and horizon.

Every table of the diagnostics is computed from them. They contain values of single persons and are
therefore never stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from calibration.diagnostics.reliability import pinball
from saga.conformal.calibration_table import ThresholdKind
from saga.conformal.calibrator import Calibrator, Intervals
from saga.conformal.path_bands import band_scores
from saga.conformal.present_value import value_scores
from saga.forecast_tables import percent_label
from saga.paths import Paths
from saga.scores import crps, log_earnings, logscore, pit, pit_uniforms

Array = NDArray[Any]
QUANTILES = (0.1, 0.5, 0.9)  # whose reliability is reported
N_THRESHOLDS = 100  # of the integral in the CRPS decomposition
EVENTS = ("zero", "low_pay")


@dataclass(frozen=True, eq=False)
class PersonResults:
    """The persons with an outcome at one horizon.

    `below` (n, T): number of paths at or below each of `thresholds` (T,), in logs. `frame` has n
    rows and these columns:

    - `person_id`; `year` of the outcome; the outcome `y` (real money) and `log_y`; its rank `pit`;
    - `mean` and `median` of the forecast (real money), `mean_log`, and `noise`, the variance of
      `mean_log` from the finite number of paths;
    - `crps`, `logscore`, and `q_..`, `pinball_..` for each of QUANTILES (logs);
    - for each of EVENTS whether it happened, the number of paths with it (`.._paths`), and the
      number among every second path (`.._first`);
    - for each coverage `inside_..`, `under_..`, `over_..`, `with_zero_..` (null without interval)
      and `width_..`;
    - `guarantee` of the interval of 90 %, or of the highest coverage.
    """

    frame: pl.DataFrame
    below: NDArray[np.uint16]
    thresholds: NDArray[np.float64]
    n_paths: int

    @classmethod
    def join(cls, parts: Sequence[PersonResults]) -> PersonResults:
        """Blocks of the same horizon, thresholds and number of paths as one."""
        first = parts[0]
        return cls(
            pl.concat(part.frame for part in parts),
            np.concatenate([part.below for part in parts]),
            first.thresholds,
            first.n_paths,
        )


@dataclass(frozen=True, eq=False)
class SeveralYears:
    """Whether intervals for several years together contain the outcomes.

    `inside`: kind of threshold ("band", "present_value") -> (n, H, L), column K - 1 for the next K
    years. 1 or 0; NaN if an outcome is unknown or there is no guarantee.
    """

    inside: Mapping[ThresholdKind, Array]

    @classmethod
    def of(cls, calibrator: Calibrator, paths: Paths, outcomes: Array) -> Self:
        """Recalibrated `paths` (n, H, M) against `outcomes` (n, H).

        A band covers an outcome exactly if its score is at most the threshold.
        """
        inside: dict[ThresholdKind, Array] = {}
        score_functions: tuple[tuple[ThresholdKind, Any], ...] = (
            ("band", band_scores),
            ("present_value", value_scores),
        )
        for kind, score in score_functions if calibrator.has_sets else ():
            scores = score(calibrator, paths, outcomes)[:, :, None]
            by_years = [
                calibrator.nested_thresholds(kind, years, paths.n_paths)
                for years in range(1, outcomes.shape[1] + 1)
            ]
            q = np.stack(
                [
                    np.where(np.array(guarantees) == "assumption", thresholds, np.nan)
                    for thresholds, guarantees in by_years
                ]
            )
            inside[kind] = np.where(np.isnan(scores) | np.isnan(q), np.nan, scores <= q)
        return cls(inside)

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Blocks of persons as one."""
        kinds = parts[0].inside
        return cls({kind: np.concatenate([part.inside[kind] for part in parts]) for kind in kinds})


def crps_thresholds(outcomes: Array, floor: float | None) -> NDArray[np.float64]:
    """Midpoints of equal parts of the range of the log outcomes (n,).

    Outside that range no recalibrated forecast loses anything.
    """
    known_logs = log_earnings(outcomes[~np.isnan(outcomes)], floor)
    low, high = (
        (float(known_logs.min()), float(known_logs.max())) if len(known_logs) else (0.0, 0.0)
    )
    step = max(high - low, 1e-6) / N_THRESHOLDS
    return np.asarray(low + step * (np.arange(N_THRESHOLDS) + 0.5))


def judge_persons(
    paths: Paths,
    intervals: Intervals,
    outcomes: Array,
    horizon: int,
    *,
    thresholds: Array,
    floor: float | None,
    low_pay: float,
) -> PersonResults:
    """Results of recalibrated paths and their published intervals at one horizon.

    Persons without an outcome, or with no path that far (age 64), are left out.

    Args:
        paths: Recalibrated paths (n, H, M).
        intervals: Their intervals (n, H, L).
        outcomes: Realised earnings (n,) at this horizon, NaN if unknown.
        horizon: Years ahead.
        thresholds: Log earnings at which paths are counted (`crps_thresholds`).
        floor: Amounts below this count as this amount in logs.
        low_pay: Earnings below this are low pay.
    """
    paths.require_recalibrated()
    h = horizon - 1
    row = np.flatnonzero(~np.isnan(outcomes) & ~np.isnan(paths.earnings[:, h]).any(axis=1))
    samples, y = paths.earnings[row, h].astype(np.float64), outcomes[row]
    logs, log_y = log_earnings(samples, floor), log_earnings(y, floor)
    data: dict[str, Any] = {
        "person_id": pl.Series(paths.person_id[row].tolist(), dtype=pl.String),
        "year": (paths.origin_year[row] + horizon).astype(np.int32),
        "y": y,
        "log_y": log_y,
        "pit": pit(samples, y, pit_uniforms(paths.take(row))[:, h]),
        "mean": samples.mean(axis=1),
        "median": np.median(samples, axis=1),
        "mean_log": logs.mean(axis=1),
        "noise": logs.var(axis=1, ddof=1) / logs.shape[1],
        "crps": crps(logs, log_y),
        "logscore": logscore(samples, y, floor),
    }
    for quantile, forecast in zip(QUANTILES, np.quantile(logs, QUANTILES, axis=1), strict=True):
        data |= {
            f"q_{percent_label(quantile)}": forecast,
            f"pinball_{percent_label(quantile)}": pinball(forecast, log_y, quantile),
        }
    for event, happened, simulated in (
        ("zero", y == 0, samples == 0),
        ("low_pay", y < low_pay, samples < low_pay),
    ):
        data |= {
            event: happened,
            f"{event}_paths": simulated.sum(axis=1).astype(np.int64),
            f"{event}_first": simulated[:, ::2].sum(axis=1),
        }
    for i, coverage in enumerate(intervals.coverage):
        name = percent_label(coverage)
        lower, upper, zero = (
            ends[row, h, i] for ends in (intervals.lower, intervals.upper, intervals.includes_zero)
        )
        absent = np.isnan(lower)
        inside = np.where(y == 0, zero, (lower <= y) & (y <= upper) & (y > 0))
        # An outcome in the gap between {0} and the interval lies under the interval.
        over = ~inside & (y > upper)
        for kind, flag in (
            ("inside", inside),
            ("under", ~inside & ~over),
            ("over", over),
            ("with_zero", zero),
        ):
            data[f"{kind}_{name}"] = pl.Series(flag, dtype=pl.Boolean).set(pl.Series(absent), None)
        data[f"width_{name}"] = upper - lower
    headline = 0.9 if 0.9 in intervals.coverage else intervals.coverage[-1]
    guarantee = intervals.guarantee[row, h, intervals.coverage.index(headline)]
    data["guarantee"] = pl.Series(guarantee.tolist(), dtype=pl.String)
    below = (
        (logs[:, :, None] <= thresholds).sum(axis=1).astype(np.uint16)
        if len(row)
        else np.empty((0, len(thresholds)), np.uint16)
    )
    return PersonResults(
        pl.DataFrame(data).with_columns(pl.col("^width_.*$").fill_nan(None)),
        below,
        thresholds,
        samples.shape[1],
    )
