"""Thresholds of everything beside the set of one year.

One-sided limits, intervals given positive earnings, path bands of K years and present values of
K years. Each is an order statistic of the threshold fold behind the maps of the map fold, so it
holds in finite samples whatever the forecasts are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from calibration.fit.split_conformal import (
    MIN_MAP,
    count_persons,
    fit_map,
    in_map_fold,
    path_counts,
    published_threshold,
    weights_of,
)
from saga.conformal.calibrator import Calibrator, KindThresholds
from saga.conformal.one_sided import limit_scores
from saga.conformal.path_bands import band_scores, year_scores
from saga.conformal.present_value import value_scores
from saga.paths import Paths

Array = NDArray[np.float64]
BLOCK = 2_000  # persons whose paths are mapped at once
TIED = 1e-9  # averages of equal scores differ in their last digits; closer scores are one


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
        paths: The same raw paths (n, H, M).
        outcomes: The same outcomes (n, H).
        seed: The same key of the folds.
        weights: The same weights (n, H), or None.
    """
    paths.require_raw()
    in_map = in_map_fold(paths.person_id, seed)
    calibrator = replace(
        calibrator, band_scales=_fit_stretches(calibrator, paths.take(in_map), outcomes[in_map])
    )
    cuts: dict[tuple[str, int], KindThresholds] = {}
    rows = np.flatnonzero(~in_map)
    for count in path_counts(paths):
        scores = _scores(calibrator, paths, outcomes, rows, count)
        for (kind, horizon), values in scores.items():
            has_score = np.flatnonzero(~np.isnan(values))
            if len(has_score):
                w = None if weights is None else weights[:, horizon - 1]
                fitted = {
                    (count, share): published_threshold(
                        values[has_score], share, *weights_of(w, rows[has_score])
                    )
                    for share in calibrator.coverage
                }
                earlier = cuts.get((kind, horizon))
                thresholds = {**(earlier.thresholds if earlier else {}), **fitted}
                cuts[kind, horizon] = KindThresholds(thresholds, count_persons(rows[has_score], w))
    return replace(calibrator, thresholds_of_kind=cuts)


def _scores(
    calibrator: Calibrator, paths: Paths, outcomes: Array, rows: NDArray[np.int64], count: int
) -> dict[tuple[str, int], Array]:
    """Kind and horizon -> scores of these persons for sets from their first `count` paths."""
    parts: list[dict[tuple[str, int], Array]] = []
    for start in range(0, len(rows), BLOCK):
        block_rows = rows[start : start + BLOCK]
        block, y = paths.take(block_rows), outcomes[block_rows]
        mapped = calibrator.recalibrate(block.with_earnings(block.earnings[:, :, :count]))
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


def _fit_stretches(
    calibrator: Calibrator, paths: Paths, outcomes: Array
) -> dict[int, tuple[Array, Array]]:
    """Horizon -> distribution function of the map fold's scores, as knots and values.

    A horizon with too few scores has none.
    """
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
    stretches = {}
    for h in range(paths.n_horizons):
        inside = np.minimum(scores[~np.isnan(scores[:, h]), h], 1.0)
        if len(inside) >= MIN_MAP:
            stretches[h + 1] = _increasing(*fit_map(inside))
    return stretches


def _increasing(knots: Array, values: Array) -> tuple[Array, Array]:
    """The map through the last value of every distinct knot, so that it has an inverse.

    It ends in (0, 0) and (1, 1).
    """
    last = np.append(np.diff(knots) > TIED, True)
    knots, values = knots[last], values[last]
    if knots[0] == 0 and values[0] == 0:
        return knots, values
    return np.append(0.0, knots[knots > 0]), np.append(0.0, values[knots > 0])
