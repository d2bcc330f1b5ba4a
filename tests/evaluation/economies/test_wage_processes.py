"""Processes of wages have the moments that theory gives, and a broken variant does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from saga.evaluation.economies.linear_process import LinearProcess
from saga.evaluation.economies.nonlinear_process import NonlinearProcess
from saga.evaluation.economies.random_draws import ParameterDraws, draw_mixture, random_stream
from saga.evaluation.economies.textbook_economy import simulate_gkos
from saga.evaluation.economies.wage_adjustment import hold_wages
from saga.evaluation.textbook.gkos_process import GkosProcess, Mixture

from saga.arrays import Floats

N, YEARS = 20_000, 25
HEAVY = Mixture(0.1, -0.3, (0.5, 0.1))
AR1 = LinearProcess(
    sd_level=0.4,
    sd_slope=0.0,
    correlation=0.0,
    rho=0.9,
    rho_spread=0.0,
    sd_start=0.3,
    persistent=HEAVY,
    transitory=Mixture(0.5, 0.0, (0.2, 0.2)),
    ma=0.5,
    volatility=0.0,
    by_age=0.0,
)


def stream(*key: int | str) -> np.random.Generator:
    return random_stream("test", *key)


def covariance(process: LinearProcess, t: int, s: int) -> float:
    """Theory: the covariance of log wages in years t <= s, counted from 0."""
    early, late = process.sd_start**2, process.persistent.variance
    rho = process.rho
    persistent = rho ** (2 * (t + 1)) * early + late * sum(rho ** (2 * k) for k in range(t + 1))
    noise = process.transitory.variance * {0: 1 + process.ma**2, 1: process.ma}.get(s - t, 0.0)
    level, slope = process.sd_level, process.sd_slope
    profile = level**2 + slope**2 * t * s / 100 + process.correlation * level * slope * (t + s) / 10
    return float(profile + rho ** (s - t) * persistent + noise)


def assert_covariances(process: LinearProcess, logs: Floats) -> None:
    for t, s in [(0, 0), (0, 1), (0, 2), (5, 5), (5, 15), (10, 11), (24, 24), (0, 24)]:
        products = (logs[:, t] - logs[:, t].mean()) * (logs[:, s] - logs[:, s].mean())
        error = products.std() / np.sqrt(len(logs))
        assert abs(products.mean() - covariance(process, t, s)) < 4 * error, (t, s)


@pytest.mark.parametrize(
    "process",
    [
        pytest.param(AR1, id="ARMA with fixed effect"),
        pytest.param(replace(AR1, rho=1.0, ma=0.0), id="random walk"),
        pytest.param(replace(AR1, sd_slope=0.2, correlation=-0.4), id="heterogeneous growth"),
        pytest.param(replace(AR1, volatility=0.5), id="unequal volatility, same mean variance"),
    ],
)
def test_covariances_of_linear_processes_are_those_of_theory(process: LinearProcess) -> None:
    assert_covariances(process, process.simulate(N, YEARS, stream("linear")))


def test_shocks_have_the_standard_deviation_that_was_asked_for() -> None:
    draws = ParameterDraws(stream("shocks"))
    kurtoses = []
    for k in range(20):
        shocks = draws.shocks(0.3)
        assert shocks.variance == pytest.approx(0.09)
        x = draw_mixture(shocks, (100_000,), stream("x", k))
        error = np.std(x**2) / np.sqrt(len(x))
        assert abs(x.mean()) < 4 * 0.3 / np.sqrt(len(x))
        assert abs((x**2).mean() - x.mean() ** 2 - 0.09) < 4 * error
        kurtoses.append((x**4).mean() / 0.09**2)
    assert min(kurtoses) < 3.1  # normal
    assert max(kurtoses) > 10  # heavy tails


NONLINEAR = NonlinearProcess(
    sd_level=0.3,
    rho=0.95,
    sd=0.15,
    slope=0.0,
    curvature=0.4,
    skewness=0.5,
    tail=0.7,
    transitory=Mixture(0.5, 0.0, (0.1, 0.1)),
)


def persistence(process: NonlinearProcess, z: float, normal: float) -> float:
    """The derivative of the next z with respect to z, at a shock."""
    step = 1e-5
    pair = process.step(np.array([z - step, z + step]), np.array([normal, normal]))
    return float(pair[1] - pair[0]) / (2 * step)


def test_persistence_depends_on_the_level_and_on_the_shock() -> None:
    """Large good shocks to low earners, and bad ones to high earners, erase their history."""
    low, high = -2 * NONLINEAR.sd, 2 * NONLINEAR.sd
    usual = persistence(NONLINEAR, 0.0, 0.0)
    assert persistence(NONLINEAR, low, 2.0) < usual - 0.2
    assert persistence(NONLINEAR, high, -2.0) < usual - 0.2
    assert persistence(NONLINEAR, high, 2.0) > persistence(NONLINEAR, high, -2.0) + 0.2


def test_a_nonlinear_process_without_its_nonlinear_parts_is_an_ar1() -> None:
    linear = replace(NONLINEAR, slope=0.0, curvature=0.0, skewness=0.0, tail=1.0)
    for z, shock in [(-0.5, 2.0), (0.3, -1.0)]:
        assert persistence(linear, z, shock) == pytest.approx(linear.rho, abs=1e-6)
    following = linear.step(np.full(N, 0.4), stream("ar1").standard_normal(N))
    assert following.mean() == pytest.approx(0.95 * 0.4, abs=4 * 0.15 / np.sqrt(N))
    assert following.std() == pytest.approx(0.15, rel=4 / np.sqrt(2 * N))


def test_the_next_value_of_a_nonlinear_process_increases_with_the_shock() -> None:
    draws = ParameterDraws(stream("monotone"))
    shocks = np.linspace(-4, 4, 81)
    for _ in range(50):
        process = NonlinearProcess.draw(draws)
        for z in np.linspace(-1.5, 1.5, 7):
            assert (np.diff(process.step(np.full(81, z), shocks)) >= 0).all()


def test_gkos_wages_and_shares_of_the_year_multiply_to_its_earnings() -> None:
    process = replace(GkosProcess(), profile=(0.0, 0.0, 0.0), unit=1.0)
    ages = np.arange(25, 61)
    logs, share = simulate_gkos(process, N, ages, stream("gkos"))
    assert share.min() == 0.0
    assert share.max() == 1.0
    # About 27 % of the years of US men are without earnings in this process.
    assert (share == 0).mean() == pytest.approx(0.27, abs=0.02)
    t = float(process.time(25))
    effects = process.sd_alpha**2 + (process.sd_beta * t) ** 2
    effects += 2 * process.correlation * process.sd_alpha * process.sd_beta * t
    shocks = process.rho**2 * process.sd_z0**2 + process.eta.variance + process.eps.variance
    assert logs[:, 0].var() == pytest.approx(effects + shocks, rel=0.05)


def test_held_wages_change_at_the_given_rate() -> None:
    logs = AR1.simulate(N, YEARS, stream("hold"))
    held = hold_wages(logs, 0.4, stream("adjust"))
    share = (np.diff(held, axis=1) != 0).mean()
    assert share == pytest.approx(0.4, abs=4 * np.sqrt(0.24 / (N * (YEARS - 1))))
    assert (held[:, 0] == logs[:, 0]).all()
    assert np.isin(held[:100, 5], logs[:100, :6]).all()
