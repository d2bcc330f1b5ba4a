"""Scores of samples agree with an independent library and closed forms.

The randomised PIT is uniform, also with an atom at zero.
"""

from __future__ import annotations

import numpy as np
import pytest
import scoringrules as sr
from numpy.typing import NDArray
from saga.evaluation.scoring import ensemble_scores as scores
from scipy import stats

from saga.arrays import Floats
from saga.data.panel import FLOOR
from saga.requests import QUANTILES
from saga.scores import interval_score

Forecasts = tuple[NDArray[np.float32], Floats]  # samples (40, 3, 60), outcomes (40, 3)


@pytest.fixture
def forecasts() -> Forecasts:
    rng = np.random.default_rng(5)
    samples = np.where(
        rng.random((40, 3, 60)) < 0.2, 0, np.exp(rng.normal(12, 0.7, (40, 3, 60)))
    ).astype(np.float32)
    return samples, np.where(rng.random((40, 3)) < 0.2, 0, np.exp(rng.normal(12, 0.7, (40, 3))))


@pytest.mark.parametrize("estimator", ["fair", "pwm"])
def test_crps_equals_scoringrules(forecasts: Forecasts, estimator: str) -> None:
    samples, y = forecasts
    x = samples.astype(np.float64)
    np.testing.assert_allclose(
        scores.crps(samples, y), sr.crps_ensemble(y, x, estimator=estimator), rtol=1e-9
    )
    logs = np.log(np.maximum(x, FLOOR))
    np.testing.assert_allclose(
        scores.crps_log(samples, y),
        sr.crps_ensemble(np.log(np.maximum(y, FLOOR)), logs, estimator=estimator),
        rtol=1e-9,
    )


@pytest.mark.parametrize("y", [11.0, 12.3, 14.0])
def test_crps_of_many_samples_is_the_closed_form_in_logs_and_in_money(y: float) -> None:
    rng = np.random.default_rng(3)
    logs = rng.normal(12, 0.5, (200, 1, 500))
    outcome = np.full((200, 1), y)
    for score, exact in (
        (scores.crps(logs, outcome), sr.crps_normal(y, 12, 0.5)),
        (scores.crps_log(np.exp(logs), np.exp(outcome), None), sr.crps_normal(y, 12, 0.5)),
        (scores.crps(np.exp(logs), np.exp(outcome)), sr.crps_lognormal(np.exp(y), 12, 0.5)),
    ):
        assert abs(score.mean() - exact) < 5 * score.std() / np.sqrt(200)


def test_pinball_and_interval_scores_equal_scoringrules(forecasts: Forecasts) -> None:
    samples, y = forecasts
    logs, ly = np.log(np.maximum(samples.astype(np.float64), FLOOR)), np.log(np.maximum(y, FLOOR))
    oracle = np.mean(
        [sr.quantile_score(ly, np.quantile(logs, q, axis=-1), q) for q in QUANTILES], axis=0
    )
    np.testing.assert_allclose(scores.pinball_log(samples, y), oracle, rtol=1e-9)
    lower, upper = np.quantile(logs, [0.05, 0.95], axis=-1)
    np.testing.assert_allclose(
        interval_score(ly, lower, upper, 0.9),
        sr.interval_score(ly, lower, upper, 0.1),
        rtol=1e-9,
    )


def test_log_score_approaches_the_entropy_of_the_true_forecast() -> None:
    rng = np.random.default_rng(1)
    n, m, p, sd = 3000, 400, 0.2, 0.6

    def draw(shape: tuple[int, ...]) -> Floats:
        return np.where(rng.random(shape) < p, 0, np.exp(rng.normal(12, sd, shape)))

    score = scores.logscore(draw((n, 1, m)), draw((n, 1)))
    entropy = (
        -p * np.log(p)
        - (1 - p) * np.log(1 - p)
        + (1 - p) * (0.5 * np.log(2 * np.pi * np.e) + np.log(sd))
    )
    # The kernel estimate costs about m^(-4/5) of a nat; the sampling error is 5 standard errors.
    assert (
        -5 * score.std() / n**0.5 < score.mean() - entropy < 5 * score.std() / n**0.5 + 3 * m**-0.8
    )


def test_the_log_score_is_finite_far_from_all_samples() -> None:
    score = scores.logscore(
        np.array([[[0.0] * 20], [[1e5] * 20], [[2e5] * 20]]), np.array([[1e6], [0.0], [1e9]])
    )
    assert np.isfinite(score).all()
    assert (score > 3).all()


def test_the_density_of_the_log_score_is_the_stated_kernel_estimate() -> None:
    rng = np.random.default_rng(8)
    logs, y = rng.normal(12, 0.5, 50), np.exp(12.3)
    samples = np.concatenate([np.zeros(10), np.exp(logs)])[None, None]
    iqr = np.subtract(*np.quantile(logs, [0.75, 0.25]))
    bandwidth = 0.9 * min(logs.std(), iqr / 1.34) * 50**-0.2
    kernel = stats.norm.pdf(12.3, logs, bandwidth).mean()
    density = (50 * kernel + stats.cauchy.pdf(12.3, np.median(logs), iqr / 2)) / 51
    expected = -np.log(1 - 10.5 / 61) - np.log(density)
    np.testing.assert_allclose(scores.logscore(samples, np.array([[y]])), [[expected]])
    np.testing.assert_allclose(scores.logscore(samples, np.zeros((1, 1))), [[-np.log(10.5 / 61)]])


def test_missing_outcomes_and_missing_samples_give_missing_scores(forecasts: Forecasts) -> None:
    samples, y = forecasts[0].copy(), forecasts[1].copy()
    y[0, 0], samples[1, 1] = np.nan, np.nan
    for name, score in scores.sample_scores(samples, y).items():
        assert np.isnan(score[0, 0]), name
        assert np.isnan(score[1, 1]), name
        assert np.isfinite(np.delete(score.ravel(), [0, 4])).all(), name


def draws_with_an_atom() -> tuple[Floats, Floats, Floats]:
    """Samples (n, 1, m), outcomes and uniforms (n, 1), where zero has a positive probability."""
    rng, n, m = np.random.default_rng(7), 20_000, 19
    p = rng.uniform(0.05, 0.45, (n, 1))
    samples_and_outcome = np.where(
        rng.random((n, m + 1)) < p, 0, rng.lognormal(12, 0.5, (n, m + 1))
    )
    return samples_and_outcome[:, None, :m], samples_and_outcome[:, m:], rng.random((n, 1))


def uniform_pvalue(u: Floats) -> float:
    return float(stats.chisquare(np.histogram(u, np.linspace(0, 1, 21))[0]).pvalue)


def test_the_randomised_pit_is_exactly_uniform_with_an_atom() -> None:
    samples, y, v = draws_with_an_atom()
    assert uniform_pvalue(scores.pit(samples, y, v)) > 1e-6
