"""The shipped prior: a verified bundle of simulated people that infers a process from a record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from saga.evaluation.economies.linear_process import LinearProcess
from saga.evaluation.economies.random_draws import random_stream
from saga.evaluation.textbook.gkos_process import Mixture
from saga.training.fit import train
from saga.training.harness import RunOptions
from saga.training.train_config import load_config
from scipy.special import ndtr
from scipy.stats import norm

from saga.arrays import Floats
from saga.bundle import Bundle
from saga.data.origins import Origins, history
from saga.data.panel import Panel, PanelMeta
from saga.distributions import Marginals
from saga.features.transforms import Transforms
from saga.forecaster import Forecaster
from saga.scores import marginal_scores

Normal = tuple[Floats, float]
PRIOR = Path(__file__).resolve().parents[1] / "bundles/prior"
ORIGIN, TARGET = 24, 29  # positions of years: 25 known years, and the fifth year after them
N = 400
NONE = Mixture(0.5, 0.0, (0.0, 0.0))
CALM = LinearProcess(
    sd_level=0.5,
    sd_slope=0.0,
    correlation=0.0,
    rho=0.0,
    rho_spread=0.0,
    sd_start=0.0,
    persistent=NONE,
    transitory=Mixture(0.5, 0.0, (0.3, 0.3)),
    ma=0.0,
    volatility=0.0,
    by_age=0.0,
)
DRIFTING = replace(
    CALM, sd_level=0.1, rho=1.0, persistent=Mixture(0.5, 0.0, (0.2, 0.2)), transitory=NONE
)
PROCESSES = {"white noise around a level": (CALM, 20.0), "random walk": (DRIFTING, 3e5)}


@pytest.fixture(scope="module")
def shipped() -> Bundle:
    return Bundle.load(PRIOR)


def test_the_prior_says_that_its_people_are_simulated(shipped: Bundle) -> None:
    assert shipped.simulated
    assert "Simulated people, not real" in shipped.card
    assert sum(file.stat().st_size for file in PRIOR.iterdir()) < 5_000_000
    assert Transforms.from_dict(shipped.transforms).has_zeros
    assert shipped.macro == {"series": None}
    assert shipped.config["training"]["scale_free"]
    assert shipped.config["model"] == load_config("prior").model.as_dict()


def economy(process: LinearProcess, scale: float) -> tuple[Panel, Floats]:
    """Wages of 400 persons from age 25 on, and their logs (n, n_year)."""
    n_years = TARGET + 1
    logs = np.log(scale) + process.simulate(N, n_years, random_stream("zero-shot", int(scale)))
    frame = pl.DataFrame(
        {
            "person_id": np.repeat([f"{k:04d}" for k in range(N)], n_years),
            "year": pl.Series(np.tile(np.arange(n_years) + 1990, N), dtype=pl.Int32),
            "birth_year": pl.Series(np.full(logs.size, 1965), dtype=pl.Int32),
            "earnings": np.exp(logs.ravel()),
        }
    )
    meta = PanelMeta("zero-shot", currency="units", floor=None, macro=None)
    return Panel.of(frame, meta), logs


def exact_forecast(process: LinearProcess, logs: Floats, scale: float) -> Normal:
    """Mean (n,) and standard deviation of the target year given the record, by regression."""
    years = np.arange(TARGET + 1)
    persistent = process.persistent.variance * (np.minimum.outer(years, years) + 1) * process.rho
    noise = np.diag(np.full(len(years), process.transitory.variance))
    covariance = process.sd_level**2 + persistent + noise
    known, past = covariance[: ORIGIN + 1, : ORIGIN + 1], covariance[TARGET, : ORIGIN + 1]
    weights = np.linalg.solve(known, past)
    mean = np.log(scale) + (logs[:, : ORIGIN + 1] - np.log(scale)) @ weights
    return mean, float(np.sqrt(covariance[TARGET, TARGET] - weights @ past))


def normal_crps(forecast: Normal, outcome: Floats) -> Floats:
    """The CRPS of normal forecasts in closed form (Gneiting and Raftery 2007)."""
    mean, sd = forecast
    x = (outcome - mean) / sd
    return np.asarray(sd * (x * (2 * ndtr(x) - 1) + 2 * norm.pdf(x) - 1 / np.sqrt(np.pi)))


@pytest.mark.parametrize("name", list(PROCESSES))
def test_without_training_the_prior_infers_the_process_of_a_panel(
    name: str, tmp_path: Path
) -> None:
    """Near the exact forecaster of either process, far below that of the other one."""
    process, scale = PROCESSES[name]
    panel, logs = economy(process, scale)
    run = RunOptions(source=PRIOR)
    bundle = train(panel, tmp_path / "zero-shot", config="zero-shot", run=run)
    origins = Origins(np.array(panel.persons()), np.full(N, 1990 + ORIGIN))
    marginals = list(Forecaster(bundle).marginals(history(panel, origins)))
    outcome = logs[:, TARGET]
    scores = marginal_scores(
        Marginals.joined(marginals).at_horizons([TARGET - ORIGIN]), np.exp(outcome)[:, None], None
    )["crps_log"][:, 0]
    exact = normal_crps(exact_forecast(process, logs, scale), outcome)
    others = [other for other, _ in PROCESSES.values() if other is not process]
    wrong = normal_crps(exact_forecast(others[0], logs, scale), outcome)
    assert scores.mean() < 1.1 * exact.mean()
    assert wrong.mean() > 1.3 * exact.mean()
