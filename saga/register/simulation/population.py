"""Who is there: cohorts and their founders, immigration, moves between counties, absence abroad, emigration and death."""

from __future__ import annotations

import numpy as np

from saga.register.simulation.education import COMPULSORY, plan
from saga.register.simulation.labour_market import COUNTY_SHARE, cumulate, pick
from saga.register.simulation.life_state import (
    ABROAD,
    DEAD,
    EMIGRATED,
    GONE,
    MAX_BIRTHS,
    NOT_ARRIVED,
    OUTSIDE,
    RESIDENT,
    RETIRED,
    STUDENT,
    UNEMPLOYED,
    Bools,
    Floats,
    Ints,
    LifeState,
)
from saga.register.simulation.parameters import Parameters, PopulationParameters
from saga.schema import MAX_AGE, MIN_AGE

FIRST_IMMIGRATION = 1945
# Foreign-born immigrants a year relative to one native cohort (about 100,000 births), SCB migration statistics rounded [M].
_FLOW_YEARS = (1945, 1955, 1968, 1972, 1983, 1989, 1993, 1996, 2001, 2006, 2012, 2016, 2019, 2022)
_FLOW = (0.08, 0.12, 0.26, 0.16, 0.14, 0.32, 0.38, 0.20, 0.30, 0.54, 0.62, 0.95, 0.68, 0.54)
# Mix of regions of birth among immigrants, order of schema.BIRTH_REGIONS, by the period that begins in the given year.
_MIX_FROM = np.array([1945, 1975, 1990, 2000, 2010])
_MIX = np.array(
    [
        (0, 0.64, 0.18, 0.12, 0.01, 0.03, 0.01, 0.01),
        (0, 0.35, 0.12, 0.10, 0.04, 0.02, 0.12, 0.25),
        (0, 0.14, 0.14, 0.36, 0.07, 0.03, 0.03, 0.23),
        (0, 0.10, 0.27, 0.11, 0.12, 0.02, 0.03, 0.35),
        (0, 0.05, 0.24, 0.08, 0.17, 0.02, 0.03, 0.41),
    ]
)
# Share of arrivals of working age who look for work at once, by region; the rest learn the language first.
_SEEKS = np.array([0.9, 0.9, 0.85, 0.5, 0.35, 0.7, 0.6, 0.35])


def arrivals(
    birth_year: int, first_year: int, last_year: int, p: PopulationParameters
) -> tuple[Ints, Floats]:
    """Entry years and their weights for a cohort: year 0 stands for the natives (weight 1), then one entry a year of immigration.

    Only entries that give a row between 16 and 64 and within the panel count.
    """
    years = np.arange(
        max(FIRST_IMMIGRATION, birth_year), min(last_year, birth_year + MAX_AGE - 2) + 1
    )
    age = years - birth_year
    density = np.exp(-0.5 * ((age - p.immigration_age_mean) / p.immigration_age_sd) ** 2)
    density /= (
        density.sum() if len(density) > MAX_AGE - 8 else np.sqrt(2 * np.pi) * p.immigration_age_sd
    )
    return np.concatenate([[0], years]), np.concatenate(
        [[1.0], p.immigration * np.interp(years, _FLOW_YEARS, _FLOW) * density]
    )


def cohort_sizes(
    persons: int, first_year: int, last_year: int, p: PopulationParameters
) -> dict[int, int]:
    """Persons of each birth cohort with a row in the panel: equal native cohorts plus their immigrants, summing to `persons`."""
    years = range(first_year - MAX_AGE, last_year - MIN_AGE + 1)
    weights = np.array([arrivals(b, first_year, last_year, p)[1].sum() for b in years])
    edges = np.round(np.concatenate([[0.0], np.cumsum(weights)]) / weights.sum() * persons).astype(
        int
    )
    return {b: int(n) for b, n in zip(years, np.diff(edges), strict=True) if n > 0}


