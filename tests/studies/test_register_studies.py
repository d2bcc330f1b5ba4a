"""Benchmarks of the register: an output that is taken is refused before the work, and a target without a value is lost."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import polars as pl
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.parametrize("taken", ["full", "full/file"])
def test_an_output_that_is_taken_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], taken: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    monkeypatch.setattr(
        "saga.register.generate_register", lambda *_, **__: pytest.fail("work was begun")
    )
    monkeypatch.setattr(sys, "argv", ["register.py", "--out", str(tmp_path / taken)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(BENCHMARKS / "register.py"), run_name="__main__")
    assert ended.value.code == 2
    assert "exists already" in capsys.readouterr().err


def test_a_target_that_holds_only_with_the_mechanism_is_lost_whether_or_not_its_change_has_a_size() -> (
    None
):
    compare = runpy.run_path(str(BENCHMARKS.parent / "studies" / "register_mechanisms.py"))[
        "compare"
    ]
    columns = ["key", "value", "se", "holds", "enforced"]
    whole = [
        ("small", 1.0, 0.1, True, True),
        ("exact", 1.0, 0.0, True, True),
        ("nobody", 1.0, 0.1, True, True),
        ("new", None, None, None, True),
    ]
    less = [
        ("small", 1.5, 0.1, False, True),
        ("exact", 2.0, 0.0, False, True),
        ("nobody", None, None, None, True),
        ("new", 1.0, 0.1, True, True),
    ]
    lost, reported, gained, far = compare(
        *(pl.DataFrame(rows, schema=columns, orient="row") for rows in (whole, less))
    )
    assert lost == "`nobody` (unmeasured), `exact` (+inf), `small` (+4)"
    assert reported == "none"
    assert gained == "`new` (unmeasured)"
    assert far.startswith("`small`")
