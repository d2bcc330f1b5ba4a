"""The drift term is 0 in a world that does not change, and finds the size of a change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from saga.calibration.fit.drift import deviation, fit_drift
from saga.calibration.fit.split_conformal import fit_calibration

from saga.arrays import Array
from saga.distributions import Marginals
from tests.calibration.worlds import lognormal_marginals


def draw_years(n: int, seed: int, shock: float) -> tuple[Marginals, Array]:
    """One horizon, origins in 20 years; each year shifts all outcomes by a draw of size `shock`."""
    rng = np.random.default_rng(seed)
    year = rng.integers(2000, 2020, n)
    shift = shock * rng.normal(size=30)[year - 2000]
    outcomes = np.exp(12.3 + shift + 0.5 * rng.normal(size=n))[:, None]
    same = np.ones((n, 1))
    marginals = lognormal_marginals(0 * same, 12.3 * same, 0.5 * same, str(seed))
    return replace(marginals, origin_year=year), outcomes


def drift_at_80(shock: float, seed: int) -> float:
    marginals, outcomes = draw_years(12_000, seed, shock)
    calibrator = fit_calibration(marginals, outcomes, seed=0, coverage=(0.5, 0.8))
    drift = fit_drift(calibrator, marginals, outcomes, seed=0)
    assert set(drift) == {(1, 0.5), (1, 0.8)}
    assert min(n_years for _, n_years in drift.values()) >= 15
    return drift[1, 0.8][0]


def test_only_a_changing_world_has_drift_beyond_sampling_error() -> None:
    # Root of a mean of about 18 squared deviations, each with sampling sd .4 / sqrt(300): noise of
    # about .023 x (2 / 18)^(1/4) / 2.
    assert drift_at_80(0.0, 1) < 0.02
    assert drift_at_80(0.5, 2) > 0.04


def test_later_origins_are_judged_by_outcomes_known_before() -> None:
    rng = np.random.default_rng(0)
    origin = np.repeat([2000, 2010], 2_000)
    excess = np.concatenate([rng.random(2_000), rng.random(2_000) + 0.1])
    result = deviation(excess, origin + 1, origin, 2010, 0.8)
    assert result is not None
    off, variance = result
    assert abs(off + 0.1) < 5 * variance**0.5 + 9 / 2_001
    assert variance == pytest.approx(0.16 * (2 / 2_000))
    # No outcome was known in 2000.
    assert deviation(excess, origin + 1, origin, 2000, 0.8) is None
