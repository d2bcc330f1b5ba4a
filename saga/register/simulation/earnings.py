"""What work pays: experience and schooling, lasting traits, shocks, scars, care, the employer, and the Pareto top."""

from __future__ import annotations

import numpy as np

from saga.register.simulation.careers import WEEKS, Activity
from saga.register.simulation.economy import LAST_HISTORY, MacroYear
from saga.register.simulation.family import Births
from saga.register.simulation.labour_market import (
    COUNTY_PREMIUM,
    INDUSTRY_PREMIUM,
    OCCUPATION_PREMIUM,
    Employers,
)
from saga.register.simulation.life_state import EMPLOYED, Floats, LifeState
from saga.register.simulation.parameters import CareerParameters

ROUND = 100.0  # the register keeps hundreds of SEK


def earn(
    life: LifeState,
    macro: MacroYear,
    age: int,
    activity: Activity,
    births: Births,
    own: Floats,
    employers: Employers,
    rng: np.random.Generator,
    p: CareerParameters,
) -> Floats:
    """Labour earnings of the year in nominal SEK (n,), and the state of pay for the next year (in place); `own`: log yield of own firms."""
    _shock(life, macro, age, activity, rng, p)
    _scar_and_care(life, activity, births, p)
    life.experience += activity.worked / WEEKS
    life.pay = full_time_pay(life, macro.year, employers, p)
    u, e = rng.random(len(life)), rng.standard_normal(len(life))
    loud = u < p.loud_share
    transitory = np.where(loud, p.loud_sd * e - 0.5 * p.loud_sd**2, p.quiet_sd * e)
    # Casual jobs pay a quarter less an hour.
    casual = np.where(activity.odd, 0.75 * p.casual_hours, 1.0)
    hours = np.where(
        activity.odd, 1.0, life.hours * (1.0 - life.disability * (life.state == EMPLOYED))
    )
    earnings = (
        macro.wages * np.exp(life.pay + own + transitory) * casual * hours * activity.worked / WEEKS
    )
    return np.asarray(np.round(earnings / ROUND) * ROUND * life.resident, dtype=np.float64)


def full_time_pay(life: LifeState, year: int, employers: Employers, p: CareerParameters) -> Floats:
    """Log full-time yearly pay relative to the wage level (n,), the bottom held up by pay floors, the top stretched into a Pareto tail."""
    x = life.experience
    gain = np.asarray(p.experience_gain)[life.level]
    profile = gain * (1.0 - np.exp(-x / p.experience_years)) - p.late_decline * np.maximum(
        x - 28.0, 0.0
    )
    stay = np.maximum(year - life.entry, 0)
    origin = np.asarray(p.region_gap)[life.region] * np.where(
        life.entry > life.birth_year + 16, 1.0 + 0.6 * np.exp(-stay / p.region_assimilation), 0.5
    )
    women = np.where(life.female, 0.5, -0.5) * (
        p.women - p.women_trend * (2010 - min(year, LAST_HISTORY))
    )
    premium = np.asarray(p.education_premium)[life.level] - p.tertiary_rise * np.clip(
        (2001 - year) / 9.0, 0.0, 1.0
    ) * (life.level > 1)
    has_job = life.occupation >= 0
    job = np.where(
        has_job,
        p.job_premia
        * (
            OCCUPATION_PREMIUM[life.occupation]
            + INDUSTRY_PREMIUM[life.industry]
            + employers.effect[life.employer]
        ),
        -0.15,
    )
    deviation = (
        premium
        + profile
        + women
        + origin
        + job
        + p.job_premia * COUNTY_PREMIUM[life.county]
        + np.where(life.female, p.ability_sd[1], p.ability_sd[0]) * life.ability
        + life.slope * (x - 10.0)
        + life.shock
        - life.scar
        - life.care
        - p.experience_gain[1]
    )
    bottom = (1.0 - p.floor_slope) * np.maximum(p.floor_start - deviation, 0.0)
    top = p.top_stretch * np.maximum(deviation - p.top_start, 0.0) ** 2
    return np.asarray(p.base + deviation + bottom + top, dtype=np.float64)


def _shock(
    life: LifeState,
    macro: MacroYear,
    age: int,
    activity: Activity,
    rng: np.random.Generator,
    p: CareerParameters,
) -> None:
    """The persistent shock: mostly small, at times large, more often for the young and the low paid, downward in recessions
    and from the top."""
    u, e = rng.random(len(life)), rng.standard_normal(len(life))
    rank = np.clip(life.pay - p.base - 0.1, -0.6, 1.2) * (life.pay > 0)
    # Of the young, of the low paid, in a new job and in a downturn more pay changes are large.
    usual = (
        p.large_shock_share
        * (1.5 if age < 30 else 1.0)
        * (1.0 + p.large_shock_rise * max(macro.rise, 0.0))
    )
    share = usual * np.exp(-0.7 * np.minimum(rank, 0.3)) * np.where(activity.hired, 1.8, 1.0)
    mean = (
        p.large_shock_mean
        + p.large_shock_cycle * min(max(macro.rise, -0.012), 0.03)
        - 0.12 * np.maximum(rank, 0.0)
        - 0.002 * (age - 40)
    )
    large = u < share
    life.shock = p.persistence * life.shock + np.where(
        large, mean + p.large_shock_sd * e, p.small_shock_sd * e
    )


def _scar_and_care(
    life: LifeState, activity: Activity, births: Births, p: CareerParameters
) -> None:
    """Skills fade without work and recover with it; a mother's pay falls with a birth and recovers slowly."""
    idle = activity.unemployed / WEEKS
    life.scar = np.minimum(
        p.scar_fade * life.scar + p.scar_per_year * np.maximum(idle - 0.1, 0.0), 0.5
    )
    mothers = births.new & life.female
    first = mothers & (life.births[:, 1] == 0)
    life.care = p.care_fade * life.care + np.where(
        first, p.care_first, np.where(mothers, p.care_later, 0.0)
    )
