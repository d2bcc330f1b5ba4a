"""The page on registers and targets names every missed target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from saga.register.validation.estimators import Estimate
from saga.register.validation.register_check import SCHEMA, judge, targets
from studies.register_targets import join, write


@pytest.fixture
def tables() -> dict[int, pl.DataFrame]:
    """Seed -> table of three targets, of which seed 2 misses one that is only reported."""
    selected = [
        target for target in targets() if target.family in ("zeros", "gap44", "first_birth")
    ]
    values = {"zeros.20-64": 0.15, "gap44": 0.29, "first_birth.1991": 26.0}

    def table(**changed: float) -> pl.DataFrame:
        rows = [
            judge(target, Estimate((values | changed).get(target.key, np.nan), np.zeros(1), 1))
            for target in selected
        ]
        return pl.DataFrame(rows, schema=SCHEMA, orient="row")

    return {1: table(), 2: table(**{"first_birth.1991": 40.0})}


def test_the_page_counts_verdicts_and_names_missed_targets(
    tables: dict[int, pl.DataFrame], tmp_path: Path
) -> None:
    write(join(tables), [1, 2], 5_000, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "| 1 | 2 | 0 | 0 | 1 | 0 | 1 |" in page
    assert "| 2 | 2 | 0 | 0 | 0 | 1 | 1 |" in page
    assert "`first_birth.1991` (1)" in page
    assert "`gap44`" not in page
    full = pl.read_csv(tmp_path / "page" / "targets.csv")
    assert full["key"].to_list() == ["zeros.20-64", "gap44", "first_birth.1991", "first_birth.2020"]
    assert full["value_2"].to_list() == [0.15, 0.29, 40.0, None]
    assert full["holds_2"].to_list() == [True, True, False, None]
