"""Path bands: sets for the next K years that contain all K outcomes together.

Maps fitted on the map fold bring the scores of all years to a common scale; they are monotone, so
the sets of a horizon do not change. The score of a person's outcomes is the largest of the K
scores. The threshold for all years is an order statistic of this score on the threshold fold.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from saga.conformal.calibrator import Calibrator, Intervals
from saga.conformal.prediction_sets import NestedSets, grow
from saga.paths import Paths

Array = NDArray[np.float64]


def to_band_scale(calibrator: Calibrator, horizon: int, scores: Array) -> Array:
    """Scores at a horizon on the common scale; scores above 1 do not change."""
    knots, values = _band_scale(calibrator, horizon)
    return np.where(scores <= 1, np.interp(scores, knots, values), scores)


def from_band_scale(calibrator: Calibrator, horizon: int, q: Array) -> Array:
    """The inverse of `to_band_scale`."""
    knots, values = _band_scale(calibrator, horizon)
    return np.where(q <= 1, np.interp(q, values, knots), q)


def _band_scale(calibrator: Calibrator, horizon: int) -> tuple[Array, Array]:
    fitted = [h for h in calibrator.band_scales if h <= horizon]
    if not fitted:
        return np.array([0.0, 1.0]), np.array([0.0, 1.0])
    return calibrator.band_scales[max(fitted)]


def year_scores(calibrator: Calibrator, paths: Paths, outcomes: Array) -> Array:
    """Score of each outcome (n, H) in the sets of its year; NaN without outcome or sets.

    `paths` are recalibrated.
    """
    paths.require_recalibrated()
    scores = np.full(outcomes.shape, np.nan)
    for h in range(outcomes.shape[1]):
        rows, sets = _year_sets(calibrator, paths, h)
        if len(rows):
            scores[rows, h] = sets.score(outcomes[rows, h])
    return scores


def band_scores(calibrator: Calibrator, paths: Paths, outcomes: Array) -> Array:
    """Largest score of the first K years, in column K - 1 of (n, H); NaN without an outcome."""
    scores = year_scores(calibrator, paths, outcomes)
    columns = [to_band_scale(calibrator, h + 1, scores[:, h]) for h in range(scores.shape[1])]
    return np.asarray(np.maximum.accumulate(np.stack(columns, axis=1), axis=1))  # NaN stays NaN


def band_intervals(
    calibrator: Calibrator, paths: Paths, years: int, coverage: Sequence[float]
) -> Intervals:
    """Sets (n, K, L) of recalibrated `paths` for the next K = `years` outcomes together.

    For a person who reaches age 64 earlier, K is the number of years until then, and so are the
    threshold and the guarantee. Raises UsageError if no threshold was fitted for one of `coverage`.
    """
    paths.require_recalibrated()
    columns = calibrator.coverage_columns(coverage)
    years = min(years, paths.n_horizons)
    shape = (len(paths), years, len(coverage))
    lower, upper = np.full((2, *shape), np.nan)
    zero, guarantee = np.zeros(shape, dtype=np.bool_), np.full(shape, "none", dtype="<U13")
    cell = np.full(shape[:2], "")
    years_left = (~np.isnan(paths.earnings[:, :years]).any(axis=2)).sum(axis=1)
    for n_years in np.unique(years_left[years_left > 0]).tolist() if calibrator.has_sets else []:
        q, guarantees = calibrator.nested_thresholds("band", n_years, paths.n_paths)
        persons = np.flatnonzero(years_left == n_years)
        person_paths = paths.take(persons)
        for h in range(n_years):
            rows, sets = _year_sets(calibrator, person_paths, h)
            for index, j in enumerate(columns):
                if j is None or guarantees[j] == "none" or not len(rows):
                    continue
                ends = sets.set_at(float(from_band_scale(calibrator, h + 1, q[j])))
                for values, end in zip((lower, upper, zero), ends, strict=True):
                    values[persons[rows], h, index] = end
                guarantee[persons[rows], h, index] = guarantees[j]
    return Intervals(tuple(coverage), lower, upper, zero, guarantee, cell)


def _year_sets(
    calibrator: Calibrator, paths: Paths, h: int
) -> tuple[NDArray[np.int64], NestedSets]:
    """Rows of persons with sets at horizon h + 1, and their sets."""
    width = calibrator.person_thresholds(paths, h + 1).atom_width
    rows = np.flatnonzero(~np.isnan(paths.earnings[:, h]).any(axis=1) & ~np.isnan(width))
    growth = grow(np.sort(paths.earnings[rows, h], axis=1), calibrator.scale)
    return rows, growth.with_atom(width[rows])
