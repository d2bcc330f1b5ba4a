"""Sets that tables publish beside those of a year: limits, path bands, and of present values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.conformal.calibrator import Calibrator
from saga.conformal.families import AT_LEAST, AT_MOST, POSITIVE, PRESENT_VALUE
from saga.conformal.families.present_value import SimulatedValues
from saga.conformal.families.quantile_intervals import central_probabilities
from saga.conformal.intervals import Intervals
from saga.distributions import Marginals
from saga.requests import RATE


def one_sided_limits(
    calibrator: Calibrator, marginals: Marginals, coverage: Sequence[float]
) -> tuple[Intervals, Intervals, Intervals]:
    """Sets of at least an amount, of at most one, and of positive earnings, for each of `coverage`.

    Of recalibrated marginals. A year has both of the first two, or neither. Raises UsageError if no
    threshold was fitted for a coverage.
    """
    least, most, positive = (
        calibrator.sets(family, marginals, coverage) for family in (AT_LEAST, AT_MOST, POSITIVE)
    )
    missing = (least.guarantee == "none") | (most.guarantee == "none")
    guarantee = np.where(missing, "none", least.guarantee)
    lower, upper = (np.where(missing, np.nan, end) for end in (least.lower, most.upper))
    return (
        replace(least, lower=lower, guarantee=guarantee),
        replace(most, upper=upper, guarantee=guarantee),
        positive,
    )


def band_intervals(
    calibrator: Calibrator, marginals: Marginals, years: int, coverage: Sequence[float]
) -> Intervals:
    """Sets (n, K, L) of recalibrated marginals for the next K = `years` outcomes together.

    For a person who reaches age 64 earlier, K is the number of years until then, and so are the
    threshold and the guarantee. Raises UsageError if no threshold was fitted for one of `coverage`.
    """
    marginals = marginals.first(min(years, marginals.n_horizons))
    years_left = marginals.exists.sum(axis=1)[:, None]
    horizons = np.where(np.arange(marginals.n_horizons) < years_left, years_left, 0)
    return calibrator.sets(calibrator.band, marginals, coverage, horizons)


@dataclass(frozen=True, eq=False)
class ValueIntervals:
    """Intervals of present values.

    `lower` and `upper` (n, L) are in real money of the panel, NaN if `guarantee` (n, L) is "none".
    """

    lower: Floats
    upper: Floats
    guarantee: NDArray[np.str_]

    @classmethod
    def central(
        cls, calibrator: Calibrator, values: SimulatedValues, coverage: Sequence[float]
    ) -> ValueIntervals:
        """Central intervals of simulated values, "extrapolated", where the calibrator shows any."""
        lower, upper = (values.quantiles(p) for p in central_probabilities(coverage))
        shown = np.broadcast_to(calibrator.shows_ranges(coverage), lower.shape)
        lower, upper = (np.where(shown, limit, np.nan) for limit in (lower, upper))
        return cls(lower, upper, np.where(shown, "extrapolated", "none"))

    def moved(self, by: Floats) -> ValueIntervals:
        """The intervals after `by` (n, 1) is added to the values; none where it is NaN."""
        guarantee = np.where(np.isnan(by), "none", self.guarantee)
        return ValueIntervals(self.lower + by, self.upper + by, guarantee)


def value_intervals(
    calibrator: Calibrator,
    values: SimulatedValues,
    years: NDArray[np.int64],
    coverage: Sequence[float],
    rate: float,
) -> ValueIntervals:
    """Intervals of simulated present values.

    The guarantee is "assumption" if outcomes over so many years were observed, `rate` is the rate
    of the calibration, and there are at least as many paths as in the calibration; otherwise it is
    "extrapolated". If fewer years were observed, the threshold of the largest observed number is
    used. Raises UsageError if no threshold was fitted for one of `coverage`.

    Args:
        calibrator: The calibrator.
        values: Simulated present values.
        years: Number of years of each value (n,).
        coverage: Coverage of the intervals.
        rate: Discount rate of the values.
    """
    sets = calibrator.sets(PRESENT_VALUE, values.distribution, coverage, years[:, None])
    guarantee = sets.guarantee[:, 0].astype("<U13")
    if rate != RATE or values.n_paths < calibrator.value_paths:
        guarantee[guarantee == "assumption"] = "extrapolated"
    return ValueIntervals(sets.lower[:, 0], sets.upper[:, 0], guarantee)
