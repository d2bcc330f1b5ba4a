"""Averages over persons: tables of widths of intervals, of scores and their parts, and of the forecasts' level."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
from numpy.typing import NDArray
from scipy import stats

from calibration.diagnostics.cases import SHARE, Cases, Rows
from calibration.diagnostics.person_results import EVENTS, QUANTILES
from calibration.diagnostics.reliability import (
    Decomposition,
    decompose_brier,
    decompose_crps,
    decompose_pinball,
    mincer_zarnowitz,
)
from calibration.diagnostics.verdicts import QUESTIONS, Light, middle, rounded, severity, status
from saga.forecast_tables import percent_label

Array = NDArray[Any]


def widths(cases: Cases) -> Rows:
    """How wide the intervals are, beside a typical forecast, by group."""
    rows: Rows = []
    for h, case in cases.judged.items():
        for (grouping, group), rows_of in cases.cells[h].items():
            part = None if rows_of is None else case.frame[rows_of]
            for level in cases.levels:
                row: dict[str, Any] = {
                    "horizon": h,
                    "grouping": grouping,
                    "group": group,
                    "level": level,
                }
                if part is not None:
                    row |= _width(part, percent_label(level), cases.min_cell)
                rows.append(row)
    return rows


def _width(part: pl.DataFrame, name: str, min_cell: int) -> dict[str, Any]:
    given = part.filter(pl.col(f"width_{name}").is_not_null())
    if given.height < min_cell:
        return {}
    return {
        "n": given.height,
        "width": middle(given[f"width_{name}"].to_numpy()),
        "typical": middle(given["median"].to_numpy()),
        "with_zero": given[f"with_zero_{name}"].mean(),
        "without": 1 - given.height / part.height,
    }


def scores(cases: Cases) -> Rows:
    """Proper scores, and the parts of those that fall apart: miscalibration, discrimination, uncertainty."""
    rows: Rows = []
    for h, case in cases.judged.items():
        frame, n = case.frame, case.frame.height
        if n < cases.min_cell:
            continue
        y, crps = frame["log_y"].to_numpy(), frame["crps"].to_numpy()
        parts: dict[str, tuple[Array, Decomposition | None]] = {
            "crps_log": (
                crps,
                decompose_crps(float(crps.mean()), case.below, case.paths, y, case.thresholds),
            )
        }
        for level in QUANTILES:
            name = percent_label(level)
            parts[f"pinball_{name}_log"] = (
                frame[f"pinball_{name}"].to_numpy(),
                decompose_pinball(frame[f"q_{name}"].to_numpy(), y, level),
            )
        for event in EVENTS:
            drawn, happened = frame[f"{event}_paths"].to_numpy(), frame[event].to_numpy()
            parts[f"brier_{event}"] = (
                (drawn / case.paths - happened) ** 2,
                decompose_brier(drawn, case.paths, happened),
            )
        parts["logscore"] = (frame["logscore"].to_numpy(), None)
        for score, (each, split) in parts.items():
            row = {
                "horizon": h,
                "score": score,
                "value": float(each.mean()),
                "se": float(each.std(ddof=1) / math.sqrt(n)),
                "n": n,
            }
            if split is not None:
                row |= {
                    "value": split.score,
                    "recalibrated": split.score - split.miscalibration,
                    "miscalibration": split.miscalibration,
                    "discrimination": split.discrimination,
                    "uncertainty": split.uncertainty,
                }
            rows.append(row)
    return rows


def level(cases: Cases, untold: Cases) -> tuple[Rows, list[Light]]:
    """Mean error of log earnings, and intercept and slope of outcome on forecast (Mincer and Zarnowitz, 1969).

    `economy`: how much higher, in logs, the forecasts of `cases` are than those of the same persons in `untold`.
    """
    rows: Rows = []
    lights: list[Light] = []
    # Two figures a horizon: the mean error and the slope.
    z = float(stats.norm.ppf(1 - SHARE / (2 * len(cases.judged)) / 2))
    for h, case in cases.judged.items():
        frame, n = case.frame, case.frame.height
        forecast, outcome, noise = (
            frame[name].to_numpy() for name in ("mean_log", "log_y", "noise")
        )
        found = (
            mincer_zarnowitz(forecast, outcome, noise, cases.mapped_on(h))
            if n >= cases.min_cell
            else None
        )
        if found is None:
            lights.append(Light("level", h, "unclear"))
            continue
        error, slope = z * found.mean_error_se, z * found.slope_se
        tolerance = QUESTIONS["level"]
        by_error = status(found.mean_error, -error, error, n, target=0, tolerance=tolerance)
        by_slope = status(found.slope, 1 - slope, 1 + slope, n, target=1, tolerance=2 * tolerance)
        # Of these two figures about the same persons a good one does not answer for one that cannot tell.
        both = (
            Light("level", h, by_error, n, found.mean_error),
            Light("level", h, by_slope, n, found.slope - 1, group="slope", tolerance=2 * tolerance),
        )
        light = max(both, key=severity)
        lights.append(light)
        row = {
            "horizon": h,
            "n": n,
            "mean_error": found.mean_error,
            "error_lower": -error,
            "error_upper": error,
        }
        row |= {
            "mean_forecast": rounded(float(frame["mean"].mean())),  # type: ignore[arg-type]
            "mean_outcome": rounded(float(frame["y"].mean())),  # type: ignore[arg-type]
        }
        row |= {
            "intercept": found.intercept,
            "slope": found.slope,
            "slope_lower": 1 - slope,
            "slope_upper": 1 + slope,
        }
        surprise = float((frame["mean_log"] - untold.judged[h].frame["mean_log"]).mean())  # type: ignore[arg-type]
        rows.append(row | {"economy": surprise, "status": light.status})
    return rows, lights
