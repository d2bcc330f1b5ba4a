"""The paper's calibration, as a published baseline and as an oracle: conformalised quantile regression in levels, through MAPIE.

Romano, Patterson and Candes (2019): score max(q_lo - y, y - q_hi), interval [q_lo - Q, q_hi + Q], here cut at 0. With an atom
at zero it over-covers, which is why it is not what SAGA publishes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from mapie.regression import ConformalizedQuantileRegressor
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin

from calibration.fit.split_conformal import NEIGHBOURS
from saga.conformal.calibrator import ALL, SCHEMA
from saga.paths import Paths

Array = NDArray[np.float64]


class _Column(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """An "estimator" that gives back one column of precomputed quantiles, so that MAPIE need not call the model."""

    def __init__(self, column: int = 0) -> None:
        self.column = column

    def fit(self, X: Array, y: Any = None) -> _Column:
        self.n_features_in_ = X.shape[1]
        self.fitted_ = True
        return self

    def predict(self, X: Array) -> Array:
        return np.asarray(X)[:, self.column]


def cqr_threshold(
    lower: Array, upper: Array, outcomes: Array, level: float, *, neighbours: int = 1
) -> float:
    """Q for quantile forecasts `lower`, `upper` (n,) in SEK and their outcomes (n,): +inf where n is too small for `level`.

    MAPIE's threshold is one person's score; with `neighbours` > 1 it is the average of that score and the next ones above.
    """
    n = len(outcomes)
    if math.ceil((n + 1) * level - 1e-9) > n or n * min(level, 1 - level) <= 1:
        return math.inf  # MAPIE raises here, although the infinite interval is the right answer, or the next one it would give
    features = np.column_stack([lower, upper, (lower + upper) / 2])
    columns = [_Column(j).fit(features) for j in range(3)]
    model = ConformalizedQuantileRegressor(
        columns, confidence_level=level, prefit=True
    ).conformalize(features, outcomes)
    ordered = np.sort(model.conformity_scores[2])
    wide = (
        2.0 * np.abs(ordered).max() + 1.0
    )  # quantiles so far apart that no threshold makes them cross, which MAPIE would log
    _, interval = model.predict_interval(np.array([[-wide, wide, 0.0]]), symmetric_correction=True)
    rank = int(np.abs(ordered - (interval[0, 1, 0] - wide)).argmin())
    window = ordered[rank : rank + neighbours]
    return float(window.mean()) if len(window) == neighbours else math.inf


def fit_cqr(paths: Paths, outcomes: Array, levels: Sequence[float]) -> pl.DataFrame:
    """Thresholds of raw `paths` (n, H, M) per horizon and level as rows of the calibration table, kind "cqr".

    Each is an average over 10 neighbouring persons, never one person's score; null where n is too small.
    """
    paths.require_raw()
    rows = []
    for h in range(paths.n_horizons):
        samples, y = paths.earnings[:, h], outcomes[:, h]
        known = ~np.isnan(y) & ~np.isnan(samples).any(axis=1)
        if not known.any():
            continue
        for level in levels:
            lower, upper = quantile_limits(samples[known], level)
            q = cqr_threshold(lower, upper, y[known], level, neighbours=NEIGHBOURS)
            rows.append(
                (
                    "cqr",
                    h + 1,
                    ALL,
                    level,
                    None,
                    q if math.isfinite(q) else None,
                    int(known.sum()),
                    "AB",
                )
            )
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def cqr_intervals(table: pl.DataFrame, paths: Paths, level: float) -> tuple[Array, Array]:
    """Lower and upper limits (n, H), SEK, of raw `paths` from the "cqr" rows of a calibration table; NaN without threshold."""
    kept = table.filter(
        pl.col("kind") == "cqr", pl.col("level") == level, pl.col("value").is_not_null()
    )
    lower, upper = np.full((2, *paths.earnings.shape[:2]), np.nan)
    for horizon, q in kept.select("horizon", "value").iter_rows():
        if horizon <= paths.n_horizons:
            low, high = quantile_limits(paths.earnings[:, horizon - 1], level)
            lower[:, horizon - 1] = np.maximum(low - q, 0)
            upper[:, horizon - 1] = np.maximum(high + q, 0)
    return lower, upper


def quantile_limits(samples: NDArray[np.float32], level: float) -> tuple[Array, Array]:
    """The equal-tailed quantiles of samples (n, M) that leave (1 - level) / 2 on each side."""
    low, high = np.quantile(samples.astype(np.float64), [(1 - level) / 2, (1 + level) / 2], axis=-1)
    return low, high
