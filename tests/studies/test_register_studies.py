"""Register studies: existing output is refused first; targets without a value count as lost."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import polars as pl
import pytest

from studies.register_mechanisms import compare

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "register.py"


@pytest.mark.parametrize("existing", ["full", "full/file"])
def test_existing_output_is_refused_before_the_work(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    existing: str,
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("a user's file")
    monkeypatch.setattr(
        "saga.register.generate_register", lambda *_, **__: pytest.fail("a register was generated")
    )
    monkeypatch.setattr(sys, "argv", ["register.py", "--out", str(tmp_path / existing)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert ended.value.code == 2
    assert "exists already" in capsys.readouterr().err


def test_a_target_that_holds_only_with_the_mechanism_is_lost() -> None:
    columns = ["key", "value", "se", "holds", "enforced"]
    full = [
        ("small", 1.0, 0.1, True, True),
        ("exact", 1.0, 0.0, True, True),
        ("unmeasured", 1.0, 0.1, True, True),
        ("new", None, None, None, True),
    ]
    reduced = [
        ("small", 1.5, 0.1, False, True),
        ("exact", 2.0, 0.0, False, True),
        ("unmeasured", None, None, None, True),
        ("new", 1.0, 0.1, True, True),
    ]
    tables = (pl.DataFrame(rows, schema=columns, orient="row") for rows in (full, reduced))
    row = compare("leaving_work", *tables)
    assert row == ("leaving work", "3", "0", "1", "`small`", "1.0000", "1.5000", "+4")
