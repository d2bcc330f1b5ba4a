"""Recalibration: the map R of a calibrator's cell, and paths that follow recalibrated marginals.

R maps forecast probabilities to calibrated ones. If F is the CDF of a forecast, R(F) is the CDF of
the recalibrated forecast. Paths are mapped person by person and year by year to the recalibrated
marginals; every path keeps its rank, so the dependence between years does not change (ensemble
copula coupling: Schefzik, Thorarinsdottir and Gneiting 2013).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from saga.arrays import Floats
from saga.distributions import Marginals, interpolate_rows
from saga.paths import Paths


@dataclass(frozen=True, eq=False)
class Cell:
    """The map R and the thresholds fitted for one horizon and group.

    Args:
        knots: Knots (K,) of R, a piecewise linear map of [0, 1] onto itself; empty if there is no
            map.
        values: Values (K,) of R at the knots.
        n_map: Number of persons in the map fold.
        thresholds: Threshold q by coverage; None if the threshold fold was too small.
        n_threshold: Number of persons in the threshold fold.
    """

    knots: Floats
    values: Floats
    n_map: int
    thresholds: Mapping[float, float | None]
    n_threshold: int


def map_paths(paths: Paths, marginals: Marginals) -> Paths:
    """The raw paths with the recalibrated marginals as distributions of each year.

    In each year, the path of rank r among M becomes the mean of the r-th of M slices of equal
    probability, so that the mean of the paths is nearly that of the marginal (`slice_means`).
    Zeros are ranked by the path's total earnings, then by its number. Years beyond the last horizon
    of `marginals` keep the correction of that horizon: their samples get its recalibrated
    probabilities.
    """
    paths.require_raw()
    marginals.require_recalibrated()
    m, last = paths.n_paths, marginals.n_horizons
    probability = (np.arange(m) + 0.5) / m
    total = np.zeros((len(paths), m))
    for h in range(paths.n_horizons):
        total += np.nan_to_num(paths.earnings[:, h])
    by_total = np.argsort(total, axis=1, kind="stable")
    result = paths.earnings.copy()
    for h in range(paths.n_horizons):
        rows = np.flatnonzero(~np.isnan(paths.earnings[:, h]).any(axis=1))
        if not len(rows):
            continue
        values = np.take_along_axis(paths.earnings[rows, h], by_total[rows], axis=1)
        order = np.argsort(values, axis=1, kind="stable")
        if h < last:
            mapped = marginals.take(rows).at_horizon(h + 1).slice_means(m)[:, 0]
        else:
            known = np.sort(paths.earnings[rows, last - 1], axis=1)[:, None]
            corrected = marginals.take(rows).at_horizon(last).probability(known)[:, 0]
            ranks = np.broadcast_to(np.arange(m), corrected.shape)
            rank = interpolate_rows(np.tile(probability, (len(rows), 1)), corrected, ranks)
            ordered = np.take_along_axis(values, order, axis=1)
            mapped = np.take_along_axis(ordered, np.rint(rank).astype(np.int64), axis=1)
        positions = np.take_along_axis(by_total[rows], order, axis=1)
        year = np.empty_like(values)
        np.put_along_axis(year, positions, mapped.astype(np.float32), axis=1)
        result[rows, h] = year
    return replace(paths, earnings=result, recalibrated=True)
