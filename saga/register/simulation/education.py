"""Education: plans by cohort, sex and ability; upper secondary, tertiary and adult study."""

from __future__ import annotations

import numpy as np

from saga.register.simulation.cohort_year import CohortYear
from saga.register.simulation.labour_market import draw_index, field_cdf
from saga.register.simulation.life_state import Bools, Floats, Ints, Labour, LifeState
from saga.register.simulation.parameters import Section, step_value
from saga.schema import MIN_AGE

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
