"""Prediction sets of persons, as arrays, and the names of their guarantees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.distributions import Marginals
from saga.scores import covered
from saga.training_records import Guarantee, guarantee_of

Value = TypeVar("Value")
MEDIAN_COVERAGE = 0.5  # of the smallest sets that contain the median


def latest(
    fitted: Iterable[tuple[int, Value | None, int]],
    horizon: int,
    extrapolated: bool,
    *,
    always: bool = False,
) -> tuple[tuple[int, Value] | None, Guarantee]:
    """The horizon whose thresholds a set at `horizon` has, with these, and the set's guarantee.

    It is the longest of the horizons with outcomes up to `horizon`; beyond all of them the
    guarantee is "extrapolated". From the first horizon on with too few outcomes there is none, and
    from the first one on whose outcomes are of a single origin year none is better than
    "extrapolated": a longer horizon never has a stronger guarantee than a shorter one with
    outcomes.

    Args:
        fitted: Horizons with outcomes, ascending; what was fitted, None if they are too few; and
            the number of their origin years.
        horizon: The horizon, or number of years, of the set.
        extrapolated: See `guarantee_of`.
        always: Where outcomes are too few, the last thresholds are used, and extrapolated.
    """
    known = [entry for entry in fitted if entry[0] <= horizon]
    with_value = [(h, value) for h, value, _ in known if value is not None]
    has_all = len(with_value) == len(known)
    if not with_value or not (has_all or always):
        return None, "none"
    is_observed = with_value[-1][0] == horizon and has_all
    origin_years = min(n for _, _, n in known) if is_observed else 0
    return with_value[-1], guarantee_of(origin_years, extrapolated)


@dataclass(frozen=True, eq=False)
class Intervals:
    """Prediction sets: [lower, upper] of positive amounts, and {0} if `includes_zero`.

    Arrays (n, H, L) in real money of the panel, one L per `coverage`. `lower` and `upper` are NaN
    if `guarantee` is "none", and 0 if the set is {0} alone. `cell` (n, H) names the persons whose
    outcomes were used: "all", "cross-fitted" (all, each by the member that has not seen the
    person), a group such as "quintile=2", or "" without interval.
    """

    coverage: tuple[float, ...]
    lower: Floats
    upper: Floats
    includes_zero: NDArray[np.bool_]
    guarantee: NDArray[np.str_]
    cell: NDArray[np.str_]

    @classmethod
    def none(cls, marginals: Marginals, coverage: Sequence[float]) -> Intervals:
        """No intervals."""
        shape = (*marginals.p_zero.shape, len(coverage))
        missing, zero = np.full(shape, np.nan), np.zeros(shape, dtype=np.bool_)
        guarantee, cell = np.full(shape, "none"), np.full(shape[:2], "")
        return cls(tuple(coverage), missing, missing, zero, guarantee, cell)

    def at(self, columns: Sequence[int]) -> Intervals:
        """The intervals of some of the coverages, by their index."""
        return replace(
            self,
            coverage=tuple(self.coverage[j] for j in columns),
            lower=self.lower[..., columns],
            upper=self.upper[..., columns],
            includes_zero=self.includes_zero[..., columns],
            guarantee=self.guarantee[..., columns],
        )

    def containing(self, median: Floats) -> Intervals:
        """The sets, of which those of 50 % and more are extended to the median (n, H).

        Without this, a threshold below 50 % puts the median outside a set that begins at zero. No
        set gets smaller, so coverage is kept, and sets stay nested.
        """
        extended = (np.array(self.coverage) >= MEDIAN_COVERAGE) & ~np.isnan(self.lower)
        median, at_zero = median[..., None], median[..., None] == 0
        return replace(
            self,
            lower=np.where(extended & ~at_zero, np.minimum(self.lower, median), self.lower),
            upper=np.where(extended, np.maximum(self.upper, median), self.upper),
            includes_zero=self.includes_zero | (extended & at_zero),
        )

    def covered(self, outcomes: Floats) -> Floats:
        """Whether each outcome (n, H) is in its set, 1 or 0 (n, H, L); NaN if either is missing."""
        return covered(outcomes[:, :, None], self.lower, self.upper, self.includes_zero)
