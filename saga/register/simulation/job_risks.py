"""Rates of job loss, job finding, disability, early retirement and quitting."""

from __future__ import annotations

import numpy as np

from saga.register.simulation.cohort_year import CohortYear
from saga.register.simulation.curves import by_sex, interpolate, step_value
from saga.register.simulation.labour_market import COUNTY_RISK, INDUSTRY_CYCLE
from saga.register.simulation.life_state import EU, NORDIC, Floats, Ints, LifeState


def loss_rate(life: LifeState, year: CohortYear, rows: Ints) -> Floats:
    """Job-loss rate of the employed in `rows`.

    The rate of the economy, spread by tenure, age, schooling, origin, industry and county.
    """
    p, age = year.parameters.careers, year.age
    rise = min(max(year.macro.rise, p.loss_rise_bounds[0]), p.loss_rise_bounds[1])
    by_age = p.loss_young if age < p.loss_young_before else step_value(p.loss_by_age, age)
    tenure = p.loss_long_tenure + p.loss_new_job * np.exp(-life.tenure[rows] / p.loss_tenure_years)
    sensitivity = p.cycle_by_industry * (INDUSTRY_CYCLE[life.industry[rows]] - 1.0)
    cycle = np.exp(p.loss_cycle * rise * sensitivity) * (1.0 + p.loss_by_industry * sensitivity)
    foreign = np.where(
        life.region[rows] > NORDIC, p.loss_foreign * (1.0 + p.cycle_foreign * max(rise, 0.0)), 1.0
    )
    person = np.exp(
        -p.loss_ability * life.ability[rows]
        - p.loss_attachment * life.attachment[rows]
        - p.loss_centre
    )
    rate = year.macro.job_loss * by_age * tenure * cycle * foreign * person
    rate *= np.asarray(p.loss_by_education)[life.level[rows]] * COUNTY_RISK[life.county[rows]]
    return np.asarray(np.minimum(rate, p.loss_ceiling), dtype=np.float64)


def finding_hazard(life: LifeState, year: CohortYear, rows: Ints) -> Floats:
    """Continuous-time hazard of finding work (a year); it falls with the time without work."""
    p = year.parameters.careers
    base = -np.log1p(-year.macro.job_finding)
    by_age = step_value(p.finding_by_age, year.age)
    settled = np.clip((year.calendar_year - life.entry[rows]) / p.finding_settled_years, 0.0, 1.0)
    origin = np.asarray(p.finding_by_region)[life.region[rows]]
    origin = origin + (np.minimum(origin + p.finding_settled_gain, 1.0) - origin) * settled
    person = np.exp(
        p.finding_ability * life.ability[rows]
        + p.finding_attachment * life.attachment[rows]
        - p.finding_centre
    )
    duration = np.exp(-p.duration_dependence * np.minimum(life.duration[rows] - 1, p.duration_cap))
    schooling = np.asarray(p.finding_by_education, dtype=np.float64)[life.level[rows]]
    hazard = base * by_age * origin * person * duration * schooling
    return np.asarray(hazard / COUNTY_RISK[life.county[rows]], dtype=np.float64)


def outside_finding(life: LifeState, year: CohortYear, rows: Ints, infant: Floats) -> Floats:
    """Rate of finding work for those outside the labour force in `rows`."""
    p = year.parameters.careers
    level = (
        np.asarray(p.finding_by_education)[life.level[rows]]
        * np.asarray(p.finding_by_region)[life.region[rows]]
    )
    years = np.minimum(life.duration[rows] - 1, p.duration_cap)
    duration = np.exp(-p.outside_duration * years)
    pull = (
        np.exp(p.outside_work_attachment * life.attachment[rows] - p.outside_work_centre)
        * step_value(p.outside_work_by_age, year.age)
        * infant
    )
    progress = np.clip((year.calendar_year - p.activation_from) / p.activation_years, 0.0, 1.0)
    era = 1.0 + p.activation * progress
    normal = era * p.outside_finding * level * duration * pull
    return np.asarray(normal * year.macro.job_finding / p.outside_finding_reference)


def disability_rate(life: LifeState, year: CohortYear, rows: Ints) -> Floats:
    """Inflow into disability pension by age, health, schooling, sex and the rules of the time."""
    p = year.parameters.careers
    era = interpolate(p.disability_by_year, year.calendar_year)
    age = year.age - p.disability_reference_age
    base = p.disability_at_45 * np.exp(p.disability_slope * age)
    health = np.exp(p.disability_health * life.health[rows] - p.disability_health_centre)
    risk = health * np.asarray(p.disability_by_education)[life.level[rows]]
    long_sick = np.where(life.sick[rows] > p.disability_sick_weeks, p.disability_sick, 1.0)
    risk = risk * by_sex(p.disability_by_sex, life.female[rows]) * long_sick
    return np.asarray(np.minimum(base * era * risk, p.disability_ceiling_rate), dtype=np.float64)


def retirement_rate(year: CohortYear) -> float:
    """Rate of early retirement at 55-64, higher in the 1990s and lower after 2010."""
    p = year.parameters.careers
    if year.age < p.retirement_first_age:
        return 0.0
    era = interpolate(p.retirement_by_year, year.calendar_year)
    return p.retirement[year.age - p.retirement_first_age] * era


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
    foreign = np.where(life.region[rows] > EU, p.quit_foreign, 1.0)
    return np.asarray(rate * mothers * foreign)
