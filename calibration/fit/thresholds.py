"""Thresholds of everything except the one-year prediction set.

One-sided limits, intervals given positive earnings, path bands of K years and present values of
K years. Each is an average of neighbouring order statistics of the threshold fold's scores, under
maps fitted on the map fold. Coverage is therefore at least as stated in finite samples, whatever
the forecasts are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from saga.calibration.fit.person_scores import NEIGHBOURS, PersonCounts, Rows
from saga.calibration.fit.split_conformal import (
    MIN_MAP_PERSONS,
    empirical_map,
    in_map_fold,
    origins_of,
)

from saga.conformal.calibration_table import KindThresholds, ThresholdKind
from saga.conformal.calibrator import Calibrator
from saga.conformal.one_sided import limit_scores
from saga.conformal.path_bands import band_scores
from saga.conformal.prediction_sets import central_scores
from saga.conformal.present_value import value_scores
from saga.conformal.recalibration import map_paths
from saga.distributions import Marginals
from saga.paths import Paths
from saga.scores import pit_uniforms

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
    band_scales = _fit_band_scales(central_scores(mapped.take(in_map), outcomes[in_map]), n_origins)
    calibrator = replace(calibrator, band_scales=band_scales)
    rows = np.flatnonzero(~in_map)
    mapped, y = mapped.take(rows), outcomes[rows]
    scores: dict[ThresholdKind, Array] = {
        **limit_scores(mapped, y, pit_uniforms(mapped)),
        "band": band_scores(calibrator, mapped, y),
    }
    # A horizon with outcomes that are too few has an entry, one without outcomes has none.
    horizons = np.flatnonzero(~np.isnan(outcomes).all(axis=0)).tolist()
    thresholds: dict[tuple[str, int], KindThresholds] = {
        (kind, h + 1): _kind_thresholds(dict.fromkeys(calibrator.coverage, values), h, rows, counts)
        for kind, values in scores.items()
        for h in horizons
    }
    if paths is not None:
        row_of = {origin: i for i, origin in enumerate(origins_of(mapped))}
        same = np.array([row_of[origin] for origin in origins_of(paths)], dtype=np.int64)
        mapped_paths = map_paths(paths, mapped.take(same))
        values = {
            share: value_scores(mapped_paths, y[same], share) for share in calibrator.coverage
        }
        for h in horizons:
            fitted = _kind_thresholds(values, h, rows[same], counts)
            thresholds["present_value", h + 1] = replace(fitted, n_paths=paths.n_paths)
    return replace(calibrator, thresholds_of_kind=thresholds)


def _kind_thresholds(
    scores: Mapping[float, Array], h: int, rows: Rows, counts: PersonCounts
) -> KindThresholds:
    """Thresholds at horizon h + 1 from the scores (m, H) of the persons in `rows` (m,)."""
    has_score = ~np.isnan(next(iter(scores.values()))[:, h])
    known = {share: values[has_score, h] for share, values in scores.items()}
    thresholds = counts.thresholds(known, rows[has_score], h)
    return KindThresholds(thresholds, counts.count(rows[has_score], h))


def _fit_band_scales(scores: Array, n_origins: int) -> dict[int, tuple[Array, Array]]:
    """Horizon -> distribution function of the map fold's scores (n, H), as knots and values.

    A horizon with too few scores has none.
    """
    band_scales = {}
    for h in range(scores.shape[1]):
        known = scores[~np.isnan(scores[:, h]), h]
        if len(known) >= MIN_MAP_PERSONS * n_origins:
            fitted = empirical_map(known, smallest=NEIGHBOURS * n_origins)
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
