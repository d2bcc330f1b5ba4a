"""Who studies what and when: plans by cohort, sex and ability; upper secondary school, tertiary study, adult education."""

from __future__ import annotations

import numpy as np

from saga.register.simulation.labour_market import field_cdf, pick
from saga.register.simulation.life_state import (
    EMPLOYED,
    OUTSIDE,
    STUDENT,
    UNEMPLOYED,
    Bools,
    Floats,
    Ints,
    LifeState,
)
from saga.register.simulation.parameters import EducationParameters

COMPULSORY, UPPER_SECONDARY, SHORT_TERTIARY, LONG_TERTIARY = range(4)


def shares(birth_year: int, female: bool, p: EducationParameters) -> tuple[float, float, float]:
    """Cumulative final attainment of a cohort: shares with compulsory, at most upper secondary, at most short tertiary."""
    curves = (
        (p.compulsory_women, p.short_women, p.long_women)
        if female
        else (p.compulsory_men, p.short_men, p.long_men)
    )
    compulsory, short, long = (float(np.interp(birth_year, p.cohorts, curve)) for curve in curves)
    return compulsory, 1.0 - short - long, 1.0 - long


def plan(
    birth_year: int,
    female: Bools,
    ability: Floats,
    rng: np.random.Generator,
    p: EducationParameters,
) -> tuple[Ints, Ints, Ints]:
    """Final level, field and the age at which tertiary study starts. `ability` is standard normal."""
    n = len(female)
    rank = p.ability_correlation * ability + np.sqrt(
        1.0 - p.ability_correlation**2
    ) * rng.standard_normal(n)
    # Rank among one's own sex, in the cohort's shares (normal scores; 1.702 makes the logistic close to the normal CDF).
    u = 1.0 / (1.0 + np.exp(-1.702 * rank))
    cuts = np.array([shares(birth_year, sex, p) for sex in (False, True)])[female.astype(np.int64)]
    level = (u[:, None] > cuts).sum(axis=1)
    draw = rng.random((2, n))
    field = pick(field_cdf()[level, female.astype(np.int64)], draw[0])
    start = 19 + np.floor(p.tertiary_start_spread * -np.log1p(-draw[1])).astype(np.int64)
    return level, field, np.minimum(start, 38)


def advance(
    life: LifeState, year: int, age: int, rng: np.random.Generator, p: EducationParameters
) -> Bools:
    """One year of school. Returns who left school during the year and now looks for work (n,)."""
    u = rng.random((3, len(life)))
    here = life.resident
    _enrol(life, year, age, here, u, p)
    studying = here & (life.state == STUDENT)
    life.study_left[studying] -= 1
    done = studying & (life.study_left <= 0)
    life.level[done] = np.maximum(life.level[done], life.study_goal[done])
    named = done & (life.level > COMPULSORY)
    life.field[named] = np.where(
        life.level[named] == UPPER_SECONDARY, _school_field(life, named), life.plan_field[named]
    )
    return np.asarray(done)


def _school_field(life: LifeState, who: Bools) -> Ints:
    """Upper secondary field: general (0) for those who go on to tertiary study, else the planned one."""
    return np.where(life.plan_level[who] > UPPER_SECONDARY, 0, life.plan_field[who])


def _enrol(
    life: LifeState, year: int, age: int, here: Bools, u: Floats, p: EducationParameters
) -> None:
    """Start studies: upper secondary at 16, tertiary at the planned age, adults back to school."""
    if age == 16:
        _begin(life, here & (life.plan_level >= UPPER_SECONDARY), UPPER_SECONDARY, 3)
        # Most of the young without upper secondary school try it and leave (after 1970 nearly all start).
        tries = (
            here
            & (life.plan_level == COMPULSORY)
            & (u[0] < np.clip((life.birth_year - 1950) / 30, 0.1, 0.95))
        )
        _begin(life, tries, COMPULSORY, 3)
        rest = here & (life.state != STUDENT)
        life.state[rest], life.duration[rest] = UNEMPLOYED, 0
        return
    free = here & ((life.state == EMPLOYED) | (life.state == UNEMPLOYED) | (life.state == OUTSIDE))
    tertiary = (
        free
        & (life.level < life.plan_level)
        & (life.plan_level > UPPER_SECONDARY)
        & (age >= life.study_age)
        & (age < 45)
    )
    tertiary &= u[1] < 0.6
    _begin(life, tertiary & (life.plan_level == SHORT_TERTIARY), SHORT_TERTIARY, 3)
    _begin(life, tertiary & (life.plan_level == LONG_TERTIARY), LONG_TERTIARY, 5)
    if 20 < age <= 45:
        rate = p.adult_return * (2.0 if 1997 <= year <= 2002 else 1.0)
        pull = np.where(life.state == EMPLOYED, 0.5, 2.2) * np.where(age < 31, 1.4, 0.7)
        back = free & (life.state != STUDENT) & (u[2] < rate * pull)
        goal = np.where(life.level == COMPULSORY, UPPER_SECONDARY, life.level)
        life.study_goal[back] = goal[back]
        _begin(life, back, None, 1)


def _begin(life: LifeState, who: Bools, goal: int | None, years: int) -> None:
    life.state[who], life.duration[who], life.study_left[who] = STUDENT, 0, years
    if goal is not None:
        life.study_goal[who] = goal
