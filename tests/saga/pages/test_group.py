"""The page of policy tables: all years are on paper, and amounts have few digits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from playwright.sync_api import Browser

from saga.pages.format import short, unit_of
from saga.pages.group import render_group
from tests.chromium import QUICK_IN_CHROMIUM, start_chromium

PAPER = 680  # pixels between the margins of A4
YEARS = range(2023, 2071)
SHOWN = [2023, *range(2025, 2071, 5)]
PROVENANCE = {"currency": "SEK", "price_year": 2022, "warnings": []}


def page_of(
    scale: float, *, effects: bool = False, groups: int = 1, persons: int = 100, **more: bool
) -> str:
    """A page of three statistics of two groups, with every year's sum near `scale`."""
    names = [f"education_level_{k}" for k in range(groups)]
    effect = dict.fromkeys(("effect", "effect_lower_90", "effect_upper_90"), -0.123456 * scale)
    effect["reference"] = scale
    rows = [
        {"year": year, **dict.fromkeys(names, level), "statistic": statistic}
        | {"value": factor * scale, "lower_90": 0.2 * scale, "upper_90": 1.2345678 * scale}
        | (effect if effects else {})
        | {"suppressed": False}
        for year in YEARS
        for level in ("long_tertiary", "total")
        for statistic, factor in (("persons", persons / scale), ("total", 0.98765432), ("p90", 0.5))
    ]
    flows = [
        {"year": year, "to_year": year + 5, **dict.fromkeys(names, "total")}
        | {"class": of, "to_class": to, "share": share, "suppressed": share is None}
        for year in YEARS
        for of, shares in (("zero", (0.75, 0.25)), ("more", (None, None)))
        for to, share in zip(("zero", "more"), shares, strict=True)
    ]
    return render_group(
        pl.DataFrame(rows), pl.DataFrame(flows), PROVENANCE | more, dict.fromkeys(YEARS, 0)
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with start_chromium() as started:
        yield started


@pytest.mark.parametrize("effects", [False, True])
@pytest.mark.parametrize("groups", [1, 3])
def test_each_year_is_in_one_block_of_a_table(effects: bool, groups: int) -> None:
    page = page_of(6e8, effects=effects, groups=groups)
    (table,) = re.findall(r'<h2 id="table-2">Sum of earnings.*?</div>', page, re.DOTALL)
    assert re.findall(r'<th scope="col">(\d{4})</th>', table) == [f"{year}" for year in SHOWN]
    assert table.count("<td") == 2 * len(SHOWN)
    assert table.count("<td>593<br><small>120 to 741</small>") == 2 * len(SHOWN)
    assert "million SEK of 2022" in table


@pytest.mark.parametrize(
    ("persons", "weighted", "marks"), [(50, False, 0), (45, False, 2 * len(SHOWN)), (45, True, 0)]
)
def test_a_percentile_beyond_which_few_persons_are_is_marked(
    persons: int, weighted: bool, marks: int
) -> None:
    page = page_of(6e8, persons=persons, weighted=weighted)
    assert page.count("<td>300*<br>") == marks
    assert page.count("593*") == 0
    assert ("fewer than five persons are beyond" in page) == bool(marks)


@pytest.mark.parametrize(
    ("groups", "by"),
    [(1, "level 0"), (2, "level 0 and education level 1"),
     (3, "level 0, education level 1 and education level 2")],
)  # fmt: skip
def test_the_title_lists_the_groups(groups: int, by: str) -> None:
    assert f"Earnings of a population by education {by}</h1>" in page_of(1e6, groups=groups)


@pytest.mark.parametrize("groups", [1, 3])
def test_flows_are_on_the_page_without_suppressed_classes(groups: int) -> None:
    page = page_of(6e8, groups=groups)
    titles = re.findall(r"<h2[^>]*>Persons of (\d+) by their class in (\d+)</h2>", page)
    assert titles == [(f"{year}", f"{year + 5}") for year in SHOWN]
    (table,) = re.findall(r">Persons of 2030 by their class.*?</div>", page, re.DOTALL)
    assert re.findall(r'<th scope="col">(\w+)</th>', table) == ["zero", "more"]
    assert re.findall(r"<td>(.*?)</td>", table) == ["75.0 %", "25.0 %"]


@pytest.mark.parametrize("effects", [False, True])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("scale", [6e4, 6e8, 6e13])
class TestInBrowser:
    pytestmark = QUICK_IN_CHROMIUM

    def test_no_table_is_wider_than_paper(
        self, browser: Browser, tmp_path: Path, scale: float, groups: int, effects: bool
    ) -> None:
        place = tmp_path / "tables.html"
        place.write_text(page_of(scale, effects=effects, groups=groups), encoding="utf-8")
        page = browser.new_page(viewport={"width": PAPER, "height": 960})
        page.emulate_media(media="print")
        page.goto(place.as_uri())
        tables = page.locator("table").all()
        boxes = [box for table in tables if (box := table.bounding_box())]
        assert len(boxes) == len(tables) > 1
        assert max(box["x"] + box["width"] for box in boxes) <= PAPER
        page.close()


def test_amounts_have_three_digits_of_a_unit_that_fits_the_largest() -> None:
    for largest, scale in ((0.0, 1), (99_999.0, 1), (1e5, 1e3), (729_622_300.0, 1e6), (2e12, 1e9)):
        assert unit_of(largest)[0] == scale
        assert unit_of(-largest)[0] == scale
    texts = {612.5232: "613", 4.7: "4.70", 1389.3: "1,390", -0.5: "-0.500", 0.0: "0", 20.0: "20.0"}
    assert {value: short(value) for value in texts} == texts
    assert short(-0.0) == "0"
