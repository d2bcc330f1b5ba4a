"""Forecasts of the study of deliveries: a break shares what it does not change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from saga.data.reading import read_panel
from saga.forecaster import Forecaster
from saga.register.simulation.cohort_simulation import RegisterSettings
from saga.register.simulation.generation import generate_register
from studies import delivery_forecasts
from studies.delivery_forecasts import (
    BREAK_YEAR,
    OriginForecasts,
    Unbroken,
    continued_panel,
    forecasts_of_future,
    sample_persons,
)

SHIPPED = Path(__file__).parents[2] / "bundles/small"


@pytest.fixture
def register(tmp_path: Path) -> Path:
    settings = RegisterSettings(
        persons=90, seed=3, future_to=2030, future_draws=1, future_records=True
    )
    generate_register(tmp_path / "register", settings)
    return tmp_path / "register"


@pytest.mark.thorough
def test_a_person_with_the_same_record_has_the_forecast_without_the_break(
    register: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit what is computed without sharing; only some persons have another record."""
    monkeypatch.setattr(delivery_forecasts, "FIRST_ORIGIN", BREAK_YEAR - 1)
    monkeypatch.setattr(delivery_forecasts, "LAST_ORIGIN", BREAK_YEAR + 1)
    forecaster, panel = Forecaster.load(SHIPPED, threads=1), read_panel(register)
    with monkeypatch.context() as patched:
        patched.setattr(delivery_forecasts, "FIRST_ORIGIN", 2022)
        panel = sample_persons(panel, 40, 0)
        with_paths = set(sample_persons(panel, 8, 0).persons())
    records = continued_panel(panel, register, 0, "none")[0]

    def forecast(planted: str, unbroken: Unbroken) -> list[OriginForecasts]:
        forecasts = forecasts_of_future(
            forecaster, panel, register, 0, planted, with_paths, unbroken
        )
        return list(forecasts)

    unbroken = Unbroken(records)
    plain = forecast("none", unbroken)
    shared, alone = forecast("zeros", unbroken), forecast("zeros", Unbroken(records))
    for found, expected in zip(shared, alone, strict=True):
        assert found.person_id.tolist() == sorted(found.person_id.tolist())
        for name in delivery_forecasts._STORED:
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    broken = continued_panel(panel, register, 0, "zeros")[0]
    same = unbroken.same_records(broken, BREAK_YEAR + 1)
    assert 0 < len(same) < len(broken.persons())
    is_same = np.isin(plain[-1].person_id, sorted(same))
    np.testing.assert_array_equal(plain[-1].p_zero[is_same], shared[-1].p_zero[is_same])
    assert (plain[-1].p_zero[~is_same] != shared[-1].p_zero[~is_same]).any()
    assert {len(part.simulated) for part in shared} <= set(range(1, 9))
