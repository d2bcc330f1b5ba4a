"""One-sided limits of a year's earnings: at least an amount, or at most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from saga.arrays import Floats, Reals
from saga.conformal.families.set_family import ROUNDING, Ends, SetFamily, quantiles_at
from saga.distributions import Marginals


class _LowerLimit(SetFamily):
    """Earnings of at least an amount; zero is above a limit of zero."""

    kind = "at_least"
    bounded = False

    def rank_scores(self, less: Floats, p_zero: Reals, coverage: float) -> Floats:
        """See `SetFamily.rank_scores`."""
        return 1 - np.where(less == 0, p_zero, less)

    def ends(self, marginals: Marginals, q: Floats, coverage: Sequence[float]) -> Ends:
        """See `SetFamily.ends`; the upper end is infinite."""
        lower = quantiles_at(marginals, 1 - q - ROUNDING)
        return lower, np.where(np.isnan(lower), np.nan, np.inf), lower == 0


class _UpperLimit(SetFamily):
    """Earnings of at most an amount; zero is below every limit."""

    kind = "at_most"

    def rank_scores(self, less: Floats, p_zero: Reals, coverage: float) -> Floats:
        """See `SetFamily.rank_scores`."""
        return less

    def ends(self, marginals: Marginals, q: Floats, coverage: Sequence[float]) -> Ends:
        """See `SetFamily.ends`; the lower end is 0."""
        upper = quantiles_at(marginals, q + ROUNDING)
        missing = np.isnan(upper)
        return np.where(missing, np.nan, 0.0), upper, ~missing


AT_LEAST, AT_MOST = _LowerLimit(), _UpperLimit()
