"""One year of work: moves between labour states, and the weeks in each."""

from __future__ import annotations

import numpy as np

from saga.register.simulation import job_risks
from saga.register.simulation.cohort_year import CohortYear
from saga.register.simulation.family import Births
from saga.register.simulation.job_changes import change_jobs, start_jobs
from saga.register.simulation.life_state import WEEKS, Bools, Floats, Ints, Labour, LifeState
from saga.register.simulation.parameters import step_value
from saga.register.simulation.working_time import (
    Activity,
    add_casual_jobs,
    choose_hours,
    subtract_absences,
)


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
    loss = job_risks.loss_rate(life, year, rows)
    closing = year.closing[life.employer[rows]]
    loss = np.where(closing, np.maximum(loss, p.loss_at_closing), loss)
    disability = job_risks.disability_rate(life, year, rows)
    retire = job_risks.retirement_rate(year) * np.exp(
        -p.retirement_attachment * life.attachment[rows]
    )
    event = _draw_event(u[0], loss, disability, retire, job_risks.quit_rate(life, year, rows))
    present = 1.0 - activity.absent[rows]  # nearly always 1: persons who return seek work first
    share = np.where(event == 4, 1.0, u[1])  # of the year before the event
    lost, ill, retired, quits = (rows[event == k] for k in range(4))
    activity.worked[rows] = WEEKS * present * share
    activity.employers[rows] = 1
    life.tenure[rows] += 1.0
    # Persons who lose a job search from that day; some find another before the year ends.
    remaining = 1.0 - u[1][event == 0]
    hazard = job_risks.finding_hazard(life, year, lost)
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
    disability = p.disability_of_unemployed * job_risks.disability_rate(life, year, rows)
    disability = np.minimum(disability, p.disability_of_unemployed_ceiling)
    retire = job_risks.retirement_rate(year) * p.retirement_of_unemployed
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
    hazard = job_risks.finding_hazard(life, year, seekers)
    _search(life, seekers, 1.0 - activity.absent[seekers], hazard, u[1][stay], activity)


def _simulate_outside(life: LifeState, year: CohortYear, rows: Ints, activity: Activity) -> None:
    p = year.parameters.careers
    u = year.rng.random((3, len(rows)))
    small_child = life.youngest_age(year.calendar_year)[rows] < p.outside_infant_age
    infant = np.where(life.female[rows] & small_child, p.outside_infant, 1.0)
    work = np.minimum(job_risks.outside_finding(life, year, rows, infant), p.outside_work_ceiling)
    seek = (
        p.outside_seek
        * np.exp(p.outside_seek_attachment * life.attachment[rows])
        * infant
        * step_value(p.outside_seek_by_age, year.age)
    )
    seek = np.minimum(seek, p.outside_seek_ceiling)
    disability = p.disability_of_outside * job_risks.disability_rate(life, year, rows)
    disability = np.minimum(disability, p.disability_of_outside_ceiling)
    retire = job_risks.retirement_rate(year) * p.retirement_of_outside
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
