"""Rates of job loss, job finding, disability, early retirement and quitting."""

from __future__ import annotations

import numpy as np

from saga.register.simulation.cohort_year import CohortYear
from saga.register.simulation.labour_market import COUNTY_UNEMPLOYMENT, INDUSTRY_CYCLE
from saga.register.simulation.life_state import Floats, Ints, LifeState, Region
from saga.register.simulation.parameters import by_sex, interpolate, step_value


def loss_rate(life: LifeState, year: CohortYear, rows: Ints) -> Floats:
    """Job-loss rate of the employed in `rows` (k,).

    The rate of the economy, times factors of tenure, age, education, region of birth, industry,
    county, ability and attachment to work; at most `loss_ceiling`.
    """
    p, age = year.parameters.careers, year.age
    joblessness_rise = min(max(year.macro.rise, p.loss_rise_bounds[0]), p.loss_rise_bounds[1])
    by_age = p.loss_young if age < p.loss_young_before else step_value(p.loss_by_age, age)
    tenure = p.loss_long_tenure + p.loss_new_job * np.exp(-life.tenure[rows] / p.loss_tenure_years)
    sensitivity = p.cycle_by_industry * (INDUSTRY_CYCLE[life.industry[rows]] - 1.0)
    cycle = np.exp(p.loss_cycle * joblessness_rise * sensitivity) * (
        1.0 + p.loss_by_industry * sensitivity
    )
    foreign = np.where(
        life.region[rows] > Region.NORDIC,
        p.loss_foreign * (1.0 + p.cycle_foreign * max(joblessness_rise, 0.0)),
        1.0,
    )
    person = np.exp(
        -p.loss_ability * life.ability[rows]
        - p.loss_attachment * life.attachment[rows]
        - p.loss_centre
    )
    rate = year.macro.job_loss * by_age * tenure * cycle * foreign * person
    rate *= (
        np.asarray(p.loss_by_education)[life.level[rows]] * COUNTY_UNEMPLOYMENT[life.county[rows]]
    )
    return np.asarray(np.minimum(rate, p.loss_ceiling), dtype=np.float64)


def finding_hazard(life: LifeState, year: CohortYear, rows: Ints) -> Floats:
    """Hazard of finding work per year (k,), in continuous time.

    It is lower in counties with more unemployment, and the longer the person is without work.
    """
    p = year.parameters.careers
    base = -np.log1p(-year.macro.job_finding)
    by_age = step_value(p.finding_by_age, year.age)
    settled = np.clip((year.calendar_year - life.entry[rows]) / p.finding_settled_years, 0.0, 1.0)
    by_region = np.asarray(p.finding_by_region)[life.region[rows]]
    by_region = (
        by_region + (np.minimum(by_region + p.finding_settled_gain, 1.0) - by_region) * settled
    )
    person = np.exp(
        p.finding_ability * life.ability[rows]
        + p.finding_attachment * life.attachment[rows]
        - p.finding_centre
    )
    duration = np.exp(-p.duration_dependence * np.minimum(life.duration[rows] - 1, p.duration_cap))
    education = np.asarray(p.finding_by_education, dtype=np.float64)[life.level[rows]]
    hazard = base * by_age * by_region * person * duration * education
    return np.asarray(hazard / COUNTY_UNEMPLOYMENT[life.county[rows]], dtype=np.float64)


def outside_finding(life: LifeState, year: CohortYear, rows: Ints, infant_factor: Floats) -> Floats:
    """Rate of finding work of persons outside the labour force in `rows` (k,).

    `infant_factor` (k,) lowers the rate of mothers of a small child.
    """
    p = year.parameters.careers
    background = (
        np.asarray(p.finding_by_education)[life.level[rows]]
        * np.asarray(p.finding_by_region)[life.region[rows]]
    )
    years = np.minimum(life.duration[rows] - 1, p.duration_cap)
    duration = np.exp(-p.outside_duration * years)
    person = (
        np.exp(p.outside_work_attachment * life.attachment[rows] - p.outside_work_centre)
        * step_value(p.outside_work_by_age, year.age)
        * infant_factor
    )
    progress = np.clip((year.calendar_year - p.activation_from) / p.activation_years, 0.0, 1.0)
    period = 1.0 + p.activation * progress
    rate = period * p.outside_finding * background * duration * person
    return np.asarray(rate * year.macro.job_finding / p.outside_finding_reference)


def disability_rate(life: LifeState, year: CohortYear, rows: Ints) -> Floats:
    """Rate of inflow into disability pension (k,).

    By age, health, long sickness, education, sex and the rules in force; at most
    `disability_ceiling_rate`.
    """
    p = year.parameters.careers
    rules = interpolate(p.disability_by_year, year.calendar_year)
    age = year.age - p.disability_reference_age
    base = p.disability_at_45 * np.exp(p.disability_slope * age)
    health = np.exp(p.disability_health * life.health[rows] - p.disability_health_centre)
    risk = health * np.asarray(p.disability_by_education)[life.level[rows]]
    long_sick = np.where(life.sick[rows] > p.disability_sick_weeks, p.disability_sick, 1.0)
    risk = risk * by_sex(p.disability_by_sex, life.female[rows]) * long_sick
    return np.asarray(np.minimum(base * rules * risk, p.disability_ceiling_rate), dtype=np.float64)


def retirement_rate(year: CohortYear) -> float:
    """Rate of early retirement at 55-64, higher in the 1990s and lower after 2010.

    `careers` multiplies it by factors of the person and of the state in the labour market.
    """
    p = year.parameters.careers
    if year.age < p.retirement_first_age:
        return 0.0
    period = interpolate(p.retirement_by_year, year.calendar_year)
    return float(p.retirement[year.age - p.retirement_first_age] * period)


def quit_rate(life: LifeState, year: CohortYear, rows: Ints) -> Floats:
    """Rate at which the employed in `rows` leave the labour force."""
    p = year.parameters.careers
    rate = (
        p.quit_outside
        * step_value(p.quit_by_age, year.age)
        * np.exp(-p.quit_attachment * life.attachment[rows] - p.quit_centre)
    )
    young_child = life.youngest_age(year.calendar_year)[rows] < p.mother_quit_age
    mothers = np.where(life.female[rows] & young_child, p.mother_quit, 1.0)
    foreign = np.where(life.region[rows] > Region.EU, p.quit_foreign, 1.0)
    return np.asarray(rate * mothers * foreign)
