"""Education, years without earnings, couples, origin, illness, leave, firms and joblessness.

Each figure changes if one mechanism of the simulation is absent. It is computed from the columns of
the panel, and only if the register covers its years. Most are shares: `SHARES` says who is counted
among whom.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Bools
from saga.data.panel import FLOOR
from saga.register.simulation.economy import CPI
from saga.register.validation.earnings_dynamics import BUST_YEARS, UPTURN_YEARS, rank_product
from saga.register.validation.estimators import Estimate, Sample, combine
from saga.register.validation.level_statistics import (
    ADULT_AGES,
    EDUCATED_AGES,
    LIFETIME_AGES,
    YOUNG_AGES,
    KeyedEstimates,
    lifetime_earnings,
    pay,
)
from saga.register.validation.register_arrays import CHILD_AGE_CODES, RegisterArrays
from saga.schema import EDUCATION_LEVELS

Mask = Callable[[RegisterArrays, int], Bools]  # persons (n,) in a year

COUPLE_AGES = (35, 55)
CORE_AGES = (25, 54)
ESTABLISHED_AGES = (30, 54)
LATE_CAREER_AGES, ENTRY_AGES = (45, 54), (25, 29)
LATE_PAY_AGES, EARLY_PAY_AGES = (50, 54), (30, 34)
SLOPE_AGES = range(45, 50)  # at which earnings are compared with those of a lifetime
COUPLE_YEARS = range(2011, 2023)
YEARS_2010S = range(2010, 2020)
LABOUR_YEAR = 2015  # of workplaces, jobs, managers and the employment of immigrants
SOCIAL_YEAR = 2019  # of sickness, pay by age and unknown education
SETTLED_YEARS = 10  # in the country
SCAR_YEARS = 5  # over which pay is compared around a loss of work
GOODS = range(5, 44)  # divisions of SNI 2007: mining, manufacturing, energy and construction
PUBLIC = range(84, 89)  # public administration, education, health and social care
TERTIARY = ("short_tertiary", "long_tertiary")


@dataclass(frozen=True)
class Share:
    """A share of persons, of several years together.

    Attributes:
        part: Who is counted.
        whole: Among whom.
        years: The years, all of which must be in the panel; None for each year of the panel.
        needs: Further years that the masks read, relative to the year.
    """

    part: Mask
    whole: Mask
    years: Sequence[int] | None = None
    needs: tuple[int, ...] = ()

    def estimate(self, register: RegisterArrays) -> Estimate | None:
        """The share; None if the register does not cover the years."""
        years = register.years if self.years is None else self.years
        covered = [
            year for year in years if register.covers([year, *(year + k for k in self.needs)])
        ]
        if not covered or (self.years is not None and len(covered) < len(years)):
            return None
        return register.pool(
            (self.part(register, year).astype(np.float32), self.whole(register, year))
            for year in covered
        ).mean()


def _aged(ages: tuple[int, int], *flags: str) -> Mask:
    """Persons of these ages with these flags."""

    def mask(r: RegisterArrays, year: int) -> Bools:
        return np.asarray(np.all([r.aged(year, *ages), *(r.has(f, year) for f in flags)], axis=0))

    return mask


def _flag(name: str) -> Mask:
    return lambda r, year: r.has(name, year)


def _level(r: RegisterArrays, year: int) -> NDArray[np.int8]:
    """Level of education (n,), -1 unknown."""
    return r.education[:, r.column(year)]


def _educated(names: Sequence[str], ages: tuple[int, int], year: int, group: str = "all") -> Share:
    """Share with one of these levels among persons whose level is known."""
    codes = [EDUCATION_LEVELS.index(name) for name in names]
    return Share(
        lambda r, y: np.isin(_level(r, y), codes),
        lambda r, y: r.aged(y, *ages) & r.group(group) & (_level(r, y) >= 0),
        (year,),
    )


def _working(group: str) -> Mask:
    return lambda r, y: r.aged(y, *ADULT_AGES) & (r.earned(y) > 0) & r.group(group)


def _loss(ends: Sequence[int], divisions: range) -> Share:
    """Unemployment benefit in the year after one of work without it."""
    return Share(
        _flag("unemployment"),
        lambda r, y: (
            r.attached(y - 1)
            & ~r.has("unemployment", y - 1)
            & np.isin(r.industry[:, r.column(y - 1)], divisions)
            & r.present[:, r.column(y)]
            & r.aged(y - 1, *CORE_AGES)
        ),
        ends,
        needs=(-1,),
    )


def _years_present(r: RegisterArrays, first: int, last: int) -> Bools:
    return r.present[:, r.column(first) : r.column(last)]


def _known_industries(r: RegisterArrays, y: int) -> Bools:
    """Persons at work in this year and the one before, with known industries."""
    at_work = r.aged(y - 1, *CORE_AGES) & r.attached(y - 1) & r.attached(y)
    return np.asarray(at_work & (r.industry[:, r.column(y) - 1 : r.column(y) + 1] >= 0).all(axis=1))


def _zero_before(n_years: int) -> Mask:
    """Persons of 25-54 whose earnings are known and were 0 in the last `n_years` years."""

    def mask(r: RegisterArrays, y: int) -> Bools:
        zeros = (r.earnings[:, r.column(y - n_years) : r.column(y)] == 0).all(axis=1)
        return np.asarray(r.aged(y, *CORE_AGES) & np.isfinite(r.earned(y)) & zeros)

    return mask


def _no_earnings(r: RegisterArrays, y: int) -> Bools:
    return np.asarray(r.earned(y) == 0)


SHARES: dict[str, Share] = {
    **{
        f"education.2019.{group}.{name}": _educated((name,), ADULT_AGES, 2019, group)
        for group in ("women", "men")
        for name in EDUCATION_LEVELS
    },
    "education.1990.long": _educated(("long_tertiary",), EDUCATED_AGES, 1990),
    "education.2017.long": _educated(("long_tertiary",), EDUCATED_AGES, 2017),
    "education.2017.compulsory": _educated(("compulsory",), EDUCATED_AGES, 2017),
    "education.2022.tertiary": _educated(TERTIARY, EDUCATED_AGES, 2022),
    "education.2000.young_tertiary": _educated(TERTIARY, YOUNG_AGES, 2000),
    "education.2021.young_tertiary": _educated(TERTIARY, YOUNG_AGES, 2021),
    "education.2021.young_compulsory": _educated(("compulsory",), YOUNG_AGES, 2021),
    "zeros.20-64": Share(
        _no_earnings, lambda r, y: r.aged(y, *ADULT_AGES) & np.isfinite(r.earned(y))
    ),
    "circumstance.abroad": Share(
        lambda r, y: np.asarray(~_years_present(r, y - 9, y).all(axis=1)),
        lambda r, y: (r.birth_year == y - 34) & _years_present(r, y - 9, y + 1)[:, [0, -1]].all(1),
        years=range(1999, 2023),  # born 1965-88, between 25 and 34
        needs=(-9,),
    ),
    "circumstance.foreign": Share(lambda r, _: r.foreign, _aged(ADULT_AGES), (2022,)),
    "circumstance.late_degree": Share(
        lambda r, y: _level(r, y) > _level(r, y - 10),
        lambda r, y: (r.birth_year == y - 40) & (_level(r, y - 10) >= 0) & (_level(r, y) >= 0),
        years=range(2010, 2023),  # born 1970-82, between 30 and 40
        needs=(-10,),
    ),
    "circumstance.second_chance": Share(
        lambda r, y: _level(r, y) > 0,
        lambda r, y: (
            (r.birth_year == y - 35)
            & (r.birth_year >= 1975)
            & (r.birth_year <= 1987)
            & (_level(r, y - 10) == 0)
            & (_level(r, y) >= 0)
        ),
        needs=(-10,),
    ),
    "circumstance.level_unknown": Share(
        lambda r, y: _level(r, y) < 0, _aged(ADULT_AGES), (SOCIAL_YEAR,)
    ),
    "circumstance.disability.2005": Share(_flag("disability"), _aged((50, 64)), (2005,)),
    "circumstance.disability.2020": Share(_flag("disability"), _aged((50, 64)), (2020,)),
    "circumstance.pensioners": Share(
        lambda r, y: r.has("pension", y) & _no_earnings(r, y), _aged((60, 64)), range(1995, 2006)
    ),
    "circumstance.mothers": Share(
        _flag("parental"),
        lambda r, y: r.female & (r.youngest_child[:, r.column(y)] == CHILD_AGE_CODES["infant"]),
    ),
    "circumstance.sickness.women": Share(_flag("sickness"), _working("women"), (SOCIAL_YEAR,)),
    "circumstance.sickness.men": Share(_flag("sickness"), _working("men"), (SOCIAL_YEAR,)),
    "circumstance.own_firm": Share(
        _flag("one_person_firm"), _aged(ADULT_AGES, "workplace"), (LABOUR_YEAR,)
    ),
    "circumstance.jobs": Share(_flag("several_employers"), _working("all"), (LABOUR_YEAR,)),
    "circumstance.industry_change": Share(
        lambda r, y: r.industry[:, r.column(y)] != r.industry[:, r.column(y - 1)],
        _known_industries,
        YEARS_2010S,
        needs=(-1,),
    ),
    # Without any income two years later: persons who leave work, without benefit or pension.
    "circumstance.leavers": Share(
        lambda r, y: r.taxable[:, r.column(y + 2)] == 0,
        lambda r, y: (
            r.aged(y, *ESTABLISHED_AGES)
            & r.attached(y)
            & np.isfinite(r.taxable[:, r.column(y + 2)])
        ),
        needs=(2,),
    ),
    "circumstance.zero_again": Share(
        _no_earnings,
        lambda r, y: _zero_before(1)(r, y) & (r.earned(y - 2) > 0),
        needs=(-2,),
    ),
    "circumstance.zero_after_three": Share(
        _no_earnings,
        lambda r, y: _zero_before(3)(r, y) & ~r.has("disability", y - 1),
        needs=(-3,),
    ),
}


def all_social_statistics(register: RegisterArrays) -> KeyedEstimates:
    """All statistics of this module."""
    for key, share in SHARES.items():
        estimate = share.estimate(register)
        if estimate is not None:
            yield key, estimate
    for measure in (_couples, _origin, _managers, _growth, _scar, _job_loss):
        for key, estimate in measure(register):
            yield f"circumstance.{key}", estimate


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


def _origin(register: RegisterArrays) -> KeyedEstimates:
    foreign, native = register.foreign, ~register.foreign
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


def _managers(register: RegisterArrays) -> KeyedEstimates:
    """Share of managers late in the career, less that early in it."""
    late, early = (
        Share(_flag("manager"), _aged(ages, "occupation"), (LABOUR_YEAR,)).estimate(register)
        for ages in (LATE_CAREER_AGES, YOUNG_AGES)
    )
    if late is not None and early is not None:
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
    risks = [
        risk
        for years in (BUST_YEARS, UPTURN_YEARS)
        for divisions in (GOODS, PUBLIC)
        if (risk := _loss(years, divisions).estimate(register)) is not None
    ]
    if len(risks) == 2 * 2:
        yield "loss_by_trade", risks[0] / risks[1]
        yield "loss_cycle", combine(lambda v: float(np.log(v[0] * v[3] / (v[1] * v[2]))), *risks)
