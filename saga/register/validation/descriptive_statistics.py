"""What has no target but shows what kind of world a register is: distributions by year, age, rank and education, mobility, lifetimes.

Each measure yields the rows themselves, labelled: they stand below the targets in the same table.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from saga.register.validation.earnings_dynamics import changes, past_fifth, rank_slope
from saga.register.validation.estimators import Estimate, Sample
from saga.register.validation.fertility import EVENT, event_study, first_births
from saga.register.validation.level_statistics import lifetimes, pay, pooled
from saga.register.validation.register_arrays import Bools, People
from saga.register.validation.target import Target
from saga.register.validation.targets import LEVELS

Rows = Iterator[tuple[Target, Estimate]]
AGE_BANDS = ((16, 19), *((a, a + 4) for a in range(20, 65, 5)))
DECADES = ((25, 34), (35, 44), (45, 55))
LAGS = (1, 3, 5)
MOBILITY = (1, 5, 10)
MOVES = "change of log real labour earnings, both above half a price base amount"


def describe(people: People) -> Rows:
    """All descriptive rows."""
    for measure in (by_year, by_age, cohorts_schooling, moves, mobility, parents, lifelong):
        yield from measure(people)


def _row(key: str, topic: str, concept: str, population: str, statistic: str) -> Target:
    return Target(key, topic, concept, population, statistic, "none", "", None, enforced=False)


def by_year(people: People) -> Rows:
    """Distribution of labour earnings at 20-64 by year and sex, women's pay relative to men's, skewness and spread of changes."""
    for year in people.years:
        for group in ("women", "men"):
            sample = people.sample(
                people.real(year), people.aged(year, 20, 64) & people.group(group)
            )
            low, median, high = sample.quantiles((0.1, 0.5, 0.9))
            found = {
                "mean": sample.mean(),
                "P10": low,
                "P50": median,
                "P90": high,
                "Gini": sample.gini(),
            }
            for name, estimate in {
                **found,
                "share of zeros": sample.share(sample.values == 0),
            }.items():
                key = f"year.{group}.{year}.{name.split()[-1].lower()}"
                yield (
                    _row(
                        key,
                        "Earnings by year",
                        "labour earnings, SEK of 2022",
                        f"20-64, {group}, {year}",
                        name,
                    ),
                    estimate,
                )
        ratio = pay(people, year, people.female).mean() / pay(people, year, ~people.female).mean()
        concept = "pay of a full-time full-year job"
        yield (
            _row(
                f"pay_ratio.{year}",
                "Women and men by year",
                concept,
                f"20-64, {year}",
                "women's mean / men's",
            ),
            ratio,
        )
    for year in people.years[1:]:
        for group in ("all", "women", "men"):
            mask = people.group(group)
            sample = changes(people, [year], chosen=lambda _, m=mask: m)  # type: ignore[misc]
            for name, estimate in (("Kelley", sample.kelley()), ("P90-P10", sample.spread())):
                key = f"moves.year.{group}.{year}.{name.lower()}"
                yield (
                    _row(
                        key, "Changes by year", f"1-year {MOVES}", f"25-55, {group}, {year}", name
                    ),
                    estimate,
                )


def by_age(people: People) -> Rows:
    """Zero shares over all years and employment 2015, by age and sex."""
    for group in ("women", "men"):
        mask = people.group(group)
        for first, last in AGE_BANDS:
            cells = [
                (people.earnings[:, people.column(year)], people.aged(year, first, last) & mask)
                for year in people.years
            ]
            sample, who = pooled(people, cells), f"{first}-{last}, {group}"
            key = f"zeros.{group}.{first}-{last}"
            yield (
                _row(
                    key,
                    "Zero earnings by age",
                    "labour earnings",
                    f"{who}, all years",
                    "share of zeros",
                ),
                sample.share(sample.values == 0),
            )
            if 2015 in people.years:
                employed = people.sample(
                    people.employed[:, people.column(2015)], people.aged(2015, first, last) & mask
                )
                key, concept = (
                    f"employed.{group}.{first}-{last}",
                    "weeks at work or on paid leave from a job, out of 52",
                )
                yield (
                    _row(
                        key, "Employment by age", concept, f"{who}, 2015", "mean share of the year"
                    ),
                    employed.mean(),
                )


def cohorts_schooling(people: People) -> Rows:
    """Education by cohort and sex, at 37 or as soon as the panel sees the cohort."""
    for born in range(1930, 1990, 5):
        year = max(born + 37, people.years.start)
        if year not in people.years or year - born > 64:
            continue
        for group in ("women", "men"):
            cells = people.level[:, people.column(year)].astype(np.float32)
            sample = people.sample(
                cells, people.group(group) & (np.abs(people.born - born) <= 1) & (cells >= 0)
            )
            for code, level in enumerate(LEVELS):
                key, who = (
                    f"schooling.{group}.{born}.{level}",
                    f"{group} born {born - 1}-{born + 1}, in {year}",
                )
                yield (
                    _row(
                        key,
                        "Education by cohort",
                        "highest education, known level only",
                        who,
                        f"share with {level}",
                    ),
                    sample.share(sample.values == code),
                )


def moves(people: People) -> Rows:
    """Spread, skewness and peakedness of changes by age and by decile of past earnings."""
    start, stop = people.years.start + 2, people.years.stop
    tenths = {year: past_fifth(people, year, 10) for year in range(start, stop)}

    def rows(key: str, who: str, lag: int, sample: Sample) -> Rows:
        for name, estimate in (
            ("P90-P10", sample.spread()),
            ("Kelley", sample.kelley()),
            ("excess Crow-Siddiqui", sample.crow_siddiqui()),
        ):
            yield (
                _row(
                    f"moves.{key}.{lag}.{name.split()[-1].lower()}",
                    "Changes by age and rank",
                    f"{lag}-year {MOVES}",
                    who,
                    name,
                ),
                estimate,
            )

    for lag in LAGS:
        for ages in DECADES:
            band = "-".join(map(str, ages))
            yield from rows(
                f"age.{band}",
                f"{band}, all years",
                lag,
                changes(people, range(start, stop), lag, ages=ages),
            )
        for tenth in range(10):

            def chosen(year: int, tenth: int = tenth) -> Bools:
                return np.asarray(tenths[year] == tenth)

            sample = changes(people, range(start + lag, stop), lag, chosen)
            yield from rows(
                f"rank.{tenth + 1}",
                f"25-55, decile {tenth + 1} of the mean of three past years",
                lag,
                sample,
            )


def mobility(people: People) -> Rows:
    """Rank-rank slopes by sex and where the fifths of past earnings are found later."""
    concept = "rank of real labour earnings by year"
    for lag in MOBILITY:
        if lag >= len(people.years) - 2:
            continue
        for group in ("women", "men"):
            who = f"35-54 at the start, {group}"
            yield (
                _row(
                    f"ranks.{group}.{lag}",
                    "Mobility",
                    concept,
                    who,
                    f"rank-rank slope over {lag} years",
                ),
                rank_slope(people, lag, people.group(group)),
            )
        years = range(people.years.start + 2, people.years.stop - lag)
        cells = []
        for year in years:
            now, then = past_fifth(people, year), past_fifth(people, year + lag)
            cells.append(((now * 5 + then).astype(np.float32), (now >= 0) & (then >= 0)))
        sample = pooled(people, cells)
        for a in range(5):
            origin = sample.where(sample.values // 5 == a)
            for b in range(5):
                key, who = (
                    f"fifths.{lag}.{a + 1}-{b + 1}",
                    f"25-55 in both years, fifth {a + 1} of three-year mean earnings",
                )
                statistic = f"share in fifth {b + 1} {lag} years later"
                yield (
                    _row(key, "Mobility", concept, who, statistic),
                    origin.share(origin.values % 5 == b),
                )


def parents(people: People) -> Rows:
    """Earnings of mothers and fathers around the first birth."""
    first = first_births(people)
    concept = "real labour earnings, zeros counted: event study with age and year dummies, the year before the first birth as base"
    for name, mask in (("mothers", people.female), ("fathers", ~people.female)):
        study = event_study(people, first, mask)
        for k in EVENT if study else ():
            statistic = f"effect {k} years from the birth / predicted without"
            assert study is not None
            yield (
                _row(
                    f"penalty.{name}.{k}",
                    "Children, profile",
                    concept,
                    f"{name}, first birth at 20-45",
                    statistic,
                ),
                study.relative(k),
            )


def lifelong(people: People) -> Rows:
    """Distribution of earnings added up over thirty years."""
    total, _ = lifetimes(people)
    if total is None:
        return
    for group in ("all", "women", "men"):
        sample = people.sample(total, people.group(group))
        low, median, high = sample.quantiles((0.1, 0.5, 0.9))
        top = sample.between(0.99, 1.0)
        for name, estimate in (
            ("mean", sample.mean()), ("P10", low), ("P50", median), ("P90", high), ("Gini", sample.gini()), ("mean of the top 1 %", top),
        ):  # fmt: skip
            key, concept = (
                f"life.{group}.{name.replace('mean of the top 1 %', 'top1').lower()}",
                "real labour earnings added up over 25-54",
            )
            yield (
                _row(
                    key,
                    "Lifetime earnings",
                    concept,
                    f"born 1965-68, there each year, {group}",
                    name,
                ),
                estimate,
            )
