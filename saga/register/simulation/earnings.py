"""What a year of work brings: weeks by use, hours, firms of the self-employed, and pay.

A week in the country is worked, unemployed, on leave, sick, or none of these. Long spells of leave
and sickness continue in the next year. Business income is part of labour earnings. Its median is
lower than that of wages and its inequality much larger: many small incomes and a few very large
ones (Hamilton 2000; for Sweden the business incomes of LISA, [M]).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from saga.arrays import Bools, Floats, Ints
from saga.register.simulation.economy import (
    COUNTY_PREMIUM,
    INDUSTRY_OWN_FIRMS,
    INDUSTRY_PREMIUM,
    OCCUPATION_PART_TIME,
    OCCUPATION_PREMIUM,
)
from saga.register.simulation.family import Births
from saga.register.simulation.life_state import WEEKS, CohortYear, Labour, LifeState
from saga.register.simulation.parameters import by_sex, interpolate, step_value
from saga.register.simulation.population import UPPER_SECONDARY
from saga.schema import MIN_AGE


@dataclass
class Activity:
    """Weeks of one year by use, and what changed; all arrays are (n,).

    Attributes:
        worked: Weeks at work.
        unemployed: Weeks of unemployment.
        leave: Weeks of parental leave.
        sick: Weeks of sickness.
        employers: Number of employers.
        casual: Whether the year has only short or casual jobs.
        hired: Whether a new job began.
        state_before: Labour state at the start of the year.
        absent: Share of the year before arrival, return or the end of school.
    """

    worked: Floats
    unemployed: Floats
    leave: Floats
    sick: Floats
    employers: Ints
    casual: Bools
    hired: Bools
    state_before: Ints
    absent: Floats


def add_casual_jobs(life: LifeState, year: CohortYear, resident: Bools, activity: Activity) -> None:
    """Casual jobs of persons without a regular job: most often students, least often disabled."""
    p, age = year.parameters.careers, year.age
    idle = np.flatnonzero(resident & (activity.worked <= 0.0))
    u = year.rng.random((2, len(idle)))
    school = step_value(p.casual_school, age)
    prime = p.casual_prime_ages[0] <= age <= p.casual_prime_ages[1]
    share = np.asarray(p.casual)[life.state[idle]] * np.where(
        life.state[idle] == Labour.STUDENT, school, p.casual_prime if prime else 1.0
    )
    share = share * by_sex(p.casual_sex, life.female[idle])
    attachment = np.minimum(
        p.casual_attachment * life.attachment[idle], p.casual_attachment_ceiling
    )
    works = u[0] < share * np.exp(attachment)
    rows = idle[works]
    weeks = np.where(
        life.state[rows] == Labour.STUDENT, p.casual_weeks[0] * school, p.casual_weeks[1]
    ) * -np.log1p(-u[1][works])
    activity.worked[rows] = np.minimum(weeks, p.casual_longest)
    activity.unemployed[rows] = np.maximum(activity.unemployed[rows] - weeks, 0.0)
    activity.employers[rows] = 1
    activity.casual[rows] = True


def choose_hours(life: LifeState, year: CohortYear, births: Births, activity: Activity) -> None:
    """Full or part time: drawn for a new job, after long leave, and at random times."""
    p, age = year.parameters.careers, year.age
    u = year.rng.random((3, len(life)))
    change = u[0] < step_value(p.hours_change_by_age, age)
    redrawn = activity.hired | change | (births.leave > p.hours_change_leave)
    years = np.clip(p.part_time_year - year.calendar_year, 0, p.part_time_fall_years)
    women = p.part_time[1] * np.exp(p.part_time_fall * years)
    part = np.where(life.female, women, p.part_time[0])
    mother = life.female & (life.care > p.part_time_care_from) & life.custody
    # Without the child penalty there is no care and `care_first` is 0.
    care = np.clip(life.care / (p.care_first or 1.0), 0.0, p.part_time_care_ceiling)
    part = part + np.where(mother, p.part_time_mother * care, 0.0)
    has_job = life.occupation >= 0
    common = np.where(has_job, OCCUPATION_PART_TIME[np.maximum(life.occupation, 0)], False)
    part = (
        part
        * np.where(common, p.part_time_by_occupation[1], p.part_time_by_occupation[0])
        * np.exp(-p.part_time_attachment * life.attachment - p.part_time_ability * life.ability)
    )
    part = part + step_value(p.part_time_by_age, age)
    hours = np.where(
        u[1] < np.minimum(part, p.part_time_ceiling),
        p.part_time_shortest + p.part_time_range * np.sqrt(u[2]),
        1.0,
    )
    life.hours = np.where(redrawn, hours, life.hours)


def subtract_absences(
    life: LifeState, year: CohortYear, births: Births, activity: Activity
) -> None:
    """Parental leave and sickness reduce the weeks of work; long sickness continues next year."""
    p = year.parameters.careers
    u = year.rng.random((3, len(life)))
    young_child = life.youngest_age(year.calendar_year) < p.child_care_age
    child_care = np.where(
        young_child & life.custody & (activity.worked > p.child_care_worked),
        by_sex(p.child_care_weeks, life.female) * -np.log1p(-u[2]),
        0.0,
    )
    leave = np.minimum(births.leave + np.minimum(child_care, p.child_care_longest), WEEKS)
    activity.leave = leave * life.resident
    activity.worked = activity.worked * (1.0 - leave / WEEKS)
    activity.unemployed = activity.unemployed * (1.0 - births.leave / WEEKS)
    share = (
        by_sex(p.sickness_share, life.female)
        * interpolate(p.sickness_by_year, year.calendar_year)
        * np.exp(p.sickness_health * life.health - p.sickness_centre)
        * (p.sickness_at_zero + p.sickness_by_age * year.age)
    )
    falls_ill = (activity.worked > p.sickness_worked) & ~activity.casual & (u[0] < share)
    weeks = p.sickness_shortest * (1.0 - u[1]) ** (-1.0 / p.sickness_tail)
    spell = np.where(falls_ill, np.minimum(weeks, p.sickness_longest), 0.0) + life.sick
    sick = np.minimum(spell, activity.worked)
    activity.sick = sick
    activity.worked = activity.worked - sick
    life.sick = np.where(life.state == Labour.EMPLOYED, np.maximum(spell - sick, 0.0), 0.0)


def simulate_firms(life: LifeState, year: CohortYear, activity: Activity) -> Floats:
    """Log yield of firms relative to the pay of a similar employee (n,), 0 without a firm.

    Updates in place who is self-employed (`life.own`) and the persistent log profit of firms
    (`life.profit`), which has no meaning for persons without a firm.
    """
    p, rng = year.parameters.self_employment, year.rng
    (stop_u, start_u), shocks = rng.random((2, len(life))), rng.standard_normal((2, len(life)))
    works = (life.state == Labour.EMPLOYED) & ~activity.casual & (life.employer >= 0)
    # Persons without an industry (-1) get the rate of the last one; `works` leaves them out.
    start_rate = (
        by_sex(p.start, life.female)
        * INDUSTRY_OWN_FIRMS[life.industry]
        * step_value(p.start_by_age, year.age)
    )
    stays = life.own & works & ~activity.hired & (stop_u >= p.stop)
    starts = (
        works & ~stays & (start_u < start_rate * np.where(activity.hired, p.start_of_hired, 1.0))
    )
    life.profit = np.where(
        stays, p.persistence * life.profit + p.shock_sd * shocks[0], p.start_sd * shocks[0]
    )
    life.own = stays | starts
    return np.where(life.own, p.level + life.profit + p.transitory_sd * shocks[1], 0.0)


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
        + year.macro.groups.young * (p.middle_age - year.age) / p.generation
        + _origin_gap(life, year)
        + _job_premium(life, year)
        + p.job_premia * COUNTY_PREMIUM[life.county]
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
    until = min(year.calendar_year, year.macro.last_published)
    missing = np.clip((p.tertiary_rise_to - until) / p.tertiary_rise_years, 0.0, 1.0)
    tertiary = life.level > UPPER_SECONDARY
    premium = np.asarray(p.education_premium)[life.level]
    trend = year.macro.groups.tertiary * (tertiary - p.tertiary_share)
    return np.asarray(premium - p.tertiary_rise * missing * tertiary + trend)


def _experience_profile(life: LifeState, year: CohortYear) -> Floats:
    p, x = year.parameters.careers, life.experience
    gain = np.asarray(p.experience_gain)[life.level]
    decline = p.late_decline * np.maximum(x - p.late_decline_from, 0.0)
    return np.asarray(gain * (1.0 - np.exp(-x / p.experience_years)) - decline)


def _gender_gap(life: LifeState, year: CohortYear) -> Floats:
    p = year.parameters.careers
    until = min(year.calendar_year, year.macro.last_published)
    gap = p.women - p.women_trend * (p.women_reference_year - until) + year.macro.groups.women
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
        OCCUPATION_PREMIUM[life.occupation]
        + INDUSTRY_PREMIUM[life.industry]
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
