"""Statistics of a register without a target.

They describe distributions, changes, mobility and lifetimes. They are printed below the targets in
the same table. Each function yields whole rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from saga.register.validation.earnings_dynamics import (
    MOBILITY_AGES,
    RANK_YEARS,
    changes,
    past_rank,
    rank_slope,
)
from saga.register.validation.estimators import Estimate, Sample
from saga.register.validation.fertility import EVENT_YEARS, event_study, first_births
from saga.register.validation.level_statistics import (
    ADULT_AGES,
    EMPLOYMENT_YEAR,
    GROUPS,
    lifetime_earnings,
    pay_ratio,
)
from saga.register.validation.register_arrays import Bools, RegisterArrays
from saga.register.validation.targets import RegisterTarget
from saga.schema import EDUCATION_LEVELS, MAX_AGE

Rows = Iterator[tuple[RegisterTarget, Estimate]]

SEXES = ("women", "men")
AGE_BANDS = ((16, 19), *((age, age + 4) for age in range(20, 65, 5)))
CHANGE_AGES = ((25, 34), (35, 44), (45, 55))
CHANGE_LAGS = (1, 3, 5)
MOBILITY_LAGS = (1, 5, 10)
EDUCATION_COHORTS = range(1930, 1990, 5)
EDUCATION_AGE = 37
CHANGE = "change of log real labour earnings, both above half a price base amount"


def describe(register: RegisterArrays) -> Rows:
    """All descriptive rows."""
    for measure in (
        _by_year,
        by_age,
        _education_by_cohort,
        _changes_by_age_and_rank,
        _mobility,
        _around_first_birth,
        _lifetime,
    ):
        yield from measure(register)


def _row(
    key: str, topic: str, concept: str, population: str, statistic: str, estimate: Estimate
) -> tuple[RegisterTarget, Estimate]:
    return RegisterTarget(key, topic, concept, population, statistic, band="none"), estimate


def _distribution(sample: Sample) -> Iterator[tuple[str, str, Estimate]]:
    """Mean, quantiles and Gini: last word of the key, statistic and estimate of each."""
    yield "mean", "mean", sample.mean()
    for name, quantile in zip(
        ("p10", "p50", "p90"), sample.quantiles((0.1, 0.5, 0.9)), strict=True
    ):
        yield name, name.upper(), quantile
    yield "gini", "Gini", sample.gini()


def _by_year(register: RegisterArrays) -> Rows:
    """Earnings at 20-64 by year and sex, women's relative pay, shape of changes."""
    for year in register.years:
        for group in SEXES:
            mask = register.aged(year, *ADULT_AGES) & register.group(group)
            sample = register.sample(register.real(year), mask)
            zeros = "zeros", "share of zeros", sample.share(sample.values == 0)
            for key, statistic, estimate in (*_distribution(sample), zeros):
                yield _row(
                    f"year.{group}.{year}.{key}",
                    "Earnings by year",
                    "labour earnings, SEK of 2022",
                    f"20-64, {group}, {year}",
                    statistic,
                    estimate,
                )
        yield _row(
            f"pay_ratio.{year}",
            "Women and men by year",
            "pay of a full-time full-year job",
            f"20-64, {year}",
            "women's mean / men's",
            pay_ratio(register, year),
        )
    for year in register.years[1:]:
        for group in GROUPS:
            sample = changes(register, [year], group=register.group(group))
            for statistic, estimate in (("Kelley", sample.kelley()), ("P90-P10", sample.spread())):
                yield _row(
                    f"moves.year.{group}.{year}.{statistic.lower()}",
                    "Changes by year",
                    f"1-year {CHANGE}",
                    f"25-55, {group}, {year}",
                    statistic,
                    estimate,
                )


def by_age(register: RegisterArrays) -> Rows:
    """Zero shares over all years, and employment in EMPLOYMENT_YEAR, by age and sex."""
    for group in SEXES:
        mask = register.group(group)
        for first, last in AGE_BANDS:
            population = f"{first}-{last}, {group}"
            sample = register.pool(
                (register.earned(year), register.aged(year, first, last) & mask)
                for year in register.years
            )
            yield _row(
                f"zeros.{group}.{first}-{last}",
                "Zero earnings by age",
                "labour earnings",
                f"{population}, all years",
                "share of zeros",
                sample.share(sample.values == 0),
            )
            if (year := EMPLOYMENT_YEAR) in register.years:
                employed = register.employed[:, register.column(year)]
                sample = register.sample(employed, register.aged(year, first, last) & mask)
                yield _row(
                    f"employed.{group}.{first}-{last}",
                    "Employment by age",
                    "weeks at work or on paid leave from a job, out of 52",
                    f"{population}, {year}",
                    "mean share of the year",
                    sample.mean(),
                )


