"""The drift term is nothing where nothing drifts, and finds the size of a change that does happen."""

import numpy as np
import pytest

from calibration.fit.drift import deviation, fit_drift
from calibration.fit.split_conformal import fit_calibration
from saga.paths import Paths


def draw_years(n: int, seed: int, shock: float) -> tuple[Paths, np.ndarray]:
    """One horizon, origins over 20 years; in every year all outcomes are shifted by that year's own draw of size `shock`."""
    rng = np.random.default_rng(seed)
    year = rng.integers(2000, 2020, n)
    shift = shock * rng.normal(size=30)[year - 2000]
    outcomes = np.exp(12.3 + shift + 0.5 * rng.normal(size=n))[:, None]
    drawn = np.exp(12.3 + 0.5 * rng.normal(size=(n, 1, 50))).astype(np.float32)
    return Paths(
        np.array([f"{seed}-{i}" for i in range(n)]), np.full(n, 1970), year, drawn
    ), outcomes


def drift(shock: float, seed: int) -> float:
    paths, outcomes = draw_years(12_000, seed, shock)
    rows = fit_drift(
        fit_calibration(paths, outcomes, seed=0, levels=(0.5, 0.8)), paths, outcomes, seed=0
    )
    assert rows["n"].min() >= 15
    return float(rows.filter(rows["level"] == 0.8)["value"][0])


def test_a_standing_world_has_no_drift_beyond_sampling_error_and_a_moving_one_has():
    # Root of a mean of ~18 squared deviations, each with sampling sd .4 / sqrt(300): noise of about .023 x (2 / 18)^(1/4) / 2.
    assert drift(0.0, 1) < 0.02
    assert drift(0.5, 2) > 0.04


def test_the_deviation_judges_later_origins_by_outcomes_known_before():
    rng = np.random.default_rng(0)
    origin = np.repeat([2000, 2010], 2_000)
    excess = np.concatenate([rng.random(2_000), rng.random(2_000) + 0.1])
    off, variance = deviation(excess, origin + 1, origin, 2010, 0.8)
    assert abs(off + 0.1) < 5 * variance**0.5 + 9 / 2_001
    assert variance == pytest.approx(0.16 * (2 / 2_000))
    assert deviation(excess, origin + 1, origin, 2000, 0.8) is None  # nothing was known by then
