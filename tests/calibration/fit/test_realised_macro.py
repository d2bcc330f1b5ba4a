"""Maps are fitted on forecasts conditioned on the realised macro series; thresholds are not.

Otherwise maps would correct every future for the booms and recessions of a few past years.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import saga.calibration.fit.bundle_calibration as bundle_calibration
from numpy.typing import NDArray
from saga.calibration.diagnostics.diagnosis import Findings, summarise
from saga.calibration.diagnostics.person_results import (
    PersonResults,
    crps_thresholds,
    judge_persons,
)
from saga.calibration.fit.split_conformal import fit_calibration, in_map_fold

from saga.conformal.calibrator import Calibrator
from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.distributions import Marginals
from saga.forecaster import Forecaster
from saga.macro.scenarios import Scenario, ScenarioSource
from saga.requests import COVERAGE
from tests.calibration.worlds import SURPRISE, draw_economy

Array = NDArray[np.float64]
NINETY = COVERAGE.index(0.9)


@pytest.mark.thorough
def test_the_report_separates_the_economy_from_the_model() -> None:
    """The model is right about persons: no verdict is red there, and the surprise is shown.

    With 20,000 persons on both sides the sampling bands are narrow enough to see a miss.
    """
    calibration, realised, calibration_outcomes = draw_economy(20_000, 6)
    calibrator = fit_calibration(calibration, calibration_outcomes, seed=0, realised=realised)
    free, conditioned, outcomes = draw_economy(20_000, 7)
    thresholds = crps_thresholds(outcomes[:, 0], 1.0)

    def results(marginals: Marginals) -> dict[int, PersonResults]:
        mapped = calibrator.recalibrate(marginals)
        intervals = calibrator.intervals(mapped, COVERAGE)
        limits = {"floor": 1.0, "low_pay": 150_000.0}
        return {
            1: judge_persons(mapped, intervals, outcomes[:, 0], 1, thresholds=thresholds, **limits)
        }

    def verdicts(
        of_free: dict[int, PersonResults], of_conditioned: dict[int, PersonResults] | None = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        findings = Findings(of_free, conditioned=of_conditioned)
        tables = summarise(findings, None, calibrator, provenance={"bundle": "b"}, seed=0)
        statuses = dict(tables["verdicts"].select("question", "status").iter_rows())
        return statuses, tables["mean_error"].row(0, named=True)

    statuses, mean_bias = verdicts(results(free), results(conditioned))
    assert statuses["coverage"] == statuses["shape"] == statuses["mean_error"] == "holds"
    assert mean_bias["economy"] == pytest.approx(SURPRISE, abs=0.01)
    assert verdicts(results(free))[0]["shape"] == "fails", (
        "without the realised economy the surprise looks like a fault"
    )


@pytest.mark.usefixtures("two_origins")
def test_only_the_map_fold_is_forecast_under_the_realised_economy(
    tiny_bundle: Path, register_panel: Panel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[list[str], ScenarioSource]] = []
    conditioned: list[Marginals] = []
    marginals, fit = Forecaster.marginals, fit_calibration

    def record_forecast(
        self: Any, panel: Panel, scenario: ScenarioSource = None, **options: Any
    ) -> Iterator[Marginals]:
        calls.append((panel.persons(), scenario))
        return marginals(self, panel, scenario, **options)

    def record_fit(free: Marginals, outcomes: Array, **options: Any) -> Calibrator:
        conditioned.append(options["realised"])
        return fit(free, outcomes, **options)

    monkeypatch.setattr(Forecaster, "marginals", record_forecast)
    monkeypatch.setattr(bundle_calibration, "fit_calibration", record_fit)
    left_out = set(persons_of(register_panel, "calibration")[60:])
    few = register_panel.only(
        [person for person in register_panel.persons() if person not in left_out]
    )
    options = bundle_calibration.CalibrationOptions(n_paths=25, profiles=True)
    bundle_calibration.calibrate_bundle(tiny_bundle, few, options, out=tmp_path / "bundle")
    everybody, scenario = calls[0]
    assert scenario is None
    in_map = in_map_fold(np.array(everybody), 0)
    map_fold = [person for person, chosen in zip(everybody, in_map, strict=True) if chosen]
    # Full records, records as in a survey, records of earnings alone; each with all origins.
    n_origins = bundle_calibration.MAX_ORIGINS
    of_profile = [everybody] * n_origins + [map_fold] * n_origins
    assert [persons for persons, _ in calls] == of_profile * 3
    for persons, condition in calls:
        assert persons == everybody or isinstance(condition, Scenario)
        assert condition is None or persons == map_fold
    assert len(conditioned) == 3
    for forecasts in conditioned:
        assert forecasts.conditioned
        assert forecasts.person_id.tolist() == map_fold * n_origins
        # The tiny bundle has a calibration with groups; poorer records do not have these groups.
        assert not forecasts.groups


def test_there_is_no_realised_macro_without_series_in_bundle_panel_and_years(
    tiny_bundle: Path, register_panel: Panel
) -> None:
    forecaster = Forecaster.load(tiny_bundle)
    scenario = forecaster.realised_macro(register_panel, 2015)
    assert scenario is not None
    assert max(scenario.rows) == 2015
    assert forecaster.realised_macro(register_panel, 1980) is None
    without = replace(register_panel, meta=replace(register_panel.meta, macro=None))
    assert forecaster.realised_macro(without, 2015) is None
    other = forecaster.with_model(replace(forecaster.model, process=None))
    assert other.realised_macro(register_panel, 2015) is None
