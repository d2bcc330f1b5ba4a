"""The coverage benchmark says by its exit status whether promises are kept, and calls nothing kept that it did not measure."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "studies" / "coverage_in_time.py"
FEW, MANY = 1_000, 200_000


@pytest.fixture(scope="module")
def benchmark() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.mark.slow
@pytest.mark.parametrize(("band", "status"), [((1.0, 1.0), 1), ((0.0, 1.0), 0)])
def test_the_program_fails_where_a_promise_is_missed(
    register_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    band: tuple[float, float],
    status: int,
) -> None:
    monkeypatch.setattr(
        "calibration.diagnostics.sampling_bands.coverage_band", lambda *_, **__: band
    )
    where = [
        "--bundle",
        str(ROOT / "bundles" / "small"),
        "--register",
        str(register_dir),
        "--out",
        str(tmp_path / "paths"),
    ]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *where])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert ended.value.code == status


@pytest.mark.parametrize(
    ("hits", "calibrated_on"), [([np.nan, np.nan], 100), ([], 100), ([1.0, 0.0], 0)]
)
def test_a_cell_without_outcomes_is_not_measured(
    benchmark: dict[str, Any], hits: list[float], calibrated_on: int
) -> None:
    line, held = benchmark["row"](
        "sets, all", 1, 0.9, np.array(hits, dtype=float), calibrated_on, 1, None
    )
    assert "not measured" in line
    assert held is None


@pytest.mark.parametrize(
    ("promised", "found_out", "persons", "says", "status"),
    [
        ([True, True], True, FEW, "Every promise", 0),
        ([True, None], True, FEW, "not measured: 1 of 2", 0),
        (
            [True, True],
            False,
            FEW,
            "Give more persons",
            0,
        ),  # too few to find a broken calibrator out
        ([True, True], False, MANY, "NOT as promised", 1),
        ([True, False], True, FEW, "NOT as promised", 1),
        ([None, None], True, FEW, "NOT as promised", 1),
    ],
)
def test_only_what_was_measured_and_held_is_called_kept(
    benchmark: dict[str, Any],
    promised: list[bool | None],
    found_out: bool,
    persons: int,
    says: str,
    status: int,
) -> None:
    verdict, code = benchmark["conclusion"](promised, found_out, persons)
    assert says in verdict
    assert code == status
