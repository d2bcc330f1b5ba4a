"""Fit what is more than one year's set: one-sided limits, intervals given earnings, bands of K years and present values of K years.

All are thresholds of half B behind the maps and widths of half A, so each holds in finite samples whatever the forecasts are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from calibration.fit.split_conformal import (
    MIN_MAP,
    fit_map,
    halves,
    path_counts,
    persons_of,
    published,
    weighed,
)
from saga.conformal.calibrator import Calibrator, KindThresholds
from saga.conformal.one_sided import limit_scores
from saga.conformal.path_bands import band_scores, year_scores
from saga.conformal.present_value import value_scores
from saga.paths import Paths

Array = NDArray[np.float64]
BLOCK = 2_000  # persons whose paths are mapped at once
TIED = 1e-9  # scores no further apart are one: averages of equal scores differ in their last digits


def fit_limits(
    calibrator: Calibrator,
    paths: Paths,
    outcomes: Array,
    *,
    seed: int,
    weights: Array | None = None,
) -> Calibrator:
    """The calibrator of `fit_calibration` with thresholds of every kind of limit, from the same raw paths, outcomes, seed and weights."""
    paths.require_raw()
    in_a = halves(paths.person_id, seed)
    calibrator = replace(
        calibrator, band_scales=_stretches(calibrator, paths.take(in_a), outcomes[in_a])
    )
    cuts: dict[tuple[str, int], KindThresholds] = {}
    rows = np.flatnonzero(~in_a)
    for count in path_counts(paths):
        scores = _scores(calibrator, paths, outcomes, rows, count)
        for (kind, horizon), values in scores.items():
            known = np.flatnonzero(~np.isnan(values))
            if len(known):
                w = None if weights is None else weights[:, horizon - 1]
                weighing = weighed(w, rows[known])
                fitted = {
                    (count, level): published(values[known], level, *weighing)
                    for level in calibrator.coverage
                }
                before = cuts.get((kind, horizon))
                cuts[kind, horizon] = KindThresholds(
                    {**(before.thresholds if before else {}), **fitted}, persons_of(rows[known], w)
                )
    return replace(calibrator, thresholds_of_kind=cuts)


def _scores(
    calibrator: Calibrator, paths: Paths, outcomes: Array, rows: NDArray[np.int64], count: int
) -> dict[tuple[str, int], Array]:
    """Kind and horizon -> scores of these persons for sets from their first `count` paths."""
    parts: list[dict[tuple[str, int], Array]] = []
    for start in range(0, len(rows), BLOCK):
        some = rows[start : start + BLOCK]
        block = paths.take(some)
        mapped = calibrator.recalibrate(block.with_earnings(block.earnings[:, :, :count]))
        own: dict[tuple[str, int], Array] = {}
        for kind, columns in (
            ("band", band_scores(calibrator, mapped, outcomes[some])),
            ("present_value", value_scores(calibrator, mapped, outcomes[some])),
        ):
            own |= {(kind, h + 1): columns[:, h] for h in range(paths.n_horizons)}
        for h in range(paths.n_horizons):
            own |= {
                (kind, h + 1): values
                for kind, values in limit_scores(
                    calibrator, mapped, h + 1, outcomes[some, h]
                ).items()
            }
        parts.append(own)
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]} if parts else {}


def _stretches(
    calibrator: Calibrator, paths: Paths, outcomes: Array
) -> dict[int, tuple[Array, Array]]:
    """Horizon -> the distribution function of half A's scores, as knots and values; none where half A is too small."""
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
    found = {}
    for h in range(paths.n_horizons):
        inside = np.minimum(scores[~np.isnan(scores[:, h]), h], 1.0)
        if len(inside) >= MIN_MAP:
            found[h + 1] = _increasing(*fit_map(inside))
    return found


def _increasing(knots: Array, values: Array) -> tuple[Array, Array]:
    """The map through the last value of every distinct knot, so that it has an inverse; it ends in (0, 0) and (1, 1)."""
    last = np.append(np.diff(knots) > TIED, True)
    knots, values = knots[last], values[last]
    return (
        (knots, values)
        if knots[0] == 0 and values[0] == 0
        else (np.append(0.0, knots[knots > 0]), np.append(0.0, values[knots > 0]))
    )
