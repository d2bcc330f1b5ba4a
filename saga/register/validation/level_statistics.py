"""Measured in a register: incomes, employment, education, pay and lifetimes, each under the key of its line in the table of targets.

A measure is a function of the people that yields (key, estimate); it yields nothing where the register does not cover the years or ages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from saga.register.validation.estimators import Estimate, Sample, smooth
from saga.register.validation.register_arrays import Bools, People
from saga.register.validation.targets import (
    BIN_EDGES,
    BIN_NAMES,
    EMPLOYMENT_AGES,
    GROUPS,
    LEVELS,
    PAY_GROWTH,
    WAGE_PERIODS,
)

Measured = Iterator[tuple[str, Estimate]]


def income_2020(people: People) -> Measured:
    """Distribution of taxable income 2020, 20-64, resident all year."""
    if not {2019, 2020} <= set(people.years):
        return
    income = people.taxable[:, people.column(2020)]
    resident = people.aged(2020, 20, 64) & people.present[:, people.column(2019)]
    found: dict[str, dict[str, Estimate]] = {}
    for group in GROUPS:
        sample = people.sample(income, resident & people.group(group))
        low, quarter, median, upper, high = sample.quantiles((0.1, 0.25, 0.5, 0.75, 0.9))
        found[group] = {
            "mean": sample.mean(),
            "mean_positive": sample.where(sample.values > 0).mean(),
            "p10": low,
            "p25": quarter,
            "p50": median,
            "p75": upper,
            "p90": high,
            "top5": sample.between(0.95, 1.0),
            "top1": sample.between(0.99, 1.0),
            "p90_p10": high / low,
            "gini": sample.gini(),
        }
        if group == "all":
            found[group] |= {
                f"decile{d + 1}": sample.between(d / 10, (d + 1) / 10) for d in range(10)
            }
        for key, estimate in found[group].items():
            yield f"level.{group}.{key}", estimate
    for key in ("mean", "p50"):
        yield f"level.ratio.{key}", found["women"][key] / found["men"][key]


def income_classes(people: People) -> Measured:
    """Shares in the classes of taxable income 2020, zero share and mean 2019, 20-64."""
    for year, group in (
        (year, group) for year in (2019, 2020) if year in people.years for group in GROUPS
    ):
        sample = people.sample(
            people.taxable[:, people.column(year)], people.aged(year, 20, 64) & people.group(group)
        )
        if year == 2019:
            yield f"assessed2019.{group}.zero", sample.share(sample.values <= 0)
            yield f"assessed2019.{group}.mean", sample.mean()
        else:
            place = np.where(
                sample.values > 0, np.digitize(sample.values, 1000.0 * np.array(BIN_EDGES)) + 1, 0
            )
            for k, name in enumerate(BIN_NAMES):
                yield f"bins.{group}.{name}", sample.share(place == k)


def employment_2015(people: People) -> Measured:
    """Expected share employed in a week of 2015 by age and sex."""
    if 2015 not in people.years:
        return
    employed = people.employed[:, people.column(2015)]
    for group in GROUPS:
        for first, last in EMPLOYMENT_AGES:
            yield (
                f"employment.{group}.{first}-{last}",
                people.sample(
                    employed, people.aged(2015, first, last) & people.group(group)
                ).mean(),
            )


def zeros(people: People) -> Measured:
    """Share of person-years of 20-64 without labour earnings."""
    sample = pooled(
        people,
        [
            (people.earnings[:, people.column(year)], people.aged(year, 20, 64))
            for year in people.years
        ],
    )
    yield "zeros.20-64", sample.share(sample.values == 0)


def pooled(people: People, cells: Sequence[tuple[NDArray[np.floating], Bools]]) -> Sample:
    """One sample of several years' values (n,) at masks (n,); a person may be in it many times."""
    parts = [people.sample(values, mask) for values, mask in cells] or [
        people.sample(np.zeros(len(people)), np.zeros(len(people), bool))
    ]
    return Sample(
        np.concatenate([p.values for p in parts]),
        np.concatenate([p.person for p in parts]),
        len(people),
    )


def pay(people: People, year: int, mask: Bools, *, log: bool = False) -> Sample:
    """Pay of the full-time full-year jobs of 20-64 at `mask`, nominal SEK."""
    earnings = people.earnings[:, people.column(year)]
    sample = people.sample(
        earnings,
        mask & people.aged(year, 20, 64) & people.full[:, people.column(year)] & (earnings > 0),
    )
    return Sample(np.log(sample.values), sample.person, sample.persons) if log else sample


def wages(people: People) -> Measured:
    """Women's pay relative to men's by period, and growth of pay over time."""

    def ratio(year: int) -> Estimate:
        return pay(people, year, people.female).mean() / pay(people, year, ~people.female).mean()

    for first, last in WAGE_PERIODS:
        if {first, last} <= set(people.years):
            ratios = [ratio(year) for year in range(first, last + 1)]
            yield (
                f"wage_ratio.{first}" if first == last else f"wage_ratio.{first}-{last}",
                smooth(lambda v: float(v.mean()), *ratios),
            )
    # The nominal mean growth of 3.2 % and the real one of 1.8 % a year over 1995-2022 leave 1.4 % for prices.
    for first, last, prices in [*((a, b, p) for a, b, p, _, _ in PAY_GROWTH), (1995, 2022, 0.014)]:
        if {first, last} <= set(people.years):
            growth = (
                pay(people, last, people.group("all")).mean()
                / pay(people, first, people.group("all")).mean()
            )
            deflator = (1.0 + prices) ** (last - first)
            yield f"growth.{first}-{last}", smooth(lambda v, d=deflator: float(v[0] / d), growth)  # type: ignore[misc]


