"""Thresholds of everything except the one-year prediction set.

One-sided limits, intervals given positive earnings, path bands of K years and present values of
K years. Each is an average of neighbouring order statistics of the threshold fold's scores, under
maps fitted on the map fold. Coverage is therefore at least as stated in finite samples, whatever
the forecasts are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from saga.calibration.fit.person_scores import PersonCounts
from saga.calibration.fit.split_conformal import (
    MIN_MAP_PERSONS,
    empirical_map,
    in_map_fold,
    origins_of,
)

from saga.conformal.calibrator import Calibrator
from saga.conformal.families import BAND, FAMILIES
from saga.conformal.families.set_family import KindThresholds
from saga.conformal.recalibration import map_paths
from saga.distributions import Marginals
from saga.paths import Paths
from saga.scores import pit_uniforms
from saga.small_groups import MIN_PERSONS

Array = NDArray[np.float64]
TIE_TOLERANCE = 1e-9  # scores closer than this count as tied: averages of equal scores may differ


def fit_thresholds(
    calibrator: Calibrator,
    marginals: Marginals,
    outcomes: Array,
    *,
    seed: int,
    paths: Paths | None = None,
    weights: Array | None = None,
    n_origins: int = 1,
) -> Calibrator:
    """The calibrator of `fit_calibration` with thresholds of every kind of limit.

    Args:
        calibrator: What `fit_calibration` returned.
        marginals: Raw marginals (n, H), as passed to `fit_calibration`.
        outcomes: Outcomes (n, H), as passed to `fit_calibration`.
        seed: Seed of the folds, as passed to `fit_calibration`.
        paths: Raw paths (m, H, M) of persons of the threshold fold, for present values; None: no
            thresholds of present values.
        weights: Weights (n, H) or None, as passed to `fit_calibration`.
        n_origins: Origins per person, as passed to `fit_calibration`.
    """
    counts = PersonCounts.of(marginals, n_origins, weights)
    in_map = in_map_fold(marginals.person_id, seed)
    mapped = calibrator.recalibrate(marginals)
    map_scores = BAND.scores(mapped.take(in_map), outcomes[in_map], 0.0)
    calibrator = replace(calibrator, band_scales=_fit_band_scales(map_scores, n_origins))
    rows = np.flatnonzero(~in_map)
    mapped, y = mapped.take(rows), outcomes[rows]
    # A horizon with outcomes that are too few has an entry, one without outcomes has none.
    horizons = np.flatnonzero(~np.isnan(outcomes).all(axis=0)).tolist()
    thresholds: dict[tuple[str, int], KindThresholds] = {}
    uniforms = pit_uniforms(mapped)
    for kind, family in {**FAMILIES, BAND.kind: calibrator.band}.items():
        if not family.of_paths:
            persons, n_paths = rows, None
            scores = family.scores_by_coverage(mapped, y, calibrator.coverage, uniforms)
        elif paths is not None:
            row_of = {origin: i for i, origin in enumerate(origins_of(mapped))}
            same = np.array([row_of[origin] for origin in origins_of(paths)], dtype=np.int64)
            persons, n_paths = rows[same], paths.n_paths
            mapped_paths = map_paths(paths, mapped.take(same))
            scores = family.scores_by_coverage(mapped_paths, y[same], calibrator.coverage)
        else:
            continue
        for h in horizons:
            has_score = ~np.isnan(next(iter(scores.values()))[:, h])
            known = {share: values[has_score, h] for share, values in scores.items()}
            thresholds[kind, h + 1] = KindThresholds(
                counts.thresholds(known, persons[has_score], h),
                counts.count(persons[has_score], h),
                n_paths,
            )
    return replace(calibrator, thresholds_of_kind=thresholds)


def _fit_band_scales(scores: Array, n_origins: int) -> dict[int, tuple[Array, Array]]:
    """Horizon -> distribution function of the map fold's scores (n, H), as knots and values.

    A horizon with too few scores has none.
    """
    band_scales = {}
    for h in range(scores.shape[1]):
        known = scores[~np.isnan(scores[:, h]), h]
        if len(known) >= MIN_MAP_PERSONS * n_origins:
            fitted = empirical_map(known, smallest=MIN_PERSONS * n_origins)
            band_scales[h + 1] = _increasing(*fitted)
    return band_scales


def _increasing(knots: Array, values: Array) -> tuple[Array, Array]:
    """The map through the last value of every distinct knot, so that it has an inverse.

    It starts at (0, 0) and ends at (1, 1).
    """
    last = np.append(np.diff(knots) > TIE_TOLERANCE, True)
    knots, values = knots[last], values[last]
    if knots[0] == 0 and values[0] == 0:
        return knots, values
    return np.append(0.0, knots[knots > 0]), np.append(0.0, values[knots > 0])
