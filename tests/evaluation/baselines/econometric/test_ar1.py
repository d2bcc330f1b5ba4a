"""AR(1) with fixed effects: estimator, filter and forecast against independent oracles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from saga.evaluation.baselines import AutoRegression
from saga.evaluation.baselines.econometric.ar1 import Surprises
from saga.evaluation.baselines.econometric.gmm import system_gmm
from saga.evaluation.baselines.econometric.variance_components import BANDS, Belief, Components
from saga.evaluation.protocol import Baseline
from saga.evaluation.scoring.ensemble_scores import crps_log
from saga.evaluation.textbook.exact_forecaster import ExactForecaster
from saga.evaluation.textbook.gaussian_ar1 import GaussianProcess
from saga.evaluation.textbook.kalman_filter import KalmanFilter
from scipy.stats import kstest

from saga.data.origins import Origins, draw_origins, history, realised_earnings
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.errors import InputError
from saga.register import RegisterSettings, generate_register


def series(n: int, years: int, rho: float, transitory: float, seed: int) -> np.ndarray:
    """A fixed effect, an AR(1) from its stationary distribution, and white noise: (n, years)."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 0.3 / np.sqrt(1 - rho**2), n)
    out = np.empty((n, years))
    for t in range(years):
        z = rho * z + rng.normal(0, 0.3, n)
        out[:, t] = z
    return out + rng.normal(0, 0.5, (n, 1)) + rng.normal(0, transitory, (n, years))


def test_estimate_error_and_hansen_equal_those_of_pydynpd() -> None:
    """pydynpd 0.2.2 on this panel, command `r L1.r | gmm(r, 2:4) | collapse`, with numpy 1.26."""
    rng = np.random.default_rng(7)
    n, years = 300, 10
    effect, z, r = rng.normal(0, 0.5, n), rng.normal(0, 0.6, n), np.empty((n, years))
    for t in range(years):
        z = 0.7 * z + rng.normal(0, 0.3, n) * (1 + 0.5 * np.abs(z))
        r[:, t] = effect + z + rng.normal(0, 0.1, n)
    r[rng.random((n, years)) < 0.08] = np.nan
    result = system_gmm(r, first_lag=2, lags=3)
    assert result.rho == pytest.approx(0.7065558, abs=1e-6)
    assert result.constant == pytest.approx(-0.0211793, abs=1e-6)
    assert result.se == pytest.approx(0.0396942, abs=1e-6)
    assert result.hansen == pytest.approx(4.541016839845, abs=1e-6)
    assert result.p_hansen == pytest.approx(0.2086607284965, abs=1e-6)


def test_a_panel_seen_every_second_year_gives_persistence_over_two_years() -> None:
    r = series(6000, 16, 0.8, transitory=0.0, seed=3)
    r[:, 1::2] = np.nan
    estimate = system_gmm(r, first_lag=2, step=2)
    assert abs(estimate.rho - 0.64) < 4 * estimate.se


def test_records_that_are_too_short_are_refused() -> None:
    with pytest.raises(InputError, match="Persistence cannot be estimated"):
        system_gmm(np.random.default_rng(0).normal(size=(50, 3)))


def test_variance_components_are_recovered_given_persistence() -> None:
    r = series(6000, 24, 0.8, transitory=0.2, seed=4)
    age = np.tile(np.arange(26, 50), (6000, 1))
    estimate = Components.fit(r, age, np.full(1, np.nan), 0.8)
    assert estimate.alpha == pytest.approx(0.25, abs=0.03)
    assert estimate.z0 == pytest.approx(0.25, abs=0.04)
    assert estimate.eta[2:4] == pytest.approx(0.09, abs=0.012)
    assert estimate.eps[2:4] == pytest.approx(0.04, abs=0.012)
    assert estimate.entry == 0


