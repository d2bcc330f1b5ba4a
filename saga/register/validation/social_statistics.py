"""Measured in a register: circumstances of life: couples, stays abroad, origin, schooling, illness, leave, own firms, jobs, joblessness.

Each figure would notice the absence of one mechanism. It is measured from the panel's columns alone and yielded only where the
register covers its years.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from saga.register.simulation.economy import CPI
from saga.register.validation.earnings_dynamics import ranks
from saga.register.validation.estimators import Estimate, Sample, smooth
from saga.register.validation.level_statistics import Measured, lifetimes, pay, pooled
from saga.register.validation.register_arrays import FLOOR, Bools, People
from saga.register.validation.targets import BOOM, BUST

SETTLED = 10  # years in the country
GOODS = range(5, 44)  # divisions of SNI 2007: mining, manufacturing, energy and construction
PUBLIC = range(84, 89)  # public administration, education, health and social care
SCARRED = 5  # years over which pay is compared around a loss of work
LATER = 2  # years after which those who left work are looked for


def circumstances(people: People) -> Measured:
    """All of them."""
    for measure in (
        _spouses,
        _abroad,
        _origin,
        _schooling,
        _out_of_work,
        _absences,
        _jobs,
        _growth,
        _leavers,
        _without,
        _scar,
        _losses,
    ):
        yield from measure(people)


def _covered(people: People, years: Iterable[int]) -> bool:
    return set(years) <= set(people.years)


def _share(people: People, cells: Iterable[tuple[Bools, Bools]]) -> Estimate:
    """Share of the first of each pair of masks (n,) within the second, all pairs together."""
    return pooled(people, [(part.astype(np.float32), whole) for part, whole in cells]).mean()


def _earned(people: People, year: int) -> NDArray[np.floating]:
    return people.earnings[:, people.column(year)]


def _attached(people: People, year: int) -> Bools:
    """Labour earnings above half a price base amount (n,)."""
    return np.isfinite(people.logs[:, people.column(year)])


def _spouses(people: People) -> Measured:
    years = range(2011, 2023)
    if not _covered(people, years):
        return
    cells = []
    for year in years:
        partner = people.partner[:, people.column(year)].astype(np.float64) / CPI[year]
        both = people.aged(year, 35, 55) & _attached(people, year) & (partner > FLOOR)
        own = people.logs[:, people.column(year)]
        # Uniform ranks have variance 1 / 12.
        cells += [
            (12.0 * ranks(own, both & sex) * ranks(partner, both & sex), both & sex)
            for sex in (people.female, ~people.female)
        ]
    yield "circumstance.spouses", pooled(people, cells).mean()


def _abroad(people: People) -> Measured:
    if not _covered(people, (1990, 2022)):
        return
    there, away = np.zeros(len(people), bool), np.zeros(len(people), bool)
    for born in range(1965, 1989):
        first, last = people.column(born + 25), people.column(born + 34)
        who = (people.born == born) & people.present[:, first] & people.present[:, last]
        there |= who
        away |= who & ~people.present[:, first:last].all(axis=1)
    yield "circumstance.abroad", _share(people, [(away, there)])


def _origin(people: People) -> Measured:
    if 2022 in people.years:
        yield "circumstance.foreign", _share(people, [(people.foreign, people.aged(2022, 20, 64))])
    years = range(2010, 2020)
    if _covered(people, years):
        foreign, native = (
            _pay(people, years, 25, 64, group) for group in (people.foreign, ~people.foreign)
        )
        yield "circumstance.foreign_pay", foreign.mean() - native.mean()
    if 2015 in people.years:
        employed, prime = people.employed[:, people.column(2015)], people.aged(2015, 25, 54)
        settled = people.sample(employed, prime & people.foreign & (people.entry <= 2015 - SETTLED))
        yield (
            "circumstance.settled",
            settled.mean() - people.sample(employed, prime & ~people.foreign).mean(),
        )


def _pay(people: People, years: Iterable[int], first: int, last: int, group: Bools) -> Sample:
    """Log pay of the full-time full-year jobs of `group` at `first` to `last` years of age, in real SEK, all years together."""
    samples = [
        (year, pay(people, year, people.aged(year, first, last) & group, log=True))
        for year in years
    ]
    values = np.concatenate([sample.values - np.log(CPI[year]) for year, sample in samples])
    return Sample(values, np.concatenate([sample.person for _, sample in samples]), len(people))


def _schooling(people: People) -> Measured:
    if _covered(people, (2000, 2022)):
        cells = []
        for born in range(1970, 1983):
            before, after = (people.level[:, people.column(born + age)] for age in (30, 40))
            cells.append((after > before, (people.born == born) & (before >= 0) & (after >= 0)))
        yield "circumstance.late_degree", _share(people, cells)
    cells = []
    for born in range(max(1975, people.years.start - 25), min(1987, people.years.stop - 36) + 1):
        before, after = (people.level[:, people.column(born + age)] for age in (25, 35))
        cells.append((after > 0, (people.born == born) & (before == 0) & (after >= 0)))
    if cells:
        yield "circumstance.second_chance", _share(people, cells)
    if 2019 in people.years:
        yield (
            "circumstance.level_unknown",
            _share(people, [(people.level[:, people.column(2019)] < 0, people.aged(2019, 20, 64))]),
        )


def _out_of_work(people: People) -> Measured:
    for year in (2005, 2020):
        if year in people.years:
            yield (
                f"circumstance.disability.{year}",
                _share(people, [(people.has("disability", year), people.aged(year, 50, 64))]),
            )
    years = range(1995, 2006)
    if _covered(people, years):
        cells = [
            (people.has("pension", year) & (_earned(people, year) == 0), people.aged(year, 60, 64))
            for year in years
        ]
        yield "circumstance.pensioners", _share(people, cells)


def _absences(people: People) -> Measured:
    births = [
        (people.has("parental", year), people.female & (people.child[:, people.column(year)] == 1))
        for year in people.years
    ]
    yield "circumstance.mothers", _share(people, births)
    if 2019 in people.years:
        for group in ("women", "men"):
            working = people.aged(2019, 20, 64) & (_earned(people, 2019) > 0) & people.group(group)
            yield (
                f"circumstance.sickness.{group}",
                _share(people, [(people.has("sickness", 2019), working)]),
            )


def _jobs(people: People) -> Measured:
    years = range(2010, 2020)
    if _covered(people, (years.start - 1, *years)):
        cells = []
        for year in years:
            now, before = (people.industry[:, people.column(year - k)] for k in (0, 1))
            both = (
                people.aged(year - 1, 25, 54)
                & _attached(people, year - 1)
                & _attached(people, year)
                & (now >= 0)
                & (before >= 0)
            )
            cells.append((now != before, both))
        yield "circumstance.industry_change", _share(people, cells)
    if 2015 not in people.years:
        return
    adult = people.aged(2015, 20, 64)
    yield (
        "circumstance.own_firm",
        _share(people, [(people.has("own", 2015), adult & people.has("workplace", 2015))]),
    )
    yield (
        "circumstance.jobs",
        _share(people, [(people.has("jobs", 2015), adult & (_earned(people, 2015) > 0))]),
    )
    managers, known = people.has("manager", 2015), people.has("occupation", 2015)
    old, young = (
        _share(people, [(managers, known & people.aged(2015, *ages))])
        for ages in ((45, 54), (25, 34))
    )
    yield "circumstance.managers", old - young


def _growth(people: People) -> Measured:
    """How pay rises and fans out with age, and how far earnings late in working life exaggerate differences over a lifetime."""
    everybody = people.group("all")
    if 2019 in people.years:
        old, young = (
            pay(people, 2019, people.aged(2019, *ages)).mean() for ages in ((45, 54), (25, 29))
        )
        yield "circumstance.age_pay", old / young
    years = range(2010, 2020)
    if _covered(people, years):
        old, young = (
            _pay(people, years, *ages, everybody).variance() for ages in ((50, 54), (30, 34))
        )
        yield "circumstance.pay_fan", old - young
    total, ages = lifetimes(people)
    if total is None:
        return
    cells = []
    for real in ages[45 - 25 : 50 - 25]:
        both = ~people.female & (real > FLOOR) & (total > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            cells.append((np.log(total / FLOOR), np.log(real / FLOOR), both))
    x, y, xy, xx = (
        pooled(people, [(value(x, y), both) for x, y, both in cells]).mean()
        for value in (lambda x, _: x, lambda _, y: y, lambda x, y: x * y, lambda x, _: x * x)
    )
    yield (
        "circumstance.lifetime_slope",
        smooth(lambda v: float((v[2] - v[0] * v[1]) / (v[3] - v[0] ** 2)), x, y, xy, xx),
    )


def _leavers(people: People) -> Measured:
    """Those who leave work for neither benefit nor pension."""
    cells = []
    for year in people.years[:-LATER]:
        later = people.taxable[:, people.column(year + LATER)]
        cells.append(
            (later == 0, people.aged(year, 30, 54) & _attached(people, year) & np.isfinite(later))
        )
    if cells:
        yield "circumstance.leavers", _share(people, cells)


def _without(people: People) -> Measured:
    """How long years without earnings last."""

    def again(year: int) -> Bools:
        return np.asarray((_earned(people, year - 2) > 0) & (_earned(people, year - 1) == 0))

    def long(year: int) -> Bools:
        idle = people.earnings[:, people.column(year - 3) : people.column(year)] == 0
        return np.asarray(idle.all(axis=1) & ~people.has("disability", year - 1))

    for key, years, chosen in (("zero_again", 2, again), ("zero_after_three", 3, long)):
        cells = []
        for year in people.years[years:]:
            now = _earned(people, year)
            cells.append((now == 0, people.aged(year, 25, 54) & np.isfinite(now) & chosen(year)))
        yield f"circumstance.{key}", _share(people, cells)


def _scar(people: People) -> Measured:
    """What a spell of unemployment costs in pay where full-time work is found again."""
    changes: dict[bool, list[tuple[NDArray[np.floating], Bools]]] = {True: [], False: []}
    for year in people.years[:-SCARRED]:
        start, end = people.column(year), people.column(year + SCARRED)
        change = people.logs[:, end] - people.logs[:, start]
        both = (
            people.aged(year, 30, 54)
            & people.full[:, start]
            & people.full[:, end]
            & ~people.has("unemployment", year)
        )
        hit = people.has("unemployment", year + 1)
        for lost in changes:
            # Relative to all of the year, so that growth is not mistaken for the timing of job loss.
            known = both & np.isfinite(change)
            usual = change[known].mean(dtype=np.float64) if known.any() else 0.0
            changes[lost].append((change - usual, known & (hit == lost)))
    if changes[True]:
        yield (
            "circumstance.scar",
            pooled(people, changes[True]).mean() - pooled(people, changes[False]).mean(),
        )


def _losses(people: People) -> Measured:
    """Job loss in the crisis of the 1990s by industry, and how much higher it was than in upturns."""
    years = {year for period in (BUST, BOOM) for end in period for year in (end - 1, end)}
    if not _covered(people, years):
        return

    def risk(divisions: range, years: Iterable[int]) -> Estimate:
        cells = []
        for year in years:
            worked = _attached(people, year - 1) & ~people.has("unemployment", year - 1)
            worked &= np.isin(people.industry[:, people.column(year - 1)], divisions)
            there = people.present[:, people.column(year)]
            cells.append(
                (people.has("unemployment", year), worked & there & people.aged(year - 1, 25, 54))
            )
        return _share(people, cells)

    bust, boom = (
        [risk(divisions, years) for divisions in (GOODS, PUBLIC)] for years in (BUST, BOOM)
    )
    yield "circumstance.loss_by_trade", bust[0] / bust[1]
    yield (
        "circumstance.loss_cycle",
        smooth(lambda v: float(np.log(v[0] * v[3] / (v[1] * v[2]))), *bust, *boom),
    )
