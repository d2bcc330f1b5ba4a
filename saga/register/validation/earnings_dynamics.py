"""Measured in a register: how earnings change from year to year, who moves where in the ranking, and how both follow the cycle.

Changes are of log real labour earnings among those above half a price base amount in both years, 25-55 at the start; a change is
dated by its second year.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from saga.macro.history import sweden_as_published
from saga.register.validation.estimators import Estimate, Sample, correlation, slope, smooth
from saga.register.validation.level_statistics import Measured, pooled
from saga.register.validation.register_arrays import Bools, People
from saga.register.validation.targets import BOOM, BUST, BUST_2009

AGES = (25, 55)
PAST = 3  # years whose mean ranks a person before a change
HALVED = 0.5  # a large loss: real earnings below half of the year before

Chosen = Callable[[int], Bools]  # the persons (n,) whose change over the year given is meant


def changes(
    people: People,
    years: Iterable[int],
    lag: int = 1,
    chosen: Chosen | None = None,
    ages: tuple[int, int] = AGES,
) -> Sample:
    """Changes over `lag` years that end in `years`; `chosen(start)` picks persons by what they are in the year they start from."""
    cells = []
    for year in years:
        if {year - lag, year} <= set(people.years):
            start = people.column(year - lag)
            change = people.logs[:, start + lag] - people.logs[:, start]
            mask = people.aged(year - lag, *ages)
            cells.append((change, mask if chosen is None else mask & chosen(year - lag)))
    return pooled(people, cells)


def logs(people: People, year: int, mask: Bools) -> Sample:
    """Log real earnings above the floor, 25-55."""
    return people.sample(people.logs[:, people.column(year)], mask & people.aged(year, *AGES))


def signs(people: People) -> Measured:
    """What sources state without a number: cyclical skewness, the jump of the 1990s, who is more volatile."""
    if not set(range(1990, 2023)) <= set(people.years):
        return
    everybody, men, women = (people.group(name) for name in ("all", "men", "women"))
    yield from _cycle(people)
    calm = range(1991, 2017)
    yield (
        "sign.volatility.women",
        changes(people, calm, chosen=lambda _: women).spread()
        - changes(people, calm, chosen=lambda _: men).spread(),
    )
    yield "sign.jump.men", logs(people, 1995, men).variance() - logs(people, 1990, men).variance()
    yield (
        "sign.jump.all",
        logs(people, 1995, everybody).spread() - logs(people, 1990, everybody).spread(),
    )
    yield (
        "sign.jump.persistent",
        _covariance(people, 1996, 3, men) - _covariance(people, 1990, 3, men),
    )

    def mean_spread(years: range) -> Estimate:
        return smooth(
            lambda v: float(v.mean()), *(logs(people, year, everybody).spread() for year in years)
        )

    yield "sign.inequality.falls", mean_spread(range(2014, 2017)) - mean_spread(range(1995, 1998))
    poor = {year: _below_median(people, year) for year in range(1990, 2016)}

    def low(foreign: bool, year: int) -> Bools:
        return np.asarray(poor[year] & (people.foreign == foreign))

    foreign, native = (partial(low, flag) for flag in (True, False))
    yield (
        "sign.foreign.volatility",
        changes(people, calm, chosen=foreign).spread()
        - changes(people, calm, chosen=native).spread(),
    )
    yield "sign.foreign.losses", _losses(people, calm, foreign) - _losses(people, calm, native)

    def schooled(level: int, year: int) -> Bools:
        return np.asarray(people.level[:, people.column(year)] == level)

    least, most = (
        changes(people, calm, chosen=partial(schooled, level)).kelley() for level in (0, 3)
    )
    yield "sign.skew.low_educated", least - most


def _cycle(people: People) -> Measured:
    men, women = people.group("men"), people.group("women")
    usual = changes(people, BOOM)
    yield "sign.kelley.bust", changes(people, BUST).kelley() - usual.kelley()
    yield "sign.kelley.bust_2009", changes(people, BUST_2009).kelley() - usual.kelley()
    yield (
        "sign.kelley.bust_men",
        changes(people, BUST, chosen=lambda _: men).kelley()
        - changes(people, BOOM, chosen=lambda _: men).kelley(),
    )
    years = range(1991, 2023)
    rise = rise_of_unemployment(years)
    skewness, spread = (
        correlation(rise, [measure(changes(people, [y])) for y in years])
        for measure in (Sample.kelley, Sample.spread)
    )
    yield "sign.kelley.cycle", skewness
    yield "sign.spread.acyclical", smooth(lambda v: float(abs(v[0]) - abs(v[1])), skewness, spread)
    slopes = [slope(rise, [growth(people, year, mask) for year in years]) for mask in (men, women)]
    yield "sign.cycle.men", slopes[0] - slopes[1]


def rise_of_unemployment(years: Iterable[int]) -> NDArray[np.float64]:
    """Change of the unemployment rate over the year before, one a year (1991 on)."""
    known = sweden_as_published()
    rate = known.values[:, 0]
    return np.array(
        [rate[year - known.first_year] - rate[year - 1 - known.first_year] for year in years]
    )


def growth(people: People, year: int, mask: Bools) -> Estimate:
    """Growth of mean real earnings, zeros counted, of those of 25-55 at `mask` who are there in both years."""
    before, now = people.real(year - 1), people.real(year)
    both = mask & people.aged(year - 1, *AGES) & np.isfinite(before) & np.isfinite(now)
    return smooth(
        lambda v: float(v[0] / v[1] - 1.0),
        people.sample(now, both).mean(),
        people.sample(before, both).mean(),
    )


def _covariance(people: People, year: int, lag: int, mask: Bools) -> Estimate:
    now, then = (people.logs[:, people.column(year + k)].astype(np.float64) for k in (0, lag))
    both = mask & people.aged(year, *AGES) & np.isfinite(now) & np.isfinite(then)
    return people.sample((now - now[both].mean()) * (then - then[both].mean()), both).mean()


def _below_median(people: People, year: int) -> Bools:
    """Whose log earnings lie above the floor and below the median of the year's 25-55."""
    values = people.logs[:, people.column(year)]
    return np.asarray(values < np.nanmedian(values[people.aged(year, *AGES)]))


