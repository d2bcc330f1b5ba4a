"""Quantiles of training persons: right, averaged over persons, and stored as JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from saga.data.panel import Panel
from saga.features.training_reference import (
    LEVELS,
    PROPERTIES,
    TrainingReference,
)
from saga.files.stored_values import read_values
from saga.small_groups import MIN_PERSONS
from tests import panels


def panel_of(persons: dict[str, list[float | None]], *, birth_year: int = 1980) -> Panel:
    """Records that end in 2022."""
    rows = [
        (person, 2023 - len(amounts) + i, birth_year, amount)
        for person, amounts in persons.items()
        for i, amount in enumerate(amounts)
    ]
    return panels.panel_of(rows)


@pytest.fixture(scope="module")
def many() -> Panel:
    rng = np.random.default_rng(0)
    amounts = rng.lognormal(12.5, 0.5, (3_000, 1)) * rng.lognormal(0, 0.2, (3_000, 6))
    return panel_of({f"{i:04d}": row for i, row in enumerate(amounts.tolist())})


def test_properties_of_records_have_their_definitions() -> None:
    panel = panel_of(
        {
            "a": [100.0, 200.0, None, 400.0, 800.0],
            "b": [0.0, 0.0, 300.0, 0.0],
            "c": [None],
            "d": [0.0],
        }
    )
    reference = TrainingReference((0.0,) * 7, {}, {})
    properties = reference.compare(panel).properties
    assert list(properties) == list(PROPERTIES)
    np.testing.assert_allclose(
        properties["amount"], [np.log(200 * 400) / 2, np.log(300), np.nan, np.nan]
    )
    np.testing.assert_allclose(properties["zero_share"], [0, 0.75, np.nan, 1])
    np.testing.assert_allclose(properties["volatility"], [0, np.nan, np.nan, np.nan], atol=1e-9)
    np.testing.assert_allclose(properties["n_years"], [4, 4, 0, 1])


def test_quantiles_and_typical_amounts_are_those_of_the_persons(many: Panel) -> None:
    reference = TrainingReference.fit(many)
    assert reference.typical[:3] == (None, None, None), "nobody was younger than 30"
    assert reference.typical[3] == pytest.approx(12.5, abs=0.05)
    assert reference.columns == {"earnings": pytest.approx(12.5, abs=0.05)}
    amount = reference.compare(many).properties["amount"]
    for level, stored in zip(LEVELS, reference.quantiles["amount"], strict=True):
        if stored is not None:
            assert stored == pytest.approx(np.quantile(amount, level), abs=0.06)
    assert set(reference.quantiles["n_years"]) == {6.0, None}


def test_no_stored_number_is_the_value_of_one_person(many: Panel) -> None:
    reference = TrainingReference.fit(many)
    properties = reference.compare(many).properties
    for name in ("amount", "volatility"):
        stored = [x for x in reference.quantiles[name] if x is not None]
        assert np.abs(np.subtract.outer(stored, properties[name])).min() > 1e-9
    few = TrainingReference.fit(many.only(many.persons()[: MIN_PERSONS - 1]))
    assert few.typical == (None,) * 7
    assert few.columns == {}
    assert set(few.quantiles["n_years"]) == {None}


def test_the_reference_survives_json(many: Panel) -> None:
    reference = TrainingReference.fit(many)
    assert read_values(TrainingReference, json.loads(json.dumps(reference.as_dict()))) == reference
