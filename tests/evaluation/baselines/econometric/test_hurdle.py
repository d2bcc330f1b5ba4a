"""The zero hurdle: known probabilities, unknown years, deaths, and panels it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from saga.evaluation.baselines import AutoRegression
from saga.evaluation.baselines.econometric.histories import (
    LOW,
    UNKNOWN,
    WORK,
    ZERO,
    Histories,
)
from saga.evaluation.baselines.econometric.hurdle import Career, Hurdle, careers
from scipy.special import expit

from saga.data.origins import draw_origins, history
from saga.data.panel import Panel, PanelMeta
from saga.errors import InputError

Make = Callable[..., Panel]
N, YEARS = 3000, 24


def chance_of_work(working: np.ndarray, woman: np.ndarray, age: np.ndarray) -> np.ndarray:
    """The truth of the simulated careers."""
    return np.asarray(np.where(working, expit(2.5 - 0.8 * woman), expit(-0.5 - 0.06 * (age - 40))))


def simulated_histories(seed: int = 0) -> Histories:
    """Markov careers at 25 to 48 by sex, age and state; a quarter of idle years are LOW."""
    rng = np.random.default_rng(seed)
    sex, age = rng.integers(1, 3, N), np.tile(np.arange(25, 25 + YEARS), (N, 1))
    working = np.empty((N, YEARS), dtype=bool)
    working[:, 0] = rng.random(N) < 0.8
    for t in range(1, YEARS):
        working[:, t] = rng.random(N) < chance_of_work(working[:, t - 1], sex == 1, age[:, t])
    status = np.where(working, WORK, np.where(rng.random((N, YEARS)) < 0.25, LOW, ZERO)).astype(
        np.int8
    )
    residual = np.where(working, rng.normal(0, 0.5, (N, YEARS)), np.nan)
    return Histories(age, status, residual, sex, np.zeros(N, dtype=np.int64))


@pytest.fixture(scope="module")
def fitted() -> tuple[Histories, Hurdle]:
    past = simulated_histories()
    return past, Hurdle.fit(past, np.linspace(1_000, 24_000, 500), None, seed=0)


def calibration(past: Histories, hurdle: Hurdle, column: int) -> float:
    """Largest gap, in standard errors, of shares at work over sex and last year's state."""
    career = list(careers(past))[column]
    age = past.age[:, column]
    chance = hurdle.chance_of_work(
        age[:, None], past.sex[:, None], past.education[:, None], taken(career)
    )[:, 0]
    before = past.status[:, column - 1] == WORK
    gaps = []
    for working in (True, False):
        for woman in (True, False):
            cell = (before == working) & ((past.sex == 1) == woman)
            truth = chance_of_work(before[cell], (past.sex == 1)[cell], age[cell])
            # The model is fitted on about N * YEARS / 4 changes of each kind; one year is tested.
            gaps.append(
                float(
                    abs((chance[cell] - truth).mean())
                    / np.sqrt(truth.mean() * (1 - truth.mean()) / cell.sum())
                )
            )
    return max(gaps)


def taken(career: Career) -> Career:
    return Career(**{name: values[:, None] for name, values in vars(career).items()})


def test_known_chances_of_finding_and_losing_work_are_recovered(
    fitted: tuple[Histories, Hurdle],
) -> None:
    _, hurdle = fitted
    fresh = simulated_histories(seed=1)
    assert max(calibration(fresh, hurdle, column) for column in (5, 12, 23)) < 2


def test_draws_have_the_chances_and_small_amounts_their_distribution(
    fitted: tuple[Histories, Hurdle],
) -> None:
    past, hurdle = fitted
    career = Career(
        **{
            name: np.repeat(v[:1, None], 40_000, axis=1)
            for name, v in vars(list(careers(past))[12]).items()
        }
    )
    age, sex, level = past.age[:1, 12:13], past.sex[:1, None], past.education[:1, None]
    u = np.random.default_rng(0).random((2, 1, 40_000))
    status, small = hurdle.draw(age, sex, level, career, (u[0], u[1]))
    chance = hurdle.chance_of_work(age, sex, level, career)[0, 0]
    assert (status == WORK).mean() == pytest.approx(
        chance, abs=4 * np.sqrt(chance * (1 - chance) / 40_000)
    )
    idle = status != WORK
    assert (status == LOW)[idle].mean() == pytest.approx(0.25, abs=0.05)
    amounts = small[status == LOW]
    assert np.quantile(amounts, [0.1, 0.5, 0.9]) == pytest.approx(
        np.quantile(np.linspace(1_000, 24_000, 500), [0.1, 0.5, 0.9]), rel=0.15
    )


