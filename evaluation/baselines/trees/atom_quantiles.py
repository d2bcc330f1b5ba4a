"""Distributions with an atom at zero, from a few quantiles: amounts of uniforms, and ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logit

from saga.arrays import Floats
from saga.trees.tree_forecast import KNOTS, probability_up_to, tail_and_inner_slopes


@dataclass(frozen=True, eq=False)
class AtomQuantiles:
    """One distribution per person and horizon, see `saga.trees.tree_forecast`.

    Args:
        zero: (n, H), probability of zero.
        logs: (n, H, 9), increasing quantiles of log positive earnings.
    """

    zero: Floats
    logs: Floats

    def amounts(self, work: Floats, rank: Floats) -> Floats:
        """Earnings (n, H, M) at two uniforms strictly inside (0, 1).

        They are 0 if `work` is below the probability of zero, otherwise the quantile `rank` of
        positive earnings.
        """
        x = logit(rank)
        logs, slopes = self.logs, tail_and_inner_slopes(self.logs)
        value = logs[..., :1] + np.minimum(x - KNOTS[0], 0) * slopes[..., :1]
        for k in range(len(KNOTS) - 1):
            within = np.clip(x - KNOTS[k], 0, KNOTS[k + 1] - KNOTS[k])
            value = value + within * slopes[..., k + 1, None]
        value = value + np.maximum(x - KNOTS[-1], 0) * slopes[..., -1:]
        return np.where(work < self.zero[..., None], 0.0, np.exp(value))

    def ranks(self, amounts: Floats) -> Floats:
        """The rank (n, H) of each amount among positive earnings; NaN for zero and for NaN."""
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(np.where(amounts > 0, amounts, np.nan))
        return probability_up_to(logs[..., None], self.logs)[..., 0]
