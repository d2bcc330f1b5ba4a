"""Incomes, employment, education, pay and lifetime earnings of a register.

A measure is a function of the register that yields (key of the target, estimate). It yields nothing
if the register does not cover the years or ages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Bools
from saga.register.validation.estimators import Estimate, Sample, combine, mean_of
from saga.register.validation.register_arrays import FULL_PERIOD, RegisterArrays

KeyedEstimates = Iterator[tuple[str, Estimate]]

GROUPS = ("all", "women", "men")
ADULT_AGES = (20, 64)
EDUCATED_AGES = (25, 64)
YOUNG_AGES = (25, 34)
EMPLOYMENT_AGES = ((16, 19), (20, 24), (25, 34), (35, 44), (45, 54), (55, 64), ADULT_AGES)
EMPLOYMENT_YEAR = 2015
PREMIUM_YEAR = 2013

# Income classes, thousand SEK. The first is exactly 0, the second begins above it; each class ends
# below the lower edge of the next.
CLASS_EDGES = (20, 40, 60, 100, 140, 200, 280, 300, 350, 400, 450, 500, 600, 800, 1000)
CLASS_NAMES = (
    "0", "1-19", "20-39", "40-59", "60-99", "100-139", "140-199", "200-279", "280-299",
    "300-349", "350-399", "400-449", "450-499", "500-599", "600-799", "800-999", "1000+",
)  # fmt: skip

# Periods for which women's pay relative to men's is published.
PAY_RATIO_PERIODS = (
    (2004, 2008), (2009, 2009), (2010, 2012), (2013, 2015), (2016, 2016), (2017, 2018),
    (2019, 2021), (2022, 2022),
)  # fmt: skip
# Mean growth of prices (KPIF) that the source of real pay growth states, by first and last year.
PRICE_GROWTH = {
    (1990, 1999): 0.037,
    (1999, 2009): 0.018,
    (2009, 2019): 0.014,
    (2019, 2020): 0.005,
    (1995, 2022): 0.014,
}

GAP_COHORTS = (1974, 1975)
GAP_FIRST_AGE, GAP_RESIDENT_AGE, GAP_LAST_AGE = 16, 18, 44  # resident each year from the second on
LIFETIME_COHORTS = range(1965, 1969)
LIFETIME_AGES = range(25, 55)
PAPER_COHORTS = (1960, 1990)


def income_2020(register: RegisterArrays) -> KeyedEstimates:
    """Distribution of taxable income 2020, 20-64, resident all year."""
    if not register.covers((2019, 2020)):
        return
    income = register.taxable[:, register.column(2020)]
    resident = register.aged(2020, *ADULT_AGES) & register.present[:, register.column(2019)]
    by_group: dict[str, dict[str, Estimate]] = {}
    for group in GROUPS:
        sample = register.sample(income, resident & register.group(group))
        p10, p25, p50, p75, p90 = sample.quantiles((0.1, 0.25, 0.5, 0.75, 0.9))
        by_group[group] = {
            "mean": sample.mean(),
            "mean_positive": sample.where(sample.values > 0).mean(),
            "p10": p10,
            "p25": p25,
            "p50": p50,
            "p75": p75,
            "p90": p90,
            "top5": sample.mean_between(0.95, 1.0),
            "top1": sample.mean_between(0.99, 1.0),
            "p90_p10": p90 / p10,
            "gini": sample.gini(),
        }
        if group == "all":
            by_group[group] |= {
                f"decile{d + 1}": sample.mean_between(d / 10, (d + 1) / 10) for d in range(10)
            }
        for key, estimate in by_group[group].items():
            yield f"level.{group}.{key}", estimate
    for key in ("mean", "p50"):
        yield f"level.ratio.{key}", by_group["women"][key] / by_group["men"][key]


def income_classes(register: RegisterArrays) -> KeyedEstimates:
    """Shares in the classes of taxable income 2020, zero share and mean 2019, 20-64."""
    for year in (2019, 2020):
        for group in GROUPS if year in register.years else ():
            sample = register.sample(
                register.taxable[:, register.column(year)],
                register.aged(year, *ADULT_AGES) & register.group(group),
            )
            if year == 2019:
                yield f"assessed2019.{group}.zero", sample.share(sample.values <= 0)
                yield f"assessed2019.{group}.mean", sample.mean()
                continue
            above_zero = np.digitize(sample.values, 1000.0 * np.array(CLASS_EDGES)) + 1
            income_class = np.where(sample.values > 0, above_zero, 0)
            for k, name in enumerate(CLASS_NAMES):
                yield f"bins.{group}.{name}", sample.share(income_class == k)


def employment(register: RegisterArrays) -> KeyedEstimates:
    """Expected share employed in a week of 2015 by age and sex."""
    if EMPLOYMENT_YEAR not in register.years:
        return
    employed = register.employed[:, register.column(EMPLOYMENT_YEAR)]
    for group in GROUPS:
        for ages in EMPLOYMENT_AGES:
            mask = register.aged(EMPLOYMENT_YEAR, *ages) & register.group(group)
            key = f"employment.{group}.{ages[0]}-{ages[1]}"
            yield key, register.sample(employed, mask).mean()


def pay(register: RegisterArrays, year: int, mask: Bools, *, log: bool = False) -> Sample:
    """Pay of the full-time full-year jobs of persons of 20-64 at `mask`, nominal SEK."""
    earnings = register.earned(year)
    full_job = register.full_job[:, register.column(year)] & (earnings > 0)
    sample = register.sample(earnings, mask & register.aged(year, *ADULT_AGES) & full_job)
    return Sample(np.log(sample.values), sample.person, sample.n_persons) if log else sample


def pay_ratio(register: RegisterArrays, year: int) -> Estimate:
    """Women's mean pay in full-time full-year jobs relative to men's."""
    female = register.female
    return pay(register, year, female).mean() / pay(register, year, ~female).mean()


def wages(register: RegisterArrays) -> KeyedEstimates:
    """Women's pay relative to men's by period, and growth of pay over time."""
    for first, last in PAY_RATIO_PERIODS:
        if register.covers((first, last)):
            period = str(first) if first == last else f"{first}-{last}"
            ratios = [pay_ratio(register, year) for year in range(first, last + 1)]
            yield f"wage_ratio.{period}", mean_of(*ratios)
    everybody = register.group("all")
    for (first, last), price_growth in PRICE_GROWTH.items():
        if register.covers((first, last)):
            later, earlier = (pay(register, year, everybody).mean() for year in (last, first))
            deflator = (1.0 + price_growth) ** (last - first)

            def deflate(v: NDArray[np.float64], deflator: float = deflator) -> float:
                return float(v[0] / deflator)

            yield f"growth.{first}-{last}", combine(deflate, later / earlier)


def gap_at_44(register: RegisterArrays) -> KeyedEstimates:
    """Shortfall of women's earnings added up to 44 relative to men's, born 1974-75."""
    if not register.covers(range(1990, GAP_COHORTS[-1] + GAP_LAST_AGE + 1)):
        return
    total = np.full(len(register), np.nan)
    for born in GAP_COHORTS:
        resident_years = range(born + GAP_RESIDENT_AGE, born + GAP_LAST_AGE + 1)
        columns = slice(register.column(resident_years[0]), register.column(resident_years[-1]) + 1)
        stayed = (register.birth_year == born) & register.present[:, columns].all(axis=1)
        years = range(born + GAP_FIRST_AGE, born + GAP_LAST_AGE + 1)
        real = np.stack([register.real(year) for year in years])
        total[stayed] = np.nansum(real, axis=0)[stayed]
    women, men = (
        register.sample(total, mask).mean() for mask in (register.female, ~register.female)
    )
    yield "gap44", combine(lambda v: float(1.0 - v[0] / v[1]), women, men)


def premia(register: RegisterArrays) -> KeyedEstimates:
    """Relative earnings by education."""
    compulsory, upper, short, long = range(4)

    def mean(ages: tuple[int, int], *codes: int) -> Estimate:
        earnings = register.earned(PREMIUM_YEAR)
        educated = np.isin(register.education[:, register.column(PREMIUM_YEAR)], codes)
        mask = register.aged(PREMIUM_YEAR, *ages) & educated & (earnings > 0)
        return register.sample(earnings, mask).mean()

    if PREMIUM_YEAR in register.years:
        upper_mean, young_compulsory = mean(EDUCATED_AGES, upper), mean(YOUNG_AGES, compulsory)
        yield "premium.tertiary", mean(EDUCATED_AGES, short, long) / upper_mean
        yield "premium.upper_secondary", mean(YOUNG_AGES, upper) / young_compulsory
        yield "premium.long", mean(EDUCATED_AGES, long) / upper_mean
        yield "premium.long_young", mean(YOUNG_AGES, long) / young_compulsory

    def log_premium(year: int, higher: int, lower: int) -> Estimate:
        education = register.education[:, register.column(year)]
        adult = register.aged(year, *EDUCATED_AGES)
        high, low = (
            pay(register, year, adult & (education == code), log=True).mean()
            for code in (higher, lower)
        )
        return high - low

    if register.covers((1992, 2001)):
        for key, higher, lower in (
            ("university_rise", long, upper),
            ("gymnasium_flat", upper, compulsory),
        ):
            change = log_premium(2001, higher, lower) - log_premium(1992, higher, lower)
            yield f"premium.{key}", change


def lifetime_dispersion(register: RegisterArrays) -> KeyedEstimates:
    """Relative fall of the coefficient of variation from one year to thirty years."""
    total, by_age = lifetime_earnings(register)
    if total is None:
        return
    complete = np.isfinite(total)

    def dispersion(values: NDArray[np.float64]) -> Estimate:
        sample = register.sample(values, complete)
        return combine(lambda v: float(np.sqrt(v[0]) / v[1]), sample.variance(), sample.mean())

    parts = dispersion(total), *map(dispersion, by_age)
    yield "lifetime.dispersion", combine(lambda v: float(1.0 - v[0] / v[1:].mean()), *parts)


def lifetime_earnings(
    register: RegisterArrays,
) -> tuple[NDArray[np.float64] | None, Sequence[NDArray[np.float64]]]:
    """Real labour earnings added up over 25-54 (n,), and those of each age (n,).

    The sum is NaN except for persons born 1965-68 with a row in each of these years. None if the
    register does not cover 1990-2022.
    """
    if not register.covers(FULL_PERIOD):
        return None, []
    by_age = [np.full(len(register), np.nan) for _ in LIFETIME_AGES]
    for born in LIFETIME_COHORTS:
        cohort = register.birth_year == born
        for k, age in enumerate(LIFETIME_AGES):
            by_age[k][cohort] = register.real(born + age)[cohort]
    return np.sum(by_age, axis=0), by_age


def paper_sample(register: RegisterArrays) -> KeyedEstimates:
    """Zero share and rows per person in the SAGA paper's selection."""
    first, last = PAPER_COHORTS
    selected = (
        register.in_paper_sample & (register.birth_year >= first) & (register.birth_year <= last)
    )
    sample = register.pool(
        (register.earned(year), selected & register.aged(year, 16, 64)) for year in register.years
    )
    yield "paper.zeros", sample.share(sample.values == 0)
    n_rows = register.present.sum(axis=1).astype(np.float32)
    yield "paper.years", register.sample(n_rows, selected).mean()