def test_an_unknown_year_changes_nothing_and_a_zero_does() -> None:
    """Null, no row and zero are three things; the first two are no news."""
    start = Career.none((1,)).after(np.array([WORK]), np.array([0.3]))
    unknown = start.after(np.array([UNKNOWN]), np.array([np.nan]))
    assert all(
        np.array_equal(getattr(unknown, name), values) for name, values in vars(start).items()
    )
    zero = start.after(np.array([ZERO]), np.array([np.nan]))
    assert zero.years_out == 1
    assert zero.tenure == 0
    assert zero.zero == 1
    assert zero.last_residual == pytest.approx(0.3)


def test_the_hazard_of_death_is_recovered_from_exits() -> None:
    past = simulated_histories()
    rng = np.random.default_rng(2)
    hazard = np.broadcast_to(
        0.004 * np.exp(0.06 * (past.age - 25)) * np.where(past.sex == 1, 0.6, 1.0)[:, None],
        past.age.shape,
    )
    deaths = rng.random(past.age.shape) < hazard
    hurdle = Hurdle.fit(past, np.empty(0), deaths, seed=0)
    career = taken(list(careers(past))[12])
    for sex in (1, 2):
        chance = hurdle.chance_of_death(np.full((N, 1), 37), np.full((N, 1), sex), career).mean()
        # The hazard at 36: a death is that of the year after.
        truth = 0.004 * np.exp(0.06 * 11) * (0.6 if sex == 1 else 1.0)
        assert chance == pytest.approx(truth, rel=4 / np.sqrt(deaths.sum() / 2) + 0.05)


def test_earnings_after_death_are_zero_and_deaths_are_counted(panel_from: Make) -> None:
    """Without zeros before death: zeros in paths are deaths, absorbing, as frequent as observed."""
    rng = np.random.default_rng(0)
    n = 1500
    earnings = np.exp(12.5 + rng.normal(0, 0.3, (n, 1)) + rng.normal(0, 0.1, (n, 28)))
    earnings[: n // 10, 5:9] = 0.0  # some idle years, or there would be no hurdle at all
    dies = rng.geometric(0.02, n)
    earnings[np.arange(28) >= dies[:, None]] = np.nan
    exit_year = np.where(dies < 28, 1995 + dies, 9999)
    meta = PanelMeta("mortal", present=("exit_year", "exit_reason"))
    panel = panel_from(
        earnings,
        np.full(n, 1965),
        meta,
        exit_year=exit_year,
        exit_reason=np.where(dies < 28, "dead", "none"),
    )
    frame = panel.frame.with_columns(
        pl.when(pl.col("exit_year") < 9999).then(pl.col(name)).alias(name)
        for name in ("exit_year", "exit_reason")
    )
    panel = Panel.of(frame, replace(panel.meta, present=()))
    baseline = AutoRegression().fit(panel, seed=0)
    origins = draw_origins(panel, max_horizon=5, seed=0).take(slice(0, 300))
    zero = (
        baseline.simulate(
            history(panel, origins), origins, to_horizon=10, n_paths=100, seed=0
        ).earnings
        == 0
    )
    assert zero[:, 9].mean() == pytest.approx(1 - 0.98**10, abs=0.05)
    idle = 4 / 10 / 28  # share of years in which the living of the panel have no earnings
    assert (
        zero[:, 4] & ~zero[:, 9]
    ).mean() < 1.5 * idle  # only such zeros end: deaths, ten times as many, last


def test_without_any_idle_year_everybody_works_until_death() -> None:
    past = simulated_histories()
    always = replace(past, status=np.full(past.status.shape, WORK, dtype=np.int8))
    deaths = np.random.default_rng(0).random(past.status.shape) < 0.01
    hurdle = Hurdle.fit(always, np.empty(0), deaths, seed=0)
    career = Career.none((2, 3))
    age, sex = np.full((2, 1), 40), np.ones((2, 1))
    status, _ = hurdle.draw(
        age, sex, np.ones((2, 1)), career, (np.full((2, 3), 0.999), np.zeros((2, 3)))
    )
    assert (status == WORK).all()
    assert hurdle.chance_of_work(age, sex, np.ones((2, 1)), career) == pytest.approx(1)
    assert hurdle.chance_of_death(age, sex, career) == pytest.approx(0.01, rel=0.2)


def test_a_panel_with_zeros_needs_consecutive_years() -> None:
    past = simulated_histories()
    biennial = past.status.copy()
    biennial[:, 1::2] = UNKNOWN
    with pytest.raises(InputError, match="consecutive years"):
        Hurdle.fit(replace(past, status=biennial), np.empty(0), None, seed=0)
