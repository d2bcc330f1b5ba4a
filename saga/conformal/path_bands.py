"""Bands for whole paths: sets for the next K years that hold all K outcomes at once with the chance of the level.

The scores of the years are put on one scale by maps from half A (a monotone map a horizon leaves the sets of that horizon what they are);
the score of a path is its largest. Its order statistic in half B cuts the sets of all years alike.
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
    """Scores at a horizon on the scale that all horizons share: probabilities up to 1, distances beyond the samples as they are."""
    knots, values = _band_scale_at(calibrator, horizon)
    return np.where(scores <= 1, np.interp(scores, knots, values), scores)


def from_band_scale(calibrator: Calibrator, horizon: int, q: Array) -> Array:
    """The inverse of `stretch`."""
    knots, values = _band_scale_at(calibrator, horizon)
    return np.where(q <= 1, np.interp(q, values, knots), q)


def _band_scale_at(calibrator: Calibrator, horizon: int) -> tuple[Array, Array]:
    observed = [h for h in calibrator.band_scales if h <= horizon]
    return (
        calibrator.band_scales[max(observed)]
        if observed
        else (np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    )


def year_scores(calibrator: Calibrator, paths: Paths, outcomes: Array) -> Array:
    """Score of each outcome (n, H) in the sets of its own year, for recalibrated paths; NaN without outcome or sets."""
    paths.require_recalibrated()
    scores = np.full(outcomes.shape, np.nan)
    for h in range(outcomes.shape[1]):
        rows, family = _family(calibrator, paths, h)
        if len(rows):
            scores[rows, h] = family.score(outcomes[rows, h])
    return scores


def band_scores(calibrator: Calibrator, paths: Paths, outcomes: Array) -> Array:
    """Column K - 1 of (n, H): the largest stretched score of the first K years, NaN unless all K outcomes are known."""
    scores = year_scores(calibrator, paths, outcomes)
    stretched = np.stack(
        [to_band_scale(calibrator, h + 1, scores[:, h]) for h in range(scores.shape[1])], axis=1
    )
    return np.asarray(np.maximum.accumulate(stretched, axis=1))  # NaN stays NaN


def band_intervals(
    calibrator: Calibrator, paths: Paths, years: int, levels: Sequence[float]
) -> Intervals:
    """Sets (n, K, L) of recalibrated `paths` that hold the next K = `years` outcomes together, or those until age 64 if that is sooner.

    A person's guarantee is that of the number of years that are theirs. Raises UsageError for a level that no threshold was fitted for.
    """
    paths.require_recalibrated()
    columns = calibrator.coverage_columns(levels)
    years = min(years, paths.n_horizons)
    shape = (len(paths), years, len(levels))
    lower, upper = np.full((2, *shape), np.nan)
    zero, guarantee = np.zeros(shape, dtype=np.bool_), np.full(shape, "none", dtype="<U13")
    cell = np.full(shape[:2], "")
    left = (~np.isnan(paths.earnings[:, :years]).any(axis=2)).sum(axis=1)
    for own in np.unique(left[left > 0]).tolist() if calibrator.has_sets else []:
        q, promises = calibrator.nested_thresholds("band", own, paths.n_paths)
        people = np.flatnonzero(left == own)
        some = paths.take(people)
        for h in range(own):
            rows, family = _family(calibrator, some, h)
            for index, j in enumerate(columns):
                if j is None or promises[j] == "none" or not len(rows):
                    continue
                ends = family.at(float(from_band_scale(calibrator, h + 1, q[j])))
                for values, end in zip((lower, upper, zero), ends, strict=True):
                    values[people[rows], h, index] = end
                guarantee[people[rows], h, index] = promises[j]
    return Intervals(tuple(levels), lower, upper, zero, guarantee, cell)


def _family(calibrator: Calibrator, paths: Paths, h: int) -> tuple[NDArray[np.int64], NestedSets]:
    width = calibrator.person_thresholds(paths, h + 1).atom_width
    rows = np.flatnonzero(~np.isnan(paths.earnings[:, h]).any(axis=1) & ~np.isnan(width))
    return rows, grow(np.sort(paths.earnings[rows, h], axis=1), calibrator.scale).with_atom(
        width[rows]
    )
