"""Path bands: sets for the next K years that contain all K outcomes together.

The sets of a year are central (`saga.conformal.prediction_sets.central_ends`). Maps fitted on the
map fold bring the scores of all years to a common scale; they are monotone, so the sets of a
horizon do not change. The score of a person's outcomes is the largest of the K scores. The
threshold for all years is an order statistic of this score on the threshold fold.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from saga.conformal.calibrator import Calibrator
from saga.conformal.intervals import Intervals
from saga.conformal.prediction_sets import central_ends, central_scores
from saga.distributions import Marginals

Array = NDArray[np.float64]


def to_band_scale(calibrator: Calibrator, horizon: int, scores: Array) -> Array:
    """Scores at a horizon on the common scale."""
    knots, values = band_scale(calibrator, horizon)
    return np.asarray(np.interp(scores, knots, values))


def from_band_scale(calibrator: Calibrator, horizon: int, q: Array) -> Array:
    """The inverse of `to_band_scale`."""
    knots, values = band_scale(calibrator, horizon)
    return np.asarray(np.interp(q, values, knots))


def band_scale(calibrator: Calibrator, horizon: int) -> tuple[Array, Array]:
    """Knots and values of the map from scores at a horizon to the common scale."""
    fitted = [h for h in calibrator.band_scales if h <= horizon]
    if not fitted:
        return np.array([0.0, 1.0]), np.array([0.0, 1.0])
    return calibrator.band_scales[max(fitted)]


def band_scores(calibrator: Calibrator, marginals: Marginals, outcomes: Array) -> Array:
    """Largest score of the first K years, in column K - 1 of (n, H); NaN without an outcome."""
    marginals.require_recalibrated()
    scores = central_scores(marginals, outcomes)
    columns = [to_band_scale(calibrator, h + 1, scores[:, h]) for h in range(scores.shape[1])]
    return np.asarray(np.maximum.accumulate(np.stack(columns, axis=1), axis=1))  # NaN stays NaN


def band_intervals(
    calibrator: Calibrator, marginals: Marginals, years: int, coverage: Sequence[float]
) -> Intervals:
    """Sets (n, K, L) of recalibrated marginals for the next K = `years` outcomes together.

    For a person who reaches age 64 earlier, K is the number of years until then, and so are the
    threshold and the guarantee. Raises UsageError if no threshold was fitted for one of `coverage`.
    """
    marginals.require_recalibrated()
    columns = calibrator.coverage_columns(coverage)
    years = min(years, marginals.n_horizons)
    exists = marginals.exists[:, :years]
    if calibrator.method == "cv+":
        return _cross_fitted_bands(calibrator, marginals.first(years), coverage)
    shape = (*exists.shape, len(coverage))
    q, guarantee = np.full(shape, np.nan), np.full(shape, "none", dtype="<U13")
    years_left = exists.sum(axis=1)
    for n_years in np.unique(years_left[years_left > 0]).tolist() if calibrator.has_sets else []:
        thresholds, guarantees = calibrator.nested_thresholds("band", n_years)
        persons = np.flatnonzero(years_left == n_years)
        for h in range(n_years):
            q[persons, h] = from_band_scale(calibrator, h + 1, thresholds[columns])
            guarantee[persons, h] = np.array(guarantees)[columns]
    lower, upper, zero = central_ends(marginals.first(years), q)
    guarantee[np.isnan(lower)] = "none"
    return Intervals(tuple(coverage), lower, upper, zero, guarantee, np.full(shape[:2], ""))


def _cross_fitted_bands(
    calibrator: Calibrator, marginals: Marginals, coverage: Sequence[float]
) -> Intervals:
    """Path bands from the scores of all folds; all horizons are on the same scale.

    The band of a year contains the amounts that some path with p > 1 - coverage takes in the year.
    """
    columns = calibrator.coverage_columns(coverage)
    years_left = marginals.exists.sum(axis=1)
    bands = Intervals.none(marginals, coverage)
    lower, upper = bands.lower.copy(), bands.upper.copy()
    zero, guarantee, cell = bands.includes_zero.copy(), bands.guarantee.astype("<U13"), bands.cell
    for n_years in np.unique(years_left[years_left > 0]).tolist():
        rows = np.flatnonzero(years_left == n_years)
        block = marginals.take(rows).first(n_years)
        sets = calibrator.cross_fitted("band", block, lambda _: central_scores, n_years).at(columns)
        at = np.ix_(rows, np.arange(n_years))
        lower[at], upper[at], zero[at] = sets.lower, sets.upper, sets.includes_zero
        guarantee[at] = sets.guarantee
    return Intervals(tuple(coverage), lower, upper, zero, guarantee, cell)
