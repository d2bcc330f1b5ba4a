"""What follows from states and rules: sickness, parental and unemployment benefit, pensions, housing, study aid, capital income.

Rules in outline (rates, ceilings in price base amounts by period, from memory [M]); all amounts nominal SEK a year. A benefit
exists only where its cause does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from saga.register.simulation.careers import WEEKS, Activity
from saga.register.simulation.earnings import ROUND
from saga.register.simulation.economy import LAST_HISTORY, MacroYear
from saga.register.simulation.family import Births, partnered
from saga.register.simulation.life_state import (
    DISABLED,
    OUTSIDE,
    RETIRED,
    STUDENT,
    Bools,
    Floats,
    LifeState,
)
from saga.register.simulation.parameters import BenefitParameters


@dataclass
class Benefits:
    """Amounts of the year in nominal SEK (n,)."""

    sickness: Floats
    parental: Floats
    unemployment: Floats
    disability: Floats
    pension: Floats
    housing: Floats
    transfers: Floats
    capital: Floats


def entitle(
    life: LifeState,
    macro: MacroYear,
    age: int,
    activity: Activity,
    births: Births,
    earnings: Floats,
    partner: Floats,
    rng: np.random.Generator,
    p: BenefitParameters,
) -> Benefits:
    """All benefits of the year; wealth and mortgage move on in place. `partner` is the partner's earnings in SEK."""
    n = len(life)
    u = rng.random((5, n))
    here = life.resident
    usual = (
        macro.wages * np.exp(np.where(life.pay > 0, life.pay, 12.0)) * life.hours
    )  # pay of a full year in the usual job
    working = (activity.was != OUTSIDE) & (activity.was != STUDENT) & (life.experience > 0.8)
    sickness = _sickness(macro, activity, usual)
    parental = _parental(macro, activity, usual, working)
    unemployment = _unemployment(life, macro, activity, usual)
    degree = np.where(life.state == DISABLED, 1.0, life.disability)
    floor, ceiling = (
        p.disability_guarantee * macro.base_amount,
        p.disability_rate * 7.5 * macro.base_amount,
    )
    disability = degree * np.where(
        life.experience > 1.0, np.clip(p.disability_rate * usual, floor, ceiling), floor
    )
    pension = _pension(life, macro, age, usual, u[0], p)
    sickness, parental, unemployment, disability, pension = (
        p.generosity * amount for amount in (sickness, parental, unemployment, disability, pension)
    )
    own = earnings + sickness + parental + unemployment + disability + pension
    housing = p.generosity * _housing(
        life, macro, age, own + np.where(partnered(life), partner, 0.0), u[1]
    )
    study = p.generosity * np.where(
        life.state == STUDENT, (0.55 if age >= 20 else 0.22) * macro.base_amount, 0.0
    )
    child = (
        p.generosity
        * np.where(life.female, 0.27, 0.05)
        * macro.base_amount
        * life.children_at_home(macro.year)
    )
    poor = (
        (own + np.where(partnered(life), partner, 0.0) < 1.6 * macro.base_amount)
        & (age >= 20)
        & (life.state != STUDENT)
    )
    assistance = p.generosity * np.where(
        poor & (u[2] < np.where(life.region > 2, 0.6, 0.3)),
        (0.4 + 1.2 * u[3]) * macro.base_amount,
        0.0,
    )
    capital = _capital(life, macro, age, earnings, rng)
    total = sickness + parental + unemployment + disability + housing + study + child + assistance

    def rounded(amount: Floats) -> Floats:
        return np.asarray(np.where(here, np.round(amount / ROUND) * ROUND, 0.0), dtype=np.float64)

    return Benefits(
        sickness=rounded(sickness),
        parental=rounded(parental),
        unemployment=rounded(unemployment),
        disability=rounded(disability),
        pension=rounded(pension),
        housing=rounded(housing),
        transfers=rounded(total),
        capital=rounded(capital),
    )


def _sickness(macro: MacroYear, activity: Activity, usual: Floats) -> Floats:
    """From the third week (the employer pays the first two since 1992)."""
    rate = 0.9 if macro.year < 1993 else 0.8
    ceiling = (7.5 if macro.year < 2018 else 8.0 if macro.year < 2022 else 10.0) * macro.base_amount
    return (
        rate
        * np.minimum(usual, ceiling)
        * np.maximum(activity.sick - (2.0 if macro.year > 1991 else 0.2), 0.0)
        / WEEKS
    )


