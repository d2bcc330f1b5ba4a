"""Maps from few persons: the published map does little harm, a map that is not shrunk does."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from saga.distributions import Marginals
from studies.map_sizes import (
    FITS,
    GRID,
    HORIZONS,
    Law,
    change_by_map,
    draw_pit,
    expected_crps,
    panel_rows,
)

SHRUNK, NOT_SHRUNK = FITS.values()


def test_the_expected_crps_is_that_of_the_closed_form() -> None:
    """E|X - Y| - E|X - X'| / 2 for a normal forecast X and a normal outcome Y (Gneiting 2007)."""
    forecast, truth = Law(stats.norm(0, 0.8)), Law(stats.norm(0.1, 1))
    spread = np.sqrt(0.8**2 + 1)
    distance = spread * np.sqrt(2 / np.pi) * np.exp(-(0.1**2) / 2 / spread**2)
    distance += 0.1 * (1 - 2 * stats.norm.cdf(-0.1 / spread))
    expected = distance - 0.8 / np.sqrt(np.pi)
    assert expected_crps(forecast.cdf(GRID), truth) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("zero", [0.0, 0.2])
def test_the_pit_of_a_right_forecast_is_uniform(zero: float) -> None:
    law = Law(stats.norm(), zero)
    u = draw_pit(law, law, 4_000, np.random.default_rng(0))
    assert stats.kstest(u, "uniform").pvalue > 0.001


def test_at_350_persons_the_published_map_does_no_harm_and_the_unshrunk_one_does() -> None:
    harm = 0.15  # per cent of CRPS
    published = change_by_map("right", SHRUNK, 350, 60, seed=3)
    broken = change_by_map("right", NOT_SHRUNK, 350, 60, seed=3)
    error = broken.std() / np.sqrt(len(broken))
    assert published.mean() < harm
    assert broken.mean() > harm, "the broken version"
    # A distribution function from n values has the error F (1 - F) / n, and the expected CRPS of a
    # right forecast is the integral of F (1 - F): the loss is one n-th.
    assert broken.mean() == pytest.approx(100 / 350, abs=4 * error + 0.05)


@pytest.mark.parametrize(
    "case",
    ["spread 20 % too small", "zero 10 %, true 15 %", "median a tenth of the spread low"],
)
def test_a_map_of_a_wrong_forecast_helps_from_350_persons(case: str) -> None:
    assert change_by_map(case, SHRUNK, 350, 40, seed=3).mean() < -0.2


def test_the_table_of_a_panel_judges_persons_without_part_in_the_map() -> None:
    """A forecast that is right: only the unshrunk map from 100 persons costs more than chance."""
    rng = np.random.default_rng(0)
    n, shape = 700, (700, len(HORIZONS))
    logs = np.linspace(8.0, 16.0, 200)
    below = stats.norm.cdf(logs, 12, 0.6)
    below[0], below[-1] = 0.0, 1.0
    grid, cdf = (np.broadcast_to(values, (*shape, 200)).copy() for values in (logs, below))
    ids, years = np.array([f"{i:03d}" for i in range(n)]), np.full(n, 1980)
    marginals = Marginals(ids, years, years + 30, grid, cdf, np.zeros(shape))
    outcomes = np.exp(rng.normal(12, 0.6, shape))
    rows = panel_rows(marginals, outcomes, None, seed=0)
    assert {row[0] for row in rows} == {str(h) for h in HORIZONS}
    at_100 = [row for row in rows if row[1] == "100"]
    assert all(row[2] == "600" for row in at_100)
    assert np.mean([float(row[3]) for row in at_100]) < np.mean([float(row[5]) for row in at_100])
