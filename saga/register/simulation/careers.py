"""Work: job loss and finding, employers, occupations, exits, and the weeks of a working year.

Weeks add up: of the weeks in the country some are worked, some unemployed, some on leave and some
sick. Long spells go on in the next year.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from saga.register.simulation.cohort_year import CohortYear
from saga.register.simulation.curves import by_sex, interpolate, step_value
from saga.register.simulation.family import Births
from saga.register.simulation.labour_market import (
    COUNTY_RISK,
    INDUSTRY_CYCLE,
    IS_MANAGER,
    MANAGERS,
    OCCUPATION_PART_TIME,
    OCCUPATION_PREMIUM,
    cumulate,
    draw_index,
    industry_cdf,
    occupation_cdf,
)
from saga.register.simulation.life_state import (
    DISABLED,
    EMPLOYED,
    EU,
    NORDIC,
    OUTSIDE,
    RETIRED,
    STUDENT,
    UNEMPLOYED,
    WEEKS,
    Bools,
    Floats,
    Ints,
    LifeState,
)


@dataclass
class Activity:
    """Weeks of one year by use, and what changed; all arrays are (n,).

    Args:
        worked: weeks at work.
        unemployed: weeks of unemployment.
        leave: weeks of parental leave.
        sick: weeks of sickness.
        employers: number of employers.
        casual: whether the year has only short or casual jobs.
        hired: whether a new job began.
        state_before: labour state at the start of the year.
        absent: share of the year before arrival, return or the end of school.
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


def simulate_work(
    life: LifeState, year: CohortYear, absent: Floats, entrants: Bools, births: Births
) -> Activity:
    """One year of work of all persons; changes the labour state in place."""
    n, resident, p = len(life), life.resident, year.parameters.careers
    activity = Activity(
        worked=np.zeros(n),
        unemployed=np.zeros(n),
        leave=np.zeros(n),
        sick=np.zeros(n),
        employers=np.zeros(n, np.int64),
        casual=np.zeros(n, bool),
        hired=np.zeros(n, bool),
        state_before=life.state.copy(),
        absent=np.where(entrants, p.school_leaving, absent),
    )
    life.state[entrants], life.duration[entrants] = UNEMPLOYED, 0
    life.duration += 1
    employed, seeking, outside, disabled = (
        np.flatnonzero(resident & (life.state == state))
        for state in (EMPLOYED, UNEMPLOYED, OUTSIDE, DISABLED)
    )
    _return_from_disability(life, year, disabled)
    _simulate_employed(life, year, employed, activity)
    _simulate_unemployed(life, year, seeking, activity)
    _simulate_outside(life, year, outside, activity)
    _start_jobs(life, year, np.flatnonzero(activity.hired))
    _change_jobs(life, year, employed, activity)
    _add_casual_jobs(life, year, resident, activity)
    _choose_hours(life, year, births, activity)
    _subtract_absences(life, year, births, activity)
    return activity


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
    settled = np.clip((year.year - life.entry[rows]) / p.finding_settled_years, 0.0, 1.0)
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


def disability_rate(life: LifeState, year: CohortYear, rows: Ints) -> Floats:
    """Inflow into disability pension by age, health, schooling, sex and the rules of the time."""
    p = year.parameters.careers
    era = interpolate(p.disability_by_year, year.year)
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
    era = interpolate(p.retirement_by_year, year.year)
    return p.retirement[year.age - p.retirement_first_age] * era


def _quit_rate(life: LifeState, year: CohortYear, rows: Ints) -> Floats:
    p = year.parameters.careers
    rate = (
        p.quit_outside
        * step_value(p.quit_by_age, year.age)
        * np.exp(-p.quit_attachment * life.attachment[rows] - p.quit_centre)
    )
    young_child = life.youngest_age(year.year)[rows] < p.mother_quit_age
    mothers = np.where(life.female[rows] & young_child, p.mother_quit, 1.0)
    foreign = np.where(life.region[rows] > EU, p.quit_foreign, 1.0)
    return np.asarray(rate * mothers * foreign)


