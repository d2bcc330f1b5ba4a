"""The scan of a bundle's files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from saga.evaluation.audit.bundle_scan import Finding, scan_bundle

from saga.bundle import Bundle, shipped_bundle
from saga.data.panel import Panel
from tests.toy_training import make_panel


def of_check(check: str, bundle: Bundle, panel: Panel) -> Finding:
    """The finding of one check, if all persons were trained on."""
    (finding,) = (f for f in scan_bundle(bundle, panel, panel) if f.check == check)
    return finding


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return Bundle.load(shipped_bundle("small"))


def with_ids(panel: Panel, ids: list[str]) -> Panel:
    """The panel, its first persons renamed."""
    names = dict(zip(panel.persons(), ids, strict=False))
    renamed = panel.frame.with_columns(pl.col("person_id").replace(names))
    return panel.with_frame(renamed.sort("person_id", "year"))


@pytest.mark.parametrize("text", ["{}", "of {}.", "see ({}, 2009)", "'{}': 3", "-{}-"])
@pytest.mark.parametrize("place", ["card", "config", "vintages"])
def test_ids_of_persons_are_found_in_every_text(text: str, place: str, bundle: Bundle) -> None:
    names = ["19840000054", "6872170", "100001x", "A-17.3", "Åsa-1", "a_1"]
    panel = with_ids(make_panel(), names)
    assert of_check("ids of persons in texts", bundle, panel).passed
    told = "\n".join(map(text.format, names))
    changed: dict[str, dict[str, Any]] = {
        "card": {"card": f"{bundle.card}\n{told}"},
        "config": {"config": {**bundle.config, "note": [{told: 1}]}},
        "vintages": {"vintages": pl.DataFrame({"note": [told], "n": [50]})},
    }
    finding = of_check("ids of persons in texts", replace(bundle, **changed[place]), panel)
    assert finding.passed is False
    assert finding.result == f"{len(names)} of {panel.n_persons:,}"


def test_short_numbers_are_no_ids_and_the_finding_says_how_many(bundle: Bundle) -> None:
    """A year, an age or a count of persons in a card may be the number of somebody in the panel."""
    panel = with_ids(make_panel(), ["2022", "96", "12686"])
    card = replace(bundle, card=f"{bundle.card} 2022 96 12686")
    finding = of_check("ids of persons in texts", card, panel)
    assert finding.passed
    assert "; 3 numbers of fewer than 6 digits not sought" in finding.result


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
    kind: str | None, passed: bool, bundle: Bundle
) -> None:
    """The shipped calibration has cells of many persons, and rows that count origin years."""
    table = bundle.calibration
    assert table is not None
    few = table.filter(kind=table["kind"][0]).head(kind is not None)
    few = few.with_columns(pl.lit(kind).alias("kind"), pl.lit(2, pl.Int64).alias("n"))
    planted = replace(bundle, calibration=pl.concat([table, few]))
    cells = of_check("cells of calibration", planted, make_panel())
    assert cells.passed is passed, cells


def test_what_simulated_people_need_not_hide_is_stated_and_not_called_safe(bundle: Bundle) -> None:
    """Of the shipped bundle the split is public and the seed recorded; of records both fail."""
    panel, checks = make_panel(), ["who was trained on, from an id"]
    checks.append("seed of the training in the manifest")
    records = replace(bundle, split={**bundle.split, "panel_id": "records"})
    for check in checks:
        assert of_check(check, bundle, panel).passed is None
        assert of_check(check, records, panel).passed is False


@pytest.mark.parametrize(("counts", "passed"), [("25 31", None), ("10 40", None), ("9 400", False)])
def test_leaves_of_few_origins_fail_and_others_are_not_called_persons(
    counts: str, passed: bool | None, bundle: Bundle
) -> None:
    trees = pl.DataFrame({"name": ["0.5"], "horizon": [1], "content": [f"leaf_count={counts}\n"]})
    leaves = of_check("leaves of trees", replace(bundle, trees=trees), make_panel())
    assert leaves.passed is passed
    assert leaves.result.startswith(f"{counts.split()[0]} origins in the smallest of 2 leaves")
