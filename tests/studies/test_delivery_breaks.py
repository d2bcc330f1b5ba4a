"""The study of deliveries moves present values as the product does."""

from __future__ import annotations

import numpy as np

from calibration.adaptive.marginal_moves import LEVELS, move_of
from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import Calibrator
from saga.conformal.recalibration import Cell
from saga.distributions import Marginals
from studies.delivery_breaks import _moved_slices
from studies.delivery_forecasts import N_PATHS


def test_moved_slices_are_those_of_the_moved_distribution() -> None:
    """For a move that widens the distribution, and one that shifts it up."""
    rng = np.random.default_rng(1)
    samples = np.where(rng.random((6, 4_000)) < 0.1, 0, np.exp(rng.normal(12, 0.5, (6, 4_000))))
    raw = Marginals.from_samples(samples[:, None])
    slices = raw.slice_means(N_PATHS)[:, 0]
    wider = [level + 0.03 * (2 * level - 1) for level in LEVELS]
    for moved_levels in (wider, [level + 0.02 for level in LEVELS]):
        levels = np.array(moved_levels, dtype=np.float64)
        cell = Cell(np.empty(0), np.empty(0), 0, {0.9: 0.9}, 1_000)
        calibrator = Calibrator({(1, ALL): cell}, moves={(1, ALL): move_of(levels)})
        moved = calibrator.recalibrate(raw).slice_means(N_PATHS)[:, 0]
        found = _moved_slices(slices, raw.p_zero[:, 0].astype(np.float64), np.tile(levels, (6, 1)))
        inner = slice(15, -6)  # p_zero ends inside a slice, and so does the largest quantile
        np.testing.assert_allclose(found[:, inner], moved[:, inner], rtol=0.01)
        assert abs(moved[:, inner] / slices[:, inner] - 1).max() > 0.02
