"""Path bands: sets for the next K years that contain all K outcomes together.

The set of a year is central, between the quantiles of (1 - q) / 2 and (1 + q) / 2, and contains
zero if the lower quantile is zero. Such sets are nested over all q. Maps fitted on the map fold
bring the scores of all years to a common scale; they are monotone, so the sets of a horizon do not
change. The score of a person's outcomes is the largest of the K scores. The threshold for all years
is an order statistic of this score on the threshold fold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from saga.arrays import Floats, Reals
from saga.conformal.families.set_family import ROUNDING, Ends, SetFamily
from saga.distributions import Marginals


@dataclass(frozen=True, eq=False)
class PathBand(SetFamily):
    """Path bands of the years 1..K.

    `scales` are the knots and values of the map to the common scale by horizon; a horizon without
    one has that of the longest shorter one, and without any, the scores of all years are alike.
    """

    kind = "band"
    randomised = False
    scales: Mapping[int, tuple[Floats, Floats]] = field(default_factory=dict)

    def scale(self, horizon: int) -> tuple[Floats, Floats]:
        """Knots and values of the map from scores at a horizon to the common scale."""
        fitted = [h for h in self.scales if h <= horizon]
        if not fitted:
            return np.array([0.0, 1.0]), np.array([0.0, 1.0])
        return self.scales[max(fitted)]

    def rank_scores(self, less: Floats, p_zero: Reals, coverage: float) -> Floats:
        """Scores (n, H) or (n, H, K) of each year by itself, on the common scale."""
        zero = np.maximum(1 - 2 * p_zero, 0.0)
        central = np.where(less == 0, zero, np.abs(2 * less - 1))
        on_scale = [np.interp(central[:, h], *self.scale(h + 1)) for h in range(central.shape[1])]
        return np.stack(on_scale, axis=1)

    def joined(self, scores: Floats) -> Floats:
        """The largest score of the first K years, in column K - 1 of (n, H); NaN stays NaN."""
        return np.maximum.accumulate(scores, axis=1)

    def ends(self, marginals: Marginals, q: Floats, coverage: Sequence[float]) -> Ends:
        """See `SetFamily.ends`; the horizons are 1..K, and `q` is on the common scale."""
        q = np.stack([np.interp(q[:, h], *self.scale(h + 1)[::-1]) for h in range(q.shape[1])], 1)
        q = np.where(q < 1, q, np.nan)
        lower = marginals.quantiles((1 - np.nan_to_num(q)) / 2 - ROUNDING)
        upper = marginals.quantiles((1 + np.nan_to_num(q)) / 2 + ROUNDING)
        lower, upper = (np.where(np.isnan(q), np.nan, end) for end in (lower, upper))
        return lower, upper, lower == 0


BAND = PathBand()
