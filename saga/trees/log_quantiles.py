"""Distributions of positive earnings from a few quantiles of their logs.

Between and beyond the quantiles, log amounts are linear in the logit of the probability. This is
exact for a logistic distribution; for a normal one the error between the outer quantiles is below a
hundredth of a standard deviation. The tails of log amounts are exponential (amounts: Pareto).
"""

from __future__ import annotations

import numpy as np

from saga.arrays import Floats
from saga.requests import QUANTILES
from saga.special import expit, logit

KNOTS = logit(np.array(QUANTILES))
# Smallest distance of quantiles in logs, so that ranks and amounts map one to one.
MIN_DISTANCE = 1e-6
MAX_TAIL_SLOPE = 0.5  # largest slope of the upper tail, in logs per logit: Pareto index 2


def increasing(logs: Floats) -> Floats:
    """Quantiles (..., 9) that increase, from some that may cross (Chernozhukov et al. 2010)."""
    return np.asarray(np.sort(logs, axis=-1) + MIN_DISTANCE * np.arange(len(QUANTILES)))


def tail_and_inner_slopes(logs: Floats) -> Floats:
    """Logs per logit below the first quantile, between and above the last; (..., 10)."""
    inner = np.diff(logs, axis=-1) / np.diff(KNOTS)
    return np.concatenate(
        [inner[..., :1], inner, np.minimum(inner[..., -1:], MAX_TAIL_SLOPE)], axis=-1
    )


def probability_up_to(at: Floats, logs: Floats) -> Floats:
    """Probability (n, H, G) of log amounts up to `at` (n, H, G), from quantiles (n, H, 9)."""
    logs, slopes = logs[..., None, :], tail_and_inner_slopes(logs)[..., None, :]
    x = KNOTS[0] + np.minimum(at - logs[..., 0], 0) / slopes[..., 0]
    for k in range(len(KNOTS) - 1):
        within = np.clip(at - logs[..., k], 0, logs[..., k + 1] - logs[..., k])
        x = x + within / slopes[..., k + 1]
    x = x + np.maximum(at - logs[..., -1], 0) / slopes[..., -1]
    return np.asarray(expit(x), dtype=np.float64)