def _education_by_cohort(register: RegisterArrays) -> Rows:
    """Education by cohort and sex, at 37 or as soon as the panel shows the cohort."""
    for born in EDUCATION_COHORTS:
        year = max(born + EDUCATION_AGE, register.years.start)
        if year not in register.years or year - born > MAX_AGE:
            continue
        education = register.education[:, register.column(year)].astype(np.float32)
        cohort = (np.abs(register.birth_year - born) <= 1) & (education >= 0)
        for group in SEXES:
            sample = register.sample(education, register.group(group) & cohort)
            for code, name in enumerate(EDUCATION_LEVELS):
                yield _row(
                    f"schooling.{group}.{born}.{name}",
                    "Education by cohort",
                    "highest education, known level only",
                    f"{group} born {born - 1}-{born + 1}, in {year}",
                    f"share with {name}",
                    sample.share(sample.values == code),
                )


def _changes_by_age_and_rank(register: RegisterArrays) -> Rows:
    """Spread, skewness and kurtosis of changes by age and by decile of past earnings."""
    start, stop = register.years.start + RANK_YEARS - 1, register.years.stop
    deciles = {year: past_rank(register, year, 10) for year in range(start, stop)}

    def rows(key: str, population: str, lag: int, sample: Sample) -> Rows:
        for name, statistic, estimate in (
            ("p90-p10", "P90-P10", sample.spread()),
            ("kelley", "Kelley", sample.kelley()),
            ("crow-siddiqui", "excess Crow-Siddiqui", sample.crow_siddiqui()),
        ):
            yield _row(
                f"moves.{key}.{lag}.{name}",
                "Changes by age and rank",
                f"{lag}-year {CHANGE}",
                population,
                statistic,
                estimate,
            )

    for lag in CHANGE_LAGS:
        for ages in CHANGE_AGES:
            band = f"{ages[0]}-{ages[1]}"
            sample = changes(register, range(start, stop), lag, ages=ages)
            yield from rows(f"age.{band}", f"{band}, all years", lag, sample)
        for k in range(10):

            def in_decile(year: int, decile: int = k) -> Bools:
                return np.asarray(deciles[year] == decile)

            sample = changes(register, range(start + lag, stop), lag, in_decile)
            population = f"25-55, decile {k + 1} of the mean of three past years"
            yield from rows(f"rank.{k + 1}", population, lag, sample)


def _mobility(register: RegisterArrays) -> Rows:
    """Rank-rank slopes by sex, and where persons in a fifth of past earnings are later."""
    first_age, last_age = MOBILITY_AGES
    for lag in MOBILITY_LAGS:
        if lag > len(register.years) - RANK_YEARS:  # no year has both ranks
            continue
        for group in SEXES:
            yield _row(
                f"ranks.{group}.{lag}",
                "Mobility",
                "rank of real labour earnings by year",
                f"{first_age}-{last_age} at the start, {group}",
                f"rank-rank slope over {lag} years",
                rank_slope(register, lag, register.group(group)),
            )
        transitions = []
        for year in range(register.years.start + RANK_YEARS - 1, register.years.stop - lag):
            origin, destination = past_rank(register, year), past_rank(register, year + lag)
            code = (origin * 5 + destination).astype(np.float32)
            transitions.append((code, (origin >= 0) & (destination >= 0)))
        sample = register.pool(transitions)
        for first in range(5):
            from_fifth = sample.where(sample.values // 5 == first)
            for second in range(5):
                yield _row(
                    f"fifths.{lag}.{first + 1}-{second + 1}",
                    "Mobility",
                    "rank of real labour earnings by year",
                    f"25-55 in both years, fifth {first + 1} of three-year mean earnings",
                    f"share in fifth {second + 1} {lag} years later",
                    from_fifth.share(from_fifth.values % 5 == second),
                )


def _around_first_birth(register: RegisterArrays) -> Rows:
    """Earnings of mothers and fathers around the first birth."""
    birth = first_births(register)
    for parents, mask in (("mothers", register.female), ("fathers", ~register.female)):
        study = event_study(register, birth, mask)
        if study is None:
            continue
        for k in EVENT_YEARS:
            yield _row(
                f"penalty.{parents}.{k}",
                "Children, profile",
                "real labour earnings, zeros counted: event study with age and year dummies, "
                "the year before the first birth as base",
                f"{parents}, first birth at 20-45",
                f"effect {k} years from the birth / earnings predicted without it",
                study.relative(k),
            )


def _lifetime(register: RegisterArrays) -> Rows:
    """Distribution of earnings added up over thirty years."""
    total, _ = lifetime_earnings(register)
    if total is None:
        return
    for group in GROUPS:
        sample = register.sample(total, register.group(group))
        top = "top1", "mean of the top 1 %", sample.mean_between(0.99, 1.0)
        for key, statistic, estimate in (*_distribution(sample), top):
            yield _row(
                f"life.{group}.{key}",
                "Lifetime earnings",
                "real labour earnings added up over 25-54",
                f"born 1965-68, in the register each year, {group}",
                statistic,
                estimate,
            )