def test_the_filter_is_the_kalman_filter() -> None:
    """Against `textbook.kalman_filter` on records with gaps; no surprise is an outlier here."""
    process = GaussianProcess()
    bands = len(BANDS) + 1
    parts = Components(
        process.rho, process.sd_alpha**2,
        process.rho**2 * process.sd_z0**2 + process.sd_eta**2, process.first_age,
        np.full(bands, process.sd_eta**2), np.full(bands, process.sd_eps**2), 0.0,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    logs = 0.15 * rng.normal(size=(20, 15))
    logs[rng.random(logs.shape) < 0.3] = np.nan
    ages = np.arange(25, 40)
    belief = Belief.prior(parts, (20,))
    for column, age in enumerate(ages):
        belief = belief.ahead(parts, np.full(20, age))
        level, deviation = belief.expected(parts, np.full(20, age), np.zeros(20))
        belief = belief.updated(logs[:, column] - level, ~np.isnan(logs[:, column]), deviation)
    mean, covariance = KalmanFilter(process).posterior(
        np.exp(logs + process.mean_log(ages)), np.full(20, 39)
    )
    assert np.stack([belief.alpha, belief.z], axis=-1) == pytest.approx(mean, abs=1e-9)
    assert belief.v_alpha == pytest.approx(covariance[:, 0, 0], abs=1e-9)
    assert belief.v_both == pytest.approx(covariance[:, 0, 1], abs=1e-9)
    assert belief.v_z == pytest.approx(covariance[:, 1, 1], abs=1e-9)


def test_shocks_are_drawn_from_the_bin_or_a_broader_one() -> None:
    rng = np.random.default_rng(0)
    fine, coarse = rng.integers(0, 2, 20_000), np.zeros(20_000, dtype=np.int64)
    fine[:20] = 2  # too few to stand alone
    shocks = np.where(fine == 1, 5.0, 0.0) + rng.normal(size=20_000)
    draws = Surprises([fine, coarse], shocks).draw(
        [np.array([0, 1, 2, 9])[:, None].repeat(5000, 1), np.zeros((4, 5000), dtype=np.int64)],
        rng.random((4, 5000)),
    )
    assert draws.mean(axis=1) == pytest.approx([0, 5, shocks.mean(), shocks.mean()], abs=0.2)
    assert draws.std(axis=1) == pytest.approx([1, 1, shocks.std(), shocks.std()], rel=0.05)


@pytest.fixture(scope="module")
def gaussian(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Panel]:
    """A register made by the Gaussian process; no floor, so that every year is one of work."""
    folder = tmp_path_factory.mktemp("gaussian") / "register"
    generate_register(folder, RegisterSettings(persons=2500, seed=1, process=GaussianProcess()))
    panel = read_panel(folder)
    return folder, replace(panel, meta=replace(panel.meta, floor=None))


def scored(
    panel: Panel, baseline: Baseline, origins: Origins, paths: int = 200
) -> tuple[np.ndarray, np.ndarray]:
    """CRPS (n, 3) in logs and mid-ranks of the outcomes among the paths at h = 1, 5, 10."""
    horizons = [1, 5, 10]
    outcomes = realised_earnings(panel, origins, horizons)
    samples = baseline.simulate(
        history(panel, origins), origins, to_horizon=10, n_paths=paths, seed=0
    ).earnings[:, np.array(horizons) - 1]
    rank = ((samples < outcomes[..., None]).sum(axis=-1) + 0.5) / (paths + 1)
    return crps_log(samples, outcomes, None), np.where(np.isnan(outcomes), np.nan, rank)


@pytest.mark.thorough
def test_on_a_gaussian_register_the_forecast_is_nearly_the_exact_one_and_calibrated(
    gaussian: tuple[Path, Panel],
) -> None:
    folder, panel = gaussian
    persons = panel.persons()
    train, test = panel.only(persons[::2]), panel.only(persons[1::2])
    fitted = AutoRegression().fit(train, seed=0)
    assert abs(fitted.estimate.rho - GaussianProcess().rho) < 4 * fitted.estimate.se
    origins = draw_origins(test, max_horizon=10, seed=0)
    result, ranks = scored(test, fitted, origins)
    exact, _ = scored(test, ExactForecaster.open(folder), origins)
    for column in range(3):
        lost = (result - exact)[:, column]
        seen = np.isfinite(lost)
        # Tolerance: 3 % for estimation on 1,250 persons and year effects, plus 3 standard errors.
        assert lost[seen].mean() < 0.03 * exact[seen, column].mean() + 3 * lost[
            seen
        ].std() / np.sqrt(seen.sum())
        assert kstest(ranks[seen, column], "uniform").pvalue > 1e-3
    forgetful = AutoRegression().fit(train, seed=0)
    forgetful.components = replace(fitted.components, rho=0.5, alpha=0.01)
    worse, wrong = scored(test, forgetful, origins)
    assert np.nanmean(worse[:, 2]) > 1.1 * np.nanmean(exact[:, 2])
    assert kstest(wrong[np.isfinite(wrong[:, 2]), 2], "uniform").pvalue < 1e-3