def create_cohort(
    birth_year: int,
    serials: Ints,
    panel_years: range,
    rng: np.random.Generator,
    p: Parameters,
) -> LifeState:
    """The persons of a cohort chunk as they turn 16 (or later arrive), with the traits that they keep for life."""
    n = len(serials)
    u, normal = rng.random((8, n)), rng.standard_normal((8, n))
    entry_years, weights = arrivals(birth_year, panel_years.start, panel_years[-1], p.population)
    came = entry_years[pick(cumulate(weights), u[0])]
    mix = cumulate(_MIX)[np.maximum(np.searchsorted(_MIX_FROM, came, side="right") - 1, 0)]
    region = np.where(came > 0, np.maximum(pick(mix, u[1]), 1), 0)
    entry = np.maximum(came, birth_year + MIN_AGE)
    female = u[2] < 0.492
    ability, c = normal[0], p.careers
    level, field, study_age = plan(birth_year, female, ability, rng, p.education)
    slope = c.slope_sd * (
        c.slope_correlation * ability + np.sqrt(1 - c.slope_correlation**2) * normal[1]
    )
    zero, none = np.zeros(n), np.zeros(n, np.int64)
    old = came > birth_year + 19  # came as adults, with their schooling done
    return LifeState(
        birth_year=birth_year, person=serials, female=female, region=region, entry=entry,
        ability=ability, slope=slope, attachment=normal[2], health=normal[3],
        wants_children=u[3] > np.where(female, p.population.never_wants[1], p.population.never_wants[0]),
        plan_level=level, plan_field=field, study_age=study_age,
        presence=np.where(entry > birth_year + MIN_AGE, NOT_ARRIVED, RESIDENT), exit_year=none.copy(), exit_reason=none.copy(),
        county=_settle(u[4], region), marital=none.copy(), births=np.zeros((n, MAX_BIRTHS), np.int64), custody=np.ones(n, bool),
        partner_level=zero.copy(), partner_shock=zero.copy(), partner_works=np.zeros(n, bool),
        level=np.where(old, level, COMPULSORY), field=np.where(old, field, 0),
        study_goal=np.zeros(n, np.int64), study_left=none.copy(),
        state=np.full(n, OUTSIDE), duration=none.copy(), experience=zero.copy(), tenure=zero.copy(),
        employer=np.full(n, -1), industry=np.full(n, -1), occupation=np.full(n, -1), hours=np.ones(n),
        own=np.zeros(n, bool), profit=zero.copy(),
        shock=0.06 * normal[4], scar=zero.copy(), care=zero.copy(), leave=zero.copy(), sick=zero.copy(), disability=zero.copy(),
        insured=u[5] < p.benefits.insured, pay=zero.copy(), wealth=zero.copy(), mortgage=zero.copy(),
    )  # fmt: skip


def _settle(u: Floats, region: Ints) -> Ints:
    """County of birth, or of arrival: the large cities draw the foreign-born."""
    pull = COUNTY_SHARE.copy()
    pull[[0, 9, 11]] *= 1.35
    return np.where(region > 0, pick(cumulate(pull), u), pick(cumulate(COUNTY_SHARE), u))


