"""From state to state: job loss and finding, employers, occupations, disability, retirement, and the weeks of a working year.

Weeks add up: of the weeks in the country, some are worked, some unemployed, some on leave, some sick. Long spells carry over.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from saga.register.simulation.economy import MacroYear
from saga.register.simulation.family import Births
from saga.register.simulation.labour_market import (
    COUNTY_RISK,
    INDUSTRY_CYCLE,
    IS_MANAGER,
    MANAGERS,
    OCCUPATION_PREMIUM,
    PART_TIME_TRADE,
    Employers,
    cumulate,
    industry_cdf,
    occupation_cdf,
    pick,
)
from saga.register.simulation.life_state import (
    DISABLED,
    EMPLOYED,
    OUTSIDE,
    RETIRED,
    STUDENT,
    UNEMPLOYED,
    Bools,
    Floats,
    Ints,
    LifeState,
)
from saga.register.simulation.parameters import CareerParameters

WEEKS = 52.0
ENTRANT = 0.45  # share of the year gone when school ends (June)


@dataclass
class Activity:
    """Weeks of one year by use, and what changed (all arrays (n,)). `odd` marks a year with only short or casual jobs."""

    worked: Floats
    unemployed: Floats
    leave: Floats
    sick: Floats
    employers: Ints
    odd: Bools
    lost: Bools
    hired: Bools
    was: Ints


def work_year(
    life: LifeState,
    macro: MacroYear,
    age: int,
    started: Floats,
    entrants: Bools,
    births: Births,
    employers: Employers,
    closing: Bools,
    rng: np.random.Generator,
    p: CareerParameters,
) -> Activity:
    """One year of everybody's working life. Changes the labour state in place and returns the weeks."""
    n = len(life)
    here = life.resident
    zero = np.zeros(n)
    year = Activity(zero, zero.copy(), zero.copy(), zero.copy(), np.zeros(n, np.int64), np.zeros(n, bool), np.zeros(n, bool),
                    np.zeros(n, bool), life.state.copy())  # fmt: skip
    life.state[entrants], life.duration[entrants] = UNEMPLOYED, 0
    start = np.where(entrants, ENTRANT, started)
    life.duration += 1
    employed = np.flatnonzero(here & (life.state == EMPLOYED))
    seeking = np.flatnonzero(here & (life.state == UNEMPLOYED))
    outside = np.flatnonzero(here & (life.state == OUTSIDE))
    _disabled_return(life, np.flatnonzero(here & (life.state == DISABLED)), rng)
    _employed_year(life, employed, macro, age, start, closing, year, rng, p)
    _seeking_year(life, seeking, macro, age, start, year, rng, p)
    _outside_year(life, outside, macro, age, start, year, rng, p)
    hired = np.flatnonzero(year.hired)
    _start_job(life, hired, macro.year, employers, rng)
    _change_job(life, employed, macro, age, year, employers, rng, p)
    _odd_jobs(life, here, age, year, rng, p)
    _hours(life, macro.year, age, year, births, rng, p)
    _absences(life, macro.year, age, births, year, rng, p)
    return year


def loss_rate(
    life: LifeState, who: Ints, macro: MacroYear, age: int, p: CareerParameters
) -> Floats:
    """Job-loss probability of the employed `who`: the economy's rate, spread by tenure, age, schooling, origin, trade and county."""
    rise = min(max(macro.rise, -0.015), 0.035)
    young = p.loss_young if age < 25 else 1.4 if age < 30 else 1.0 if age < 58 else 1.15
    tenure = 0.55 + 1.5 * np.exp(-life.tenure[who] / 3.0)
    sensitivity = p.cycle_by_industry * (INDUSTRY_CYCLE[life.industry[who]] - 1.0)
    cycle = np.exp(38.0 * rise * sensitivity) * (1.0 + 0.35 * sensitivity)
    foreign = np.where(
        life.region[who] > 1, p.loss_foreign * (1.0 + p.cycle_foreign * max(rise, 0.0)), 1.0
    )
    person = np.exp(-0.22 * life.ability[who] - 0.12 * life.attachment[who] - 0.035)
    rate = macro.job_loss * young * tenure * cycle * foreign * person
    rate *= np.asarray(p.loss_by_education)[life.level[who]] * COUNTY_RISK[life.county[who]]
    return np.asarray(np.minimum(rate, 0.6), dtype=np.float64)


