"""Infrequent wage adjustment: wages that stay the same for years."""

from __future__ import annotations

import numpy as np

from saga.arrays import Floats


def hold_wages(logs: Floats, rate: float, rng: np.random.Generator) -> Floats:
    """Log wages (n, n_years) that follow `logs` only in years of adjustment.

    In the other years the wage of the year before stays. Each year is a year of adjustment with
    probability `rate`, and so is the first.
    """
    adjusts = rng.random(logs.shape) < rate
    adjusts[:, 0] = True
    latest = np.maximum.accumulate(np.where(adjusts, np.arange(logs.shape[1]), 0), axis=1)
    return np.take_along_axis(logs, latest, axis=1)
