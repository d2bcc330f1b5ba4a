"""One year of work: risks, moves between labour states, the weeks in each, and new jobs."""

from __future__ import annotations

import numpy as np

from saga.arrays import Bools, Floats, Ints
from saga.register.simulation.earnings import (
    Activity,
    add_casual_jobs,
    choose_hours,
    subtract_absences,
)
from saga.register.simulation.economy import (
    COUNTY_UNEMPLOYMENT,
    INDUSTRY_CYCLE,
    IS_MANAGER,
    MANAGERS,
    OCCUPATION_PREMIUM,
    cumulate,
    draw_index,
    industry_cdf,
    occupation_cdf,
)
from saga.register.simulation.family import Births
from saga.register.simulation.life_state import WEEKS, CohortYear, Labour, LifeState, Region
from saga.register.simulation.parameters import by_sex, interpolate, step_value


def simulate_work(
    life: LifeState, year: CohortYear, absent: Floats, entrants: Bools, births: Births
) -> Activity:
    """One year of work of all persons; changes the labour state in place."""
    n, resident, p = len(life), life.resident, year.parameters.careers
    drift = p.attachment_trend * year.macro.groups.attachment
    life.attachment = life.attachment + np.where(life.female, 0.5, -0.5) * drift
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
    life.state[entrants], life.duration[entrants] = Labour.UNEMPLOYED, 0
    life.duration += 1
    employed, seeking, outside, disabled = (
        np.flatnonzero(resident & (life.state == state))
        for state in (Labour.EMPLOYED, Labour.UNEMPLOYED, Labour.OUTSIDE, Labour.DISABLED)
    )
    _return_from_disability(life, year, disabled)
    _simulate_employed(life, year, employed, activity)
    _simulate_unemployed(life, year, seeking, activity)
    _simulate_outside(life, year, outside, activity)
    start_jobs(life, year, np.flatnonzero(activity.hired))
    change_jobs(life, year, employed, activity)
    add_casual_jobs(life, year, resident, activity)
    choose_hours(life, year, births, activity)
    subtract_absences(life, year, births, activity)
    return activity


def _simulate_employed(life: LifeState, year: CohortYear, rows: Ints, activity: Activity) -> None:
    p = year.parameters.careers
    u = year.rng.random((4, len(rows)))
    loss = loss_rate(life, year, rows)
    closing = year.closing[life.employer[rows]]
    loss = np.where(closing, np.maximum(loss, p.loss_at_closing), loss)
    disability = disability_rate(life, year, rows)
    retire = retirement_rate(year) * np.exp(-p.retirement_attachment * life.attachment[rows])
    event = _draw_event(u[0], loss, disability, retire, quit_rate(life, year, rows))
    present = 1.0 - activity.absent[rows]  # nearly always 1: persons who return seek work first
    share = np.where(event == 4, 1.0, u[1])  # of the year before the event
    lost, ill, retired, quits = (rows[event == k] for k in range(4))
    activity.worked[rows] = WEEKS * present * share
    activity.employers[rows] = 1
    life.tenure[rows] += 1.0
    # Persons who lose a job search from that day; some find another before the year ends.
    remaining = 1.0 - u[1][event == 0]
    hazard = finding_hazard(life, year, lost)
    _search(life, lost, remaining, hazard, u[2][event == 0], activity)
    tenure = np.minimum(life.tenure[lost], p.scar_tenure_cap)
    life.scar[lost] += p.scar_loss * (0.5 + 0.5 * tenure / p.scar_tenure_years)
    partial = u[2][event == 1] < p.disability_partial
    life.disability[ill] = np.where(partial, 0.5, 1.0)
    life.state[ill[~partial]] = Labour.DISABLED
    activity.worked[ill] = np.where(partial, WEEKS, activity.worked[ill])
    life.state[retired], life.state[quits] = Labour.RETIRED, Labour.OUTSIDE
    for group in (ill[~partial], retired, quits):
        life.duration[group] = 0


def _draw_event(u: Floats, *rates: Floats | float) -> Ints:
    """Index of the competing risk that happens, or the number of risks if none does (n,)."""
    edges = np.cumsum(np.broadcast_arrays(*rates), axis=0)
    return np.asarray((u >= edges).sum(axis=0), dtype=np.int64)


def _search(
    life: LifeState, rows: Ints, remaining: Floats, hazard: Floats, u: Floats, activity: Activity
) -> None:
    """Job search over the share `remaining` of the year; the time to a job is exponential."""
    spell = -np.log1p(-u) / hazard
    hired = spell < remaining
    activity.unemployed[rows] += WEEKS * np.minimum(spell, remaining)
    activity.worked[rows] += WEEKS * np.where(hired, remaining - spell, 0.0)
    activity.hired[rows] = hired
    activity.employers[rows] += hired
    life.state[rows] = np.where(hired, Labour.EMPLOYED, Labour.UNEMPLOYED)
    stays = ~hired & (activity.state_before[rows] == Labour.UNEMPLOYED)
    life.duration[rows] = np.where(stays, np.maximum(life.duration[rows], 0), 0)


