"""Macro futures are keyed and stationary; scenarios are followed exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from saga import Forecaster
from saga.errors import InputError, UsageError
from saga.features.calendar import Calendar, macro_features, path_features
from saga.macro.history import MacroHistory, sweden, sweden_as_published
from saga.macro.process import MacroProcess
from saga.macro.scenarios import Scenario, named_scenario, scenario_from
from saga.request_warnings import implausible_values
from tests.problems import problem_of, problems_of

PROCESS = MacroProcess.fit(sweden())


def test_macro_inputs_are_unemployment_its_change_and_wage_growth() -> None:
    values = np.array([[0.07, 0.015, 0.02], [0.09, -0.025, 0.30], [0.06, 0.5, -0.1]])
    features = macro_features(values, before=0.08)
    np.testing.assert_allclose(
        features, np.array([[0, -1, 0, 1], [1, 2, -2, 1], [-0.5, -3, 5, 1]]), atol=1e-12
    )
    # Years of a history and of a future have the same features, with any first year.
    history, calendar = sweden().values, Calendar(sweden())
    years = np.arange(2000, 2023)
    of_years = macro_features(history[10:], history[9, 0])
    np.testing.assert_array_equal(of_years, calendar.covariates(years))
    np.testing.assert_allclose(
        path_features(of_years), calendar.covariates_since(np.array([1999]), years), atol=1e-12
    )
    assert not calendar.covariates(np.array([1989, 2023])).any()  # years that are not known
    assert PROCESS.unemployment(2022) == pytest.approx(history[-1, 0], rel=1e-12)
    assert PROCESS.unemployment(2100) == pytest.approx(np.exp(PROCESS.mean[0]), rel=1e-6)
    path = PROCESS.draw(3, 1, 2022, 2030)[0]
    np.testing.assert_array_equal(
        macro_features(path, 0.07)[2:], macro_features(path[2:], float(path[1, 0]))
    )


def test_futures_can_follow_realised_series_up_to_a_year() -> None:
    macro = PROCESS.draw(1, 9, 2007, 2015, PROCESS.observed(2012))
    np.testing.assert_allclose(
        macro[:, :5], np.broadcast_to(sweden().values[18:23], (9, 5, 3)), atol=1e-12
    )
    assert macro[:, 5].std(axis=0).min() > 0
    assert scenario_from(PROCESS.observed(2012), PROCESS.history) == PROCESS.observed(2012)


def test_unemployment_is_comparable_and_moves_like_the_published_series() -> None:
    comparable, published = sweden(), sweden_as_published()
    added = comparable.values - published.values
    years = comparable.first_year + np.arange(len(added))
    assert (added[:, 1:] == 0).all()
    assert (added[years >= 2008, 0] == 0).all()
    assert (added[years < 2008, 0] > 0).all()
    process = MacroProcess.fit(comparable, dynamics=published)
    alone = MacroProcess.fit(published)
    np.testing.assert_array_equal(process.transition, alone.transition)
    assert process.unemployment(1994) == pytest.approx(comparable.values[4, 0], rel=1e-12)
    np.testing.assert_array_equal(process.draw(1, 5, 2010, 2020), alone.draw(1, 5, 2010, 2020))


def test_the_fit_recovers_a_known_process() -> None:
    rng = np.random.default_rng(0)
    a, mean = (
        np.array([[0.8, -0.5, 0.0], [0.02, 0.3, 0.0], [0.0, 0.1, 0.6]]),
        np.array([np.log(0.07), 0.015, 0.02]),
    )
    scale = np.array([0.08, 0.01, 0.008])
    x = np.zeros((4_000, 3))
    for t in range(1, len(x)):
        x[t] = a @ x[t - 1] + scale * rng.standard_normal(3)
    state = x + mean
    values = np.column_stack([np.exp(state[:, 0]), state[:, 1:]])
    fitted = MacroProcess.fit(MacroHistory(1900, values), ridge=0.0, max_radius=1.0)
    standard_error = scale[:, None] / x.std(0)[None, :] / np.sqrt(len(x)) / np.sqrt(1 - 0.9**2)
    assert (np.abs(fitted.transition - a) < 5 * standard_error).all()
    apart = state - fitted.mean
    residual = apart[1:] - apart[:-1] @ fitted.transition.T
    covariance = residual.T @ residual / (len(residual) - 4)  # each series has four coefficients
    np.testing.assert_allclose(fitted.innovation @ fitted.innovation.T, covariance, rtol=1e-6)


def test_long_futures_stay_in_the_range_of_history() -> None:
    far = PROCESS.draw(3, 4_000, 2022, 2072)[:, -1]
    history = sweden().values
    assert abs(np.median(far[:, 0]) - np.median(history[:, 0])) < 0.02
    assert np.abs(np.linalg.eigvals(PROCESS.transition)).max() < 1
    assert far[:, 0].min() > 0


ROW = {"year": 2023, "unemployment": 0.07, "real_wage_growth": 0.01, "inflation": 0.02}


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"year": 2023}],
        [{**ROW, "year": 2023.9}],
        *([{**ROW, "unemployment": value}] for value in (0.4, 0, 7, "x")),
        [ROW, ROW],
        [{"year": 2023, "unemployment": 0.07, "female/male": 0.9}],
        [{"year": 2023, "female/male": 0}],
        [{"year": 2023, "female/male": "x"}],
        [{"year": 20400, "female/male": 1}],
        [{"female/male": 1}],
    ],
)
def test_a_bad_scenario_is_refused_with_a_reason(rows: list[dict[str, float]]) -> None:
    assert problems_of(scenario_from, rows, PROCESS.history)


VALUES, EXAMPLE = (0.08, 0.01, 0.02), r"2030: \(0.08, 0.01, 0.02\)"


@pytest.mark.parametrize(
    ("rows", "ratios", "error", "told"),
    [
        *(
            ({2023: values}, {}, InputError, "fraction|number|lacks")
            for values in (
                (8, 1, 2),
                (np.nan, 0.01, 0.02),
                (-0.5, 0.01, 0.02),
                (None, 0.01, 0.02),
                "abc",
            )
        ),
        ({2023.5: VALUES}, {}, InputError, "whole number"),
        ({}, {2030: {"female/male": np.nan}}, InputError, "no valid ratio"),
        ({2023: (0.08, 0.01)}, {}, UsageError, EXAMPLE),
        ({2023: 0.08}, {}, UsageError, EXAMPLE),
        ([2023], {}, UsageError, EXAMPLE),
        ({}, {2023: {"female": 0.9}}, UsageError, EXAMPLE),
        ({}, {"female/male": {2023: 0.9}}, UsageError, EXAMPLE),
    ],
)
def test_a_scenario_has_the_shape_and_the_values_that_rows_may_have(
    rows: Any, ratios: Any, error: type[InputError | UsageError], told: str
) -> None:
    with pytest.raises(error, match=told):
        Scenario("own", rows, ratios=ratios)


def test_years_of_a_scenario_may_be_texts_and_a_name_stays_in_the_range() -> None:
    years: Any = {"2023": list(VALUES)}
    assert Scenario("own", years) == Scenario("own", {2023: VALUES})
    assert max(row[0] for row in named_scenario("recession-1990s", 2022, 0.29).rows.values()) == 0.3


def test_rows_may_be_a_frame_and_other_sources_are_refused_with_an_example() -> None:
    model = Forecaster.load(threads=1).model
    for frame in (pl.DataFrame([ROW]), pd.DataFrame([ROW])):
        assert model.scenario(frame) == scenario_from([ROW], PROCESS.history)
    wrong: Any
    for wrong in ({2023: (0.07, 0.01, 0.02)}, 5, [2023]):
        with pytest.raises(UsageError, match="'year': 2030"):
            model.scenario(wrong)


def test_a_row_has_macro_series_ratios_of_groups_or_both(tmp_path: Path) -> None:
    file = tmp_path / "scenario.csv"
    macro = "unemployment,real_wage_growth,inflation"
    file.write_text(f"year,{macro},female/male\n2023,0.07,0.01,0.02,\n2040,,,,1\n")
    scenario = scenario_from(file, PROCESS.history)
    assert scenario is not None
    assert scenario.rows == {2023: (0.07, 0.01, 0.02)}
    assert scenario.ratios == {2040: {"female/male": 1.0}}
    assert scenario.covers(np.array([2030, 2041]), np.array([2031, 2042])).tolist() == [True, False]
    other = scenario_from([{"year": 2040, "female/male": 0.9}], PROCESS.history)
    assert other is not None
    assert other.digest != scenario.digest


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UsageError, match="recession-1990s"):
        scenario_from("boom", PROCESS.history)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("unemploymnet", "Is it unemployment?"),
        ("Inflation", "Is it inflation?"),
        ("female_male", "such as female/male"),
    ],
)
def test_an_unknown_column_of_a_scenario_is_named_with_the_nearest_one(
    name: str, near: str
) -> None:
    problem = problem_of(scenario_from, [ROW, {**ROW, "year": 2031, name: 1.0}], PROCESS.history)
    assert problem.column == name
    assert near in problem.fix


def test_values_far_beyond_history_and_countries_are_named_and_crises_are_not() -> None:
    def found(unemployment: float, growth: float, inflation: float) -> dict[str, str]:
        rows = dict.fromkeys((2031, 2030), (unemployment, growth, inflation))
        return dict(implausible_values(Scenario("given", rows), PROCESS.history))

    names = found(0.07, 0.5, 0.2)
    assert set(names) == {"real_wage_growth", "inflation"}
    assert "in 2030 and later years" in names["real_wage_growth"]
    assert "0.5 is 50 % a year. Is 0.005 meant?" in names["real_wage_growth"]
    assert "Is 0.002 meant?" in names["inflation"]
    assert "0.3 is 30 %. Check the value." in found(0.3, 0.01, 0.02)["unemployment"]
    # All years since 1990, the worst ones of countries since 1950, and both scenarios by name.
    assert not any(found(*row) for row in PROCESS.history.values.tolist())
    assert not found(0.15, -0.19, 0.10)
    for name in ("recession-1990s", "high-growth"):
        scenario = scenario_from(name, PROCESS.history)
        assert scenario is not None
        assert not list(implausible_values(scenario, PROCESS.history))