def _simulate_employed(life: LifeState, year: CohortYear, rows: Ints, activity: Activity) -> None:
    p = year.parameters.careers
    u = year.rng.random((4, len(rows)))
    loss = loss_rate(life, year, rows)
    closing = year.closing[life.employer[rows]]
    loss = np.where(closing, np.maximum(loss, p.loss_at_closing), loss)
    sick = disability_rate(life, year, rows)
    retire = retirement_rate(year) * np.exp(-p.retirement_attachment * life.attachment[rows])
    event = _draw_event(u[0], loss, sick, retire, _quit_rate(life, year, rows))
    present = 1.0 - activity.absent[rows]  # nearly always 1: people who return seek work first
    share = np.where(event == 4, 1.0, u[1])
    lost, ill, retired, quits = (rows[event == k] for k in range(4))
    activity.worked[rows] = WEEKS * present * share
    activity.employers[rows] = 1
    life.tenure[rows] += 1.0
    # Losers search from the day of the loss; some find a job before the year ends.
    remaining = 1.0 - u[1][event == 0]
    hazard = finding_hazard(life, year, lost)
    _search(life, lost, remaining, hazard, u[2][event == 0], activity)
    tenure = np.minimum(life.tenure[lost], p.scar_tenure_cap)
    life.scar[lost] += p.scar_loss * (0.5 + 0.5 * tenure / p.scar_tenure_years)
    partial = u[2][event == 1] < p.disability_partial
    life.disability[ill] = np.where(partial, 0.5, 1.0)
    life.state[ill[~partial]] = DISABLED
    activity.worked[ill] = np.where(partial, WEEKS, activity.worked[ill])
    life.state[retired], life.state[quits] = RETIRED, OUTSIDE
    for group in (ill[~partial], retired, quits):
        life.duration[group] = 0


def _draw_event(u: Floats, *rates: Floats | float) -> Ints:
    """Which of k competing risks happens: 0 to k - 1, or k for none."""
    edges = np.cumsum(np.broadcast_arrays(*rates), axis=0)
    return np.asarray((u >= edges).sum(axis=0), dtype=np.int64)


def _search(
    life: LifeState, rows: Ints, remaining: Floats, hazard: Floats, u: Floats, activity: Activity
) -> None:
    """Job search over the `remaining` share of the year; spells are exponential."""
    spell = -np.log1p(-u) / hazard
    hired = spell < remaining
    activity.unemployed[rows] += WEEKS * np.minimum(spell, remaining)
    activity.worked[rows] += WEEKS * np.where(hired, remaining - spell, 0.0)
    activity.hired[rows] = hired
    activity.employers[rows] += hired
    life.state[rows] = np.where(hired, EMPLOYED, UNEMPLOYED)
    before = activity.state_before[rows] == UNEMPLOYED
    duration = life.duration[rows] * (life.duration[rows] > 0) * before
    life.duration[rows] = np.where(hired, 0, duration)


def _simulate_unemployed(life: LifeState, year: CohortYear, rows: Ints, activity: Activity) -> None:
    p = year.parameters.careers
    u = year.rng.random((2, len(rows)))
    years = np.minimum(life.duration[rows], p.duration_cap)
    leave = (
        p.to_outside
        * (p.to_outside_first_year + p.to_outside_per_year * years)
        * np.exp(-p.to_outside_attachment * life.attachment[rows] - p.to_outside_centre)
    )
    sick = p.disability_of_unemployed * disability_rate(life, year, rows)
    sick = np.minimum(sick, p.disability_of_unemployed_ceiling)
    retire = retirement_rate(year) * p.retirement_of_unemployed
    event = _draw_event(u[0], leave, sick, min(retire, p.retirement_of_unemployed_ceiling))
    quits, ill, retired = (rows[event == k] for k in range(3))
    for group, state in ((quits, OUTSIDE), (ill, DISABLED), (retired, RETIRED)):
        activity.unemployed[group] = WEEKS * 0.5 * (1.0 - activity.absent[group])
        life.state[group], life.duration[group] = state, 0
    life.disability[ill] = 1.0
    stay = event == 3
    seekers = rows[stay]
    hazard = finding_hazard(life, year, seekers)
    _search(life, seekers, 1.0 - activity.absent[seekers], hazard, u[1][stay], activity)


