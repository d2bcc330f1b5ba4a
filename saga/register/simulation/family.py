"""Partners and children: union formation, marriage, separation, widowhood, births, and the parental leave that a birth brings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from saga.register.simulation.economy import MacroYear
from saga.register.simulation.life_state import (
    COHABITING,
    DIVORCED,
    GONE,
    MARRIED,
    MAX_BIRTHS,
    SINGLE,
    WIDOWED,
    Bools,
    Floats,
    LifeState,
)
from saga.register.simulation.parameters import PopulationParameters


@dataclass(frozen=True)
class Births:
    """What the year brought: who had a child (n,) and the weeks of parental leave that fall in this year (n,)."""

    new: Bools
    leave: Floats


def partnered(life: LifeState) -> Bools:
    """Lives with a spouse or cohabitant."""
    return np.asarray((life.marital == MARRIED) | (life.marital == COHABITING))


def family_year(
    life: LifeState, macro: MacroYear, age: int, rng: np.random.Generator, p: PopulationParameters
) -> Births:
    """One year of family life for all who are alive."""
    u = rng.random((4, len(life)))
    alive = life.presence != GONE
    _unions(life, macro.year, age, alive, u[0], u[1], rng, p)
    births = _births(life, macro.year, age, alive, u[2], rng, p)
    _partner_year(life, macro, age, rng)
    return births


def _unions(
    life: LifeState,
    year: int,
    age: int,
    alive: Bools,
    u: Floats,
    v: Floats,
    rng: np.random.Generator,
    p: PopulationParameters,
) -> None:
    if age < 18:
        return
    together = partnered(life)
    # Men form unions two years later, all did so earlier before 1990; those with work find partners more easily.
    older = age - np.where(life.female, 24.0, 26.0) + np.interp(year, (1970, 1990), (3.0, 0.0))
    first = p.partner_peak * np.exp(-0.5 * (older / np.where(older < 0, 4.0, 9.0)) ** 2) + 0.015 * (
        age < 50
    )
    enter = np.where(
        life.marital == SINGLE, first, p.repartnering * np.exp(-0.05 * max(age - 40, 0))
    )
    forms = alive & ~together & (u < enter * np.exp(0.10 * life.ability + 0.15 * life.attachment))
    marries = (
        alive
        & (life.marital == COHABITING)
        & (v < np.where(life.births[:, 0] > 0, p.marriage_with_children, p.marriage))
    )
    part = np.where(
        life.marital == MARRIED, p.separation_married, p.separation_cohabiting
    ) * np.exp(-0.03 * max(age - 35, 0))
    splits = alive & together & (u < part)
    dies = (
        alive
        & together
        & ~splits
        & (u > 1.0 - np.exp(-9.3 + 0.095 * (age - 20)) * np.where(life.female, 1.8, 0.8))
    )
    life.marital[splits & (life.marital == COHABITING)] = SINGLE
    life.marital[splits & (life.marital == MARRIED)] = DIVORCED
    life.marital[dies] = np.where(life.marital[dies] == MARRIED, WIDOWED, SINGLE)
    life.marital[marries & ~splits & ~dies] = MARRIED
    life.marital[forms] = COHABITING
    # After a separation most children are registered with the mother.
    leaves = splits & (v < np.where(life.female, 0.22, 0.62))
    life.custody[leaves] = False
    who = np.flatnonzero(forms)
    if len(who):
        shared = p.assortative * (life.ability[who] + 0.5 * (life.plan_level[who] - 1))
        life.partner_level[who] = 0.19 * (
            shared + np.sqrt(1 - p.assortative**2) * rng.standard_normal(len(who))
        )
        life.partner_shock[who] = 0.15 * rng.standard_normal(len(who))
        life.partner_works[who] = rng.random(len(who)) < 0.82


def birth_rate(life: LifeState, year: int, age: int, p: PopulationParameters) -> Floats:
    """Birth hazard by parity, years since the last birth, education, sex and union (n,)."""
    peak = (
        np.interp(year, (1970, 1990, 2020), p.first_birth_age)
        + np.asarray(p.by_education)[life.plan_level]
    )
    peak = peak + np.where(life.female, 0.0, p.father_lag)
    width = np.where(age < peak, 0.8, 1.15) * p.first_birth_sd
    first = p.first_birth_peak * np.exp(-0.5 * ((age - peak) / width) ** 2)
    parity = life.parity()
    since = np.clip(life.youngest_age(year), 0, len(p.second_birth) - 1)
    second = np.asarray(p.second_birth)[since]
    scale = np.array([0.0, 1.0, p.third_scale, p.third_scale * p.fourth_scale, 0.0])[parity]
    limit = np.clip((np.where(life.female, 44.0, 52.0) - age) / 8.0, 0.0, 1.0)
    rate = np.where(parity == 0, first, second * scale) * limit * life.wants_children
    return rate * np.where(partnered(life), 1.65, 0.12) * np.where(life.region > 3, 1.15, 1.0)


def _births(
    life: LifeState,
    year: int,
    age: int,
    alive: Bools,
    u: Floats,
    rng: np.random.Generator,
    p: PopulationParameters,
) -> Births:
    """Births and leave: mothers about a year, fathers a few weeks in 1990 and a quarter of the leave in 2020 (days paid, [M])."""
    n = len(life)
    life.leave *= life.custody  # leave ends when the child lives elsewhere
    leave = np.minimum(life.leave, 52.0)
    life.leave -= leave
    new = np.zeros(n, bool)
    if 17 < age < 53:
        parity = life.parity()
        new = alive & (parity < MAX_BIRTHS) & (u < birth_rate(life, year, age, p))
    who = np.flatnonzero(new)
    if len(who):
        life.births[who, parity[who]] = year
        life.custody[who] = True
        left = 52.0 * rng.random(len(who))  # weeks of the year after the birth
        father = np.interp(year, (1990, 2005, 2022), p.father_leave) * rng.exponential(
            size=len(who)
        )
        mother = np.interp(year, (1990, 2005, 2022), p.mother_leave) * np.clip(
            1.0 + 0.25 * rng.standard_normal(len(who)), 0.3, 1.9
        )
        total = np.where(life.female[who], mother, np.minimum(father, 40.0))
        now = np.where(
            life.female[who],
            np.minimum(total, left),
            np.minimum(np.minimum(2.0, left) + 0.2 * total, total),
        )
        leave[who] = np.minimum(leave[who] + now, 52.0)
        life.leave[who] += total - now
    return Births(new, leave)


def _partner_year(life: LifeState, macro: MacroYear, age: int, rng: np.random.Generator) -> None:
    """The partner's own persistent shock and employment; job loss and finding follow the economy."""
    u, e = rng.random(len(life)), rng.standard_normal(len(life))
    life.partner_shock = 0.95 * life.partner_shock + 0.09 * e
    stop = 0.9 * macro.job_loss + (0.03 if age < 57 else 0.10)
    start = 0.45 * macro.job_finding * (1.0 if age < 55 else 0.5)
    life.partner_works = np.where(life.partner_works, u > stop, u < start)


def partner_earnings(life: LifeState, year: int, age: int, base: float) -> Floats:
    """The partner's labour earnings relative to the wage level (n,): 0 without a partner or when he or she does not work."""
    youngest = life.youngest_age(year)
    wife = ~life.female
    young = np.where(
        youngest == 0, 0.45, np.where(youngest <= 2, 0.62, np.where(youngest < 12, 0.84, 1.0))
    )
    log = (
        base
        - 0.02
        + life.partner_level
        + life.partner_shock
        + 0.28 * (1 - np.exp(-max(age - 19, 0) / 9.0))
        - 0.24 * wife
    )
    return np.where(
        partnered(life) & life.partner_works, np.exp(log) * np.where(wife, young, 1.0), 0.0
    )