def finding_hazard(
    life: LifeState, who: Ints, macro: MacroYear, age: int, p: CareerParameters
) -> Floats:
    """Continuous-time hazard of finding work (a year), falling with the time already spent without it."""
    base = -np.log1p(-macro.job_finding)
    by_age = (
        0.7 if age < 20 else 1.1 if age < 25 else 1.0 if age < 50 else 0.75 if age < 57 else 0.45
    )
    settled = np.clip((macro.year - life.entry[who]) / 10.0, 0.0, 1.0)
    origin = np.asarray(p.finding_by_region)[life.region[who]]
    origin = origin + (np.minimum(origin + 0.3, 1.0) - origin) * settled
    person = np.exp(0.18 * life.ability[who] + 0.25 * life.attachment[who] - 0.05)
    duration = np.exp(-p.duration_dependence * np.minimum(life.duration[who] - 1, 6))
    schooling = np.asarray(p.finding_by_education, dtype=np.float64)[life.level[who]]
    return np.asarray(
        base * by_age * origin * person * duration * schooling / COUNTY_RISK[life.county[who]],
        dtype=np.float64,
    )


def disability_rate(life: LifeState, who: Ints, year: int, age: int, p: CareerParameters) -> Floats:
    """Inflow into disability pension: age, health, schooling, sex and the rules of the time."""
    era = np.interp(
        year, (1990, 1993, 1998, 2004, 2006, 2009, 2022), (1.0, 1.5, 0.9, 1.6, 1.0, 0.40, 0.35)
    )
    base = p.disability_at_45 * np.exp(p.disability_slope * (age - 45))
    risk = np.exp(0.85 * life.health[who] - 0.36) * np.array([1.5, 1.1, 0.8, 0.5])[life.level[who]]
    risk = risk * np.where(life.female[who], 1.25, 0.8) * np.where(life.sick[who] > 13, 12.0, 1.0)
    return np.asarray(np.minimum(base * era * risk, 0.6), dtype=np.float64)


def retirement_rate(year: int, age: int, p: CareerParameters) -> float:
    """Early exit into retirement at 55-64, commoner in the 1990s and rarer after 2010."""
    era = np.interp(year, (1990, 1994, 1998, 2010, 2020), (1.1, 1.6, 1.4, 0.55, 0.45))
    return p.retirement[age - 55] * float(era) if age >= 55 else 0.0


def _employed_year(
    life: LifeState,
    who: Ints,
    macro: MacroYear,
    age: int,
    start: Floats,
    closing: Bools,
    out: Activity,
    rng: np.random.Generator,
    p: CareerParameters,
) -> None:
    u = rng.random((4, len(who)))
    loss = loss_rate(life, who, macro, age, p)
    loss = np.where(closing[life.employer[who]], np.maximum(loss, 0.7), loss)
    sick = disability_rate(life, who, macro.year, age, p)
    retire = retirement_rate(macro.year, age, p) * np.exp(-0.25 * life.attachment[who])
    quit_work = (
        p.quit_outside
        * (3.0 if age < 23 else 1.0 if age < 60 else 1.6)
        * np.exp(-0.8 * life.attachment[who] - 0.3)
    )
    mothers = life.female[who] & (life.youngest_age(macro.year)[who] < 7)
    quit_work = (
        quit_work * np.where(mothers, p.mother_quit, 1.0) * np.where(life.region[who] > 2, 1.8, 1.0)
    )
    event = _competing(u[0], loss, sick, retire, quit_work)
    stay = 1.0 - start[who]  # people back from abroad are seekers, so this is 1 for nearly all
    share = np.where(event == 4, 1.0, u[1])
    lost, ill, retired, quits = (who[event == k] for k in range(4))
    out.worked[who] = WEEKS * stay * share
    out.employers[who] = 1
    out.lost[lost] = True
    life.tenure[who] += 1.0
    # Losers search from the day of the loss; the quick ones are back before the year ends.
    rest = 1.0 - u[1][event == 0]
    hazard = finding_hazard(life, lost, macro, age, p)
    _search(life, lost, rest, hazard, u[2][event == 0], out)
    life.scar[lost] += p.scar_loss * (0.5 + 0.5 * np.minimum(life.tenure[lost], 10.0) / 5.0)
    partial = u[2][event == 1] < 0.4
    life.disability[ill] = np.where(partial, 0.5, 1.0)
    life.state[ill[~partial]] = DISABLED
    out.worked[ill] = np.where(partial, WEEKS, out.worked[ill])
    life.state[retired], life.state[quits] = RETIRED, OUTSIDE
    for group in (ill[~partial], retired, quits):
        life.duration[group] = 0