def _simulate_outside(life: LifeState, year: CohortYear, rows: Ints, activity: Activity) -> None:
    p = year.parameters.careers
    u = year.rng.random((3, len(rows)))
    small_child = life.youngest_age(year.year)[rows] < p.outside_infant_age
    infant = np.where(life.female[rows] & small_child, p.outside_infant, 1.0)
    work = np.minimum(_outside_finding(life, year, rows, infant), p.outside_work_ceiling)
    seek = (
        p.outside_seek
        * np.exp(p.outside_seek_attachment * life.attachment[rows])
        * infant
        * step_value(p.outside_seek_by_age, year.age)
    )
    seek = np.minimum(seek, p.outside_seek_ceiling)
    sick = p.disability_of_outside * disability_rate(life, year, rows)
    sick = np.minimum(sick, p.disability_of_outside_ceiling)
    retire = retirement_rate(year) * p.retirement_of_outside
    event = _draw_event(u[0], work, seek, sick, retire)
    works, seeks, ill, retired = (rows[event == k] for k in range(4))
    activity.worked[works] = WEEKS * (1.0 - activity.absent[works]) * u[1][event == 0]
    activity.hired[works], activity.employers[works] = True, 1
    activity.unemployed[seeks] = WEEKS * 0.5 * (1.0 - activity.absent[seeks])
    life.disability[ill] = 1.0
    for group, state in (
        (works, EMPLOYED),
        (seeks, UNEMPLOYED),
        (ill, DISABLED),
        (retired, RETIRED),
    ):
        life.state[group], life.duration[group] = state, 0


def _outside_finding(life: LifeState, year: CohortYear, rows: Ints, infant: Floats) -> Floats:
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
    progress = np.clip((year.year - p.activation_from) / p.activation_years, 0.0, 1.0)
    era = 1.0 + p.activation * progress
    normal = era * p.outside_finding * level * duration * pull
    return np.asarray(normal * year.macro.job_finding / p.outside_finding_reference)


def _return_from_disability(life: LifeState, year: CohortYear, rows: Ints) -> None:
    p = year.parameters.careers
    back = rows[year.rng.random(len(rows)) < p.disability_return]
    life.state[back], life.duration[back], life.disability[back] = UNEMPLOYED, 0, 0.0


def _start_jobs(life: LifeState, year: CohortYear, rows: Ints) -> None:
    """New jobs: most keep their occupation, many their industry; the employer is drawn by size."""
    p, market = year.parameters.careers, year.parameters.labour_market
    u = year.rng.random((5, len(rows)))
    experience = life.experience[rows]
    fresh = occupation_cdf(market)[
        life.level[rows], life.field[rows], life.female[rows].astype(np.int64)
    ]
    share = np.clip(
        p.keep_occupation + p.keep_occupation_by_experience * experience,
        p.keep_occupation,
        p.keep_occupation_ceiling,
    )
    keep = (life.occupation[rows] >= 0) & (u[0] < share) & ~(experience < p.new_start_experience)
    life.occupation[rows] = np.where(keep, life.occupation[rows], draw_index(fresh, u[1]))
    same = keep & (life.industry[rows] >= 0) & (u[2] < p.keep_industry)
    industries = industry_cdf(year.year, market)[life.occupation[rows]]
    life.industry[rows] = np.where(same, life.industry[rows], draw_index(industries, u[3]))
    life.employer[rows] = year.employers.hire(life.industry[rows], u[4])
    life.tenure[rows] = 0.0


def _change_jobs(life: LifeState, year: CohortYear, employed: Ints, activity: Activity) -> None:
    """Moves from job to job (procyclical, fewer with age and tenure), and promotions."""
    p, rng = year.parameters.careers, year.rng
    rows = employed[(life.state[employed] == EMPLOYED) & ~activity.hired[employed]]
    u, e = rng.random((3, len(rows))), rng.standard_normal(len(rows))
    age = max(year.age, p.job_change_first_age) - p.job_change_reference_age
    rate = (
        p.job_change_at_25
        * np.exp(-p.job_change_fall * age)
        * np.clip(1.0 - p.job_change_cycle * year.macro.rise, *p.job_change_cycle_bounds)
    )
    tenure = np.exp(-life.tenure[rows] / p.job_change_tenure_years)
    moves = u[0] < rate * (p.job_change_long_tenure + p.job_change_new_job * tenure)
    movers = rows[moves]
    _start_jobs(life, year, movers)
    life.shock[movers] += p.job_change_gain + p.job_change_sd * e[moves]
    activity.employers[movers] += 1
    _promote(life, year, rows, u[1], u[2])


