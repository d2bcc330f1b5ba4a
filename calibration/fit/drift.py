"""How far coverage has moved in the past between the year when thresholds were fixed and the outcome: the drift term, estimated.

Deployment, replayed on half B: for every year c, thresholds are moved to what outcomes known by c ask for, and judged on the persons whose
origin is c, h years later. What the deviations show beyond sampling error is drift. It covers the kind of change that the panel has seen.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from calibration.fit.split_conformal import NEIGHBOURS, conformal_quantile, halves
from saga.conformal.calibrator import ALL, SCHEMA, Calibrator
from saga.conformal.path_bands import year_scores
from saga.paths import Paths

Array = NDArray[np.float64]
FEWEST_BEFORE, FEWEST_AFTER, FEWEST_YEARS = 300, 30, 5
BLOCK = 2_000


def fit_drift(calibrator: Calibrator, paths: Paths, outcomes: Array, *, seed: int) -> pl.DataFrame:
    """Rows of the calibration table, kind "drift": per horizon and level the root mean square of the deviation over origin years.

    `paths` (n, H, M) raw, `outcomes` (n, H). Sampling variance is taken off, at least 0 remains; `n` counts origin years. A year
    needs 300 persons whose outcome was known by then and 30 with their origin in it, a horizon 5 such years. Standard errors are large:
    a year is one draw.
    """
    b = np.flatnonzero(~halves(paths.person_id, seed))
    known_by = paths.origin_year[b, None] + np.arange(1, paths.n_horizons + 1)
    excess = _excess(calibrator, paths, outcomes, b)
    rows = []
    for h in range(paths.n_horizons):
        for j, level in enumerate(calibrator.coverage):
            found = [
                deviation(excess[:, h, j], known_by[:, h], paths.origin_year[b], int(year), level)
                for year in np.unique(paths.origin_year[b])
            ]
            kept = np.array([pair for pair in found if pair is not None])
            if len(kept) >= FEWEST_YEARS:
                moved = float(np.sqrt(max((kept[:, 0] ** 2 - kept[:, 1]).mean(), 0.0)))
                rows.append(("drift", h + 1, ALL, level, None, moved, len(kept), "B"))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def deviation(
    excess: Array, known_by: NDArray[np.int64], origin: NDArray[np.int64], year: int, level: float
) -> tuple[float, float] | None:
    """Deviation of coverage from `level` for origins in `year` under thresholds from outcomes known by then, and its sampling variance.

    `excess` (n,): score less the threshold served, NaN without outcome. None where either side has too few persons.
    """
    known = ~np.isnan(excess)
    before, after = excess[known & (known_by <= year)], excess[known & (origin == year)]
    if len(before) < FEWEST_BEFORE or len(after) < FEWEST_AFTER:
        return None
    threshold = conformal_quantile(before, level, neighbours=NEIGHBOURS)
    return float((after <= threshold).mean()) - level, level * (1 - level) * (
        1 / len(after) + 1 / len(before)
    )


def _excess(
    calibrator: Calibrator, paths: Paths, outcomes: Array, rows: NDArray[np.int64]
) -> Array:
    """Score less the threshold served, (rows, H, L)."""
    result = np.full((len(rows), paths.n_horizons, len(calibrator.coverage)), np.nan)
    for start in range(0, len(rows), BLOCK):
        some = rows[start : start + BLOCK]
        mapped = calibrator.recalibrate(paths.take(some))
        scores = year_scores(calibrator, mapped, outcomes[some])
        for h in range(paths.n_horizons):
            result[start : start + len(some), h] = (
                scores[:, h, None] - calibrator.person_thresholds(mapped, h + 1).q
            )
    return result
