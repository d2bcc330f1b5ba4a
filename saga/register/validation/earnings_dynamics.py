"""Changes of earnings, and how they follow the cycle.

A change is the difference of log real labour earnings of persons of 25-55 at the start who are
above half a price base amount in both years. It is dated by its second year.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Bools
from saga.macro.history import sweden_as_published
from saga.register.validation.estimators import (
    Estimate,
    Sample,
    combine,
    correlation,
    mean_of,
    slope,
)
from saga.register.validation.level_statistics import KeyedEstimates
from saga.register.validation.register_arrays import FULL_PERIOD, RegisterArrays
from saga.schema import EDUCATION_LEVELS

PRIME_AGES = (25, 55)
LARGE_LOSS = 0.5  # real earnings below half of the year before

# Second years of changes. Unemployment rises by 1.4 to 3.5 points a year in the bust of the 1990s
# and falls by a point or so a year in upturns.
BUST_YEARS = (1991, 1992, 1993)
BUST_2009_YEARS = (2009,)
UPTURN_YEARS = (1998, 1999, 2000, 2006, 2007)
CHANGE_YEARS = FULL_PERIOD[1:]
VOLATILITY_YEARS = range(1991, 2017)  # of Friedrich, Laun and Meghir (2022)

Group = Bools | Callable[[int], Bools]  # persons (n,), or by the year in which a change starts


def changes(
    register: RegisterArrays,
    years: Iterable[int],
    group: Group | None = None,
) -> Sample:
    """Changes of log earnings from the year before, all `years` together.

    Args:
        register: The register.
        years: Years in which the changes end.
        group: Persons whose changes are counted; None for all.
    """
    parts = []
    for year in years:
        start_year = year - 1
        if register.covers((start_year, year)):
            start = register.column(start_year)
            mask = register.aged(start_year, *PRIME_AGES)
            if group is not None:
                mask = mask & (group(start_year) if callable(group) else group)
            parts.append((register.logs[:, start + 1] - register.logs[:, start], mask))
    return register.pool(parts)


def log_earnings(register: RegisterArrays, year: int, mask: Bools) -> Sample:
    """Log real earnings above half a price base amount, 25-55."""
    return register.sample(
        register.logs[:, register.column(year)], mask & register.aged(year, *PRIME_AGES)
    )


def signs(register: RegisterArrays) -> KeyedEstimates:
    """Differences of which the sources state the sign, but not the size."""
    if not register.covers(FULL_PERIOD):
        return
    everybody, men, women = (register.group(name) for name in ("all", "men", "women"))
    yield from _cycle(register)

    def spread_difference(group: Group, reference: Group) -> Estimate:
        samples = (changes(register, VOLATILITY_YEARS, group=g) for g in (group, reference))
        first, second = (sample.spread() for sample in samples)
        return first - second

    yield "sign.volatility.women", spread_difference(women, men)
    men_1990, men_1995 = (log_earnings(register, year, men) for year in (1990, 1995))
    yield "sign.jump.men", men_1995.variance() - men_1990.variance()
    all_1990, all_1995 = (log_earnings(register, year, everybody) for year in (1990, 1995))
    yield "sign.jump.all", all_1995.spread() - all_1990.spread()
    covariance_1990, covariance_1996 = (
        _covariance(register, year, lag=3, mask=men) for year in (1990, 1996)
    )
    yield "sign.jump.persistent", covariance_1996 - covariance_1990

    def mean_spread(years: range) -> Estimate:
        return mean_of(*(log_earnings(register, year, everybody).spread() for year in years))

    yield "sign.inequality.falls", mean_spread(range(2014, 2017)) - mean_spread(range(1995, 1998))
    below_median = {year: _below_median(register, year) for year in range(1990, 2016)}

    def low_earning(origin: Bools) -> Callable[[int], Bools]:
        return lambda year: np.asarray(below_median[year] & origin)

    foreign, native = low_earning(register.foreign), low_earning(~register.foreign)
    yield "sign.foreign.volatility", spread_difference(foreign, native)
    yield "sign.foreign.losses", _large_losses(register, foreign) - _large_losses(register, native)

    def kelley_by_education(code: int) -> Estimate:
        def educated(year: int) -> Bools:
            return np.asarray(register.education[:, register.column(year)] == code)

        return changes(register, VOLATILITY_YEARS, group=educated).kelley()

    highest = len(EDUCATION_LEVELS) - 1
    yield "sign.skew.low_educated", kelley_by_education(0) - kelley_by_education(highest)


def _cycle(register: RegisterArrays) -> KeyedEstimates:
    men, women = register.group("men"), register.group("women")

    def kelley(years: Iterable[int], group: Group | None = None) -> Estimate:
        return changes(register, years, group=group).kelley()

    upturn = kelley(UPTURN_YEARS)
    yield "sign.kelley.bust", kelley(BUST_YEARS) - upturn
    yield "sign.kelley.bust_2009", kelley(BUST_2009_YEARS) - upturn
    yield "sign.kelley.bust_men", kelley(BUST_YEARS, men) - kelley(UPTURN_YEARS, men)
    rise = rise_of_unemployment(CHANGE_YEARS)
    skewness, spread = (
        correlation(rise, [statistic(changes(register, [year])) for year in CHANGE_YEARS])
        for statistic in (Sample.kelley, Sample.spread)
    )
    yield "sign.kelley.cycle", skewness
    yield "sign.spread.acyclical", combine(lambda v: float(abs(v[0]) - abs(v[1])), skewness, spread)
    slope_men, slope_women = (
        slope(rise, [growth(register, year, mask) for year in CHANGE_YEARS])
        for mask in (men, women)
    )
    yield "sign.cycle.men", slope_men - slope_women


def rise_of_unemployment(years: Iterable[int]) -> NDArray[np.float64]:
    """Change of the unemployment rate over the year before, one per year (1991 on)."""
    history = sweden_as_published()
    rate = history.values[:, 0]
    columns = [year - history.first_year for year in years]
    return np.array([rate[column] - rate[column - 1] for column in columns])


def growth(register: RegisterArrays, year: int, mask: Bools) -> Estimate:
    """Growth of mean real earnings, zeros counted, of persons with rows in both years."""
    earlier, later = register.real(year - 1), register.real(year)
    in_both = mask & register.aged(year - 1, *PRIME_AGES)
    in_both &= np.isfinite(earlier) & np.isfinite(later)
    means = (register.sample(real, in_both).mean() for real in (later, earlier))
    return combine(lambda v: float(v[0] / v[1] - 1.0), *means)


def _covariance(register: RegisterArrays, year: int, *, lag: int, mask: Bools) -> Estimate:
    first, second = (
        register.logs[:, register.column(y)].astype(np.float64) for y in (year, year + lag)
    )
    in_both = mask & register.aged(year, *PRIME_AGES) & np.isfinite(first) & np.isfinite(second)
    product = (first - first[in_both].mean()) * (second - second[in_both].mean())
    return register.sample(product, in_both).mean()


def _below_median(register: RegisterArrays, year: int) -> Bools:
    """Log earnings below the year's median at 25-55 (n,)."""
    values = register.logs[:, register.column(year)]
    return np.asarray(values < np.nanmedian(values[register.aged(year, *PRIME_AGES)]))


