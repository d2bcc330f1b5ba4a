"""The study of deliveries moves present values as the product does."""

from __future__ import annotations

import numpy as np
from saga.calibration.adaptive.adaptive_state import BAND
from saga.calibration.adaptive.marginal_moves import LEVELS, levels_of_span, move_of, moved

from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import Calibrator
from saga.conformal.recalibration import Cell
from saga.distributions import Marginals
from studies.delivery_forecasts import N_HORIZONS, N_PATHS, OriginForecasts
from studies.delivery_methods import Deliveries, moved_slices


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
        found = moved_slices(slices, raw.p_zero[:, 0].astype(np.float64), np.tile(levels, (6, 1)))
        inner = slice(15, -6)  # p_zero ends inside a slice, and so does the largest quantile
        np.testing.assert_allclose(found[:, inner], moved[:, inner], rtol=0.01)
        assert abs(moved[:, inner] / slices[:, inner] - 1).max() > 0.02


def test_bands_are_scored_under_moves_as_the_ledger_scores_them() -> None:
    """The study computes scores of many persons; the ledger those of its log."""
    rng = np.random.default_rng(2)
    p_zero = rng.uniform(0, 0.3, (50, N_HORIZONS))
    less = np.where(rng.random(p_zero.shape) < 0.1, 0.0, p_zero + (1 - p_zero) * rng.random())
    empty = np.empty((0, N_HORIZONS, N_PATHS))
    ids = np.array([f"P{i}" for i in range(50)])
    part = OriginForecasts(
        2022,
        ids,
        less,
        p_zero,
        np.empty((50, 2, 25), dtype=np.float32),
        np.empty(0, dtype=np.int64),
        empty.astype(np.float32),
        empty.astype(np.uint8),
        np.empty((0, N_HORIZONS)),
        {},
    )
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