def _competing(u: Floats, *rates: Floats | float) -> Ints:
    """Which of the competing risks struck: 0..k-1, or k for none."""
    edges = np.cumsum(np.broadcast_arrays(*rates), axis=0)
    return np.asarray((u >= edges).sum(axis=0), dtype=np.int64)


def _search(
    life: LifeState, who: Ints, weeks_left: Floats, hazard: Floats, u: Floats, out: Activity
) -> None:
    """Job search over the rest of the year (a share): exponential spells; found before its end or unemployed at its end."""
    spell = -np.log1p(-u) / hazard
    found = spell < weeks_left
    out.unemployed[who] += WEEKS * np.minimum(spell, weeks_left)
    out.worked[who] += WEEKS * np.where(found, weeks_left - spell, 0.0)
    out.hired[who] = found
    out.employers[who] += found
    life.state[who] = np.where(found, EMPLOYED, UNEMPLOYED)
    life.duration[who] = np.where(
        found, 0, life.duration[who] * (life.duration[who] > 0) * (out.was[who] == UNEMPLOYED)
    )


def _seeking_year(
    life: LifeState,
    who: Ints,
    macro: MacroYear,
    age: int,
    start: Floats,
    out: Activity,
    rng: np.random.Generator,
    p: CareerParameters,
) -> None:
    u = rng.random((2, len(who)))
    long = np.minimum(life.duration[who], 6)
    leave = p.to_outside * (0.3 + 0.3 * long) * np.exp(-0.5 * life.attachment[who] - 0.12)
    sick = 3.0 * disability_rate(life, who, macro.year, age, p)
    retire = retirement_rate(macro.year, age, p) * 4.0
    event = _competing(u[0], leave, np.minimum(sick, 0.3), min(retire, 0.5))
    quits, ill, retired = (who[event == k] for k in range(3))
    for group, state in ((quits, OUTSIDE), (ill, DISABLED), (retired, RETIRED)):
        out.unemployed[group] = WEEKS * 0.5 * (1.0 - start[group])
        life.state[group], life.duration[group] = state, 0
    life.disability[ill] = 1.0
    stay = event == 3
    seek = who[stay]
    _search(
        life, seek, 1.0 - start[seek], finding_hazard(life, seek, macro, age, p), u[1][stay], out
    )


def _outside_year(
    life: LifeState,
    who: Ints,
    macro: MacroYear,
    age: int,
    start: Floats,
    out: Activity,
    rng: np.random.Generator,
    p: CareerParameters,
) -> None:
    u = rng.random((3, len(who)))
    level = (
        np.asarray(p.finding_by_education)[life.level[who]]
        * np.asarray(p.finding_by_region)[life.region[who]]
    )
    duration = np.exp(-p.outside_duration * np.minimum(life.duration[who] - 1, 6))
    infant = np.where(life.female[who] & (life.youngest_age(macro.year)[who] < 2), 0.4, 1.0)
    pull = (
        np.exp(0.6 * life.attachment[who] - 0.15)
        * (1.3 if age < 30 else 1.0 if age < 55 else 0.4)
        * infant
    )
    era = 1.0 + p.activation * np.clip((macro.year - 2006) / 6.0, 0.0, 1.0)
    work = era * p.outside_finding * level * duration * pull * macro.job_finding / 0.6
    seek = (
        0.12
        * np.exp(0.4 * life.attachment[who])
        * infant
        * (1.3 if age < 30 else 1.0 if age < 55 else 0.3)
    )
    sick = 1.5 * disability_rate(life, who, macro.year, age, p)
    event = _competing(
        u[0],
        np.minimum(work, 0.6),
        np.minimum(seek, 0.3),
        np.minimum(sick, 0.1),
        retirement_rate(macro.year, age, p) * 2.0,
    )
    works, seeks, ill, retired = (who[event == k] for k in range(4))
    left = 1.0 - start[works]
    out.worked[works] = WEEKS * left * u[1][event == 0]
    out.hired[works], out.employers[works] = True, 1
    out.unemployed[seeks] = WEEKS * 0.5 * (1.0 - start[seeks])
    life.disability[ill] = 1.0
    for group, state in (
        (works, EMPLOYED),
        (seeks, UNEMPLOYED),
        (ill, DISABLED),
        (retired, RETIRED),
    ):
        life.state[group], life.duration[group] = state, 0


