"""Weeks of a working year by use: casual jobs, hours, parental leave and sickness.

A week in the country is worked, unemployed, on leave, sick, or none of these. Long spells of leave
and sickness continue in the next year.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from saga.register.simulation.cohort_year import CohortYear
from saga.register.simulation.family import Births
from saga.register.simulation.labour_market import OCCUPATION_PART_TIME
from saga.register.simulation.life_state import WEEKS, Bools, Floats, Ints, Labour, LifeState
from saga.register.simulation.parameters import by_sex, interpolate, step_value


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
