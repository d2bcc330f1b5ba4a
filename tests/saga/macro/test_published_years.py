"""Forecasts from a later origin start from published macro values; earlier ones do not see them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from saga.data.facts import shipped_facts
from saga.data.panel import PanelMeta
from saga.features.calendar import Calendar
from saga.macro.history import MacroHistory, histories_of, sweden, sweden_as_published
from saga.macro.process import MacroProcess
from saga.macro.scenarios import scenario_from
from tests.panels import panel_of

OF_BUNDLE = MacroProcess.fit(sweden())
KNOWN = sweden(2025)
PROCESS = replace(OF_BUNDLE, known=KNOWN)


def test_the_facts_continue_the_series_of_the_register_without_a_change_of_earlier_years() -> None:
    assert (sweden().last_year, KNOWN.last_year) == (2022, 2025)
    np.testing.assert_array_equal(KNOWN.values[:33], sweden().values)
    series = shipped_facts().series
    assert KNOWN.values[-1, 1] == series["real_wage_growth"].values[2025] / 100
    continued = sweden().until(2019).continued(KNOWN)
    np.testing.assert_array_equal(continued.values, KNOWN.values)


@pytest.mark.parametrize(("simulated", "last"), [(False, 2024), (True, 2022)])
def test_a_panel_knows_its_years_and_later_years_of_a_register_are_drawn(
    simulated: bool, last: int
) -> None:
    rows = [("p", year, 1980, 1e5) for year in (2000, 2024)]
    histories = histories_of(panel_of(rows, meta=PanelMeta("p", simulated=simulated)))
    assert histories is not None
    for found, expected in zip(histories, (sweden(last), sweden_as_published(last)), strict=True):
        np.testing.assert_array_equal(found.values, expected.values)


@pytest.mark.parametrize("origin", [2005, 2018, 2022])
def test_origins_within_the_history_have_the_same_bits_with_later_years(origin: int) -> None:
    np.testing.assert_array_equal(
        PROCESS.draw(3, 20, origin, origin + 12), OF_BUNDLE.draw(3, 20, origin, origin + 12)
    )
    years = np.arange(1980, origin + 1)
    before, after = Calendar(sweden()), Calendar(KNOWN, 2022, 0.013)
    np.testing.assert_array_equal(before.wage_index(years), after.wage_index(years))
    np.testing.assert_array_equal(before.covariates(years), after.covariates(years))


def test_a_later_origin_starts_from_its_published_values_not_from_the_long_run_mean() -> None:
    assert PROCESS.unemployment(2024) == pytest.approx(KNOWN.of_year(2024)[0])
    long_run = float(np.exp(OF_BUNDLE.mean[0]))
    assert OF_BUNDLE.unemployment(2024) != pytest.approx(long_run, abs=1e-4)
    first = PROCESS.draw(0, 4_000, 2025, 2026)[:, 0, 0]
    state = PROCESS.mean + PROCESS.transition @ (_state(KNOWN, 2025) - PROCESS.mean)
    error = PROCESS.innovation[0, 0] / np.sqrt(4_000)
    assert abs(np.log(first).mean() - state[0]) < 4 * error


def test_years_after_the_last_published_one_take_their_expected_values() -> None:
    expected = PROCESS.mean + np.linalg.matrix_power(PROCESS.transition, 2) @ (
        _state(KNOWN, 2025) - PROCESS.mean
    )
    assert PROCESS.unemployment(2027) == pytest.approx(np.exp(expected[0]))
    assert PROCESS.unemployment(1980) == pytest.approx(np.exp(PROCESS.mean[0]))


def test_the_wage_index_follows_published_wages_and_then_the_stated_growth() -> None:
    index = Calendar(KNOWN, 2022, 0.01).wage_index(np.array([2022, 2023, 2025, 2027]))
    published = np.cumsum(np.log1p(KNOWN.values[-3:, 1]))
    np.testing.assert_allclose(index, [0, published[0], published[2], published[2] + 0.02])


def test_a_scenario_by_name_starts_after_a_later_origin_and_one_of_rows_stays_where_it_is() -> None:
    recession = scenario_from("recession-1990s", PROCESS.history)
    assert recession is not None
    futures = PROCESS.draw(0, 3, 2025, 2030, recession)
    rise = sweden().values[1, 0] - sweden().values[0, 0]
    np.testing.assert_allclose(futures[:, 0, 0], KNOWN.of_year(2025)[0] + rise)
    at_2022 = PROCESS.draw(0, 3, 2022, 2024, recession)
    np.testing.assert_allclose(at_2022[:, 0, 0], sweden().of_year(2022)[0] + rise)
    assert recession.covers(np.array([2040]), np.array([2045])).all()
    row = {"unemployment": 0.1, "real_wage_growth": 0.0, "inflation": 0.02}
    own = scenario_from([{"year": 2023, **row}], PROCESS.history)
    assert own is not None
    assert not own.covers(np.array([2040]), np.array([2045])).any()
    assert PROCESS.unemployment(2023, own) == pytest.approx(0.1)


def _state(history: MacroHistory, year: int) -> np.ndarray:
    unemployment, *others = history.of_year(year)
    return np.array([np.log(unemployment), *others])
