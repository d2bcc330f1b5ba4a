"""The coverage study: the exit status is 1 if a coverage is missed or nothing was measured."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from studies import coverage_in_time, coverage_verdicts
from studies.coverage_forecasts import YEARS, Persons

ROOT = Path(__file__).resolve().parents[2]
FEW, MANY = 1_000, 200_000


@pytest.mark.thorough
@pytest.mark.parametrize(("band", "status"), [((1.0, 1.0), 1), ((0.0, 1.0), 0)])
def test_the_exit_status_is_1_if_a_coverage_is_missed(
    register_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    band: tuple[float, float],
    status: int,
) -> None:
    monkeypatch.setattr(coverage_verdicts, "coverage_band", lambda *_, **__: band)
    registers = [str(register_dir)] * (1 + status)  # one register, and two together
    arguments = ["--bundle", str(ROOT / "bundles" / "small"), "--paths", "10", "--register"]
    arguments += registers
    monkeypatch.setattr(sys, "argv", ["coverage_in_time.py", *arguments])
    assert coverage_in_time.main() == status


def _persons(n: int, seed: int) -> Persons:
    rng = np.random.default_rng(seed)
    ids = np.array([f"{seed}-{i}" for i in range(n)])
    groups = {name: np.full(n, "unknown") for name in coverage_verdicts.MAIN_GROUPS}
    return Persons(ids, groups, rng.uniform(0, 1, (n, YEARS)))


def test_the_calibration_persons_of_all_registers_count_each_by_its_own_folds() -> None:
    one, other, test = _persons(300, 1), _persons(200, 2), _persons(100, 3)
    shapes = {"sets": (100, YEARS, 4), "value": (100, 4), "band": (100, 4)}
    covered = {name: np.ones(shape) for name, shape in shapes.items()}

    def calibrated_on(calibrations: list[Persons]) -> list[int]:
        tables = coverage_verdicts.CoverageTables(covered, calibrations, test, 0, 50)
        return [int(figure.row[4].replace(",", "")) for figure in tables.figures()]

    together, apart = calibrated_on([one, other]), [calibrated_on([one]), calibrated_on([other])]
    assert together == np.sum(apart, axis=0).tolist()
    assert 100 in together  # present values: 50 persons of each threshold fold


@pytest.mark.parametrize(
    ("covered", "calibrated_on"), [([np.nan, np.nan], 100), ([], 100), ([1.0, 0.0], 0)]
)
def test_a_figure_without_outcomes_or_calibration_persons_is_not_measured(
    covered: list[float], calibrated_on: int
) -> None:
    figure = coverage_verdicts.judge_coverage(
        "sets, all",
        1,
        0.9,
        np.array(covered, dtype=float),
        calibrated_on=calibrated_on,
        n_figures=1,
        bound=None,
    )
    assert "not measured" in figure.row
    assert figure.holds is None


@pytest.mark.parametrize(
    ("holds", "detected", "persons", "message", "status"),
    [
        ([True, True], True, FEW, "Every figure", 0),
        ([True, None], True, FEW, "not measured: 1 of 2", 0),
        ([True, True], False, FEW, "Give more persons", 0),
        ([True, True], False, MANY, "NOT as stated", 1),
        ([True, False], True, FEW, "NOT as stated", 1),
        ([None, None], True, FEW, "NOT as stated", 1),
    ],
)
def test_only_figures_that_were_measured_and_hold_pass(
    holds: list[bool | None], detected: bool, persons: int, message: str, status: int
) -> None:
    verdict, exit_status = coverage_verdicts.conclusion(holds, detected, persons)
    assert message in verdict
    assert exit_status == status
