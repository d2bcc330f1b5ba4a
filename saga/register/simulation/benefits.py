"""Benefits, pensions and capital income of a year.

The rules are simplified: rates, and ceilings in price base amounts by period, from memory [M]. All
amounts are nominal SEK a year. Nobody has a benefit without its cause.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from saga.arrays import Bools, Floats
from saga.register.simulation.earnings import ROUND, Activity
from saga.register.simulation.economy import LAST_HISTORY
from saga.register.simulation.life_state import (
    WEEKS,
    CohortYear,
    Labour,
    LifeState,
    Marital,
    Region,
)
from saga.register.simulation.parameters import by_sex, interpolate, step_value

DAYS_A_YEAR, WORKDAYS_A_YEAR, WORKDAYS_A_WEEK = 365.0, 260.0, 5.0
ALLOWANCE_CHILDREN = 3  # children that count for the housing supplement


@dataclass
class Benefits:
    """Amounts of the year in nominal SEK (n,).

    `transfers` is the sum of all benefits, also those without a field, but not of the pension.
    """

    sickness: Floats
    parental: Floats
    unemployment: Floats
    disability: Floats
    pension: Floats
    housing: Floats
    transfers: Floats
    capital: Floats


def compute_benefits(
    life: LifeState, year: CohortYear, activity: Activity, earnings: Floats, partner: Floats
) -> Benefits:
    """All benefits of the year; updates wealth and mortgage in place.

    `partner` is the partner's earnings in SEK.
    """
    p, base_amount = year.parameters.benefits, year.macro.base_amount
    u = year.rng.random((5, len(life)))
    log_pay = np.where(life.pay > 0, life.pay, p.usual_pay_unknown)
    usual = year.macro.wages * np.exp(log_pay) * life.hours  # pay of a full year in the usual job
    sickness, parental, unemployment, disability, pension = (
        p.generosity * amount
        for amount in (
            _sickness(year, activity, usual),
            _parental(life, year, activity, usual),
            _unemployment(life, year, activity, usual),
            _disability(life, year, usual),
            _pension(life, year, usual, u[0]),
        )
    )
    income = earnings + sickness + parental + unemployment + disability + pension
    household = income + np.where(life.partnered, partner, 0.0)
    housing = p.generosity * _housing(life, year, household, u[1])
    study_aid = step_value(p.study_aid, year.age) * base_amount
    study = p.generosity * np.where(life.state == Labour.STUDENT, study_aid, 0.0)
    child = (
        p.generosity
        * by_sex(p.child_allowance, life.female)
        * base_amount
        * life.children_at_home(year.calendar_year)
    )
    assistance = p.generosity * _assistance(life, year, household, u[2], u[3])
    capital = _capital(life, year, earnings)
    total = sickness + parental + unemployment + disability + housing + study + child + assistance
    resident = life.resident

    def rounded(amount: Floats) -> Floats:
        return np.asarray(
            np.where(resident, np.round(amount / ROUND) * ROUND, 0.0), dtype=np.float64
        )

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


def _sickness(year: CohortYear, activity: Activity, usual: Floats) -> Floats:
    """Sickness benefit, after the weeks that the employer pays."""
    p, t = year.parameters.benefits, year.calendar_year
    ceiling = step_value(p.sickness_ceiling, t) * year.macro.base_amount
    weeks = np.maximum(activity.sick - step_value(p.sickness_waiting, t), 0.0)
    return step_value(p.sickness_rate, t) * np.minimum(usual, ceiling) * weeks / WEEKS


def _parental(life: LifeState, year: CohortYear, activity: Activity, usual: Floats) -> Floats:
    """A share of pay for persons who worked, else the flat amount; some days are not claimed."""
    p, t, before = year.parameters.benefits, year.calendar_year, activity.state_before
    rate = step_value(p.parental_rate, t)
    ceiling = step_value(p.parental_ceiling, t) * year.macro.base_amount
    flat = DAYS_A_YEAR * (step_value(p.parental_flat, t) * max(1.0, year.macro.prices))
    worked = life.experience > p.parental_experience
    entitled = (before != Labour.OUTSIDE) & (before != Labour.STUDENT) & worked
    related = np.maximum(rate * np.minimum(usual, ceiling), flat)
    return np.asarray(np.where(entitled, related, flat) * p.parental_drawn * activity.leave / WEEKS)


def _unemployment(life: LifeState, year: CohortYear, activity: Activity, usual: Floats) -> Floats:
    """Insurance for members, the basic amount for others; both need earlier work.

    Members get a share of their pay, less after a year. Nothing is paid after long unemployment.
    """
    p = year.parameters.benefits
    daily = interpolate(p.unemployment_ceiling, year.calendar_year)
    daily *= max(year.macro.prices, 1.0) if year.calendar_year > LAST_HISTORY else 1.0
    later = np.where(life.duration > 1, p.unemployment_later, 1.0)
    rate = step_value(p.unemployment_rate, year.calendar_year) * later
    full = np.minimum(rate * usual / WORKDAYS_A_YEAR, daily)
    entitled = (
        (life.experience > p.unemployment_experience)
        & (life.duration < p.unemployment_longest)
        & (activity.state_before != Labour.STUDENT)
    )
    weeks = np.maximum(activity.unemployed - p.unemployment_waiting, 0.0)
    paid = np.where(life.insured, full, p.unemployment_basic * daily) * WORKDAYS_A_WEEK * weeks
    return np.where(entitled, paid, 0.0)


def _disability(life: LifeState, year: CohortYear, usual: Floats) -> Floats:
    p, base_amount = year.parameters.benefits, year.macro.base_amount
    degree = np.where(life.state == Labour.DISABLED, 1.0, life.disability)
    floor = p.disability_guarantee * base_amount
    ceiling = p.disability_rate * p.disability_ceiling * base_amount
    related = np.clip(p.disability_rate * usual, floor, ceiling)
    return np.asarray(degree * np.where(life.experience > p.disability_experience, related, floor))


def _pension(life: LifeState, year: CohortYear, usual: Floats, u: Floats) -> Floats:
    """Pensions of the retired, of some at work after 60, and of widows."""
    p, base_amount = year.parameters.benefits, year.macro.base_amount
    retired = np.where(
        life.state == Labour.RETIRED,
        np.minimum(p.pension_rate * usual, p.pension_ceiling * base_amount),
        0.0,
    )
    years = year.age - p.work_pension_age
    at_work = (years > 0) & (life.state != Labour.RETIRED) & (u < p.work_pension_share * years)
    widow = (
        (life.marital == Marital.WIDOWED)
        & life.female
        & (life.birth_year < p.widow_born_before)
        & (year.age > p.widow_age)
    )
    return (
        retired
        + np.where(at_work, p.work_pension_rate * usual, 0.0)
        + np.where(widow, p.widow_pension * base_amount, 0.0)
    )


def _assistance(
    life: LifeState, year: CohortYear, household: Floats, u: Floats, v: Floats
) -> Floats:
    p, base_amount = year.parameters.benefits, year.macro.base_amount
    poor: Bools = (
        (household < p.assistance_income * base_amount)
        & (year.age >= p.assistance_age)
        & (life.state != Labour.STUDENT)
    )
    use = np.where(life.region > Region.EU, p.assistance_use[1], p.assistance_use[0])
    amount = (p.assistance_least + p.assistance_range * v) * base_amount
    return np.where(poor & (u < use), amount, 0.0)


def _housing(life: LifeState, year: CohortYear, household: Floats, u: Floats) -> Floats:
    """Means-tested supplement for families with children, the young and the disabled."""
    p, base_amount = year.parameters.benefits, year.macro.base_amount
    children = life.children_at_home(year.calendar_year)
    disabled = life.state == Labour.DISABLED
    young = p.housing_ages[0] <= year.age <= p.housing_ages[1]
    rate = (
        p.housing_base
        + p.housing_by_child * np.minimum(children, ALLOWANCE_CHILDREN)
        + p.housing_disabled * disabled
    )
    excess = np.maximum(household - p.housing_free_income * base_amount, 0.0)
    amount = rate * base_amount - p.housing_taper * excess
    use_disabled, use_children, use_others = p.housing_use
    use = np.where(disabled, use_disabled, np.where(children > 0, use_children, use_others))
    eligible = (children > 0) | young | disabled
    paid = eligible & (u < use) & (amount > p.housing_least * base_amount)
    return np.where(paid, amount, 0.0)


def _capital(life: LifeState, year: CohortYear, earnings: Floats) -> Floats:
    """Return on wealth and rare heavy-tailed gains, minus mortgage interest.

    Wealth is saved from earnings. Wealth and mortgage grow with the wage level.
    """
    p, macro, rng = year.parameters.benefits, year.macro, year.rng
    u, e = rng.random((2, len(life))), rng.standard_normal(len(life))
    relative = earnings / macro.wages
    by_slope = np.exp(p.saving_by_slope * life.slope / p.saving_slope_sd)
    life.wealth = np.maximum(
        life.wealth * np.exp(p.wealth_growth + p.wealth_sd * e) + p.saving * relative * by_slope,
        0.0,
    )
    purchase = np.where(life.partnered, p.house_purchase[1], p.house_purchase[0])
    buys = (
        (life.mortgage <= 0)
        & (u[0] < purchase)
        & (relative > p.house_earnings)
        & (p.house_ages[0] <= year.age <= p.house_ages[1])
    )
    life.mortgage = np.where(buys, p.mortgage_size * relative, life.mortgage * p.mortgage_remaining)
    life.mortgage = np.where(life.mortgage < p.mortgage_least, 0.0, life.mortgage)
    tail = np.minimum((1.0 - rng.random(len(life))) ** -p.gain_tail, p.gain_largest)
    gain = np.where(u[1] < p.gain_share, p.gain_size * life.wealth * tail, 0.0)
    return np.asarray(
        macro.wages * (p.wealth_return * life.wealth + gain - macro.interest * life.mortgage)
    )
