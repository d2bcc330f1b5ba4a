"""The paper's calibration method: conformalised quantile regression, fitted by MAPIE.

Romano, Patterson and Candes (2019): the conformity score is
max(lower quantile - outcome, outcome - upper quantile) in money, and the interval is
[lower quantile - q, upper quantile + q]. There is one q per horizon and coverage, the same
for every group. It is fitted on all calibration persons, with forecasts that are not
recalibrated. The intervals cover too much if zero earnings are frequent, so this method is not the
default.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from mapie.regression import ConformalizedQuantileRegressor
from saga.calibration.fit.split_conformal import check_forecasts
from sklearn.base import BaseEstimator, RegressorMixin

from saga.arrays import Floats
from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import Calibrator
from saga.conformal.families.quantile_intervals import QUANTILE_INTERVALS, central_probabilities
from saga.conformal.recalibration import Cell
from saga.distributions import Marginals
from saga.requests import COVERAGE
from saga.small_groups import MIN_PERSONS, neighbour_mean


def fit_cqr(
    marginals: Marginals, outcomes: Floats, coverage: Sequence[float] = COVERAGE
) -> Calibrator:
    """A calibrator of method "cqr" from raw marginals (n, H) and outcomes (n, H), NaN if unknown.

    Each threshold is an average over 10 neighbouring scores, never one person's score. If a
    horizon has too few persons for a coverage, neither it nor any longer horizon has a threshold.
    Raises UsageError if shapes disagree, a person occurs twice or a coverage is outside (0, 1).
    """
    check_forecasts(marginals, outcomes, coverage, one_origin=True)
    cells: dict[tuple[int, str], Cell] = {}
    origin_years: dict[tuple[int, str], int] = {}
    coverages_left = set(coverage)
    ends = [marginals.quantiles(p) for p in central_probabilities(coverage)]
    has_outcome = ~np.isnan(outcomes) & marginals.exists
    for h in np.flatnonzero(has_outcome.any(axis=0)).tolist():
        rows = has_outcome[:, h]
        thresholds: dict[float, float | None] = {}
        for j, share in enumerate(coverage):
            lower, upper = (end[rows, h, j] for end in ends)
            q = math.inf
            if share in coverages_left:
                q = cqr_threshold(lower, upper, outcomes[rows, h], share)
            thresholds[share] = q if math.isfinite(q) else None
            if thresholds[share] is None:
                coverages_left.discard(share)
        cells[h + 1, ALL] = Cell(np.empty(0), np.empty(0), 0, thresholds, int(rows.sum()))
        origin_years[h + 1, ALL] = len(np.unique(marginals.origin_year[rows]))
    return Calibrator(cells, origin_years=origin_years, year=QUANTILE_INTERVALS)


def cqr_threshold(
    lower: Floats,
    upper: Floats,
    outcomes: Floats,
    coverage: float,
    *,
    neighbours: int = MIN_PERSONS,
) -> float:
    """The threshold q, an amount, from quantiles `lower`, `upper` (n,) and outcomes (n,).

    MAPIE's threshold is one person's score; with `neighbours` > 1 it is the average of that score
    and the next ones above. +inf if n is too small for MAPIE, or if fewer than `neighbours` scores
    remain from that rank on.
    """
    n = len(outcomes)
    if math.ceil((n + 1) * coverage - 1e-9) > n or n * min(coverage, 1 - coverage) <= 1:
        return math.inf
    features = np.column_stack([lower, upper, (lower + upper) / 2])
    model = ConformalizedQuantileRegressor(
        [_Column(j).fit(features) for j in range(3)], confidence_level=coverage, prefit=True
    ).conformalize(features, outcomes)
    ordered = np.sort(model.conformity_scores[2])
    # Read MAPIE's threshold back from an interval so wide that no threshold makes its ends cross.
    # If they crossed, MAPIE would log a warning.
    wide = 2.0 * np.abs(ordered).max() + 1.0
    _, interval = model.predict_interval(np.array([[-wide, wide, 0.0]]), symmetric_correction=True)
    rank = int(np.abs(ordered - (interval[0, 1, 0] - wide)).argmin())
    return neighbour_mean(ordered, rank, neighbours)


class _Column(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """An estimator that returns one column of precomputed quantiles: MAPIE calls no network."""

    def __init__(self, column: int = 0) -> None:
        self.column = column

    def fit(self, features: Floats) -> _Column:
        self.n_features_in_ = features.shape[1]
        self.fitted_ = True
        return self

    def predict(self, features: Floats) -> Floats:
        return np.asarray(features)[:, self.column]