def _promote(life: LifeState, year: CohortYear, rows: Ints, u: Floats, v: Floats) -> None:
    """Promotions to management, partly paid at once; some managers leave management."""
    p = year.parameters.careers
    rank = (
        np.exp(p.promotion_ability * life.ability[rows] - p.promotion_centre)
        * np.asarray(p.promotion_by_education)[life.level[rows]]
    )
    rises = (
        (u < p.promotion * rank)
        & (life.experience[rows] > p.promotion_experience)
        & ~IS_MANAGER[np.maximum(life.occupation[rows], 0)]
        & (year.age < p.promotion_before)
    )
    risers = rows[rises]
    posts = cumulate(np.ones(len(MANAGERS)))
    life.occupation[risers] = MANAGERS[draw_index(posts, v[rises])]
    premium = OCCUPATION_PREMIUM[life.occupation[risers]]
    life.shock[risers] -= p.promotion_unpaid * (premium - p.promotion_reference)
    managers = IS_MANAGER[np.maximum(life.occupation[rows], 0)]
    leaving = rows[managers & (u > p.manager_stays)]
    life.occupation[leaving] = draw_index(
        occupation_cdf(year.parameters.labour_market)[
            life.level[leaving], life.field[leaving], life.female[leaving].astype(np.int64)
        ],
        year.rng.random(len(leaving)),
    )


def _add_casual_jobs(
    life: LifeState, year: CohortYear, resident: Bools, activity: Activity
) -> None:
    """Casual jobs of those without a regular one: of students most, of the disabled least."""
    p, age = year.parameters.careers, year.age
    idle = np.flatnonzero(resident & (activity.worked <= 0.0))
    u = year.rng.random((2, len(idle)))
    school = step_value(p.casual_school, age)
    prime = p.casual_prime_ages[0] <= age <= p.casual_prime_ages[1]
    share = np.asarray(p.casual)[life.state[idle]] * np.where(
        life.state[idle] == STUDENT, school, p.casual_prime if prime else 1.0
    )
    share = share * by_sex(p.casual_sex, life.female[idle])
    attachment = np.minimum(
        p.casual_attachment * life.attachment[idle], p.casual_attachment_ceiling
    )
    works = u[0] < share * np.exp(attachment)
    rows = idle[works]
    weeks = np.where(
        life.state[rows] == STUDENT, p.casual_weeks[0] * school, p.casual_weeks[1]
    ) * -np.log1p(-u[1][works])
    activity.worked[rows] = np.minimum(weeks, p.casual_longest)
    activity.unemployed[rows] = np.maximum(activity.unemployed[rows] - weeks, 0.0)
    activity.employers[rows] = 1
    activity.casual[rows] = True


def _choose_hours(life: LifeState, year: CohortYear, births: Births, activity: Activity) -> None:
    """Full or part time: chosen with a job, after a birth, and at times in between."""
    p, age = year.parameters.careers, year.age
    u = year.rng.random((3, len(life)))
    change = u[0] < step_value(p.hours_change_by_age, age)
    anew = activity.hired | change | (births.leave > p.hours_change_leave)
    years = np.clip(p.part_time_year - year.year, 0, p.part_time_fall_years)
    women = p.part_time[1] * np.exp(p.part_time_fall * years)
    part = np.where(life.female, women, p.part_time[0])
    mother = life.female & (life.care > p.part_time_care_from) & life.custody
    care = np.clip(life.care / p.care_first, 0.0, p.part_time_care_ceiling)
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
    life.hours = np.where(anew, hours, life.hours)


def _subtract_absences(
    life: LifeState, year: CohortYear, births: Births, activity: Activity
) -> None:
    """Parental leave and sickness reduce the weeks of work; long sickness goes on next year."""
    p = year.parameters.careers
    u = year.rng.random((3, len(life)))
    young_child = life.youngest_age(year.year) < p.child_care_age
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
        * interpolate(p.sickness_by_year, year.year)
        * np.exp(p.sickness_health * life.health - p.sickness_centre)
        * (p.sickness_at_zero + p.sickness_by_age * year.age)
    )
    falls_ill = (activity.worked > p.sickness_worked) & ~activity.casual & (u[0] < share)
    weeks = p.sickness_shortest * (1.0 - u[1]) ** (-1.0 / p.sickness_tail)
    spell = np.where(falls_ill, np.minimum(weeks, p.sickness_longest), 0.0) + life.sick
    sick = np.minimum(spell, activity.worked)
    activity.sick = sick
    activity.worked = activity.worked - sick
    life.sick = np.where(life.state == EMPLOYED, np.maximum(spell - sick, 0.0), 0.0)
