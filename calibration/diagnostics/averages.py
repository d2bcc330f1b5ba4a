"""Tables of averages over persons: widths of intervals, scores and their parts, mean error."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
from numpy.typing import NDArray
from saga.calibration.diagnostics.cases import QUESTION_ALPHA, Cases, Rows
from saga.calibration.diagnostics.person_results import EVENTS, QUANTILES, PersonResults
from saga.calibration.diagnostics.reliability import (
    Decomposition,
    decompose_brier,
    decompose_crps,
    decompose_pinball,
    mincer_zarnowitz,
)
from saga.calibration.diagnostics.verdicts import (
    Verdict,
    rounded,
    severity,
    status,
    typical_value,
)
from scipy import stats

from saga.diagnostics_tables import QUESTIONS
from saga.forecast_tables import percent_label

Array = NDArray[Any]


def tabulate_widths(cases: Cases) -> Rows:
    """Typical widths of the intervals of each group, and typical forecasts."""
    rows: Rows = []
    for h, results in cases.results.items():
        for (grouping, group), members in cases.members[h].items():
            part = None if members is None else results.frame[members]
            for coverage in cases.coverage:
                row: dict[str, Any] = {
                    "horizon": h,
                    "grouping": grouping,
                    "group": group,
                    "level": coverage,
                }
                if part is not None:
                    row |= _describe_widths(part, percent_label(coverage), cases.min_persons)
                rows.append(row)
    return rows


def _describe_widths(part: pl.DataFrame, label: str, min_persons: int) -> dict[str, Any]:
    issued = part.filter(pl.col(f"width_{label}").is_not_null())
    if issued.height < min_persons:
        return {}
    return {
        "n": issued.height,
        "width": typical_value(issued[f"width_{label}"].to_numpy()),
        "typical": typical_value(issued["median"].to_numpy()),
        "with_zero": issued[f"with_zero_{label}"].mean(),
        "without": 1 - issued.height / part.height,
    }


def tabulate_scores(cases: Cases) -> Rows:
    """Proper scores, and their parts: miscalibration, discrimination, uncertainty."""
    rows: Rows = []
    for h, results in cases.results.items():
        if results.frame.height < cases.min_persons:
            continue
        for score, (values, parts) in _score(results).items():
            n = len(values)
            row = {
                "horizon": h,
                "score": score,
                "value": float(values.mean()),
                "se": float(values.std(ddof=1) / math.sqrt(n)),
                "n": n,
            }
            if parts is not None:
                row |= {
                    "value": parts.score,
                    "recalibrated": parts.score - parts.miscalibration,
                    "miscalibration": parts.miscalibration,
                    "discrimination": parts.discrimination,
                    "uncertainty": parts.uncertainty,
                }
            rows.append(row)
    return rows


def _score(results: PersonResults) -> dict[str, tuple[Array, Decomposition | None]]:
    """By name of the score, the scores of all persons (n,), and the parts of their mean."""
    frame = results.frame
    y, crps = frame["log_y"].to_numpy(), frame["crps"].to_numpy()
    crps_parts = decompose_crps(float(crps.mean()), results.below, y, results.thresholds)
    scores: dict[str, tuple[Array, Decomposition | None]] = {"crps_log": (crps, crps_parts)}
    for quantile in QUANTILES:
        label = percent_label(quantile)
        scores[f"pinball_{label}_log"] = (
            frame[f"pinball_{label}"].to_numpy(),
            decompose_pinball(frame[f"q_{label}"].to_numpy(), y, quantile),
        )
    for event in EVENTS:
        forecast, happened = frame[f"p_{event}"].to_numpy(), frame[event].to_numpy()
        scores[f"brier_{event}"] = (forecast - happened) ** 2, decompose_brier(forecast, happened)
    return scores | {"logscore": (frame["logscore"].to_numpy(), None)}


def tabulate_mean_error(cases: Cases, unconditioned: Cases) -> tuple[Rows, list[Verdict]]:
    """Mean of outcome less forecast in logs, and the regression of outcomes on forecasts.

    Mincer and Zarnowitz (1969). The column `economy` says by how much, in logs, the forecasts of
    `cases` are above those of the same persons in `unconditioned`.
    """
    rows: Rows = []
    verdicts: list[Verdict] = []
    # Two figures a horizon: the mean error and the slope.
    z = float(stats.norm.ppf(1 - QUESTION_ALPHA / (2 * len(cases.results)) / 2))
    tolerance = QUESTIONS["level"]
    for h, results in cases.results.items():
        frame, n = results.frame, results.frame.height
        forecast, outcome = frame["mean_log"].to_numpy(), frame["log_y"].to_numpy()
        enough = n >= cases.min_persons
        regression = mincer_zarnowitz(forecast, outcome, cases.mapped_on(h)) if enough else None
        if regression is None:
            verdicts.append(Verdict("level", h, "unclear"))
            continue
        mean_error, slope = regression.mean_error, regression.slope
        error_reach, slope_reach = z * regression.mean_error_se, z * regression.slope_se
        error_status = status(
            mean_error, -error_reach, error_reach, n, target=0, tolerance=tolerance
        )
        slope_status = status(
            slope, 1 - slope_reach, 1 + slope_reach, n, target=1, tolerance=2 * tolerance
        )
        # The worse of the two is the verdict; unclear is worse than holds, because both figures are
        # of the same persons.
        both = (
            Verdict("level", h, error_status, n, mean_error),
            Verdict("level", h, slope_status, n, slope - 1, group="slope", tolerance=2 * tolerance),
        )
        verdict = max(both, key=severity)
        verdicts.append(verdict)
        unconditioned_mean = unconditioned.results[h].frame["mean_log"]
        rows.append(
            {
                "horizon": h,
                "n": n,
                "mean_forecast": rounded(float(frame["mean"].mean())),  # type: ignore[arg-type]
                "mean_outcome": rounded(float(frame["y"].mean())),  # type: ignore[arg-type]
                "mean_error": mean_error,
                "error_lower": -error_reach,
                "error_upper": error_reach,
                "intercept": regression.intercept,
                "slope": slope,
                "slope_lower": 1 - slope_reach,
                "slope_upper": 1 + slope_reach,
                "economy": float((frame["mean_log"] - unconditioned_mean).mean()),  # type: ignore[arg-type]
                "status": verdict.status,
            }
        )
    return rows, verdicts
