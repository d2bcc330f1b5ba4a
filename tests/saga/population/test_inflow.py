"""Who joins earns what persons of the age earn, after wages, on every path; nobody is revealed.

In the world of most tests earnings are a curve of age times real wages of the path and year, for
women the half of it: what an entrant earns is known by hand, whoever is the donor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from differencing import possible_range

from saga.arrays import Floats
from saga.data.facts import shipped_facts
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.entrants import Entrants, entrants_from
from saga.errors import InputError, SagaError
from saga.group_statistics import GROUP_STATISTICS
from saga.model_error import ModelError
from saga.population.cell_statistics import PathStatistic
from saga.population.disclosure import DisclosureRules
from saga.population.group_bands import band
from saga.population.policy_tables import make_tables
from saga.population.population_paths import (
    Population,
    Present,
    grid_of,
    population_of,
    statistics_of,
)
from saga.population.scored_paths import PathRows
from saga.requests import PopulationRequest

ORIGIN, LAST, PATHS = 2022, 2070, 5
EACH = 12  # persons of an age and sex
WAGES = np.exp(
    np.cumsum(np.random.default_rng(1).normal(0.015, 0.02, (LAST - ORIGIN, PATHS)), axis=0)
)


def curve(age: Floats | int) -> Floats:
    return np.asarray(1e5 + 8e3 * np.asarray(age, dtype=float))


def people(ages: range = range(16, 60), each: int = EACH) -> pl.DataFrame:
    """Women and men of all ages, a row each."""
    age, sex, _ = (a.ravel() for a in np.meshgrid(ages, [0, 1], range(each), indexing="ij"))
    return pl.DataFrame(
        {
            "person_id": [f"{number:05d}" for number in range(len(age))],
            "year": ORIGIN,
            "birth_year": ORIGIN - age,
            "earnings": 1e5,
            "sex": np.array(["female", "male"])[sex],
        }
    )


Earn = Callable[[Floats, Floats, Floats], Floats]  # ages, share of the curve, wages


def as_wages_and_age(age: Floats, share: Floats, wages: Floats) -> Floats:
    return curve(age) * share * wages


def paths_of(
    persons: pl.DataFrame, earn: Earn = as_wages_and_age, real_wages: Floats = WAGES
) -> PathRows:
    person, ahead, path = (g.ravel() for g in np.indices((persons.height, *real_wages.shape)))
    age = ORIGIN + 1 + ahead - persons["birth_year"].to_numpy()[person]
    share = np.where(persons["sex"].to_numpy() == "female", 0.5, 1.0)[person]
    wages = real_wages[ahead, path]
    rows = pl.DataFrame(
        {
            "person_id": persons["person_id"].to_numpy()[person],
            "path": path.astype(np.int32),
            "year": (ORIGIN + 1 + ahead).astype(np.int32),
            "earnings": earn(age.astype(float), share, wages),
            "wage_index": wages,
        }
    ).filter(pl.lit(age <= 64))
    return PathRows(
        rows.lazy(),
        {"currency": "SEK", "price_year": 2022, "facts": shipped_facts().provenance()},
    )


PEOPLE = people()
FRAME_PATHS = paths_of(PEOPLE)
PANEL = read_panel(PEOPLE, prices=2022)


def population(
    *inflow: Entrants,
    by: tuple[str, ...] = (),
    paths: PathRows = FRAME_PATHS,
    panel: Panel | None = PANEL,
    weights: pl.DataFrame | None = None,
) -> tuple[Population, PopulationRequest]:
    request = PopulationRequest(by, inflow=inflow)
    return population_of(paths, panel, request, weights, shipped_facts()), request


def by_cell(
    of: tuple[Population, PopulationRequest], year: int
) -> dict[tuple[str, ...], dict[str, PathStatistic]]:
    """The statistics of each cell of a year."""
    grid = grid_of(*of)
    present = Present.of(of[0], grid, of[0].year(year, ()), year)
    return {names: statistics for _, names, statistics in statistics_of(present, grid)}


def total(of: tuple[Population, PopulationRequest], year: int) -> Floats:
    return by_cell(of, year)[()]["total"].values


WITHOUT = population()


@pytest.mark.parametrize("year", [2030, 2045, 2070])
def test_entrants_earn_the_curve_of_their_age_times_the_wages_of_the_path(year: int) -> None:
    """Young women of 2030, and immigrants of both sexes of 2045 at age 50, who leave after 64."""
    joined = population(Entrants(2030, 20, 1000, "female"), Entrants(2045, 50, 300))
    women = 1000 * 0.5 * curve(20 + year - 2030)
    both = 300 * 0.75 * curve(50 + year - 2045) * (2045 <= year <= 2059)
    added = (women + both) * WAGES[year - ORIGIN - 1]
    assert total(joined, year) - total(WITHOUT, year) == pytest.approx(added, rel=1e-9)
    persons = (
        by_cell(joined, year)[()]["persons"].values - by_cell(WITHOUT, year)[()]["persons"].values
    )
    assert persons == pytest.approx(1000.0 + 300 * (2045 <= year <= 2059))


def test_copies_of_persons_count_as_these_persons_with_larger_weights() -> None:
    """Of all statistics and groups, on every path and in all years from their entry on."""
    rng = np.random.default_rng(3)
    paths = paths_of(PEOPLE, lambda age, share, wages: rng.lognormal(12, 0.6, len(age)) * share)
    raised = 1.0 + 2.5 * ((pl.col("birth_year") == 1993) & (pl.col("sex") == "male"))
    weights = PEOPLE.select("person_id", weight=raised)
    copies = Entrants(ORIGIN + 1, 30, 2.5 * EACH, "male")
    joined = population(copies, by=("sex", "age"), paths=paths)
    weighted = population(by=("sex", "age"), paths=paths, weights=weights)
    for year in (2023, 2040):
        cells = by_cell(joined, year)
        for names, expected in by_cell(weighted, year).items():
            for name in GROUP_STATISTICS:
                assert cells[names][name].values == pytest.approx(
                    expected[name].values, rel=1e-9, nan_ok=True
                ), (names, name)


INFLOW = [
    Entrants(year, 19, 40.0 + year % 7, sex) for year in (2025, 2035) for sex in ("female", "male")
]


def test_groups_add_up_and_twice_the_persons_add_twice_as_much() -> None:
    by = ("sex", "cohort")
    once = population(*INFLOW, by=by)
    cells = by_cell(once, 2040)
    for name in ("persons", "total"):
        inner = [cells[names][name].values for names in cells if "total" not in names]
        assert sum(inner) == pytest.approx(cells["total", "total"][name].values, rel=1e-12)
    twice = population(*(row._replace(persons=2 * row.persons) for row in INFLOW), by=by)
    without = total(WITHOUT, 2040)
    assert total(population(*INFLOW), 2040) - without == pytest.approx(
        (by_cell(twice, 2040)["total", "total"]["total"].values - without) / 2, rel=1e-9
    )


def test_own_futures_are_those_of_as_many_persons_as_join() -> None:
    """300 entrants of 12 donors vary like 300 persons, although 12 careers are simulated."""
    rng, deviation, paths = np.random.default_rng(4), 5e4, 60
    noise = paths_of(
        PEOPLE,
        lambda age, share, wages: 3e5 + deviation * rng.standard_normal(len(age)),
        np.ones((LAST - ORIGIN, paths)),
    )
    joined = population(Entrants(2023, 30, 300, "male"), paths=noise)
    found = band(by_cell(joined, 2023)[()]["total"])
    assert found.sd_paths == pytest.approx(deviation * (PEOPLE.height + 300) ** 0.5, rel=0.15)
    assert found.sd_persons == 0


def table_of(of: tuple[Population, PopulationRequest], year: int) -> pl.DataFrame:
    """The numbers of persons in the last year of the tables."""
    rules = DisclosureRules(count_base=1)
    tables = make_tables(of[0], replace(of[1], until=year), rules, transition_years=None)
    return tables.statistics.filter(statistic="persons", year=year)


def test_few_persons_are_hidden_from_those_who_know_who_joins() -> None:
    """In 2027 five men are over 60. All under 20 are entrants, whose number everybody knows."""
    number = pl.int_range(pl.len()).over("birth_year", "sex")
    keep = (
        (pl.col("sex") == "female") | ~pl.col("birth_year").is_between(1963, 1967) | (number == 0)
    )
    everybody = people(range(20, 64)).filter(keep)
    of: dict[str, Any] = {"paths": paths_of(everybody), "panel": read_panel(everybody, prices=2022)}
    young = [Entrants(2027, 19, 30, sex) for sex in ("female", "male")]
    table = table_of(population(*young, by=("sex", "age"), **of), 2027)
    known = by_cell(population(by=("sex", "age"), **of), 2027)  # what is left without entrants
    sexes, ages = (table[name].unique(maintain_order=True).to_list() for name in ("sex", "age"))
    values = np.array(
        [
            [known[sex, age]["persons"].values[0] if (sex, age) in known else 0.0 for age in ages]
            for sex in sexes
        ]
    )
    hidden = table["suppressed"].to_numpy().reshape(values.shape) & (values > 0)
    cell = sexes.index("male"), ages.index("60-69")
    low, high = possible_range(values, hidden, cell)
    assert (values[cell], hidden[cell]) == (5, True)
    assert low <= 5 * 0.85
    assert high >= 5 * 1.15
    shown = table.filter(age="10-19", sex="male").row(0, named=True)
    assert (shown["value"], shown["suppressed"]) == (30, False), "twelve donors are enough"


def test_few_donors_of_a_group_are_hidden_although_the_panel_has_many_persons_of_it() -> None:
    """Three of the twelve women of 30 are graduates, and so are half of all others."""
    number = pl.int_range(pl.len()).over("birth_year", "sex")
    few = (pl.col("birth_year") == 1993) & (pl.col("sex") == "female")
    graduate = pl.when(few).then(number < 3).otherwise(number < EACH // 2)
    level = pl.when(graduate).then(pl.lit("long_tertiary")).otherwise(pl.lit("compulsory"))
    panel = read_panel(PEOPLE.with_columns(education_level=level), prices=2022)
    by, who = ("education_level",), Entrants(2023, 30, 600, "female")
    without, joined = (
        table_of(population(*rows, by=by, panel=panel), 2023) for rows in ((), (who,))
    )
    assert not without["suppressed"].any()
    assert joined.filter(education_level="long_tertiary")["suppressed"].item()


def test_lifetimes_are_those_of_the_panel() -> None:
    rules = DisclosureRules()
    tables = [make_tables(*of, rules, transition_years=5) for of in (population(*INFLOW), WITHOUT)]
    lifetimes = [table.statistics.filter(pl.col("year").is_null()) for table in tables]
    assert lifetimes[0].equals(lifetimes[1])
    assert tables[0].transitions.equals(tables[1].transitions)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"persons": ""}, "no valid persons"),
        ({"persons": "many"}, "no valid persons"),
        ({"persons": -1}, "no valid persons"),
        ({"persons": float("nan")}, "no valid persons"),
        ({"persons": "inf"}, "no valid persons"),
        ({"age": 15}, "no valid age"),
        ({"age": 65}, "no valid age"),
        ({"age": 30.5}, "no valid age"),
        ({"year": "2030.5"}, "no valid year"),
        ({"sex": "x"}, "no valid sex"),
        ({"wage": 1}, "the unknown column wage"),
        ({}, "the year, age and sex of an earlier row"),
        ({"sex": ""}, "the year, age and sex of an earlier row"),  # a total beside its part
    ],
)
def test_rows_that_cannot_be_read_are_named(row: dict[str, Any], message: str) -> None:
    good = {"year": 2030, "age": 20, "persons": 3, "sex": "male"}
    with pytest.raises(InputError, match=f"Row 2 of the inflow has {message}"):
        entrants_from([good, good | row])


def _without(column: str) -> PathRows:
    return PathRows(FRAME_PATHS.rows.drop(column), FRAME_PATHS.provenance)


@pytest.mark.parametrize(
    ("row", "options", "message"),
    [
        (Entrants(2022, 20, 5), {}, "Row 1 of the inflow is about 2022; forecasts are from 2023"),
        (Entrants(2071, 20, 5), {}, "to 2070"),
        (Entrants(2023, 64, 5), {}, "Row 1 of the inflow has fewer than ten donors near age 64"),
        (Entrants(2023, 30, 5), {"by": ("career_fifth",)}, "career_fifth is about careers"),
        (Entrants(2023, 30, 5), {"panel": None}, "Give the panel"),
        (Entrants(2023, 30, 5), {"paths": _without("wage_index")}, "with --wages"),
        (
            Entrants(2023, 30, 5),
            {"paths": PathRows(FRAME_PATHS.rows, {**FRAME_PATHS.provenance, "aligned": {}})},
            "adjusted to totals of each year",
        ),
    ],
)
def test_who_cannot_join_is_refused_with_the_reason(
    row: Entrants, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SagaError, match=message):
        population(row, **options)


def test_levels_of_age_are_those_that_count() -> None:
    grid = grid_of(*population(by=("age", "sex")))  # the youngest become 64 in the last years
    assert grid.levels[0] == ("10-19", "20-29", "30-39", "40-49", "50-59", "60-69")


def test_the_error_of_lifetimes_counts_each_year_by_what_is_earned_in_it() -> None:
    """Against the covariances of all years, which are the variance of the earlier one."""
    deviations = {"1": 0.01, "5": 0.02, "10": 0.03, "20": 0.05}
    error = ModelError([ORIGIN], {}, {"mean": dict.fromkeys(("everybody", "groups"), deviations)})
    plain, request = population(by=("birth_year",))
    request = replace(request, until=ORIGIN + 1)
    table = make_tables(replace(plain, model_error=error), request, DisclosureRules()).statistics
    found = table.filter(pl.col("year").is_null(), statistic="lifetime_mean", suppressed=False)
    variance = [error.sd("mean", "groups", {h: 1.0}, 1.0) or 0.0 for h in range(1, 49)]
    earlier = np.minimum.outer(np.arange(48), np.arange(48))
    covariance = np.array(variance)[earlier] ** 2
    years = np.arange(1, 49)
    for row in found.filter(pl.col("birth_year") != "total").iter_rows(named=True):
        age = ORIGIN - int(row["birth_year"]) + years
        shares = np.where(age <= 64, curve(age.astype(float)) * WAGES.mean(1) * 1.02**-years, 0.0)
        shares /= shares.sum()
        expected = float(np.sqrt(shares @ covariance @ shares))
        # Published amounts are rounded.
        assert row["sd_model"] / row["value"] == pytest.approx(expected, rel=5e-3)
    assert found.height > 40  # ages
