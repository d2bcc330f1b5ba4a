"""The quantile process: regressions, posterior and nonlinear persistence."""

from __future__ import annotations

import numpy as np
import pytest
from saga.evaluation.baselines import QuantileProcess
from saga.evaluation.baselines.econometric.histories import WORK, Histories
from saga.evaluation.baselines.econometric.hurdle import careers
from saga.evaluation.baselines.econometric.persistence import FEATURES, Distributions, Grid, Tables
from saga.evaluation.baselines.econometric.quantile_functions import (
    TAUS,
    QuantileDistribution,
    quantile_regressions,
)
from saga.evaluation.textbook.gaussian_ar1 import GaussianProcess
from saga.evaluation.textbook.kalman_filter import KalmanFilter
from scipy.stats import kstest
from sklearn.linear_model import QuantileRegressor

from saga.errors import InputError

AGE = 40
SMALL, LOSS = (
    0.08,
    0.15,
)  # standard deviation of usual shocks; chance of a year that wipes the past out


def next_eta(eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Nonlinear persistence: mostly .97 and a small shock, sometimes a bad independent draw."""
    usual = 0.97 * eta + rng.normal(0.03, SMALL, eta.shape)
    return np.where(
        rng.random(eta.shape) < LOSS, rng.normal(-0.5, 0.3, eta.shape) + 0.2 * eta, usual
    )


def process(n: int, years: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """eta and eta plus noise after a warm-up, (n, years) each."""
    rng = np.random.default_rng(seed)
    eta = np.zeros(n)
    out = np.empty((n, years))
    for t in range(-20, years):
        eta = next_eta(eta, rng)
        out[:, max(t, 0)] = eta
    return out, out + rng.normal(0, 0.1, out.shape)


@pytest.fixture(scope="module")
def fitted() -> QuantileProcess:
    """The laws estimated on 800 persons at ages 32 to 47."""
    _, residual = process(800, 16, seed=0)
    age = np.tile(np.arange(32, 48), (800, 1))
    none = np.zeros(800, dtype=np.int64)
    past = Histories(age, np.full(age.shape, WORK, dtype=np.int8), residual, none, none)
    baseline = QuantileProcess()
    baseline.learn(past, seed=0)
    return baseline


def test_smoothed_quantile_regressions_equal_linear_programming() -> None:
    """The loss is within .003 of the exact optimum, and that of shifted coefficients is not."""
    rng = np.random.default_rng(0)
    n = 4000
    x = np.column_stack([np.ones(n), rng.normal(size=n)])
    y = 1 + 2 * x[:, 1] + (1 + 0.3 * np.abs(x[:, 1])) * rng.standard_t(4, n)

    def loss(weights: np.ndarray, tau: float) -> float:
        residual = y - x @ weights
        return float(np.mean(np.maximum(tau * residual, (tau - 1) * residual)))

    coefficients = quantile_regressions(x, y, QuantileDistribution.normal(2, 1.0).weights)
    for row in (1, 4, 6, 11):
        exact = (
            QuantileRegressor(quantile=TAUS[row], alpha=0.0, fit_intercept=False, solver="highs")
            .fit(x, y)
            .coef_
        )
        assert loss(coefficients[row], TAUS[row]) < 1.003 * loss(exact, TAUS[row])
        assert loss(coefficients[row] + 0.2, TAUS[row]) > 1.003 * loss(exact, TAUS[row])


def normal_laws(parts: GaussianProcess, grid: Grid) -> Distributions:
    """A linear normal process as laws of quantiles: persistence in the coefficient of eta."""
    eta = QuantileDistribution.normal(FEATURES[0], parts.sd_eta)
    eta.weights[:, 3] = parts.rho * grid.scale
    start = QuantileDistribution.normal(
        FEATURES[2], float(np.sqrt(parts.rho**2 * parts.sd_z0**2 + parts.sd_eta**2))
    )
    return Distributions(grid, eta, QuantileDistribution.normal(FEATURES[1], parts.sd_eps), start)


def test_the_grid_posterior_equals_the_kalman_filter_for_normal_distributions() -> None:
    """13 quantiles with exponential tails are not quite normal: tolerance a tenth of the spread."""
    parts = GaussianProcess(sd_alpha=1e-9)
    rng = np.random.default_rng(0)
    logs = 0.5 * rng.normal(size=(30, 1)) + 0.2 * rng.normal(size=(30, 12))
    logs[:, 1:][rng.random((30, 11)) < 0.3] = np.nan
    ages = np.arange(25, 37)
    grid = Grid(np.linspace(-3, 3, 129), (-2.0, 2.0), 1.0)
    baseline = QuantileProcess()
    baseline.components = normal_laws(parts, grid)
    baseline.tables = Tables(baseline.components)
    status = np.where(np.isnan(logs), -1, WORK).astype(np.int8)
    none = np.zeros(30, dtype=np.int64)
    past = Histories(np.tile(ages, (30, 1)), status, logs, none, none)
    u = (np.arange(400) + 0.5) / 400
    draws = baseline.states(past, list(careers(past)), np.tile(u, (30, 1)))
    mean, covariance = KalmanFilter(parts).posterior(
        np.exp(logs + parts.mean_log(ages)), np.full(30, 36)
    )
    spread = np.sqrt(covariance[:, 1, 1])
    assert (np.abs(draws.mean(axis=1) - mean[:, 1]) < 0.15 * spread).all()
    assert draws.std(axis=1) == pytest.approx(spread, rel=0.12)


def quantile_errors(tables: Tables) -> np.ndarray:
    """Estimated less true quantiles .05, .3, .5, .8 of next eta for three values of eta, (3, 4)."""
    levels = np.array([0.05, 0.3, 0.5, 0.8])
    errors = []
    for eta in (-0.5, 0.0, 0.5):
        truth = np.quantile(next_eta(np.full(400_000, eta), np.random.default_rng(3)), levels)
        conditional = tables.next_eta(
            np.full(4, eta), np.full(4, AGE), np.zeros(4, dtype=np.int64), levels
        )
        errors.append(conditional - truth)
    return np.array(errors)


@pytest.mark.thorough
def test_nonlinear_persistence_is_recovered(fitted: QuantileProcess) -> None:
    """dQ/d eta is near .97 in the middle and far below in the lower tail."""
    assert np.abs(quantile_errors(fitted.tables)).max() < 0.15
    assert np.abs(quantile_errors(fitted.tables)[:, 1:]).max() < 0.06
    at, levels = np.array([-0.3, 0.3]), np.array([0.05, 0.6])
    none = np.zeros(2, dtype=np.int64)
    ends = [fitted.tables.next_eta(np.full(2, eta), np.full(2, AGE), none, levels) for eta in at]
    low, middle = (ends[1] - ends[0]) / (at[1] - at[0])
    assert middle > 0.85
    assert low < 0.7


@pytest.mark.thorough
def test_a_linear_process_does_not_pass_the_same_check(fitted: QuantileProcess) -> None:
    """The same check rejects the linear normal distribution that the estimation starts from."""
    for rho in (0.7, 0.85, 0.97):
        linear = normal_laws(GaussianProcess(rho=rho, sd_eta=0.25), fitted.components.grid)
        assert np.abs(quantile_errors(Tables(linear, range(AGE, AGE + 1)))).max() > 0.2


@pytest.mark.thorough
def test_forecasts_of_a_nonlinear_process_are_calibrated_given_the_record(
    fitted: QuantileProcess,
) -> None:
    n = 800
    _, residual = process(n, 15, seed=9)
    ages = np.tile(np.arange(32, 47), (n, 1))
    none = np.zeros(n, dtype=np.int64)
    past = Histories(
        ages[:, :10], np.full((n, 10), WORK, dtype=np.int8), residual[:, :10], none, none
    )
    before = list(careers(past))
    rng = np.random.default_rng(0)
    eta = fitted.states(past, before, rng.random((n, 100)))
    career = type(before[-1])(
        **{name: np.repeat(v[:, None], 100, axis=1) for name, v in vars(before[-1]).items()}
    )
    status = np.full((n, 100), WORK, dtype=np.int8)
    for h in range(1, 6):
        draws, eta = fitted.step(
            eta, ages[:, 9:10] + h, status, career, (rng.random((n, 100)), rng.random((n, 100)))
        )
        if h in (1, 5):
            rank = ((draws < residual[:, 9 + h, None]).sum(axis=1) + rng.random(n)) / 101
            assert kstest(rank, "uniform").pvalue > 1e-3
            assert (
                kstest(np.clip(rank * 1.15, 0, 1), "uniform").pvalue < 1e-3
            )  # the test has the power to see a shift


def test_a_panel_in_which_nobody_worked_twice_is_refused() -> None:
    age = np.full((5, 3), 30) + np.arange(3)
    status = np.full((5, 3), -1, dtype=np.int8)
    none = np.zeros(5, dtype=np.int64)
    with pytest.raises(InputError, match="quantile process"):
        QuantileProcess().learn(Histories(age, status, np.full((5, 3), np.nan), none, none), seed=0)
