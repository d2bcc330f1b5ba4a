"""Un-averaged results of test persons, one row a person and horizon: what every table of the diagnostics is made from.

Holds values of single persons: it lives in memory only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from calibration.diagnostics.reliability import pinball
from saga.conformal.calibrator import Calibrator, Intervals, ThresholdKind
from saga.conformal.path_bands import band_scores
from saga.conformal.present_value import value_scores
from saga.forecast_tables import percent_label
from saga.paths import Paths
from saga.scores import crps, log_earnings, logscore, pit, pit_uniforms

Array = NDArray[Any]
QUANTILES = (0.1, 0.5, 0.9)  # whose reliability is reported
THRESHOLDS = 100  # cells that the integral of the CRPS decomposition is cut into
EVENTS = ("zero", "low_pay")


@dataclass(frozen=True, eq=False)
class Judged:
    """One horizon's persons with an outcome: `frame` of n rows, and `below` (n, T), the paths at or below each of `thresholds` (T,), logs.

    Columns of `frame`: `person_id`, `year` of the outcome, `y` (real money), `log_y`, `pit`, `mean`, `median` (money), `mean_log`, `noise`
    (variance of `mean_log` from few paths), `crps`, `logscore`, a forecast `q_..` and a loss `pinball_..` for each of QUANTILES (logs); for
    each of EVENTS whether it happened, in how many paths (`.._paths`) and in how many of every second path (`.._first`); for each level
    `inside_..`, `under_..`, `over_..` (null without interval), `width_..`, `with_zero_..`; and `guarantee` of the 90 % (or the highest)
    interval.
    """

    frame: pl.DataFrame
    below: NDArray[np.uint16]
    thresholds: NDArray[np.float64]
    paths: int

    @classmethod
    def join(cls, parts: Sequence[Judged]) -> Judged:
        """Blocks of the same horizon, thresholds and number of paths as one."""
        first = parts[0]
        return cls(
            pl.concat(part.frame for part in parts),
            np.concatenate([p.below for p in parts]),
            first.thresholds,
            first.paths,
        )


@dataclass(frozen=True, eq=False)
class Together:
    """Whether several years hold together: `inside` by kind of limit ("band", "present_value"), (n, H, L), column K - 1 for the next K
    years; 1 or 0, NaN where some of the K outcomes is unknown or nothing is promised."""

    inside: Mapping[ThresholdKind, Array]

    @classmethod
    def of(cls, calibrator: Calibrator, paths: Paths, outcomes: Array) -> Self:
        """Recalibrated `paths` (n, H, M) against `outcomes` (n, H): a band holds exactly if its score is at most the threshold."""
        inside: dict[ThresholdKind, Array] = {}
        judges: tuple[tuple[ThresholdKind, Any], ...] = (
            ("band", band_scores),
            ("present_value", value_scores),
        )
        for kind, scores_of in judges if calibrator.has_sets else ():
            scores = scores_of(calibrator, paths, outcomes)[:, :, None]
            own = [
                calibrator.nested_thresholds(kind, years, paths.n_paths)
                for years in range(1, outcomes.shape[1] + 1)
            ]
            q = np.stack(
                [
                    np.where(np.array(promises) == "assumption", limit, np.nan)
                    for limit, promises in own
                ]
            )
            inside[kind] = np.where(np.isnan(scores) | np.isnan(q), np.nan, scores <= q)
        return cls(inside)

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Blocks of persons as one."""
        return cls(
            {
                kind: np.concatenate([part.inside[kind] for part in parts])
                for kind in parts[0].inside
            }
        )


def thresholds_for(outcomes: Array, floor: float | None) -> NDArray[np.float64]:
    """Midpoints of equal cells over the range of the log outcomes (n,); outside it no recalibrated forecast loses anything."""
    known = log_earnings(outcomes[~np.isnan(outcomes)], floor)
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
    step = max(high - low, 1e-6) / THRESHOLDS
    return np.asarray(low + step * (np.arange(THRESHOLDS) + 0.5))


def judge(
    paths: Paths,
    sets: Intervals,
    outcomes: Array,
    horizon: int,
    *,
    thresholds: Array,
    floor: float | None,
    low_pay: float,
) -> Judged:
    """Scores recalibrated `paths` (n, H, M) and their published `sets` (n, H, L) against `outcomes` (n,) of one horizon.

    Persons without an outcome or with no path that far (age 64) are left out.
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
    for level, forecast in zip(QUANTILES, np.quantile(logs, QUANTILES, axis=1), strict=True):
        data |= {
            f"q_{percent_label(level)}": forecast,
            f"pinball_{percent_label(level)}": pinball(forecast, log_y, level),
        }
    for event, happened, drawn in (
        ("zero", y == 0, samples == 0),
        ("low_pay", y < low_pay, samples < low_pay),
    ):
        data |= {
            event: happened,
            f"{event}_paths": drawn.sum(axis=1).astype(np.int64),
            f"{event}_first": drawn[:, ::2].sum(axis=1),
        }
    for i, level in enumerate(sets.coverage):
        name = percent_label(level)
        lower, upper, zero = (
            sets.lower[row, h, i],
            sets.upper[row, h, i],
            sets.includes_zero[row, h, i],
        )
        given = ~np.isnan(lower)
        inside = np.where(y == 0, zero, (lower <= y) & (y <= upper) & (y > 0))
        # An outcome in a gap between {0} and the range lies under the range, as any outcome below it does.
        over = ~inside & (y > upper)
        for kind, flag in (
            ("inside", inside),
            ("under", ~inside & ~over),
            ("over", over),
            ("with_zero", zero),
        ):
            data[f"{kind}_{name}"] = pl.Series(flag, dtype=pl.Boolean).set(pl.Series(~given), None)
        data[f"width_{name}"] = upper - lower
    headline = sets.coverage.index(0.9) if 0.9 in sets.coverage else len(sets.coverage) - 1
    data["guarantee"] = pl.Series(sets.guarantee[row, h, headline].tolist(), dtype=pl.String)
    below = (
        (logs[:, :, None] <= thresholds).sum(axis=1).astype(np.uint16)
        if len(row)
        else np.empty((0, len(thresholds)), np.uint16)
    )
    return Judged(
        pl.DataFrame(data).with_columns(pl.col("^width_.*$").fill_nan(None)),
        below,
        thresholds,
        samples.shape[1],
    )