def _disabled_return(life: LifeState, who: Ints, rng: np.random.Generator) -> None:
    """One in a hundred a year leaves the disability pension to look for work."""
    back = who[rng.random(len(who)) < 0.010]
    life.state[back], life.duration[back], life.disability[back] = UNEMPLOYED, 0, 0.0


def _start_job(
    life: LifeState, who: Ints, year: int, employers: Employers, rng: np.random.Generator
) -> None:
    """A new job: most keep their occupation, many their industry; then an employer, drawn by size."""
    u = rng.random((5, len(who)))
    fresh = occupation_cdf()[life.level[who], life.field[who], life.female[who].astype(np.int64)]
    keep = (life.occupation[who] >= 0) & (
        u[0] < np.clip(0.25 + 0.06 * life.experience[who], 0.25, 0.8)
    )
    # Who has finished a higher education since the last job starts anew.
    keep &= ~(life.experience[who] < 1.5)
    life.occupation[who] = np.where(keep, life.occupation[who], pick(fresh, u[1]))
    same = keep & (life.industry[who] >= 0) & (u[2] < 0.55)
    life.industry[who] = np.where(
        same, life.industry[who], pick(industry_cdf(year)[life.occupation[who]], u[3])
    )
    life.employer[who] = employers.hire(life.industry[who], u[4])
    life.tenure[who] = 0.0


def _change_job(
    life: LifeState,
    employed: Ints,
    macro: MacroYear,
    age: int,
    out: Activity,
    employers: Employers,
    rng: np.random.Generator,
    p: CareerParameters,
) -> None:
    """Moves from job to job (procyclical, fewer with age and tenure) and promotions to management."""
    who = employed[(life.state[employed] == EMPLOYED) & ~out.hired[employed]]
    u, e = rng.random((3, len(who))), rng.standard_normal(len(who))
    rate = (
        p.job_change_at_25
        * np.exp(-p.job_change_fall * (max(age, 20) - 25))
        * np.clip(1.0 - 18.0 * macro.rise, 0.55, 1.3)
    )
    moves = u[0] < rate * (0.6 + 0.9 * np.exp(-life.tenure[who] / 3.0))
    movers = who[moves]
    _start_job(life, movers, macro.year, employers, rng)
    life.shock[movers] += 0.025 + p.job_change_sd * e[moves]
    out.employers[movers] += 1
    rank = np.exp(0.9 * life.ability[who] - 0.4) * np.array([0.35, 0.8, 1.2, 1.8])[life.level[who]]
    rises = (
        (u[1] < p.promotion * rank)
        & (life.experience[who] > 6)
        & ~IS_MANAGER[np.maximum(life.occupation[who], 0)]
        & (age < 58)
    )
    risers = who[rises]
    # To management in the own industry, by the usual mix of managers' posts, at most partly paid at once.
    life.occupation[risers] = MANAGERS[pick(cumulate(np.ones(len(MANAGERS))), u[2][rises])]
    life.shock[risers] -= 0.6 * (OCCUPATION_PREMIUM[life.occupation[risers]] - 0.12)
    steps_down = who[IS_MANAGER[np.maximum(life.occupation[who], 0)] & (u[1] > 0.97)]
    life.occupation[steps_down] = pick(
        occupation_cdf()[
            life.level[steps_down], life.field[steps_down], life.female[steps_down].astype(np.int64)
        ],
        rng.random(len(steps_down)),
    )