def _parental(macro: MacroYear, activity: Activity, usual: Floats, working: Bools) -> Floats:
    """Income-related for those who worked, else the flat amount; not all days of a leave are drawn."""
    rate = 0.9 if macro.year < 1995 else 0.75 if macro.year < 1998 else 0.78
    ceiling = (7.5 if macro.year < 2007 else 10.0) * macro.base_amount
    flat = 365.0 * (
        60.0
        if macro.year < 2002
        else 180.0
        if macro.year < 2013
        else 250.0 * max(1.0, macro.prices)
    )
    return (
        np.where(working, np.maximum(rate * np.minimum(usual, ceiling), flat), flat)
        * 0.8
        * activity.leave
        / WEEKS
    )


def _unemployment(life: LifeState, macro: MacroYear, activity: Activity, usual: Floats) -> Floats:
    """Insurance for members with work behind them: 80 % of pay at first, less after a year; the basic amount for others with work
    behind them; nothing after very long unemployment."""
    daily = np.interp(
        macro.year,
        (1990, 1997, 2001, 2002, 2014, 2015, 2019, 2020),
        (495, 580, 580, 680, 680, 910, 910, 1200),
    )
    daily *= max(macro.prices, 1.0) if macro.year > LAST_HISTORY else 1.0
    rate = (0.9 if macro.year < 1993 else 0.8) * np.where(life.duration > 1, 0.75, 1.0)
    full = np.minimum(rate * usual / 260.0, daily)
    entitled = (life.experience > 0.7) & (life.duration < 5) & (activity.was != STUDENT)
    paid = (
        np.where(life.insured, full, 0.22 * daily)
        * 5.0
        * np.maximum(activity.unemployed - 1.0, 0.0)
    )
    return np.where(entitled, paid, 0.0)


def _pension(
    life: LifeState, macro: MacroYear, age: int, usual: Floats, u: Floats, p: BenefitParameters
) -> Floats:
    """Early occupational and old-age pensions of the retired; some at work past 60 draw one too; widows' pensions."""
    retired = np.where(
        life.state == RETIRED,
        np.minimum(p.pension_rate * usual, p.pension_ceiling * macro.base_amount),
        0.0,
    )
    draws = (age > 60) & (life.state != RETIRED) & (u < 0.04 * (age - 60))
    widow = (life.marital == 4) & life.female & (life.birth_year < 1945) & (age > 35)
    return (
        retired + np.where(draws, 0.25 * usual, 0.0) + np.where(widow, 0.9 * macro.base_amount, 0.0)
    )


def _housing(life: LifeState, macro: MacroYear, age: int, household: Floats, u: Floats) -> Floats:
    """Means-tested: families with children, people under 29 and the disabled; falls by a fifth of income above the free amount."""
    children = life.children_at_home(macro.year)
    eligible = (children > 0) | ((age < 29) & (age > 18)) | (life.state == DISABLED)
    rate = 0.25 + 0.17 * np.minimum(children, 3) + 0.45 * (life.state == DISABLED)
    amount = rate * macro.base_amount - 0.2 * np.maximum(household - 2.6 * macro.base_amount, 0.0)
    applies = u < np.where(life.state == DISABLED, 0.6, np.where(children > 0, 0.65, 0.2))
    return np.where(eligible & applies & (amount > 0.03 * macro.base_amount), amount, 0.0)


def _capital(
    life: LifeState, macro: MacroYear, age: int, earnings: Floats, rng: np.random.Generator
) -> Floats:
    """Return on wealth, rare heavy-tailed gains, less mortgage interest. Wealth is saved from pay and kept in wage-level units."""
    u, e = rng.random((2, len(life))), rng.standard_normal(len(life))
    relative = earnings / macro.wages
    life.wealth = np.maximum(
        life.wealth * np.exp(0.01 + 0.12 * e)
        + 0.035 * relative * np.exp(0.5 * life.slope / 0.0055),
        0.0,
    )
    buys = (
        (life.mortgage <= 0)
        & (u[0] < np.where(partnered(life), 0.13, 0.035))
        & (relative > 120_000)
        & (24 < age < 50)
    )
    life.mortgage = np.where(buys, 1.8 * relative, life.mortgage * 0.965)
    life.mortgage = np.where(life.mortgage < 30_000, 0.0, life.mortgage)
    gain = np.where(
        u[1] < 0.055,
        0.12 * life.wealth * np.minimum((1.0 - rng.random(len(life))) ** -0.6, 40.0),
        0.0,
    )
    return macro.wages * (0.022 * life.wealth + gain - macro.interest * life.mortgage)