def migrate_and_die(
    life: LifeState,
    year: int,
    age: int,
    first_year: int,
    rng: np.random.Generator,
    p: PopulationParameters,
) -> Floats:
    """Arrivals, deaths, departures, returns and county moves of the year.

    Returns the share of the year that each person had already passed when he or she came to live in the country (0 for the settled).
    Nobody leaves before having had one row.
    """
    n = len(life)
    u = rng.random((5, n))
    started = np.zeros(n)
    arriving = (life.presence == NOT_ARRIVED) & (life.entry == year)
    life.presence[arriving] = RESIDENT
    started[arriving] = u[0][arriving]
    life.state[arriving] = np.where(u[1] < _SEEKS[life.region], UNEMPLOYED, OUTSIDE)[arriving]
    life.duration[arriving] = 0
    life.experience[arriving] = 0.5 * max(age - 20, 0)
    back = (life.presence == ABROAD) & (u[2] < p.temporary_return)
    life.presence[back] = RESIDENT
    started[back] = u[0][back]
    _come_home(life, back)
    if year > first_year:
        seen = (
            (life.entry < year)
            & ((life.presence == RESIDENT) | (life.presence == ABROAD))
            & (year > life.birth_year + MIN_AGE)
        )
        _leave_for_good(life, seen & (u[3] < death_rate(life, year, age, p)), year, DEAD)
        goes = (
            seen
            & (life.presence == RESIDENT)
            & ~back
            & (u[4] < emigration_rate(life, year, age, p))
        )
        temporary = goes & (u[1] < np.where(life.region == 0, p.temporary_share, 0.25))
        life.presence[temporary] = ABROAD
        _leave_for_good(life, goes & ~temporary, year, EMIGRATED)
    _move_county(life, age, rng, p)
    return started


def death_rate(life: LifeState, year: int, age: int, p: PopulationParameters) -> Floats:
    """Gompertz hazard by sex with a falling trend, steeper for the little educated and the disabled (n,)."""
    log = np.where(
        life.female,
        p.death_level[1] + p.death_slope[1] * (age - 40),
        p.death_level[0] + p.death_slope[0] * (age - 40),
    )
    log = (
        log
        + p.death_trend * (year - 2010)
        + np.log(p.death_by_education)[life.level]
        + 0.25 * life.health
    )
    log = (
        log
        + 0.9 * (life.disability > 0)
        + 0.35 * ((life.state == UNEMPLOYED) | (life.state == OUTSIDE))
    )
    return np.asarray(np.exp(log), dtype=np.float64)


def emigration_rate(life: LifeState, year: int, age: int, p: PopulationParameters) -> Floats:
    """Departure hazard: the young, the newly arrived and the educated leave (n,)."""
    stay = year - life.entry
    native = p.emigration_native + (p.emigration_young if 19 <= age <= 33 else 0.0)
    foreign = np.asarray(p.emigration_foreign)[life.region] * np.where(
        stay < 5, 1.0, np.where(stay < 12, 0.45, 0.2)
    )
    rate = np.where(life.region == 0, native * (0.7 + 0.3 * life.level), foreign)
    return np.asarray(
        np.where(life.children_at_home(year) > 0, 0.4, 1.0) * rate * (0.3 if age > 50 else 1.0),
        dtype=np.float64,
    )


def _leave_for_good(life: LifeState, who: Bools, year: int, reason: int) -> None:
    life.presence[who] = GONE
    life.exit_year[who] = year
    life.exit_reason[who] = reason


def _come_home(life: LifeState, who: Bools) -> None:
    """After a time abroad people look for work; study and retirement go on."""
    seeks = who & (life.state != STUDENT) & (life.state != RETIRED) & (life.disability == 0)
    life.state[seeks], life.duration[seeks] = UNEMPLOYED, 0
    life.experience[seeks] += 1.0


def _move_county(
    life: LifeState, age: int, rng: np.random.Generator, p: PopulationParameters
) -> None:
    """Moves between counties: the young and students to the large cities, fewer with age and with children."""
    u = rng.random((2, len(life)))
    rate = (
        p.county_move_at_20
        * np.exp(-p.county_move_fall * max(age - 20, 0))
        * (0.25 if age < 19 else 1.0)
    )
    factor = np.where(life.births[:, 0] > 0, 0.6, 1.0) * np.where(life.plan_level >= 2, 1.4, 0.8)
    moves = np.flatnonzero(life.resident & (u[0] < rate * factor))
    if len(moves):
        pull = COUNTY_SHARE.copy()
        pull[[0, 2, 9, 11]] *= np.array([1.3, 1.3, 1.2, 1.2]) if age < 30 else 1.0
        life.county[moves] = pick(cumulate(pull), u[1][moves])