def _simulate_unemployed(life: LifeState, year: CohortYear, rows: Ints, activity: Activity) -> None:
    p = year.parameters.careers
    u = year.rng.random((2, len(rows)))
    years = np.minimum(life.duration[rows], p.duration_cap)
    to_outside = (
        p.to_outside
        * (p.to_outside_first_year + p.to_outside_per_year * years)
        * np.exp(-p.to_outside_attachment * life.attachment[rows] - p.to_outside_centre)
    )
    disability = p.disability_of_unemployed * disability_rate(life, year, rows)
    disability = np.minimum(disability, p.disability_of_unemployed_ceiling)
    retire = retirement_rate(year) * p.retirement_of_unemployed
    event = _draw_event(
        u[0], to_outside, disability, min(retire, p.retirement_of_unemployed_ceiling)
    )
    quits, ill, retired = (rows[event == k] for k in range(3))
    for group, state in (
        (quits, Labour.OUTSIDE),
        (ill, Labour.DISABLED),
        (retired, Labour.RETIRED),
    ):
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
    small_child = life.youngest_age(year.calendar_year)[rows] < p.outside_infant_age
    infant = np.where(life.female[rows] & small_child, p.outside_infant, 1.0)
    work = np.minimum(outside_finding(life, year, rows, infant), p.outside_work_ceiling)
    seek = (
        p.outside_seek
        * np.exp(p.outside_seek_attachment * life.attachment[rows])
        * infant
        * step_value(p.outside_seek_by_age, year.age)
    )
    seek = np.minimum(seek, p.outside_seek_ceiling)
    disability = p.disability_of_outside * disability_rate(life, year, rows)
    disability = np.minimum(disability, p.disability_of_outside_ceiling)
    retire = retirement_rate(year) * p.retirement_of_outside
    event = _draw_event(u[0], work, seek, disability, retire)
    works, seeks, ill, retired = (rows[event == k] for k in range(4))
    activity.worked[works] = WEEKS * (1.0 - activity.absent[works]) * u[1][event == 0]
    activity.hired[works], activity.employers[works] = True, 1
    activity.unemployed[seeks] = WEEKS * 0.5 * (1.0 - activity.absent[seeks])
    life.disability[ill] = 1.0
    states = (Labour.EMPLOYED, Labour.UNEMPLOYED, Labour.DISABLED, Labour.RETIRED)
    for group, state in zip((works, seeks, ill, retired), states, strict=True):
        life.state[group], life.duration[group] = state, 0


def _return_from_disability(life: LifeState, year: CohortYear, rows: Ints) -> None:
    p = year.parameters.careers
    back = rows[year.rng.random(len(rows)) < p.disability_return]
    life.state[back], life.duration[back], life.disability[back] = Labour.UNEMPLOYED, 0, 0.0


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


def start_jobs(life: LifeState, year: CohortYear, rows: Ints) -> None:
    """Draw occupation, industry and employer of new jobs.

    Most persons keep their occupation, many their industry. Employers are drawn by size.
    """
    p, market = year.parameters.careers, year.parameters.labour_market
    u = year.rng.random((5, len(rows)))
    experience = life.experience[rows]
    new_occupations = occupation_cdf(market)[
        life.level[rows], life.field[rows], life.female[rows].astype(np.int64)
    ]
    share = np.clip(
        p.keep_occupation + p.keep_occupation_by_experience * experience,
        p.keep_occupation,
        p.keep_occupation_ceiling,
    )
    keep = (life.occupation[rows] >= 0) & (u[0] < share) & ~(experience < p.new_start_experience)
    life.occupation[rows] = np.where(keep, life.occupation[rows], draw_index(new_occupations, u[1]))
    same = keep & (life.industry[rows] >= 0) & (u[2] < p.keep_industry)
    industries = industry_cdf(year.calendar_year, market)[life.occupation[rows]]
    life.industry[rows] = np.where(same, life.industry[rows], draw_index(industries, u[3]))
    life.employer[rows] = year.employers.hire(life.industry[rows], u[4])
    life.tenure[rows] = 0.0


def change_jobs(life: LifeState, year: CohortYear, employed: Ints, activity: Activity) -> None:
    """Change jobs, less often in downturns and with age and tenure, and promote persons."""
    p, rng = year.parameters.careers, year.rng
    rows = employed[(life.state[employed] == Labour.EMPLOYED) & ~activity.hired[employed]]
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
    start_jobs(life, year, movers)
    life.shock[movers] += p.job_change_gain + p.job_change_sd * e[moves]
    activity.employers[movers] += 1
    _promote(life, year, rows, u[1], u[2])


def _promote(life: LifeState, year: CohortYear, rows: Ints, u: Floats, v: Floats) -> None:
    """Promote persons to management, by uniforms `u`, `v`; some managers leave management.

    Pay rises at once by a part of the premium, and later by the rest, as the shock fades.
    """
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
