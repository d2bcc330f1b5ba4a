"""Two tables of the same persons reveal no small cell that both hide: tried by linear programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from differencing import possible_range
from numpy.typing import NDArray
from scored_folder import path_rows

from saga.arrays import Bools, Floats
from saga.data.facts import shipped_facts
from saga.data.reading import read_panel
from saga.population.disclosure import DisclosureRules
from saga.population.policy_tables import make_tables
from saga.population.population_paths import population_of
from saga.population.scored_paths import PathRows
from saga.requests import PopulationRequest
from saga.schema import BY_NAME

RULES = DisclosureRules()
LEVELS = {
    "sex": BY_NAME["sex"].codes,
    "education_level": BY_NAME["education_level"].codes,
    "birth_year": range(1960, 1966),
}
LAST = 2024


def persons_of(count: NDArray[np.int_]) -> pl.DataFrame:
    """The persons of a panel, so many in each combination of LEVELS."""
    cells = np.repeat(np.argwhere(count >= 0), count.ravel(), axis=0)
    columns = zip(LEVELS.items(), cells.T, strict=True)
    ids = [f"{number:04d}" for number in range(len(cells))]
    groups = {name: np.array(levels)[places] for (name, levels), places in columns}
    return pl.DataFrame({"person_id": ids, "year": 2022, "earnings": 1e5, **groups})


def hidden_cells(
    persons: pl.DataFrame,
    pay: Floats,
    by: tuple[str, ...] = tuple(LEVELS),
    weights: pl.DataFrame | None = None,
) -> Bools:
    """The cells that a table hides, in the order of LEVELS, of persons who earn `pay`."""
    rows = path_rows(np.broadcast_to(pay[:, None, None], (len(pay), LAST - 2022, 2)))
    made = {"currency": "SEK", "price_year": 2022, "facts": shipped_facts().provenance()}
    paths = PathRows(rows.lazy(), made)
    request = PopulationRequest(by, until=LAST)
    panel = read_panel(persons, prices=2022)
    population = population_of(paths, panel, request, weights, shipped_facts())
    table = make_tables(population, request, RULES, transition_years=None).statistics
    shown = table.filter(statistic="persons", year=LAST)["suppressed"].to_numpy()
    flags = shown.reshape([len(LEVELS[name]) + 1 for name in by])
    return flags.transpose([by.index(name) for name in LEVELS])


@pytest.mark.parametrize(("seed", "other"), [(0, "order"), (1, "scenario"), (0, "weights")])
def test_what_two_tables_hide_of_a_year_protects_small_cells(seed: int, other: str) -> None:
    """A cell that only one of them hides is known: the first hides one, the other another one."""
    rng = np.random.default_rng(seed)
    count = rng.negative_binomial(0.9, 0.03, [len(levels) for levels in LEVELS.values()])
    persons = persons_of(count)
    pay, of_scenario = rng.lognormal(12, 0.5, persons.height), rng.lognormal(0, 0.5, persons.height)
    weights = persons.select("person_id", weight=pl.Series(rng.uniform(0.5, 2, persons.height)))
    asked: dict[str, dict[str, Any]] = {
        "order": {"by": tuple(reversed(LEVELS))},
        "scenario": {"pay": pay * of_scenario},
        "weights": {"weights": weights},
    }
    first: dict[str, Any] = {"persons": persons, "pay": pay}
    both = hidden_cells(**first) & hidden_cells(**first | asked[other])
    for axis in range(count.ndim):
        count = np.concatenate([count, count.sum(axis, keepdims=True)], axis)
    for cell in map(tuple, np.argwhere((count > 0) & (count < RULES.minimum)).tolist()):
        assert both[cell]
        low, high = possible_range(count.astype(float), both, cell)
        assert high - low >= 2 * RULES.protection * count[cell] * (1 - 1e-6)
