"""Pay by education, experience, lasting traits, shocks, scars, children, job and employer."""

from __future__ import annotations

import numpy as np

from saga.register.simulation import labour_market
from saga.register.simulation.cohort_year import CohortYear
from saga.register.simulation.economy import LAST_HISTORY
from saga.register.simulation.education import UPPER_SECONDARY
from saga.register.simulation.family import Births
from saga.register.simulation.life_state import WEEKS, Floats, Labour, LifeState
from saga.register.simulation.parameters import by_sex, step_value
from saga.register.simulation.working_time import Activity
from saga.schema import MIN_AGE

ROUND = 100.0  # SEK: amounts in the register are rounded to hundreds


def compute_earnings(
    life: LifeState, year: CohortYear, activity: Activity, births: Births, firms: Floats
) -> Floats:
    """Labour earnings of the year in nominal SEK (n,); updates the state of pay in place.

    `firms` is the log yield of own firms.
    """
    p, rng = year.parameters.careers, year.rng
    _draw_shock(life, year, activity)
    _update_scar_and_care(life, year, activity, births)
    life.experience += activity.worked / WEEKS
    life.pay = full_time_pay(life, year)
    u, e = rng.random(len(life)), rng.standard_normal(len(life))
    loud = u < p.loud_share
    transitory = np.where(loud, p.loud_sd * e - 0.5 * p.loud_sd**2, p.quiet_sd * e)
    casual = np.where(activity.casual, p.casual_pay * p.casual_hours, 1.0)
    working = 1.0 - life.disability * (life.state == Labour.EMPLOYED)
    hours = np.where(activity.casual, 1.0, life.hours * working)
    full_year = year.macro.wages * np.exp(life.pay + firms + transitory)
    earnings = full_year * casual * hours * activity.worked / WEEKS
    return np.asarray(np.round(earnings / ROUND) * ROUND * life.resident, dtype=np.float64)


def full_time_pay(life: LifeState, year: CohortYear) -> Floats:
    """Log full-time yearly pay relative to the wage level (n,).

    Pay floors compress the bottom. The top is stretched to a Pareto tail.
    """
    p = year.parameters.careers
    deviation = (
        _education_premium(life, year)
        + _experience_profile(life, year)
        + _gender_gap(life, year)
        + _origin_gap(life, year)
        + _job_premium(life, year)
        + p.job_premia * labour_market.COUNTY_PREMIUM[life.county]
        + by_sex(p.ability_sd, life.female) * life.ability
        + life.slope * (life.experience - p.slope_reference)
        + life.shock
        - life.scar
        - life.care
        - p.experience_gain[UPPER_SECONDARY]
    )
    bottom = (1.0 - p.floor_slope) * np.maximum(p.floor_start - deviation, 0.0)
    top = p.top_stretch * np.maximum(deviation - p.top_start, 0.0) ** 2
    return np.asarray(p.base + deviation + bottom + top, dtype=np.float64)


def _education_premium(life: LifeState, year: CohortYear) -> Floats:
    p = year.parameters.careers
    missing = np.clip((p.tertiary_rise_to - year.calendar_year) / p.tertiary_rise_years, 0.0, 1.0)
    tertiary = life.level > UPPER_SECONDARY
    premium = np.asarray(p.education_premium)[life.level]
    return np.asarray(premium - p.tertiary_rise * missing * tertiary)


def _experience_profile(life: LifeState, year: CohortYear) -> Floats:
    p, x = year.parameters.careers, life.experience
    gain = np.asarray(p.experience_gain)[life.level]
    decline = p.late_decline * np.maximum(x - p.late_decline_from, 0.0)
    return np.asarray(gain * (1.0 - np.exp(-x / p.experience_years)) - decline)


def _gender_gap(life: LifeState, year: CohortYear) -> Floats:
    p = year.parameters.careers
    gap = p.women - p.women_trend * (p.women_reference_year - min(year.calendar_year, LAST_HISTORY))
    return np.asarray(np.where(life.female, 0.5, -0.5) * gap)


def _origin_gap(life: LifeState, year: CohortYear) -> Floats:
    p = year.parameters.careers
    stay = np.maximum(year.calendar_year - life.entry, 0)
    entry_gap = 1.0 + p.region_entry_gap * np.exp(-stay / p.region_assimilation)
    factor = np.where(life.entry > life.birth_year + MIN_AGE, entry_gap, p.region_raised)
    return np.asarray(np.asarray(p.region_gap)[life.region] * factor)


def _job_premium(life: LifeState, year: CohortYear) -> Floats:
    p = year.parameters.careers
    premium = p.job_premia * (
        labour_market.OCCUPATION_PREMIUM[life.occupation]
        + labour_market.INDUSTRY_PREMIUM[life.industry]
        + year.employers.effect[life.employer]
    )
    return np.asarray(np.where(life.occupation >= 0, premium, p.pay_without_job))


def _draw_shock(life: LifeState, year: CohortYear, activity: Activity) -> None:
    """The persistent shock: usually small, sometimes large.

    Large shocks are more frequent for the young and the low paid, in a new job and in a downturn.
    Their mean is lower in a downturn, at high pay and at higher ages.
    """
    p, rng, rise = year.parameters.careers, year.rng, year.macro.rise
    u, e = rng.random(len(life)), rng.standard_normal(len(life))
    rank = np.clip(life.pay - p.base - p.rank_centre, *p.rank_bounds) * (life.pay > 0)
    usual = (
        p.large_shock_share
        * step_value(p.large_shock_by_age, year.age)
        * (1.0 + p.large_shock_rise * max(rise, 0.0))
    )
    by_rank = np.exp(-p.large_shock_by_rank * np.minimum(rank, p.large_shock_rank_ceiling))
    share = usual * by_rank * np.where(activity.hired, p.large_shock_hired, 1.0)
    lowest, highest = p.large_shock_cycle_bounds
    mean = (
        p.large_shock_mean
        + p.large_shock_cycle * min(max(rise, lowest), highest)
        - p.large_shock_mean_by_rank * np.maximum(rank, 0.0)
        - p.large_shock_mean_by_age * (year.age - p.large_shock_mean_age)
    )
    innovation = np.where(u < share, mean + p.large_shock_sd * e, p.small_shock_sd * e)
    life.shock = p.persistence * life.shock + innovation


def _update_scar_and_care(
    life: LifeState, year: CohortYear, activity: Activity, births: Births
) -> None:
    """Time without work leaves a scar that fades; a birth lowers the mother's pay."""
    p = year.parameters.careers
    idle = np.maximum(activity.unemployed / WEEKS - p.scar_idle_from, 0.0)
    life.scar = np.minimum(p.scar_fade * life.scar + p.scar_per_year * idle, p.scar_ceiling)
    mothers = births.new & life.female
    first = mothers & (life.births[:, 1] == 0)
    loss = np.where(first, p.care_first, np.where(mothers, p.care_later, 0.0))
    life.care = p.care_fade * life.care + loss
