"""New jobs, moves from job to job, and promotions."""

from __future__ import annotations

import numpy as np

from saga.register.simulation.cohort_year import CohortYear
from saga.register.simulation.labour_market import (
    IS_MANAGER,
    MANAGERS,
    OCCUPATION_PREMIUM,
    cumulate,
    draw_index,
    industry_cdf,
    occupation_cdf,
)
from saga.register.simulation.life_state import Floats, Ints, Labour, LifeState
from saga.register.simulation.working_time import Activity


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