def gap_at_44(people: People) -> Measured:
    """How far women born 1974-75 lie behind men in earnings added up to 44."""
    if not set(range(1990, 2020)) <= set(people.years):
        return
    total = np.full(len(people), np.nan)
    for born in (1974, 1975):
        who = people.born == born
        years = range(born + 18, born + 45)
        stayed = who & people.present[
            :, people.column(years.start) : people.column(years.stop)
        ].all(axis=1)
        real = np.stack([people.real(year) for year in range(born + 16, born + 45)])
        total[stayed] = np.nansum(real, axis=0)[stayed]
    women, men = (people.sample(total, mask).mean() for mask in (people.female, ~people.female))
    yield "gap44", smooth(lambda v: float(1.0 - v[0] / v[1]), women, men)


def education(people: People) -> Measured:
    """Shares of the levels of education among those whose level is known."""

    def shares(key: str, year: int, first: int, last: int, mask: Bools, *levels: str) -> Measured:
        if year in people.years:
            level = people.level[:, people.column(year)]
            sample = people.sample(
                level.astype(np.float32), people.aged(year, first, last) & mask & (level >= 0)
            )
            yield key, sample.share(np.isin(sample.values, [LEVELS.index(name) for name in levels]))

    everybody = people.group("all")
    for group in ("women", "men"):
        for level in LEVELS:
            yield from shares(
                f"education.2019.{group}.{level}", 2019, 20, 64, people.group(group), level
            )
    tertiary = ("short_tertiary", "long_tertiary")
    yield from shares("education.1990.long", 1990, 25, 64, everybody, "long_tertiary")
    yield from shares("education.2017.long", 2017, 25, 64, everybody, "long_tertiary")
    yield from shares("education.2017.compulsory", 2017, 25, 64, everybody, "compulsory")
    yield from shares("education.2022.tertiary", 2022, 25, 64, everybody, *tertiary)
    yield from shares("education.2000.young_tertiary", 2000, 25, 34, everybody, *tertiary)
    yield from shares("education.2021.young_tertiary", 2021, 25, 34, everybody, *tertiary)
    yield from shares("education.2021.young_compulsory", 2021, 25, 34, everybody, "compulsory")


def premia(people: People) -> Measured:
    """Relative earnings by education."""
    compulsory, upper, short, long = range(4)

    def mean(first: int, last: int, *levels: int) -> Estimate:
        earnings = people.earnings[:, people.column(2013)]
        chosen = people.aged(2013, first, last) & np.isin(
            people.level[:, people.column(2013)], levels
        )
        return people.sample(earnings, chosen & (earnings > 0)).mean()

    if 2013 in people.years:
        yield "premium.tertiary", mean(25, 64, short, long) / mean(25, 64, upper)
        yield "premium.upper_secondary", mean(25, 34, upper) / mean(25, 34, compulsory)
        yield "premium.long", mean(25, 64, long) / mean(25, 64, upper)
        yield "premium.long_young", mean(25, 34, long) / mean(25, 34, compulsory)

    def log_premium(year: int, above: int, below: int) -> Estimate:
        level, adult = people.level[:, people.column(year)], people.aged(year, 25, 64)
        return (
            pay(people, year, adult & (level == above), log=True).mean()
            - pay(people, year, adult & (level == below), log=True).mean()
        )

    if {1992, 2001} <= set(people.years):
        yield (
            "premium.university_rise",
            log_premium(2001, long, upper) - log_premium(1992, long, upper),
        )
        yield (
            "premium.gymnasium_flat",
            log_premium(2001, upper, compulsory) - log_premium(1992, upper, compulsory),
        )


def lifetime(people: People) -> Measured:
    """How much more equal earnings are over thirty years than in one."""
    total, yearly = lifetimes(people)
    if total is not None:

        def dispersion(sample: Sample) -> Estimate:
            return smooth(lambda v: float(np.sqrt(v[0]) / v[1]), sample.variance(), sample.mean())

        annual = [dispersion(people.sample(year, np.isfinite(total))) for year in yearly]
        yield (
            "lifetime.dispersion",
            smooth(
                lambda v: float(1.0 - v[0] / v[1:].mean()),
                dispersion(people.sample(total, np.isfinite(total))),
                *annual,
            ),
        )


def lifetimes(people: People) -> tuple[NDArray[np.float64] | None, list[NDArray[np.float64]]]:
    """Real labour earnings added up over 25-54 (n,), born 1965-68 and there each year (else NaN), and those of each age (n,)."""
    if not set(range(1990, 2023)) <= set(people.years):
        return None, []
    ages = [np.full(len(people), np.nan) for _ in range(25, 55)]
    for born in range(1965, 1969):
        cohort = people.born == born
        for k, year in enumerate(range(born + 25, born + 55)):
            ages[k][cohort] = people.real(year)[cohort]
    return np.sum(ages, axis=0), ages


def paper_sample(people: People) -> Measured:
    """Zero share and length of the lives that the SAGA paper's selection keeps."""
    selected = people.selected & (people.born >= 1960) & (people.born <= 1990)
    sample = pooled(
        people,
        [
            (people.earnings[:, people.column(year)], selected & people.aged(year, 16, 64))
            for year in people.years
        ],
    )
    yield "paper.zeros", sample.share(sample.values == 0)
    yield (
        "paper.years",
        people.sample(people.present.sum(axis=1).astype(np.float32), selected).mean(),
    )
