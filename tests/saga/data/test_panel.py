"""The panel's form: canonical columns, sorted, and the same meaning after selecting rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from saga.data.facts import read_facts, shipped_facts
from saga.data.panel import Panel, PanelMeta
from saga.errors import InputError, UsageError
from saga.schema import polars_schema
from tests.problems import problem_of


def _rows() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "person_id": ["2", "1", "1"],
            "year": [2000, 2001, 2000],
            "birth_year": [1970] * 3,
            "earnings": [1, 2, 3],
        }
    )


def test_a_panel_has_every_column_in_schema_order_and_is_sorted() -> None:
    panel = Panel.of(_rows(), PanelMeta("x"))
    assert dict(panel.frame.schema) == polars_schema()
    assert panel.frame.columns == list(polars_schema())
    assert panel.frame.select("person_id", "year").rows() == [("1", 2000), ("1", 2001), ("2", 2000)]
    assert Panel.of(_rows().sort("person_id", "year"), PanelMeta("x")).frame.equals(panel.frame)
    assert panel.meta.present == ("person_id", "year", "birth_year", "earnings")
    assert len(panel) == 3


def test_a_panel_is_equal_to_itself_and_a_key() -> None:
    """Its frame has no single answer to ==, so that of panels compares objects."""
    panel, other = (Panel.of(_rows(), PanelMeta("x")) for _ in range(2))
    assert panel == panel
    assert panel != other
    assert {panel: 1, other: 2}[panel] == 1
    assert panel.digest == other.digest


@pytest.mark.parametrize("change", ["floor", "macro", "facts"])
def test_what_amounts_and_years_mean_is_part_of_the_digest(change: str, tmp_path: Path) -> None:
    """Otherwise scores, vintages and checkpoints of another meaning would be continued."""
    file = tmp_path / "facts.csv"
    file.write_text(
        "series,year,value,unit,mark,source\nunemployment,2000,20,per cent,V,ours\n", "utf-8"
    )
    changed = {"floor": 5_000.0, "macro": None, "facts": read_facts(file)}
    meta = PanelMeta("x", facts=shipped_facts())
    other = replace(meta, **{change: changed[change]})  # type: ignore[arg-type]
    assert Panel.of(_rows(), meta).digest == Panel.of(_rows(), PanelMeta("x")).digest
    assert Panel.of(_rows(), other).digest != Panel.of(_rows(), meta).digest


def test_selecting_persons_keeps_their_rows_and_the_meaning() -> None:
    panel = Panel.of(_rows(), PanelMeta("x", currency="USD", floor=None))
    one = panel.only(["1"])
    assert one.frame["earnings"].to_list() == [3.0, 2.0]
    assert one.meta == panel.meta
    assert panel.persons() == ["1", "2"]
    assert panel.only(pl.Series(["2", "2"])).persons() == ["2"]
    assert panel.only([]).persons() == []


@pytest.mark.parametrize("persons", ["12", [1], pl.Series([12]), ["1", None]])
def test_persons_are_selected_by_a_list_of_texts(persons: Any) -> None:
    with pytest.raises(UsageError, match="list of texts"):
        Panel.of(_rows(), PanelMeta("x")).only(persons)


def test_persons_who_are_not_in_the_panel_are_named() -> None:
    problem = problem_of(Panel.of(_rows(), PanelMeta("x")).only, ["1", "absent", "nobody"])
    assert (problem.person_id, problem.count) == ("absent", 2)


@pytest.mark.parametrize(
    "broken",
    [
        lambda f: f.drop("sex"),
        lambda f: f.select(reversed(f.columns)),
        lambda f: f.cast({"year": pl.Int64}),
    ],
)
def test_a_frame_of_another_form_is_refused(broken) -> None:  # type: ignore[no-untyped-def]
    frame = Panel.of(_rows(), PanelMeta("x")).frame
    with pytest.raises(InputError, match="panel's columns"):
        Panel(broken(frame), PanelMeta("x"))
