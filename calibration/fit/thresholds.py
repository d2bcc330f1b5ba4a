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

from calibration.fit.split_conformal import (
    MIN_MAP_PERSONS,
    count_persons,
    fit_map,
    in_map_fold,
    path_counts,
    published_threshold,
    weights_of,
)
from saga.conformal.calibration_table import KindThresholds
from saga.conformal.calibrator import Calibrator
from saga.conformal.one_sided import limit_scores
from saga.conformal.path_bands import band_scores, year_scores
from saga.conformal.present_value import value_scores
from saga.paths import Paths

Array = NDArray[np.float64]
BLOCK = 2_000  # persons whose paths are recalibrated at once
TIE_TOLERANCE = 1e-9  # scores closer than this count as tied: averages of equal scores may differ


def fit_thresholds(
    calibrator: Calibrator,
    paths: Paths,
    outcomes: Array,
    *,
    seed: int,
    weights: Array | None = None,
) -> Calibrator:
    """The calibrator of `fit_calibration` with thresholds of every kind of limit.

    Args:
        calibrator: What `fit_calibration` returned.
        paths: Raw paths (n, H, M), as passed to `fit_calibration`.
        outcomes: Outcomes (n, H), as passed to `fit_calibration`.
        seed: Seed of the folds, as passed to `fit_calibration`.
        weights: Weights (n, H) or None, as passed to `fit_calibration`.
    """
    paths.require_raw()
    in_map = in_map_fold(paths.person_id, seed)
    calibrator = replace(
        calibrator, band_scales=_fit_band_maps(calibrator, paths.take(in_map), outcomes[in_map])
    )
    thresholds_of_kind: dict[tuple[str, int], KindThresholds] = {}
    rows = np.flatnonzero(~in_map)
    for n_paths in path_counts(paths):
        scores = _scores(calibrator, paths, outcomes, rows, n_paths)
        for (kind, horizon), values in scores.items():
            has_score = np.flatnonzero(~np.isnan(values))
            if len(has_score):
                w = None if weights is None else weights[:, horizon - 1]
                fitted = {
                    (n_paths, share): published_threshold(
                        values[has_score], share, *weights_of(w, rows[has_score])
                    )
                    for share in calibrator.coverage
                }
                earlier = thresholds_of_kind.get((kind, horizon))
                thresholds = {**(earlier.thresholds if earlier else {}), **fitted}
                thresholds_of_kind[kind, horizon] = KindThresholds(
                    thresholds, count_persons(rows[has_score], w)
                )
    return replace(calibrator, thresholds_of_kind=thresholds_of_kind)


def _scores(
    calibrator: Calibrator, paths: Paths, outcomes: Array, rows: NDArray[np.int64], n_paths: int
) -> dict[tuple[str, int], Array]:
    """Kind and horizon -> scores of the persons in `rows`, for sets from their first paths."""
    parts: list[dict[tuple[str, int], Array]] = []
    for start in range(0, len(rows), BLOCK):
        block_rows = rows[start : start + BLOCK]
        block, y = paths.take(block_rows), outcomes[block_rows]
        mapped = calibrator.recalibrate(block.with_earnings(block.earnings[:, :, :n_paths]))
        part: dict[tuple[str, int], Array] = {}
        for kind, columns in (
            ("band", band_scores(calibrator, mapped, y)),
            ("present_value", value_scores(calibrator, mapped, y)),
        ):
            part |= {(kind, h + 1): columns[:, h] for h in range(paths.n_horizons)}
        for h in range(paths.n_horizons):
            limits = limit_scores(calibrator, mapped, h + 1, y[:, h])
            part |= {(kind, h + 1): values for kind, values in limits.items()}
        parts.append(part)
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]} if parts else {}


def _fit_band_maps(
    calibrator: Calibrator, paths: Paths, outcomes: Array
) -> dict[int, tuple[Array, Array]]:
    """Horizon -> distribution function of the map fold's scores, as knots and values."""
    scores = np.concatenate(
        [
            year_scores(
                calibrator,
                calibrator.recalibrate(paths.take(slice(start, start + BLOCK))),
                outcomes[start : start + BLOCK],
            )
            for start in range(0, len(paths), BLOCK)
        ]
        or [np.empty((0, paths.n_horizons))]
    )
    band_maps = {}
    for h in range(paths.n_horizons):
        inside = np.minimum(scores[~np.isnan(scores[:, h]), h], 1.0)
        if len(inside) >= MIN_MAP_PERSONS:
            band_maps[h + 1] = _increasing(*fit_map(inside))
    return band_maps


def _increasing(knots: Array, values: Array) -> tuple[Array, Array]:
    """The map through the last value of every distinct knot, so that it has an inverse.

    It starts at (0, 0) and ends at (1, 1).
    """
    last = np.append(np.diff(knots) > TIE_TOLERANCE, True)
    knots, values = knots[last], values[last]
    if knots[0] == 0 and values[0] == 0:
        return knots, values
    return np.append(0.0, knots[knots > 0]), np.append(0.0, values[knots > 0])
