"""Bands and present values of several years: judged as they are published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from saga.calibration.diagnostics.diagnosis import Findings, summarise
from saga.calibration.diagnostics.person_results import PersonResults
from saga.calibration.diagnostics.several_years import Inside, judge_several_years
from saga.calibration.fit.split_conformal import fit_calibration, in_map_fold

from saga.conformal.calibrator import Calibrator
from saga.conformal.families.present_value import SimulatedValues
from saga.conformal.published_sets import band_intervals, value_intervals
from saga.conformal.recalibration import map_paths
from saga.diagnostics_tables import Diagnostics
from saga.distributions import Marginals
from saga.lifetime import present_value, realised_value
from saga.paths import Paths
from saga.requests import COVERAGE, RATE
from tests.calibration.worlds import draw_paths

Array = NDArray[np.float64]
Judged = tuple[Calibrator, Marginals, Paths, Array]


@pytest.fixture(scope="module")
def judged(true_world: Callable[..., tuple[Marginals, Array]]) -> Judged:
    calibration, truth = true_world(1_200, 21)
    in_threshold_fold = np.flatnonzero(~in_map_fold(calibration.person_id, 0))
    paths = draw_paths(calibration.take(in_threshold_fold), seed=1)
    calibrator = fit_calibration(calibration, truth, seed=0, paths=paths)
    marginals, outcomes = true_world(900, 22)
    mapped = calibrator.recalibrate(marginals)
    return calibrator, mapped, map_paths(draw_paths(marginals, seed=2), mapped), outcomes


def test_several_years_are_judged_by_the_published_bands_and_sums(judged: Judged) -> None:
    calibrator, marginals, paths, outcomes = judged
    inside = judge_several_years(calibrator, marginals, paths, outcomes, [2])
    published = band_intervals(calibrator, marginals, 2, COVERAGE).covered(outcomes).min(axis=1)
    assert np.array_equal(inside["band", 2], published)
    values = SimulatedValues.of(paths, partial(present_value, years=2, to_age=34))
    sums = value_intervals(calibrator, values, np.full(len(values), 2), COVERAGE, RATE)
    truth = realised_value(outcomes, rate=RATE, years=2)[:, None]
    assert np.array_equal(inside["present_value", 2], (sums.lower <= truth) & (truth <= sums.upper))
    few = paths.with_earnings(paths.earnings[..., :30])  # than it was calibrated for
    not_judged = judge_several_years(calibrator, marginals, few, outcomes, [2])
    assert np.isnan(not_judged["present_value", 2]).all()


def test_several_years_are_green_if_covered_as_stated_and_red_if_not(
    judged: Judged, judged_years: Callable[..., dict[int, PersonResults]]
) -> None:
    calibrator, marginals, paths, outcomes = judged
    results = judged_years(calibrator, marginals, outcomes)

    def diagnosed(inside: Inside) -> Diagnostics:
        findings = Findings(results, inside)
        return summarise(findings, None, calibrator, provenance={"bundle": "b"})

    good = diagnosed(judge_several_years(calibrator, marginals, paths, outcomes, [2]))
    assert set(good["together"].select("question", "horizon").rows()) == {
        ("band", 2),
        ("present_value", 2),
    }
    verdicts = good["verdicts"].filter(question="together")
    assert not verdicts["status"].is_in(["watch", "fails"]).any()
    too_low = (
        replace(marginals, grid=marginals.grid + np.log(0.4)),
        paths.with_earnings((0.4 * paths.earnings).astype("float32")),
    )
    bad = diagnosed(judge_several_years(calibrator, *too_low, outcomes, [2]))
    assert set(bad["together"].filter(coverage=0.9)["status"]) == {"fails"}
    assert bad["verdicts"].filter(question="together")["status"].to_list() == ["fails"]
