"""The drift term: how far coverage moved in the past between calibration and outcome.

The use of the forecasts in past years is repeated on the threshold fold. For every origin year,
thresholds are set by the outcomes known by then and judged on the forecasts made in that year. The
deviations beyond sampling error are drift. They show only changes of the kind that the panel
contains.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from saga.calibration.fit.person_scores import pooled_quantile
from saga.calibration.fit.split_conformal import in_map_fold

from saga.arrays import Floats
from saga.conformal.calibrator import Calibrator
from saga.conformal.families import YEAR
from saga.distributions import Marginals

MIN_EARLIER_PERSONS = 300  # with an outcome known by the origin year
MIN_JUDGED_PERSONS = 30  # with their origin in this year
MIN_YEARS = 5


def fit_drift(
    calibrator: Calibrator, marginals: Marginals, outcomes: Floats, *, seed: int
) -> dict[tuple[int, float], tuple[float, int]]:
    """(Horizon, coverage) -> root mean square deviation of coverage, and the number of years.

    Sampling variance is subtracted; the result is at least 0. A year needs 300 persons whose
    outcome was known by then and 30 with their origin in it. A horizon needs 5 such years. Standard
    errors are large, because a year is one draw. `marginals` (n, H) are raw, `outcomes` (n, H).
    """
    rows = np.flatnonzero(~in_map_fold(marginals.person_id, seed))
    origin = marginals.origin_year[rows]
    known_by = origin[:, None] + np.arange(1, marginals.n_horizons + 1)
    mapped = calibrator.recalibrate(marginals.take(rows))
    excess = _excess_scores(calibrator, mapped, outcomes[rows])
    drift = {}
    for h in range(marginals.n_horizons):
        for j, share in enumerate(calibrator.coverage):
            years = [
                deviation(excess[:, h, j], known_by[:, h], origin, int(year), share)
                for year in np.unique(origin)
            ]
            pairs = np.array([pair for pair in years if pair is not None])
            if len(pairs) >= MIN_YEARS:
                square = max((pairs[:, 0] ** 2 - pairs[:, 1]).mean(), 0.0)
                drift[h + 1, share] = float(np.sqrt(square)), len(pairs)
    return drift


def deviation(
    excess: Floats,
    known_by: NDArray[np.int64],
    origin: NDArray[np.int64],
    year: int,
    coverage: float,
) -> tuple[float, float] | None:
    """Deviation from `coverage` of forecasts made in `year`, and its sampling variance.

    Args:
        excess: Score less threshold (n,), NaN without outcome.
        known_by: Year of the outcome (n,).
        origin: Origin year (n,).
        year: Thresholds are set by outcomes known in this year, and judged on its forecasts.
        coverage: Share to cover.

    Returns:
        None if there are too few persons.
    """
    has_outcome = ~np.isnan(excess)
    earlier = excess[has_outcome & (known_by <= year)]
    judged = excess[has_outcome & (origin == year)]
    if len(earlier) < MIN_EARLIER_PERSONS or len(judged) < MIN_JUDGED_PERSONS:
        return None
    threshold = pooled_quantile(earlier, np.arange(len(earlier)), coverage, 1)
    variance = coverage * (1 - coverage) * (1 / len(judged) + 1 / len(earlier))
    return float((judged <= threshold).mean()) - coverage, variance


def _excess_scores(calibrator: Calibrator, mapped: Marginals, outcomes: Floats) -> Floats:
    """Score less the threshold in force, (n, H, L), of recalibrated marginals."""
    scores = YEAR.scores_by_coverage(mapped, outcomes, calibrator.coverage)
    horizons = range(1, mapped.n_horizons + 1)
    thresholds, _, _ = calibrator.fitted.person_thresholds(mapped, horizons)
    return np.asarray(np.stack(list(scores.values()), axis=-1) - thresholds)
