"""Every number of the simulation is a parameter or a table with a note and a mark."""

from __future__ import annotations

import ast
import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from saga import schema
from saga.register.simulation.economy import COUNTY_SHARE, field_cdf
from saga.register.simulation.parameters import (
    Parameters,
    read_columns,
)
from saga.register.simulation.population import REGION_SHARES

ROOT = Path(__file__).resolve().parents[4]
SIMULATION = ROOT / "saga/register/simulation"
MODULES = sorted(SIMULATION.glob("*.py"))
FLOATS = (0.0, 0.5, 1.0, 2.0)
LISTS = {SIMULATION / "tables" / f"{name}.csv" for name in ("parameters", "mechanisms")}
LARGEST_INTEGER = 9  # larger integers are ages, years or sizes: parameters or named constants


def unnamed_numbers(source: str) -> Iterator[tuple[int, float]]:
    """Line and value of each number inside a function that should have a name."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.Lambda):
            for node in ast.walk(function):
                if isinstance(node, ast.Constant) and not isinstance(node.value, bool):
                    value = node.value
                    if isinstance(value, float) and value not in FLOATS:
                        yield node.lineno, value
                    if isinstance(value, int) and value > LARGEST_INTEGER:
                        yield node.lineno, value


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_functions_hold_no_unnamed_numbers(module: Path) -> None:
    assert list(unnamed_numbers(module.read_text(encoding="utf-8"))) == []


def test_an_unnamed_number_is_detected() -> None:
    numbers = unnamed_numbers("def f(x):\n    return 0.7 * x if x < 25 else -0.3\n")
    assert {value for _, value in numbers} == {0.3, 0.7, 25}
    assert list(unnamed_numbers("RATE = 0.7\ndef f(x):\n    return RATE * x + 0.5\n")) == []


def test_every_parameter_is_marked_and_used() -> None:
    code = "".join(module.read_text(encoding="utf-8") for module in MODULES)
    table = read_columns("parameters")
    assert [name for name in table["parameter"] if not re.search(rf"\.{name}\b", code)] == []
    for marks, *notes in zip(table["mark"], table["note"], table["note_of_group"], strict=True):
        assert set(marks.split(", ")) <= {"V", "M", "C", "assumed"}
        assert any(notes) or marks == "assumed"


def test_parameters_can_be_read_back_from_json_and_others_are_refused() -> None:
    values = json.loads(json.dumps(Parameters().as_dict()))
    again = Parameters(values)
    assert again == Parameters()
    assert json.loads(json.dumps(again.as_dict())) == values
    with pytest.raises(ValueError, match="not the parameters"):
        Parameters().changed({"careers.luck": 1.0})
    with pytest.raises(AttributeError):
        Parameters().careers.base = 1.0
    with pytest.raises(AttributeError, match="luck"):
        _ = Parameters().careers.luck


@pytest.mark.parametrize(
    "table", sorted({*(SIMULATION / "tables").glob("*.csv")} - LISTS), ids=lambda p: p.stem
)
def test_every_row_of_a_table_has_a_mark_and_a_source(table: Path) -> None:
    with table.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert {row["mark"] for row in rows} <= {"V", "M", "C", "assumed"}
    assert all(row["source"] for row in rows)


def test_tables_fit_the_codes_of_the_panel() -> None:
    assert tuple(read_columns("counties")["county"]) == schema.COUNTIES
    assert COUNTY_SHARE.sum() == pytest.approx(1.0)
    assert field_cdf().shape == (4, 2, 10)
    np.testing.assert_allclose(field_cdf()[:, :, -1], 1.0)
    assert REGION_SHARES.shape[1] == len(schema.BIRTH_REGIONS)
    np.testing.assert_allclose(REGION_SHARES.sum(axis=1), 1.0, atol=0.02)
