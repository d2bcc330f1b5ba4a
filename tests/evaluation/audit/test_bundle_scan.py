"""The scan of a bundle's files."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from saga.evaluation.audit.bundle_scan import scan_bundle

from saga.bundle import Bundle, shipped_bundle
from tests.toy_training import make_panel


@pytest.mark.parametrize(
    ("kind", "passed"),
    [
        (None, True),
        ("origin_years", True),  # of two years
        ("drift", True),
        ("threshold", False),
        ("map", False),
        ("cut", False),
    ],
)
def test_cells_of_few_persons_are_found_and_numbers_of_years_are_no_cells(
    kind: str | None, passed: bool
) -> None:
    """The shipped calibration has cells of many persons, and rows that count origin years."""
    bundle, panel = Bundle.load(shipped_bundle("small")), make_panel()
    table = bundle.calibration
    assert table is not None
    few = table.filter(kind=table["kind"][0]).head(kind is not None)
    few = few.with_columns(pl.lit(kind).alias("kind"), pl.lit(2, pl.Int64).alias("n"))
    planted = replace(bundle, calibration=pl.concat([table, few]))
    (cells,) = (
        finding
        for finding in scan_bundle(planted, panel, panel)
        if finding.check == "cells of calibration"
    )
    assert cells.passed is passed, cells
