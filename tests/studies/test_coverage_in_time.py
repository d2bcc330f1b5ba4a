"""The coverage study: the exit status is 1 if a coverage is missed or nothing was measured."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from studies import coverage_in_time
from studies.coverage_in_time import ENOUGH, conclusion, judge_coverage

ROOT = Path(__file__).resolve().parents[2]
FEW = 1_000


@pytest.mark.thorough
@pytest.mark.parametrize(("band", "status"), [((1.0, 1.0), 1), ((0.0, 1.0), 0)])
def test_the_exit_status_is_1_if_a_coverage_is_missed(
    register_dir: Path, monkeypatch: pytest.MonkeyPatch, band: tuple[float, float], status: int
) -> None:
    monkeypatch.setattr(coverage_in_time, "coverage_band", lambda *_, **__: band)
    registers = [str(register_dir)] * (1 + status)  # one register, and two together
    command = ["coverage_in_time", "--bundle", str(ROOT / "bundles" / "small"), "--register"]
    monkeypatch.setattr(sys, "argv", [*command, *registers])
    assert coverage_in_time.main() == status


@pytest.mark.parametrize(("share", "holds"), [(0.9, True), (0.85, False)])
def test_a_share_far_from_the_stated_one_is_out_of_its_band(share: float, holds: bool) -> None:
    inside = (np.arange(20_000) < share * 20_000).astype(float)
    assert judge_coverage("sets", 1, 0.9, inside, 20_000, 12).holds == holds


@pytest.mark.parametrize(("inside", "n"), [([np.nan, np.nan], 100), ([], 100), ([1.0, 0.0], 0)])
def test_a_figure_without_outcomes_or_calibration_persons_is_not_measured(
    inside: list[float], n: int
) -> None:
    assert judge_coverage("sets", 1, 0.9, np.array(inside, dtype=float), n, 1).holds is None


@pytest.mark.parametrize(
    ("holds", "detected", "persons", "message", "status"),
    [
        ([True, True], True, FEW, "Every figure", 0),
        ([True, None], True, FEW, "1 of 2 not measured", 0),
        ([True, True], False, FEW, "Give more persons", 0),
        ([True, True], False, ENOUGH, "NOT as stated", 1),
        ([True, False], True, FEW, "NOT as stated", 1),
        ([None, None], True, FEW, "NOT as stated", 1),
    ],
)
def test_only_figures_that_were_measured_and_hold_pass(
    holds: list[bool | None], detected: bool, persons: int, message: str, status: int
) -> None:
    verdict, exit_status = conclusion(holds, detected, persons)
    assert message in verdict
    assert exit_status == status