def _losses(people: People, years: Iterable[int], chosen: Chosen) -> Estimate:
    """Share whose real earnings fall to less than half; earnings may be 0 afterwards."""
    cells = []
    for year in years:
        lost = people.real(year) / np.maximum(people.real(year - 1), 1.0)
        cells.append((lost, chosen(year - 1) & people.aged(year - 1, *AGES)))
    sample = pooled(people, cells)
    return sample.share(sample.values < HALVED)


def recalled(people: People) -> Measured:
    """The moments of the recalled bands."""
    if not set(range(1990, 2023)) <= set(people.years):
        return
    every = range(1991, 2023)
    for group in ("men", "women"):
        mask = people.group(group)
        one, five = (
            changes(people, every, chosen=lambda _, m=mask: m),  # type: ignore[misc]
            changes(people, every, 5, chosen=lambda _, m=mask: m),  # type: ignore[misc]
        )
        up, down, crisis = (
            changes(people, years, chosen=lambda _, m=mask: m)  # type: ignore[misc]
            for years in (BOOM, BUST, range(1992, 1995))
        )
        for year in (1995, 2016):
            yield f"grid.log_spread.{year}.{group}", logs(people, year, mask).spread()
        yield f"grid.change1.spread.boom.{group}", up.spread()
        yield f"grid.change1.spread.bust.{group}", crisis.spread()
        yield f"grid.change5.spread.{group}", five.spread()
        yield f"grid.change1.std.{group}", smooth(lambda v: float(np.sqrt(v[0])), one.variance())
        yield f"grid.change1.kelley.boom.{group}", up.kelley()
        yield f"grid.change1.kelley.bust.{group}", down.kelley()
        yield f"grid.change1.peak.{group}", one.crow_siddiqui()
        yield f"grid.change5.peak.{group}", five.crow_siddiqui()
    men, women = people.group("men"), people.group("women")
    five_years = rank_slope(people, 5, men)
    yield "grid.rank5.men", five_years
    yield "grid.rank10.men", rank_slope(people, 10, men)
    yield "grid.rank5.women_less", rank_slope(people, 5, women) - five_years
    young, old = changes(people, every, ages=(25, 34)), changes(people, every, ages=(45, 55))
    yield "grid.kelley_by_age", old.kelley() - young.kelley()
    yield "grid.peak_by_age", old.crow_siddiqui() - young.crow_siddiqui()
    fifths = {year: past_fifth(people, year) for year in range(1990 + PAST - 1, 2022)}
    bottom, top = (
        changes(people, range(1990 + PAST, 2023), chosen=lambda y, f=f: fifths[y] == f)  # type: ignore[misc]
        for f in (0, 4)
    )
    yield "grid.kelley_by_rank", top.kelley() - bottom.kelley()
    yield "grid.peak_by_rank", top.crow_siddiqui() - bottom.crow_siddiqui()


def past_fifth(people: People, year: int, groups: int = 5) -> NDArray[np.int8]:
    """The fifth (0 the lowest, -1 unknown) of mean real earnings over the three years to `year`, among 25-55 above the floor then."""
    past = np.mean([people.real(year - k) for k in range(PAST)], axis=0)
    known = (
        people.aged(year, *AGES)
        & np.isfinite(past)
        & np.isfinite(people.logs[:, people.column(year)])
    )
    fifth = np.full(len(people), -1, np.int8)
    order = np.argsort(past[known], kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    fifth[known] = place * groups // max(len(order), 1)
    return fifth


def rank_slope(people: People, lag: int, mask: Bools) -> Estimate:
    """Slope of the rank of real earnings `lag` years later on the rank now, 35-54 at the start, both above the floor, all years."""
    products = []
    for year in range(people.years.start, people.years.stop - lag):
        now, then = people.logs[:, people.column(year)], people.logs[:, people.column(year + lag)]
        both = mask & people.aged(year, 35, 54) & np.isfinite(now) & np.isfinite(then)
        products.append(
            (12.0 * ranks(now, both) * ranks(then, both), both)
        )  # uniform ranks have variance 1 / 12
    return pooled(people, products).mean()


def ranks(values: NDArray[np.floating], mask: Bools) -> NDArray[np.float64]:
    """Ranks from -1/2 to 1/2 of the values at `mask`, elsewhere NaN."""
    ranks = np.full(len(values), np.nan)
    order = np.argsort(np.argsort(values[mask], kind="stable"), kind="stable")
    ranks[mask] = (order + 0.5) / len(order) - 0.5
    return ranks
