"""Results of single test persons, one row per person and horizon.

Every table of the diagnostics is computed from them. They contain values of single persons and are
therefore never stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.calibration.diagnostics.reliability import pinball
from saga.calibration.fit.split_conformal import pit

from saga.conformal.calibrator import Calibrator
from saga.conformal.families.present_value import SimulatedValues
from saga.conformal.intervals import Intervals
from saga.conformal.published_sets import value_intervals
from saga.distribution_scores import marginal_scores, mean_log
from saga.distributions import Marginals
from saga.forecast_tables import percent_label
from saga.paths import Paths
from saga.requests import RATE
from saga.scores import interval_score, log_earnings, pit_uniforms

Array = NDArray[Any]
QUANTILES = (0.1, 0.5, 0.9)  # whose reliability is reported
N_THRESHOLDS = 100  # of the integral in the CRPS decomposition
EVENTS = ("zero", "low_pay")


def headline_coverage(coverages: Sequence[float]) -> float:
    """The coverage that is shown first: 90 %, or the highest."""
    return 0.9 if 0.9 in coverages else max(coverages)


@dataclass(frozen=True, eq=False)
class PersonResults:
    """The persons with an outcome at one horizon.

    `below` (n, T): probability of earnings up to each of `thresholds` (T,), in logs. `frame` has n
    rows. Its columns:

    - `person_id`, and `year` of the outcome
    - `y` and `log_y`: the outcome in real money and in logs
    - `pit`: rank of the outcome in the forecast
    - `mean`, `median` and `mean_log` of the forecast
    - `crps` and `logscore`
    - `q_..` and `pinball_..`: quantile and its score for each of QUANTILES, in logs
    - for each of EVENTS, whether it happened, and `p_..`, its probability
    - for each coverage, null without interval: whether the outcome is inside, below or above
      (`inside_..`, `under_..`, `over_..`), whether zero is inside (`with_zero_..`), `width_..`, and
      the interval score `winkler_..`
    - `guarantee` of the interval of 90 %, or of the highest coverage
    """

    frame: pl.DataFrame
    below: NDArray[np.float32]
    thresholds: NDArray[np.float64]

    @classmethod
    def join(cls, parts: Sequence[PersonResults]) -> PersonResults:
        """Blocks of the same horizon and thresholds as one."""
        return cls(
            pl.concat(part.frame for part in parts),
            np.concatenate([part.below for part in parts]),
            parts[0].thresholds,
        )


@dataclass(frozen=True, eq=False)
class SeveralYears:
    """Whether intervals for several years together contain the outcomes.

    `inside`: kind of threshold ("band", "present_value") and number of years K -> (n, L). 1 or 0;
    NaN if an outcome is unknown or there is no guarantee.
    """

    inside: Mapping[tuple[str, int], Array]

    @classmethod
    def of(
        cls,
        calibrator: Calibrator,
        marginals: Marginals,
        paths: Paths | None,
        outcomes: Array,
        years: Sequence[int],
    ) -> Self:
        """Recalibrated forecasts of n persons against `outcomes` (n, H), for each K of `years`.

        A band covers the outcomes exactly if their score is at most the threshold. Without `paths`
        there are no present values.
        """
        if not calibrator.has_sets:
            return cls({})
        inside: dict[tuple[str, int], Array] = {}
        band = calibrator.band
        known = marginals.first(outcomes.shape[1])
        scores = band.joined(band.scores(known, outcomes, 0.0))
        for k in years:
            q, guarantees = calibrator.nested_thresholds(band, k)
            q = np.where(np.array(guarantees) == "assumption", q, np.nan)
            score = scores[:, k - 1, None]
            inside["band", k] = np.where(np.isnan(score) | np.isnan(q), np.nan, score <= q)
        if paths is not None:
            inside |= {
                ("present_value", k): _values_inside(calibrator, paths, outcomes, k) for k in years
            }
        return cls(inside)

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Blocks of persons as one."""
        kinds = parts[0].inside
        return cls({kind: np.concatenate([part.inside[kind] for part in parts]) for kind in kinds})


