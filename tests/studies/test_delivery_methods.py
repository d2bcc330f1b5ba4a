"""The study of deliveries scores bands as the ledger does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from saga.calibration.adaptive.adaptive_state import BAND
from saga.calibration.adaptive.marginal_moves import LEVELS, levels_of_span, moved

from saga.conformal.calibrator import Calibrator
from studies.delivery_forecasts import N_HORIZONS
from studies.delivery_methods import Deliveries


def test_bands_are_scored_under_moves_as_the_ledger_scores_them() -> None:
    """The study computes scores of many persons; the ledger those of its log."""
    rng = np.random.default_rng(2)
    p_zero = rng.uniform(0, 0.3, (50, N_HORIZONS))
    less = np.where(rng.random(p_zero.shape) < 0.1, 0.0, p_zero + (1 - p_zero) * rng.random())
    part: Any = SimpleNamespace(less=less, p_zero=p_zero)
    half = np.array([0.0, 0.5, 1.0])
    scales = {h: (half, np.array([0.0, 0.4 + 0.05 * h, 1.0])) for h in range(1, N_HORIZONS + 1)}
    deliveries = Deliveries({2022: part}, Calibrator({}, band_scales=scales))
    levels = [np.sort(np.clip(LEVELS + rng.normal(0, 0.03, 9), 0.001, 0.999)) for _ in scales]
    in_force = {h: np.tile(levels[h - 1], (50, 1)) for h in scales}
    ranks = np.stack([less, p_zero], axis=2)
    for moves, of_study in (([None] * N_HORIZONS, None), (levels, in_force)):
        less_moved, zero_moved = np.moveaxis(moved(ranks, levels_of_span(BAND, moves)), 2, 0)
        scores = deliveries.calibrator.band.rank_scores(less_moved, zero_moved, 0.9)
        expected = deliveries.calibrator.band.joined(scores)[:, -1]
        found = deliveries._band_scores(2022, N_HORIZONS, of_study)
        np.testing.assert_allclose(found, expected, atol=1e-12)
