"""The economy: the Swedish history for every seed, drawn futures, and flows that balance."""

from __future__ import annotations

import numpy as np
import pytest

from saga.data.facts import shipped_facts
from saga.macro.history import sweden, sweden_as_published, uncounted_jobless
from saga.register.simulation.economy import build_economy, labour_flows
from saga.register.simulation.parameters import Parameters
from saga.register.simulation.realised_trends import GroupChanges

P = Parameters().economy


def test_history_is_the_published_one_for_every_seed() -> None:
    prices = shipped_facts().price_index
    for seed in (0, 1):
        economy = build_economy(1942, 2022, P, seed=seed)
        published = sweden_as_published()
        for t, (unemployment, growth, inflation) in enumerate(published.values):
            year = economy[published.first_year + t]
            assert (year.unemployment, year.growth, year.inflation) == (
                unemployment,
                growth,
                inflation,
            )
            assert year.prices == prices[year.year] / prices[2022]


def test_job_loss_follows_the_comparable_rate_not_the_published_one() -> None:
    economy = build_economy(1990, 2022, P)
    jobless = sweden().values[:, 0]
    rises = [economy[year].rise for year in range(1991, 2023)]
    np.testing.assert_allclose(rises, np.diff(jobless), atol=1e-12)
    assert (
        uncounted_jobless(2008) == uncounted_jobless(2022) < 0
    )  # one definition since then, that of the futures


def test_wage_level_is_prices_times_cumulated_real_growth() -> None:
    economy = build_economy(1942, 2040, P, seed=3, draw=1)
    for year in range(1991, 2041):
        after, before = economy[year], economy[year - 1]
        assert after.wages / after.prices / (before.wages / before.prices) == pytest.approx(
            1.0 + after.growth
        )
    assert economy[2022].wages == 1.0


def test_first_years_of_a_future_do_not_depend_on_its_length_and_draws_differ() -> None:
    short, long = (build_economy(2000, last, P, seed=3, draw=1) for last in (2030, 2060))
    assert all(short[year] == long[year] for year in range(2000, 2031))
    other = build_economy(2000, 2030, P, seed=3, draw=2)
    assert all(other[year].unemployment != short[year].unemployment for year in range(2023, 2031))
    assert all(other[year] == short[year] for year in range(2000, 2023))


def test_futures_stay_in_the_range_of_an_advanced_economy() -> None:
    draws = [build_economy(2022, 2062, P, seed=7, draw=k).to_frame(2023, 2062) for k in range(60)]
    unemployment, growth, inflation = (
        np.array([d[name].to_numpy() for d in draws])
        for name in ("unemployment", "real_wage_growth", "inflation")
    )
    assert unemployment.min() >= 0.025
    assert unemployment.max() < 0.25
    # The mean of 60 draws has a standard error of about a tenth of a point.
    assert 0.065 < unemployment.mean() < 0.095
    assert 0.007 < growth.mean() < 0.018
    assert 0.014 < inflation.mean() < 0.026
    assert np.corrcoef(np.diff(unemployment, axis=1).ravel(), growth[:, 1:].ravel())[0, 1] < -0.1


def test_flows_carry_unemployment_from_one_year_to_the_next() -> None:
    for before, after in ((0.056, 0.091), (0.07, 0.07), (0.02, 0.031)):
        loss, finding = labour_flows(before, after, P)
        assert before * (1 - finding) + (1 - before) * loss / P.loss_scale == pytest.approx(after)


def test_a_drawn_history_is_one_for_all_seeds_and_another_than_swedens() -> None:
    drawn = [build_economy(1942, 2022, P, seed=seed, history=3) for seed in (0, 1)]
    assert drawn[0] == drawn[1]
    sweden_lived, other = build_economy(1942, 2022, P), build_economy(1942, 2022, P, history=4)
    for year in range(1990, 2023):
        rates = {each[year].unemployment for each in (drawn[0], sweden_lived, other)}
        assert len(rates) == 3
        assert drawn[0][year].prices == sweden_lived[year].prices
    assert drawn[0][1989].groups == sweden_lived[2022].groups == GroupChanges()
    assert drawn[0][2022].groups.women != other[2022].groups.women


def test_wages_of_drawn_histories_respond_to_the_prices_that_are_recorded() -> None:
    slopes = []
    for number in range(40):
        frame = build_economy(1989, 2022, P, history=number).to_frame(1989, 2022)
        rise, inflation = np.diff(frame["unemployment"]), frame["inflation"][1:].to_numpy()
        causes = np.column_stack([np.ones(33), rise, inflation])
        growth = frame["real_wage_growth"][1:].to_numpy()
        slopes.append(np.linalg.lstsq(causes, growth, rcond=None)[0][1:])
    error = np.std(slopes, axis=0, ddof=1) / np.sqrt(40)
    expected = P.growth_on_unemployment, P.growth_on_inflation
    assert (np.abs(np.mean(slopes, axis=0) - expected) < 3 * error).all()
    assert error.max() < 0.07  # so that no response at all is seen


def test_a_future_continues_the_trends_of_its_history() -> None:
    economy = build_economy(1990, 2030, P, seed=1, draw=0, history=3)
    steps = [economy[y].groups.women - economy[y - 1].groups.women for y in range(1991, 2031)]
    assert max(map(abs, steps)) < 0.05
    assert economy[2022] == build_economy(1990, 2022, P, history=3)[2022]
