"""Couples, migration, origin, schooling, illness, leave, firms, jobs and joblessness.

Each figure changes if one mechanism of the simulation is absent. It is computed from the columns of
the panel, and only if the register covers its years.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from saga.data.panel import FLOOR
from saga.register.simulation.economy import CPI
from saga.register.validation.earnings_dynamics import BUST_YEARS, UPTURN_YEARS, rank_product
from saga.register.validation.estimators import Estimate, Sample, combine
from saga.register.validation.level_statistics import (
    ADULT_AGES,
    EDUCATED_AGES,
    LIFETIME_AGES,
    KeyedEstimates,
    lifetime_earnings,
    pay,
)
from saga.register.validation.register_arrays import CHILD_AGE_CODES, Bools, RegisterArrays

# Ages
COUPLE_AGES = (35, 55)
CORE_AGES = (25, 54)
ESTABLISHED_AGES = (30, 54)
DISABILITY_AGES = (50, 64)
EARLY_PENSION_AGES = (60, 64)
LATE_CAREER_AGES, EARLY_CAREER_AGES = (45, 54), (25, 34)
ENTRY_AGES = (25, 29)
LATE_PAY_AGES, EARLY_PAY_AGES = (50, 54), (30, 34)
ABROAD_AGES = (25, 34)  # first and last age between which a stay abroad is looked for
DEGREE_AGES = (30, 40)  # between which a late degree is taken
SECOND_CHANCE_AGES = (25, 35)
SLOPE_AGES = range(45, 50)  # at which earnings are compared with those of a lifetime

# Years and cohorts
COUPLE_YEARS = range(2011, 2023)
YEARS_2010S = range(2010, 2020)
PENSION_YEARS = range(1995, 2006)
DISABILITY_YEARS = (2005, 2020)
ABROAD_COHORTS = range(1965, 1989)
DEGREE_COHORTS = range(1970, 1983)
SECOND_CHANCE_COHORTS = (1975, 1987)
LABOUR_YEAR = 2015  # of workplaces, jobs, managers and the employment of immigrants
SOCIAL_YEAR = 2019  # of sickness, pay by age and unknown education
FOREIGN_YEAR = 2022

SETTLED_YEARS = 10  # in the country
SCAR_YEARS = 5  # over which pay is compared around a loss of work
LEAVER_YEARS = 2  # after which persons without any income have left work
GOODS = range(5, 44)  # divisions of SNI 2007: mining, manufacturing, energy and construction
PUBLIC = range(84, 89)  # public administration, education, health and social care


def all_social_statistics(register: RegisterArrays) -> KeyedEstimates:
    """All statistics of this module."""
    for measure in (
        _couples,
        _stays_abroad,
        _origin,
        _schooling,
        _out_of_work,
        _absences,
        _jobs,
        _growth,
        _leavers,
        _zero_years,
        _scar,
        _job_loss,
    ):
        for key, estimate in measure(register):
            yield f"circumstance.{key}", estimate


def _share(register: RegisterArrays, parts: Iterable[tuple[Bools, Bools]]) -> Estimate:
    """Share of the first of each pair of masks (n,) within the second, all pairs together."""
    return register.pool((part.astype(np.float32), whole) for part, whole in parts).mean()


def _couples(register: RegisterArrays) -> KeyedEstimates:
    if not register.covers(COUPLE_YEARS):
        return
    parts = []
    for year in COUPLE_YEARS:
        column = register.column(year)
        partner = register.partner_earnings[:, column].astype(np.float64) / CPI[year]
        couple = register.aged(year, *COUPLE_AGES) & register.attached(year) & (partner > FLOOR)
        for sex in (register.female, ~register.female):
            product = rank_product(register.logs[:, column], partner, couple & sex)
            parts.append((product, couple & sex))
    yield "spouses", register.pool(parts).mean()


def _stays_abroad(register: RegisterArrays) -> KeyedEstimates:
    first_age, last_age = ABROAD_AGES
    if not register.covers((ABROAD_COHORTS[0] + first_age, ABROAD_COHORTS[-1] + last_age)):
        return
    at_both_ages, with_gap = np.zeros(len(register), bool), np.zeros(len(register), bool)
    for born in ABROAD_COHORTS:
        first, last = register.column(born + first_age), register.column(born + last_age)
        present = register.present
        cohort = (register.birth_year == born) & present[:, first] & present[:, last]
        at_both_ages |= cohort
        with_gap |= cohort & ~present[:, first:last].all(axis=1)
    yield "abroad", _share(register, [(with_gap, at_both_ages)])


def _origin(register: RegisterArrays) -> KeyedEstimates:
    foreign, native = register.foreign, ~register.foreign
    if FOREIGN_YEAR in register.years:
        adult = register.aged(FOREIGN_YEAR, *ADULT_AGES)
        yield "foreign", _share(register, [(foreign, adult)])
    if register.covers(YEARS_2010S):
        foreign_pay, native_pay = (
            _log_pay(register, EDUCATED_AGES, group).mean() for group in (foreign, native)
        )
        yield "foreign_pay", foreign_pay - native_pay
    if LABOUR_YEAR in register.years:
        employed = register.employed[:, register.column(LABOUR_YEAR)]
        prime = register.aged(LABOUR_YEAR, *CORE_AGES)
        settled = foreign & (register.entry_year <= LABOUR_YEAR - SETTLED_YEARS)
        settled_share, native_share = (
            register.sample(employed, prime & group).mean() for group in (settled, native)
        )
        yield "settled", settled_share - native_share


def _log_pay(register: RegisterArrays, ages: tuple[int, int], group: Bools) -> Sample:
    """Log pay of full-time full-year jobs in `YEARS_2010S`, real SEK, all years together."""
    samples = [
        pay(register, year, register.aged(year, *ages) & group, log=True) for year in YEARS_2010S
    ]
    values = [
        sample.values - np.log(CPI[year]) for year, sample in zip(YEARS_2010S, samples, strict=True)
    ]
    person = np.concatenate([sample.person for sample in samples])
    return Sample(np.concatenate(values), person, len(register))


def _schooling(register: RegisterArrays) -> KeyedEstimates:
    def at_ages(born: int, ages: tuple[int, int]) -> list[NDArray[np.int8]]:
        return [register.education[:, register.column(born + age)] for age in ages]

    if register.covers(born + age for born in DEGREE_COHORTS for age in DEGREE_AGES):
        parts = []
        for born in DEGREE_COHORTS:
            before, after = at_ages(born, DEGREE_AGES)
            cohort = register.birth_year == born
            parts.append((after > before, cohort & (before >= 0) & (after >= 0)))
        yield "late_degree", _share(register, parts)
    parts = []
    for born in range(SECOND_CHANCE_COHORTS[0], SECOND_CHANCE_COHORTS[1] + 1):
        if register.covers(born + age for age in SECOND_CHANCE_AGES):
            before, after = at_ages(born, SECOND_CHANCE_AGES)
            cohort = register.birth_year == born
            parts.append((after > 0, cohort & (before == 0) & (after >= 0)))
    if parts:
        yield "second_chance", _share(register, parts)
    if SOCIAL_YEAR in register.years:
        unknown = register.education[:, register.column(SOCIAL_YEAR)] < 0
        adult = register.aged(SOCIAL_YEAR, *ADULT_AGES)
        yield "level_unknown", _share(register, [(unknown, adult)])


def _out_of_work(register: RegisterArrays) -> KeyedEstimates:
    for year in DISABILITY_YEARS:
        if year in register.years:
            pensioner = register.has("disability", year)
            aged = register.aged(year, *DISABILITY_AGES)
            yield f"disability.{year}", _share(register, [(pensioner, aged)])
    if register.covers(PENSION_YEARS):
        parts = [
            (
                register.has("pension", year) & (register.earned(year) == 0),
                register.aged(year, *EARLY_PENSION_AGES),
            )
            for year in PENSION_YEARS
        ]
        yield "pensioners", _share(register, parts)


def _absences(register: RegisterArrays) -> KeyedEstimates:
    infant = register.youngest_child == CHILD_AGE_CODES["infant"]
    births = [
        (register.has("parental", year), register.female & infant[:, register.column(year)])
        for year in register.years
    ]
    yield "mothers", _share(register, births)
    if SOCIAL_YEAR in register.years:
        working = register.aged(SOCIAL_YEAR, *ADULT_AGES) & (register.earned(SOCIAL_YEAR) > 0)
        sick = register.has("sickness", SOCIAL_YEAR)
        for group in ("women", "men"):
            estimate = _share(register, [(sick, working & register.group(group))])
            yield f"sickness.{group}", estimate


def _jobs(register: RegisterArrays) -> KeyedEstimates:
    if register.covers((YEARS_2010S.start - 1, *YEARS_2010S)):
        parts = []
        for year in YEARS_2010S:
            before, after = (register.industry[:, register.column(y)] for y in (year - 1, year))
            at_work = register.attached(year - 1) & register.attached(year)
            known_industries = (after >= 0) & (before >= 0)
            mask = register.aged(year - 1, *CORE_AGES) & at_work & known_industries
            parts.append((after != before, mask))
        yield "industry_change", _share(register, parts)
    year = LABOUR_YEAR
    if year not in register.years:
        return
    adult = register.aged(year, *ADULT_AGES)
    one_person_firm, with_workplace, several, manager, with_occupation = (
        register.has(fact, year)
        for fact in ("one_person_firm", "workplace", "several_employers", "manager", "occupation")
    )
    yield "own_firm", _share(register, [(one_person_firm, adult & with_workplace)])
    yield "jobs", _share(register, [(several, adult & (register.earned(year) > 0))])
    late, early = (
        _share(register, [(manager, with_occupation & register.aged(year, *ages))])
        for ages in (LATE_CAREER_AGES, EARLY_CAREER_AGES)
    )
    yield "managers", late - early


def _growth(register: RegisterArrays) -> KeyedEstimates:
    """Mean and spread of pay by age, and slope of late earnings on lifetime earnings."""
    if SOCIAL_YEAR in register.years:
        late, entry = (
            pay(register, SOCIAL_YEAR, register.aged(SOCIAL_YEAR, *ages)).mean()
            for ages in (LATE_CAREER_AGES, ENTRY_AGES)
        )
        yield "age_pay", late / entry
    if register.covers(YEARS_2010S):
        everybody = register.group("all")
        late, early = (
            _log_pay(register, ages, everybody).variance()
            for ages in (LATE_PAY_AGES, EARLY_PAY_AGES)
        )
        yield "pay_fan", late - early
    total, by_age = lifetime_earnings(register)
    if total is None:
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        x = np.log(total / FLOOR)
        y_by_age = [np.log(by_age[LIFETIME_AGES.index(age)] / FLOOR) for age in SLOPE_AGES]

    def mean(value: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> Estimate:
        men = ~register.female & (total > 0)
        return register.pool((value(y), men & (y > 0)) for y in y_by_age).mean()

    moments = mean(lambda _: x), mean(lambda y: y), mean(lambda y: x * y), mean(lambda _: x * x)
    estimate = combine(lambda v: float((v[2] - v[0] * v[1]) / (v[3] - v[0] ** 2)), *moments)
    yield "lifetime_slope", estimate


def _leavers(register: RegisterArrays) -> KeyedEstimates:
    """Persons who leave work and have neither benefit nor pension."""
    parts = []
    for year in register.years[:-LEAVER_YEARS]:
        later = register.taxable[:, register.column(year + LEAVER_YEARS)]
        worked = register.aged(year, *ESTABLISHED_AGES) & register.attached(year)
        parts.append((later == 0, worked & np.isfinite(later)))
    if parts:
        yield "leavers", _share(register, parts)


def _zero_years(register: RegisterArrays) -> KeyedEstimates:
    """Share of years without earnings that follow such a year."""

    def one_zero(year: int) -> Bools:
        return np.asarray((register.earned(year - 2) > 0) & (register.earned(year - 1) == 0))

    def three_zeros(year: int) -> Bools:
        zero = register.earnings[:, register.column(year - 3) : register.column(year)] == 0
        return np.asarray(zero.all(axis=1) & ~register.has("disability", year - 1))

    for key, n_before, condition in (
        ("zero_again", 2, one_zero),
        ("zero_after_three", 3, three_zeros),
    ):
        parts = []
        for year in register.years[n_before:]:
            earned = register.earned(year)
            mask = register.aged(year, *CORE_AGES) & np.isfinite(earned) & condition(year)
            parts.append((earned == 0, mask))
        yield key, _share(register, parts)


def _scar(register: RegisterArrays) -> KeyedEstimates:
    """Loss of pay after unemployment, for persons who are in full-time work again."""
    lost: list[tuple[NDArray[np.floating], Bools]] = []
    stayed: list[tuple[NDArray[np.floating], Bools]] = []
    for year in register.years[:-SCAR_YEARS]:
        start, end = register.column(year), register.column(year + SCAR_YEARS)
        change = register.logs[:, end] - register.logs[:, start]
        mask = (
            register.aged(year, *ESTABLISHED_AGES)
            & register.full_job[:, start]
            & register.full_job[:, end]
            & ~register.has("unemployment", year)
            & np.isfinite(change)
        )
        # Relative to the mean of the year, so that growth does not affect the comparison.
        usual = change[mask].mean(dtype=np.float64) if mask.any() else 0.0
        unemployed = register.has("unemployment", year + 1)
        lost.append((change - usual, mask & unemployed))
        stayed.append((change - usual, mask & ~unemployed))
    if lost:
        yield "scar", register.pool(lost).mean() - register.pool(stayed).mean()


def _job_loss(register: RegisterArrays) -> KeyedEstimates:
    """Job loss in the crisis of the 1990s by industry, and relative to upturns."""
    if not register.covers(year for end in (*BUST_YEARS, *UPTURN_YEARS) for year in (end - 1, end)):
        return

    def risk(years: Iterable[int], divisions: range) -> Estimate:
        parts = []
        for year in years:
            industry = register.industry[:, register.column(year - 1)]
            worked = (
                register.attached(year - 1)
                & ~register.has("unemployment", year - 1)
                & np.isin(industry, divisions)
                & register.present[:, register.column(year)]
                & register.aged(year - 1, *CORE_AGES)
            )
            parts.append((register.has("unemployment", year), worked))
        return _share(register, parts)

    risks = [
        risk(years, divisions)
        for years in (BUST_YEARS, UPTURN_YEARS)
        for divisions in (GOODS, PUBLIC)
    ]
    yield "loss_by_trade", risks[0] / risks[1]
    yield "loss_cycle", combine(lambda v: float(np.log(v[0] * v[3] / (v[1] * v[2]))), *risks)
