"""Families: unions, marriage, separation, widowhood, births and parental leave."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from saga.arrays import Bools, Floats
from saga.register.simulation.life_state import (
    MAX_BIRTHS,
    WEEKS,
    CohortYear,
    LifeState,
    Marital,
    Presence,
    Region,
)
from saga.register.simulation.parameters import by_sex, interpolate, step_value, step_values
from saga.register.simulation.population import UPPER_SECONDARY


@dataclass(frozen=True)
class Births:
    """Births of a year (n,), and weeks of parental leave in the year (n,)."""

    new: Bools
    leave: Floats


def simulate_family(life: LifeState, year: CohortYear) -> Births:
    """One year of family life of all who are alive."""
    u = year.rng.random((4, len(life)))
    alive = life.presence != Presence.GONE
    if year.age >= year.parameters.population.union_first_age:
        _change_unions(life, year, alive, u[0], u[1])
    births = _give_birth(life, year, alive, u[2])
    _simulate_partner(life, year)
    return births


def _change_unions(life: LifeState, year: CohortYear, alive: Bools, u: Floats, v: Floats) -> None:
    p, age = year.parameters.population, year.age
    partnered = life.partnered
    has_child = life.births[:, 0] > 0
    forms = alive & ~partnered & (u < _union_rate(life, year))
    marriage = np.where(has_child, p.marriage_with_children, p.marriage)
    marries = alive & (life.marital == Marital.COHABITING) & (v < marriage)
    separation = np.where(
        life.marital == Marital.MARRIED, p.separation_married, p.separation_cohabiting
    ) * np.exp(-p.separation_fall * max(age - p.separation_age, 0))
    splits = alive & partnered & (u < separation)
    partner_death = np.exp(
        p.partner_death_level + p.partner_death_slope * (age - p.partner_death_age)
    ) * by_sex(p.partner_death_by_sex, life.female)
    widowed = alive & partnered & ~splits & (u > 1.0 - partner_death)
    life.marital[splits & (life.marital == Marital.COHABITING)] = Marital.SINGLE
    life.marital[splits & (life.marital == Marital.MARRIED)] = Marital.DIVORCED
    life.marital[widowed] = np.where(
        life.marital[widowed] == Marital.MARRIED, Marital.WIDOWED, Marital.SINGLE
    )
    life.marital[marries & ~splits & ~widowed] = Marital.MARRIED
    life.marital[forms] = Marital.COHABITING
    # After a separation most children are registered with the mother.
    life.custody[splits & (v < by_sex(p.children_leave, life.female))] = False
    _draw_partners(life, year, forms)


def _union_rate(life: LifeState, year: CohortYear) -> Floats:
    p, age = year.parameters.population, year.age
    # Men form unions later than women; before 1990 both formed them earlier.
    after_peak = (
        age
        - by_sex(p.union_peak_age, life.female)
        + interpolate(p.union_earlier, year.calendar_year)
    )
    width = np.where(after_peak < 0, p.union_width[0], p.union_width[1])
    first = p.partner_peak * np.exp(-0.5 * (after_peak / width) ** 2) + p.union_late * (
        age < p.union_late_before
    )
    later = p.repartnering * np.exp(-p.repartnering_fall * max(age - p.repartnering_age, 0))
    rate = np.where(life.marital == Marital.SINGLE, first, later)
    return np.asarray(
        rate * np.exp(p.union_ability * life.ability + p.union_attachment * life.attachment)
    )


def _draw_partners(life: LifeState, year: CohortYear, forms: Bools) -> None:
    p, rng = year.parameters.population, year.rng
    rows = np.flatnonzero(forms)
    if not len(rows):
        return
    education = p.assortative_education * (life.plan_level[rows] - UPPER_SECONDARY)
    shared = p.assortative * (life.ability[rows] + education)
    life.partner_level[rows] = p.partner_level_sd * (
        shared + np.sqrt(1 - p.assortative**2) * rng.standard_normal(len(rows))
    )
    life.partner_shock[rows] = p.partner_start_sd * rng.standard_normal(len(rows))
    life.partner_works[rows] = rng.random(len(rows)) < p.partner_works_at_start


def birth_rate(life: LifeState, year: CohortYear) -> Floats:
    """Birth rate by parity, years since the last birth, education, sex and union (n,)."""
    p, age = year.parameters.population, year.age
    peak = (
        np.interp(year.calendar_year, p.first_birth_years, p.first_birth_age)
        + np.asarray(p.by_education)[life.plan_level]
    )
    peak = peak + np.where(life.female, 0.0, p.father_lag)
    width = np.where(age < peak, p.first_birth_width[0], p.first_birth_width[1]) * p.first_birth_sd
    first = p.first_birth_peak * np.exp(-0.5 * ((age - peak) / width) ** 2)
    parity = life.parity()
    since = np.clip(life.youngest_age(year.calendar_year), 0, len(p.second_birth) - 1)
    second = np.asarray(p.second_birth)[since]
    scale = np.array([0.0, 1.0, p.third_scale, p.third_scale * p.fourth_scale, 0.0])[parity]
    remaining = (by_sex(p.birth_end_age, life.female) - age) / p.birth_end_years
    limit = np.clip(remaining, 0.0, 1.0)
    rate = np.where(parity == 0, first, second * scale) * limit * life.wants_children
    union = np.where(life.partnered, p.birth_in_union[1], p.birth_in_union[0])
    return np.asarray(
        rate * union * np.where(life.region > Region.EUROPE_OTHER, p.birth_foreign, 1.0)
    )


def _give_birth(life: LifeState, year: CohortYear, alive: Bools, u: Floats) -> Births:
    """Births and parental leave.

    Mothers take about a year. Fathers took a few weeks in 1990, and a quarter of the paid days in
    2020 [M].
    """
    p, rng, n = year.parameters.population, year.rng, len(life)
    life.leave *= life.custody  # leave ends when the child lives elsewhere
    leave = np.minimum(life.leave, WEEKS)
    life.leave -= leave
    new, parity = np.zeros(n, bool), life.parity()
    if p.birth_ages[0] <= year.age <= p.birth_ages[1]:
        new = alive & (parity < MAX_BIRTHS) & (u < birth_rate(life, year))
    rows = np.flatnonzero(new)
    if len(rows):
        life.births[rows, parity[rows]] = year.calendar_year
        life.custody[rows] = True
        weeks_left = WEEKS * rng.random(len(rows))  # of the year, after the birth
        father = np.interp(year.calendar_year, p.leave_years, p.father_leave) * rng.exponential(
            size=len(rows)
        )
        mother = np.interp(year.calendar_year, p.leave_years, p.mother_leave) * np.clip(
            1.0 + p.mother_leave_sd * rng.standard_normal(len(rows)), *p.mother_leave_bounds
        )
        female = life.female[rows]
        total = np.where(female, mother, np.minimum(father, p.father_leave_longest))
        father_first = np.minimum(p.father_first_weeks, weeks_left) + p.father_first_share * total
        this_year = np.where(female, np.minimum(total, weeks_left), np.minimum(father_first, total))
        leave[rows] = np.minimum(leave[rows] + this_year, WEEKS)
        life.leave[rows] += total - this_year
    return Births(new, leave)


def _simulate_partner(life: LifeState, year: CohortYear) -> None:
    """The partner's shock and employment; job loss and finding are those of the economy."""
    p, macro = year.parameters.population, year.macro
    u, e = year.rng.random(len(life)), year.rng.standard_normal(len(life))
    life.partner_shock = p.partner_persistence * life.partner_shock + p.partner_shock_sd * e
    stop = p.partner_loss * macro.job_loss + step_value(p.partner_exit_by_age, year.age)
    start = p.partner_finding * macro.job_finding * step_value(p.partner_finding_by_age, year.age)
    life.partner_works = np.where(life.partner_works, u > stop, u < start)


def partner_earnings(life: LifeState, year: CohortYear) -> Floats:
    """The partner's labour earnings relative to the wage level (n,); 0 if there are none."""
    p, base = year.parameters.population, year.parameters.careers.base
    wife = ~life.female
    by_child = step_values(p.wife_by_child_age, life.youngest_age(year.calendar_year))
    years = max(year.age - p.partner_first_age, 0)
    log = (
        base
        - p.partner_shift
        + life.partner_level
        + life.partner_shock
        + p.partner_experience_gain * (1 - np.exp(-years / p.partner_experience_years))
        - p.wife_gap * wife
    )
    return np.where(
        life.partnered & life.partner_works, np.exp(log) * np.where(wife, by_child, 1.0), 0.0
    )
