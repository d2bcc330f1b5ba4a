"""Families are not divided by the split, and persons without a family are units."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from saga.data.panel import Panel, PanelMeta
from saga.data.split import (
    Part,
    assign_folds,
    assign_parts,
    parse_shares,
    persons_of,
    units_of,
)
from saga.errors import UsageError
from saga.schema import FAMILY

PARTS: tuple[Part, ...] = ("train", "validation", "calibration", "test")


@pytest.fixture(scope="module")
def make_panel() -> Callable[[bool], Panel]:
    """400 persons in 100 families and 50 without one; `known` False: no families in the panel."""

    def make(known: bool) -> Panel:
        ids = [f"p{i:03d}" for i in range(450)]
        family = [f"f{i // 4}" if i < 400 else None for i in range(450)]
        frame = pl.DataFrame(
            {"person_id": ids, "year": [2000] * 450, "birth_year": [1970] * 450},
            schema_overrides={"year": pl.Int32, "birth_year": pl.Int32},
        ).with_columns(earnings=pl.lit(1e5))
        if not known:
            return Panel.of(frame, PanelMeta("kin"))
        frame = frame.with_columns(pl.Series(FAMILY.name, family, dtype=pl.String))
        return Panel.of(frame, PanelMeta("kin", extra=(FAMILY,)))

    return make


def test_relatives_are_in_the_same_part_and_fold(make_panel: Callable[[bool], Panel]) -> None:
    panel = make_panel(True)
    part = {person: part for part in PARTS for person in persons_of(panel, part)}
    assert sorted(part) == panel.persons()
    frame = panel.frame.select(
        "person_id",
        FAMILY.name,
        fold=pl.Series(assign_folds("kin", units_of(panel), 5)),
        part=pl.Series([part[person] for person in panel.persons()]),
    )
    by_family = frame.drop_nulls(FAMILY.name).group_by(FAMILY.name).agg(pl.all().n_unique())
    assert by_family["fold"].unique().to_list() == [1]
    assert by_family["part"].unique().to_list() == [1]
    assert frame["fold"].n_unique() == 5


def test_without_families_the_split_is_that_of_persons(
    make_panel: Callable[[bool], Panel],
) -> None:
    panel = make_panel(False)
    assert units_of(panel) == panel.persons()
    parts = assign_parts("kin", panel.persons())
    for part in PARTS:
        expected = np.array(panel.persons())[parts == part].tolist()
        assert persons_of(panel, part) == expected


def test_a_person_without_a_known_family_is_a_unit(make_panel: Callable[[bool], Panel]) -> None:
    panel = make_panel(True)
    assert units_of(panel, ["p000", "p003", "p004", "p449"]) == ["f0", "f0", "f1", "p449"]


def test_shares_have_persons_to_train_and_validate_and_every_bundles_test_persons() -> None:
    assert parse_shares([80, 10, 0, 10]) == dict(zip(PARTS, (0.8, 0.1, 0.0, 0.1), strict=True))
    for percents in ([70, 10, 20], [70, 10, 10, 20], [90, 0, 0, 10], [71, 10, 10, 9]):
        with pytest.raises(UsageError, match="60,10,20,10"):
            parse_shares(percents)