def _values_inside(calibrator: Calibrator, paths: Paths, outcomes: Array, years: int) -> Array:
    """Whether the present value of the first K = `years` outcomes is in its intervals (n, L)."""
    paths.require_recalibrated()
    realised = discounted_sum(outcomes[:, :years])
    values = value_of_years(paths, years)
    inside = np.full((len(paths), len(calibrator.coverage)), np.nan)
    rows = np.flatnonzero(~np.isnan(realised) & ~np.isnan(values).any(axis=1))
    if len(rows):
        simulated = SimulatedValues.of(paths.take(rows), partial(value_of_years, years=years))
        sets = value_intervals(
            calibrator, simulated, np.full(len(rows), years), calibrator.coverage, RATE
        )
        y = realised[rows, None]
        inside[rows] = np.where(
            sets.guarantee == "assumption", (sets.lower <= y) & (y <= sets.upper), np.nan
        )
    return inside


def value_of_years(paths: Paths, years: int) -> Array:
    """Present values (n, M) of the first `years`."""
    return discounted_sum(paths.earnings[:, :years])


def discounted_sum(earnings: Array) -> Array:
    """Present value (n, ...) of earnings (n, K, ...) of the next K years, at RATE."""
    factors = (1 + RATE) ** -(np.arange(earnings.shape[1]) + 1.0)
    return np.asarray(np.tensordot(earnings, factors, axes=(1, 0)))


def crps_thresholds(outcomes: Array, floor: float | None) -> NDArray[np.float64]:
    """Midpoints of equal parts of the range of the log outcomes (n,).

    Outside that range a recalibrated probability is 0 or 1, and right, so it adds nothing.
    """
    known_logs = log_earnings(outcomes[~np.isnan(outcomes)], floor)
    low, high = (
        (float(known_logs.min()), float(known_logs.max())) if len(known_logs) else (0.0, 0.0)
    )
    step = max(high - low, 1e-6) / N_THRESHOLDS
    return np.asarray(low + step * (np.arange(N_THRESHOLDS) + 0.5))


def judge_persons(
    marginals: Marginals,
    intervals: Intervals,
    outcomes: Array,
    horizon: int,
    *,
    thresholds: Array,
    floor: float | None,
    low_pay: float,
) -> PersonResults:
    """Results of recalibrated marginals and their published intervals at one horizon.

    Persons without an outcome, or without a forecast that far (age 64), are left out.

    Args:
        marginals: Recalibrated marginals (n, H).
        intervals: Their intervals (n, H, L).
        outcomes: Realised earnings (n,) at this horizon, NaN if unknown.
        horizon: Years ahead.
        thresholds: Thresholds of the CRPS decomposition, in logs (`crps_thresholds`).
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
    log_y, scores = log_earnings(y, floor), marginal_scores(forecasts, y[:, None], floor)
    data: dict[str, Any] = {
        "person_id": pl.Series(marginals.person_id[row].tolist(), dtype=pl.String),
        "year": (marginals.origin_year[row] + horizon).astype(np.int32),
        "y": y,
        "log_y": log_y,
        "pit": pit(forecasts, y[:, None], v)[:, 0],
        "mean": forecasts.mean[:, 0],
        "median": forecasts.quantiles([0.5])[:, 0, 0],
        "mean_log": mean_log(forecasts, floor)[:, 0],
        "crps": scores["crps_log"][:, 0],
        "logscore": scores["logscore"][:, 0],
    }
    quantiles = log_earnings(forecasts.quantiles(QUANTILES)[:, 0].T, floor)
    for quantile, forecast in zip(QUANTILES, quantiles, strict=True):
        data |= {
            f"q_{percent_label(quantile)}": forecast,
            f"pinball_{percent_label(quantile)}": pinball(forecast, log_y, quantile),
        }
    data |= {
        "zero": y == 0,
        "p_zero": forecasts.p_zero[:, 0].astype(np.float64),
        "low_pay": y < low_pay,
        "p_low_pay": _probability_up_to(forecasts, np.array([low_pay]))[:, 0],
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
    return PersonResults(
        pl.DataFrame(data).with_columns(pl.col("^(width|winkler)_.*$").fill_nan(None)),
        _probability_up_to(forecasts, np.exp(thresholds)).astype(np.float32),
        thresholds,
    )


def _probability_up_to(forecasts: Marginals, amounts: Array) -> Array:
    """Probability (n, T) of earnings up to `amounts` (T,), of marginals of one horizon."""
    shape = (len(forecasts), 1, len(amounts))
    return forecasts.probability(np.broadcast_to(amounts, shape))[:, 0]