def _odd_jobs(
    life: LifeState,
    here: Bools,
    age: int,
    out: Activity,
    rng: np.random.Generator,
    p: CareerParameters,
) -> None:
    """Summer, extra and casual jobs of those without a regular one: students most, the disabled least."""
    idle = np.flatnonzero(here & (out.worked <= 0.0))
    u = rng.random((2, len(idle)))
    school = 1.0 if age > 18 else 0.42 if age > 16 else 0.29
    share = np.asarray(p.casual)[life.state[idle]] * np.where(
        life.state[idle] == STUDENT, school, p.casual_prime if 24 < age < 55 else 1.0
    )
    share = share * np.where(life.female[idle], p.casual_sex[1], p.casual_sex[0])
    some = u[0] < share * np.exp(np.minimum(0.3 * life.attachment[idle], 0.4))
    works = idle[some]
    weeks = np.where(
        life.state[works] == STUDENT, p.casual_weeks[0] * school, p.casual_weeks[1]
    ) * -np.log1p(-u[1][some])
    out.worked[works] = np.minimum(weeks, 40.0)
    out.unemployed[works] = np.maximum(out.unemployed[works] - weeks, 0.0)
    out.employers[works] = 1
    out.odd[works] = True


def _hours(
    life: LifeState,
    year: int,
    age: int,
    out: Activity,
    births: Births,
    rng: np.random.Generator,
    p: CareerParameters,
) -> None:
    """Full or part time: chosen with a job, after a birth, and now and then; care of children and the trade matter."""
    u = rng.random((3, len(life)))
    anew = out.hired | (u[0] < (0.10 if age < 32 else 0.035)) | (births.leave > 20)
    part = np.where(
        life.female,
        p.part_time[1] * np.exp(p.part_time_fall * np.clip(2010 - year, 0, 25)),
        p.part_time[0],
    )
    mother = life.female & (life.care > 0.01) & life.custody
    part = part + np.where(
        mother, p.part_time_mother * np.clip(life.care / p.care_first, 0.0, 1.2), 0.0
    )
    trade = np.where(life.occupation >= 0, PART_TIME_TRADE[np.maximum(life.occupation, 0)], False)
    part = part * np.where(trade, 1.5, 0.85) * np.exp(-0.30 * life.attachment - 0.15 * life.ability)
    part = part + (
        0.40 if age < 21 else 0.22 if age < 24 else 0.10 if age < 27 else 0.08 if age > 60 else 0.0
    )
    hours = np.where(u[1] < np.minimum(part, 0.95), 0.30 + 0.60 * np.sqrt(u[2]), 1.0)
    life.hours = np.where(anew, hours, life.hours)


def _absences(
    life: LifeState,
    year: int,
    age: int,
    births: Births,
    out: Activity,
    rng: np.random.Generator,
    p: CareerParameters,
) -> None:
    """Parental leave and sickness take weeks from work. Long sickness carries into the next year."""
    u = rng.random((3, len(life)))
    child = life.youngest_age(year) < 9
    days = np.where(
        child & life.custody & (out.worked > 10),
        np.where(life.female, 1.6, 0.9) * -np.log1p(-u[2]),
        0.0,
    )
    leave = np.minimum(births.leave + np.minimum(days, 10.0), WEEKS)
    out.leave = leave * life.resident
    out.worked = out.worked * (1.0 - leave / WEEKS)
    out.unemployed = out.unemployed * (1.0 - births.leave / WEEKS)
    era = np.interp(year, (1990, 1997, 2002, 2008, 2010, 2022), (1.1, 0.75, 1.35, 0.8, 0.7, 0.85))
    share = (
        np.where(life.female, p.sickness_share[1], p.sickness_share[0])
        * era
        * np.exp(0.55 * life.health - 0.15)
        * (0.55 + 0.011 * age)
    )
    falls = (out.worked > 4) & ~out.odd & (u[0] < share)
    # Spells: a Pareto tail above four weeks (index 1.1), cut at two and a half years.
    spell = np.where(falls, np.minimum(4.0 * (1.0 - u[1]) ** (-1.0 / 1.1), 130.0), 0.0) + life.sick
    sick = np.minimum(spell, out.worked)
    out.sick = sick
    out.worked = out.worked - sick
    life.sick = np.where(life.state == EMPLOYED, np.maximum(spell - sick, 0.0), 0.0)
