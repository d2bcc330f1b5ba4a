"""Prediction sets of a year's earnings: one interval per person, horizon and coverage.

With F the recalibrated marginal, p0 its probability of zero and a = 1 - coverage, the set is

    [F^-1(a / 2), F^-1(1 - a / 2)] without zero   if p0 < a / 2,
    [0, F^-1(1 - a)]                              if a / 2 <= p0 < 1 - a,
    {0}                                           if p0 >= 1 - a.

It contains 1 - a of the person's own distribution, or more if p0 forces it to, and zero if and only
if the quantile of a / 2 is zero. Conformal calibration replaces a inside each form: the score of an
outcome is the smallest q such that the set with a = 1 - q contains it, and 1 for a zero that the
form leaves out. The form itself depends on the coverage and on p0 alone.
`docs/method/calibration.md` compares this family with others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Floats, Reals
from saga.conformal.families.set_family import ROUNDING, SMALLEST_AMOUNT, Ends, SetFamily
from saga.distributions import Marginals


class YearSets(SetFamily):
    """Sets of a year's earnings."""

    kind = "set"
    by_coverage = True

    def contains_zero(self, p_zero: Reals, coverage: float) -> NDArray[np.bool_]:
        """Whether the set of this coverage contains zero, shape of `p_zero`."""
        return np.asarray(np.asarray(p_zero, dtype=np.float64) >= (1 - coverage) / 2)

    def rank_scores(self, less: Floats, p_zero: Reals, coverage: float) -> Floats:
        """See `SetFamily.rank_scores`."""
        return np.where(self.contains_zero(p_zero, coverage), less, np.abs(2 * less - 1))

    def ends(self, marginals: Marginals, q: Floats, coverage: Sequence[float]) -> Ends:
        """See `SetFamily.ends`.

        `coverage` ascends and `q` must not decrease with it; each set then contains those of lower
        coverage. Below 0 the set is that of 0, because none is smaller.
        """
        q = np.where(q < 1, np.maximum(q, 0.0), np.nan)
        zero = np.stack([self.contains_zero(marginals.p_zero, share) for share in coverage], -1)
        tail = np.nan_to_num(np.where(zero, 1 - q, (1 - q) / 2))
        both = np.concatenate([tail - ROUNDING, 1 - tail + ROUNDING], axis=-1)
        lower, upper = np.split(marginals.quantiles(both), 2, axis=-1)
        lower = np.where(zero, 0.0, np.maximum(lower, SMALLEST_AMOUNT))
        missing = np.isnan(q)
        lower, upper = np.where(missing, np.inf, lower), np.where(missing, -np.inf, upper)
        lower = np.where(missing, np.nan, np.minimum.accumulate(lower, axis=-1))
        upper = np.where(missing, np.nan, np.maximum.accumulate(upper, axis=-1))
        return lower, upper, zero & ~missing


YEAR = YearSets()
