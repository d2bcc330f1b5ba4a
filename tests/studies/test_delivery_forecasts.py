"""The study of deliveries: a break changes no earlier forecast, and all methods are judged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from saga.calibration.adaptive.adaptive_state import SPAN_KINDS

from saga.data.reading import read_panel
from saga.forecaster import Forecaster
from saga.register.simulation.cohort_simulation import RegisterSettings
from saga.register.simulation.generation import generate_register
from studies import delivery_forecasts, delivery_methods
from studies.delivery_forecasts import BREAK_YEAR, forecasts_of_future, sample_persons
from studies.delivery_methods import SPAN_METHODS, Deliveries

SHIPPED = Path(__file__).parents[2] / "bundles/small"


@pytest.mark.thorough
def test_a_break_changes_no_forecast_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = tmp_path / "register"
    settings = RegisterSettings(90, 3, future_to=2034, future_draws=1, future_records=True)
    generate_register(register, settings)
    forecaster = Forecaster.load(SHIPPED, threads=1)
    panel = sample_persons(read_panel(register), 40, 0)
    with_paths = set(sample_persons(panel, 8, 0).persons())
    for module in (delivery_forecasts, delivery_methods):
        monkeypatch.setattr(module, "FIRST_ORIGIN", BREAK_YEAR - 1)
        monkeypatch.setattr(module, "LAST_ORIGIN", BREAK_YEAR + 5)
    plain, broken = (
        list(forecasts_of_future(forecaster, panel, register, 0, planted, with_paths))
        for planted in ("none", "zeros")
    )
    np.testing.assert_array_equal(plain[0].paths.earnings, broken[0].paths.earnings)
    np.testing.assert_array_equal(plain[0].p_zero, broken[0].p_zero)
    assert (plain[0].less != broken[0].less).any(), "outcomes of the break year differ"
    changed = (plain[2].p_zero != broken[2].p_zero).any(axis=1)
    assert 0 < changed.sum() < len(changed)
    deliveries = Deliveries({part.origin: part for part in broken}, forecaster.calibrator)
    deliveries.run()
    first, later = broken[0].origin, broken[3].origin
    assert deliveries.width_ratio(first, 1) == 1
    assert deliveries.width_ratio(later, 1) != 1, "outcomes have moved the levels"
    for kind in SPAN_KINDS:
        for method in SPAN_METHODS:
            inside = deliveries.span_covered(kind, method, first)
            assert set(inside[~np.isnan(inside)]) <= {0.0, 1.0}
            assert (~np.isnan(inside)).any()