def _large_losses(register: RegisterArrays, group: Callable[[int], Bools]) -> Estimate:
    """Share whose real earnings fall to less than half; earnings may be 0 afterwards."""
    parts = []
    for year in VOLATILITY_YEARS:
        ratio = register.real(year) / np.maximum(register.real(year - 1), 1.0)
        parts.append((ratio, group(year - 1) & register.aged(year - 1, *PRIME_AGES)))
    sample = register.pool(parts)
    return sample.share(sample.values < LARGE_LOSS)


def log_spreads(register: RegisterArrays) -> KeyedEstimates:
    """P90 - P10 of log earnings by sex, in the years that were read off the published graphs."""
    for year in (1995, 2016):
        if register.covers((year,)):
            for name in ("men", "women"):
                spread = log_earnings(register, year, register.group(name)).spread()
                yield f"grid.log_spread.{year}.{name}", spread


def rank_product(
    x: NDArray[np.floating], y: NDArray[np.floating], mask: Bools
) -> NDArray[np.float64]:
    """Product of the ranks at `mask` (n,), elsewhere NaN; its mean is the rank correlation."""
    return 12.0 * _ranks(x, mask) * _ranks(y, mask)  # uniform ranks have variance 1 / 12


def _ranks(values: NDArray[np.floating], mask: Bools) -> NDArray[np.float64]:
    """Ranks from -1/2 to 1/2 of the values at `mask`, elsewhere NaN (n,)."""
    ranks = np.full(len(values), np.nan)
    order = np.argsort(np.argsort(values[mask], kind="stable"), kind="stable")
    ranks[mask] = (order + 0.5) / len(order) - 0.5
    return ranks
