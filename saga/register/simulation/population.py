"""Population: cohorts, education, immigration, death, emigration, moves between counties."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saga import schema
from saga.arrays import Bools, Floats, Ints
from saga.register.simulation.economy import (
    COUNTY_PULL_ON_IMMIGRANTS,
    COUNTY_PULL_ON_YOUNG,
    COUNTY_SHARE,
    cumulate,
    draw_index,
    field_cdf,
)
from saga.register.simulation.life_state import (
    MAX_BIRTHS,
    CohortYear,
    Exit,
    Labour,
    LifeState,
    Presence,
    Region,
)
from saga.register.simulation.parameters import (
    Parameters,
    Section,
    by_sex,
    read_columns,
    step_value,
    step_values,
    to_numbers,
)
from saga.schema import MAX_AGE, MIN_AGE

COMPULSORY, UPPER_SECONDARY, SHORT_TERTIARY, LONG_TERTIARY = range(4)
GENERAL = 0  # general field of education
NORMAL_LOGIT = 1.702  # scale at which the logistic is close to the normal distribution


def attainment_shares(birth_year: int, female: bool, p: Section) -> tuple[float, float, float]:
    """Cumulative shares of final attainment in a cohort.

    Compulsory school, at most upper secondary school, at most short tertiary education.
    """
    curves = (
        (p.compulsory_women, p.short_women, p.long_women)
        if female
        else (p.compulsory_men, p.short_men, p.long_men)
    )
    compulsory, short, long = (float(np.interp(birth_year, p.cohorts, curve)) for curve in curves)
    return compulsory, 1.0 - short - long, 1.0 - long


def draw_plans(
    birth_year: int,
    female: Bools,
    ability: Floats,
    rng: np.random.Generator,
    p: Section,
) -> tuple[Ints, Ints, Ints]:
    """Final level, final field, and the age at which tertiary study starts (n,) each.

    `ability` is standard normal.
    """
    n = len(female)
    noise = rng.standard_normal(n)
    rank = p.ability_correlation * ability + np.sqrt(1.0 - p.ability_correlation**2) * noise
    # Rank among persons of the same sex, compared with the shares of the cohort.
    u = 1.0 / (1.0 + np.exp(-NORMAL_LOGIT * rank))
    cuts = np.array([attainment_shares(birth_year, sex, p) for sex in (False, True)])
    level = (u[:, None] > cuts[female.astype(np.int64)]).sum(axis=1)
    v = rng.random((2, n))
    field = draw_index(field_cdf()[level, female.astype(np.int64)], v[0])
    delay = np.floor(p.tertiary_start_spread * -np.log1p(-v[1])).astype(np.int64)
    return level, field, np.minimum(p.tertiary_first_age + delay, p.tertiary_last_start)


def simulate_education(life: LifeState, year: CohortYear) -> Bools:
    """One year of education; returns flags of persons whose study ends this year (n,)."""
    u = year.rng.random((3, len(life)))
    resident = life.resident
    if year.age == MIN_AGE:
        _enrol_upper_secondary(life, resident, u[0], year.parameters.education)
    else:
        _enrol_older(life, year, resident, u)
    studying = resident & (life.state == Labour.STUDENT)
    life.study_left[studying] -= 1
    done = studying & (life.study_left <= 0)
    life.level[done] = np.maximum(life.level[done], life.study_goal[done])
    with_field = done & (life.level > COMPULSORY)
    # Upper secondary school is general for persons who plan tertiary study.
    prepares = (life.level == UPPER_SECONDARY) & (life.plan_level > UPPER_SECONDARY)
    field = np.where(prepares, GENERAL, life.plan_field)
    life.field[with_field] = field[with_field]
    return np.asarray(done)


def _enrol_upper_secondary(life: LifeState, resident: Bools, u: Floats, p: Section) -> None:
    years = p.upper_secondary_years
    _begin(life, resident & (life.plan_level >= UPPER_SECONDARY), UPPER_SECONDARY, years)
    # Most persons who never finish upper secondary school start it and leave.
    share = np.clip((life.birth_year - p.dropout_first) / p.dropout_years, *p.dropout_bounds)
    _begin(life, resident & (life.plan_level == COMPULSORY) & (u < share), COMPULSORY, years)
    others = resident & (life.state != Labour.STUDENT)
    life.state[others], life.duration[others] = Labour.UNEMPLOYED, 0


def _enrol_older(life: LifeState, year: CohortYear, resident: Bools, u: Floats) -> None:
    """Start tertiary study at the planned age, and adult education."""
    p, age = year.parameters.education, year.age
    free = resident & np.isin(life.state, (Labour.EMPLOYED, Labour.UNEMPLOYED, Labour.OUTSIDE))
    tertiary = (
        free
        & (life.level < life.plan_level)
        & (life.plan_level > UPPER_SECONDARY)
        & (age >= life.study_age)
        & (age < p.tertiary_before)
        & (u[1] < p.tertiary_enrolment)
    )
    for level, years in zip((SHORT_TERTIARY, LONG_TERTIARY), p.tertiary_years, strict=True):
        _begin(life, tertiary & (life.plan_level == level), level, years)
    if p.adult_ages[0] <= age <= p.adult_ages[1]:
        rate = p.adult_return * step_value(p.knowledge_lift, year.calendar_year)
        by_work = np.where(life.state == Labour.EMPLOYED, p.adult_by_work[1], p.adult_by_work[0])
        factor = by_work * step_value(p.adult_by_age, age)
        returns = free & (life.state != Labour.STUDENT) & (u[2] < rate * factor)
        goal = np.where(life.level == COMPULSORY, UPPER_SECONDARY, life.level)
        _begin(life, returns, goal[returns], 1)


def _begin(life: LifeState, rows: Bools, goal: int | Ints, years: int) -> None:
    life.state[rows], life.duration[rows], life.study_left[rows] = Labour.STUDENT, 0, years
    life.study_goal[rows] = goal


ARRAY_TYPES = {"Bools": np.bool_, "Floats": np.float64, "Ints": np.int64}  # of a `LifeState`
_IMMIGRANTS = read_columns("immigrant_regions")
_PERIODS = to_numbers(_IMMIGRANTS["from_year"])
REGION_SHARES = np.stack(
    [to_numbers(_IMMIGRANTS[region]) for region in schema.BIRTH_REGIONS], axis=1
)  # (period, region)


def entry_weights(birth_year: int, last_year: int, p: Section) -> tuple[Ints, Floats]:
    """Entry years of a cohort and their weights, relative to the natives.

    The first entry is the natives: year 0, weight 1. Later entry years are those of immigrants who
    have a row between 16 and 64 and within the panel.
    """
    first_entry = max(p.immigration_first_year, birth_year)
    years = np.arange(first_entry, min(last_year, birth_year + MAX_AGE - 2) + 1)
    age = years - birth_year
    density = np.exp(-0.5 * ((age - p.immigration_age_mean) / p.immigration_age_sd) ** 2)
    density /= (
        density.sum()
        if len(density) > p.immigration_whole_years
        else np.sqrt(2 * np.pi) * p.immigration_age_sd
    )
    flow = np.interp(years, *np.array(p.immigration_flow).T)
    return np.concatenate([[0], years]), np.concatenate([[1.0], p.immigration * flow * density])


def cohort_sizes(persons: int, first_year: int, last_year: int, p: Section) -> dict[int, int]:
    """Persons of each birth cohort with a row in the panel; they sum to `persons`.

    All native cohorts have the same size; their immigrants are added.
    """
    years = range(first_year - MAX_AGE, last_year - MIN_AGE + 1)
    weights = np.array([entry_weights(b, last_year, p)[1].sum() for b in years])
    edges = np.round(np.concatenate([[0.0], np.cumsum(weights)]) / weights.sum() * persons).astype(
        int
    )
    return {b: int(n) for b, n in zip(years, np.diff(edges), strict=True) if n > 0}


def create_cohort(
    birth_year: int, serials: Ints, panel_years: range, rng: np.random.Generator, p: Parameters
) -> LifeState:
    """The persons of a chunk at 16 with their lasting traits; some arrive in the country later."""
    n = len(serials)
    u, normal = rng.random((8, n)), rng.standard_normal((8, n))
    years, weights = entry_weights(birth_year, panel_years[-1], p.population)
    immigration = years[draw_index(cumulate(weights), u[0])]  # year; 0 for natives
    period = np.maximum(np.searchsorted(_PERIODS, immigration, side="right") - 1, 0)
    foreign_region = np.maximum(draw_index(cumulate(REGION_SHARES)[period], u[1]), 1)
    region = np.where(immigration > 0, foreign_region, Region.SWEDEN)
    entry = np.maximum(immigration, birth_year + MIN_AGE)
    female = u[2] < p.population.female_share
    ability, c = normal[0], p.careers
    level, field, study_age = draw_plans(birth_year, female, ability, rng, p.education)
    slope = c.slope_sd * (
        c.slope_correlation * ability + np.sqrt(1 - c.slope_correlation**2) * normal[1]
    )
    schooled = immigration > birth_year + p.population.arrival_school_age
    never_wants = by_sex(p.population.never_wants, female)

    zeros: dict[str, NDArray[Any]] = {
        f.name: np.zeros(n, ARRAY_TYPES[str(f.type)])
        for f in fields(LifeState)
        if f.name != "birth_year"
    }
    return replace(
        LifeState(birth_year=birth_year, **zeros),
        person=serials,
        female=female,
        region=region,
        entry=entry,
        ability=ability,
        slope=slope,
        attachment=normal[2],
        health=normal[3],
        wants_children=u[3] > never_wants,
        plan_level=level,
        plan_field=field,
        study_age=study_age,
        presence=np.where(entry > birth_year + MIN_AGE, Presence.NOT_ARRIVED, Presence.RESIDENT),
        county=_draw_county(u[4], region),
        births=np.zeros((n, MAX_BIRTHS), np.int64),
        custody=np.ones(n, bool),
        level=np.where(schooled, level, COMPULSORY),
        field=np.where(schooled, field, 0),
        state=np.full(n, Labour.OUTSIDE, np.int64),
        employer=np.full(n, -1),
        industry=np.full(n, -1),
        occupation=np.full(n, -1),
        hours=np.ones(n),
        shock=c.start_shock_sd * normal[4],
        insured=u[5] < p.benefits.insured,
    )


def _draw_county(u: Floats, region: Ints) -> Ints:
    """County of birth or of arrival; large cities attract the foreign-born."""
    arrival = draw_index(cumulate(COUNTY_SHARE * COUNTY_PULL_ON_IMMIGRANTS), u)
    return np.where(region > Region.SWEDEN, arrival, draw_index(cumulate(COUNTY_SHARE), u))


def simulate_population(life: LifeState, year: CohortYear) -> Floats:
    """Arrivals, deaths, departures, returns and county moves of the year.

    Returns the share of the year before each person's arrival or return (n,), 0 for all others.
    Nobody dies or leaves before the first row.
    """
    p, n = year.parameters.population, len(life)
    u = year.rng.random((5, n))
    absent = np.zeros(n)
    arriving = (life.presence == Presence.NOT_ARRIVED) & (life.entry == year.calendar_year)
    life.presence[arriving] = Presence.RESIDENT
    absent[arriving] = u[0][arriving]
    seeks = u[1] < np.asarray(p.seek_at_arrival)[life.region]
    life.state[arriving] = np.where(seeks, Labour.UNEMPLOYED, Labour.OUTSIDE)[arriving]
    life.duration[arriving] = 0
    life.experience[arriving] = p.arrival_experience * max(year.age - p.arrival_work_age, 0)
    returning = (life.presence == Presence.ABROAD) & (u[2] < p.temporary_return)
    life.presence[returning] = Presence.RESIDENT
    absent[returning] = u[0][returning]
    _resume_work(life, returning)
    if year.calendar_year > year.first_year:
        _lose_persons(life, year, returning, u)
    _move_county(life, year)
    return absent


def _lose_persons(life: LifeState, year: CohortYear, returning: Bools, u: Floats) -> None:
    """Deaths and departures of persons who already have a row."""
    p = year.parameters.population
    recorded = (
        (life.entry < year.calendar_year)
        & ((life.presence == Presence.RESIDENT) | (life.presence == Presence.ABROAD))
        & (year.calendar_year > life.birth_year + MIN_AGE)
    )
    _exit(life, recorded & (u[3] < death_rate(life, year)), year.calendar_year, Exit.DEAD)
    leaving = (
        recorded
        & (life.presence == Presence.RESIDENT)
        & ~returning
        & (u[4] < emigration_rate(life, year))
    )
    share = np.where(life.region == Region.SWEDEN, p.temporary_share, p.temporary_share_foreign)
    temporary = leaving & (u[1] < share)
    life.presence[temporary] = Presence.ABROAD
    _exit(life, leaving & ~temporary, year.calendar_year, Exit.EMIGRATED)


def death_rate(life: LifeState, year: CohortYear) -> Floats:
    """Gompertz rate by sex with a falling trend; by education, health and work (n,)."""
    p = year.parameters.population
    age = year.age - p.death_reference_age
    log = (
        by_sex(p.death_level, life.female)
        + by_sex(p.death_slope, life.female) * age
        + p.death_trend * (year.calendar_year - p.death_reference_year)
        + np.log(p.death_by_education)[life.level]
        + p.death_health * life.health
    )
    jobless = (life.state == Labour.UNEMPLOYED) | (life.state == Labour.OUTSIDE)
    log = log + p.death_disabled * (life.disability > 0) + p.death_jobless * jobless
    return np.asarray(np.exp(log), dtype=np.float64)


def emigration_rate(life: LifeState, year: CohortYear) -> Floats:
    """Rate of departure, higher for the young, the newly arrived and the educated (n,)."""
    p, age = year.parameters.population, year.age
    young = p.emigration_young_ages[0] <= age <= p.emigration_young_ages[1]
    native = p.emigration_native + (p.emigration_young if young else 0.0)
    foreign = np.asarray(p.emigration_foreign)[life.region] * step_values(
        p.emigration_by_stay, year.calendar_year - life.entry
    )
    by_level = p.emigration_at_compulsory + p.emigration_by_level * life.level
    rate = np.where(life.region == Region.SWEDEN, native * by_level, foreign)
    children = np.where(
        life.children_at_home(year.calendar_year) > 0, p.emigration_with_children, 1.0
    )
    return np.asarray(children * rate * step_value(p.emigration_by_age, age), dtype=np.float64)


def _exit(life: LifeState, rows: Bools, year: int, reason: int) -> None:
    life.presence[rows] = Presence.GONE
    life.exit_year[rows] = year
    life.exit_reason[rows] = reason


def _resume_work(life: LifeState, rows: Bools) -> None:
    """Persons who return from abroad look for work; study and retirement continue."""
    seeks = (
        rows
        & (life.state != Labour.STUDENT)
        & (life.state != Labour.RETIRED)
        & (life.disability == 0)
    )
    life.state[seeks], life.duration[seeks] = Labour.UNEMPLOYED, 0
    life.experience[seeks] += 1.0


def _move_county(life: LifeState, year: CohortYear) -> None:
    """Moves between counties: fewer with age and children, of the young to the large cities."""
    p, age = year.parameters.population, year.age
    u = year.rng.random((2, len(life)))
    rate = (
        p.county_move_at_20
        * np.exp(-p.county_move_fall * max(age - p.county_move_reference_age, 0))
        * step_value(p.county_move_by_age, age)
    )
    factor = np.where(life.births[:, 0] > 0, p.county_move_with_children, 1.0) * np.where(
        life.plan_level >= SHORT_TERTIARY, p.county_move_by_plan[1], p.county_move_by_plan[0]
    )
    moves = np.flatnonzero(life.resident & (u[0] < rate * factor))
    if len(moves):
        pull = COUNTY_SHARE * COUNTY_PULL_ON_YOUNG if age < p.county_pull_age else COUNTY_SHARE
        life.county[moves] = draw_index(cumulate(pull), u[1][moves])
