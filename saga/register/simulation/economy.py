"""The Swedish economy: its years, and its counties, industries, occupations and employers.

Years are a constant past, the realised years 1990-2022, and drawn futures; rates are fractions a
year. The history is the same for every seed, unless one is drawn. A draw is a Markov-switching
process around a trend of growth, and trends of groups, that are resampled from countries
(`realised_trends`). Its innovations are functions of (seed, draw, year), so the first years of a
future do not depend on its length.

Sizes, premia and sensitivities to the cycle are rounded; they give the regional and industrial
pattern of the Swedish economy. The codes are those of SCB (SSYK 2012, SNI 2007).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import polars as pl

from saga import schema
from saga.arrays import Bools, Floats, Ints
from saga.data.facts import shipped_facts
from saga.macro.history import LAST_REGISTER_YEAR, sweden_as_published, uncounted_jobless
from saga.register.simulation.parameters import Section, read_columns, to_numbers
from saga.register.simulation.realised_trends import (
    PAST_YEARS,
    GroupChanges,
    countries_of,
    draw_group_trends,
    draw_growth,
)

FIRST_HISTORY, LAST_HISTORY = 1990, LAST_REGISTER_YEAR
FIRST_DRAWN = FIRST_HISTORY - (schema.MAX_AGE - schema.MIN_AGE)  # of a drawn history
# Separate these random streams from others.
MACRO_TAG, HISTORY_TAG, TRENDS_TAG = 0x6D6163, 0x686973, 0x747264

_FACTS = shipped_facts()
# Price base amounts of the history, SEK.
BASE_AMOUNT: dict[int, float] = {
    year: amount
    for year, amount in _FACTS.series["price_base_amount"].values.items()
    if year <= LAST_HISTORY
}
# Consumer price index, 2022 = 1.
CPI: dict[int, float] = {
    year: _FACTS.price_index[year] / _FACTS.price_index[LAST_HISTORY] for year in BASE_AMOUNT
}

MacroRates = tuple[float, float, float]  # unemployment, real wage growth, inflation


@dataclass(frozen=True)
class MacroYear:
    """One year of the economy.

    Attributes:
        year: Calendar year.
        unemployment: Published rate, a fraction of the labour force.
        rise: Change of joblessness (unemployment and programmes) over the year before.
        growth: Growth of real wages.
        inflation: Growth of consumer prices.
        prices: Consumer price index, 2022 = 1.
        wages: Nominal wage level, 2022 = 1.
        base_amount: Price base amount, SEK.
        interest: Nominal interest rate.
        job_loss: Share of the employed who lose their job.
        job_finding: Share of the unemployed who find one.
        groups: Drawn trends of groups.
        last_published: Last year before trends are drawn.
    """

    year: int
    unemployment: float
    rise: float
    growth: float
    inflation: float
    prices: float
    wages: float
    base_amount: float
    interest: float
    job_loss: float
    job_finding: float
    groups: GroupChanges
    last_published: int


@dataclass(frozen=True)
class Economy:
    """The years that a register needs: the past, the history and perhaps a drawn future."""

    years: dict[int, MacroYear]

    def __getitem__(self, year: int) -> MacroYear:
        return self.years[year]

    def to_frame(self, first: int, last: int) -> pl.DataFrame:
        """Columns year, unemployment, real_wage_growth, inflation (fractions), one row per year."""
        rows = [self.years[y] for y in range(first, last + 1)]
        return pl.DataFrame(
            {
                "year": np.array([r.year for r in rows], np.int32),
                "unemployment": [r.unemployment for r in rows],
                "real_wage_growth": [r.growth for r in rows],
                "inflation": [r.inflation for r in rows],
            }
        )


def build_economy(
    first_year: int,
    last_year: int,
    p: Section,
    *,
    seed: int = 0,
    draw: int | None = None,
    history: int | None = None,
) -> Economy:
    """The economy from `first_year`, 1942 or later, to `last_year`.

    Without a `history`, years up to 2022 are those of Sweden. With one they are drawn, and depend
    on (history, year) alone; prices are Sweden's in every history. Years after 2022 depend on
    (seed, draw, history, year) alone.

    Raises:
        ValueError: If there are years after 2022 and no `draw`.
    """
    rates = _rates(last_year, p, seed, draw, history)
    groups = _group_trends(last_year, seed, draw, history)
    prices, wages = _price_and_wage_index(rates)
    years: dict[int, MacroYear] = {}
    interest = p.past_inflation + p.past_real_interest
    for year in range(first_year, last_year + 1):
        unemployment, growth, inflation = rates[year]
        # A drawn rate has the present definition throughout.
        definitions = [(y, y if history is None else LAST_HISTORY) for y in (year - 1, year)]
        before, joblessness = (
            p.unemployment_mean
            + p.felt * (rates[y][0] + uncounted_jobless(of) - p.unemployment_mean)
            for y, of in definitions
        )
        job_loss, job_finding = labour_flows(before, joblessness, p)
        # Nominal rates follow inflation with a lag.
        interest = p.interest_persistence * interest + (1.0 - p.interest_persistence) * (
            max(inflation, 0.0) + p.real_interest
        )
        years[year] = MacroYear(
            year=year,
            unemployment=unemployment,
            rise=joblessness - before,
            growth=growth,
            inflation=inflation,
            prices=prices[year],
            wages=wages[year],
            base_amount=BASE_AMOUNT.get(year, BASE_AMOUNT[LAST_HISTORY] * prices[year]),
            interest=interest,
            job_loss=job_loss,
            job_finding=job_finding,
            groups=groups.get(year, GroupChanges()),
            last_published=LAST_HISTORY if history is None else FIRST_HISTORY - 1,
        )
    return Economy(years)


def labour_flows(before: float, after: float, p: Section) -> tuple[float, float]:
    """Yearly rates of job loss and finding that change unemployment from `before` to `after`.

    Finding falls with unemployment; loss solves the stock-flow identity u' = u (1 - f) + (1 - u) s
    (Shimer 2012).
    """
    finding = min(
        max(p.finding_at_two - p.finding_slope * (after - p.finding_reference), p.finding_floor),
        p.finding_ceiling,
    )
    loss = (after - before * (1.0 - finding)) / (1.0 - before)
    return max(loss * p.loss_scale, p.loss_floor), finding


def _rates(
    last_year: int, p: Section, seed: int, draw: int | None, history: int | None
) -> dict[int, MacroRates]:
    past = (p.past_unemployment, p.past_growth, p.past_inflation)
    rates: dict[int, MacroRates] = dict.fromkeys(
        range(FIRST_DRAWN - PAST_YEARS, FIRST_HISTORY), past
    )
    published = sweden_as_published()
    for t, (unemployment, growth, inflation) in enumerate(published.values):
        rates[published.first_year + t] = (float(unemployment), float(growth), float(inflation))
    if history is not None:
        years = range(FIRST_DRAWN, LAST_HISTORY + 1)
        prices = {year: rates[year][2] for year in range(FIRST_HISTORY, LAST_HISTORY + 1)}
        for year, (unemployment, growth, _) in _draw(
            years, p, (history, HISTORY_TAG), rates, countries_of(history), prices
        ):
            rates[year] = (unemployment, growth, rates[year][2])
    if last_year > LAST_HISTORY:
        if draw is None:
            raise ValueError(f"years after {LAST_HISTORY} are drawn: name the draw")
        key = _future_key(seed, draw, history)
        years = range(LAST_HISTORY + 1, last_year + 1)
        rates |= dict(_draw(years, p, key, rates, countries_of(history), {}))
    return rates


def _group_trends(
    last_year: int, seed: int, draw: int | None, history: int | None
) -> dict[int, GroupChanges]:
    """The trends of groups in the years that are drawn."""
    trends: dict[int, GroupChanges] = {}
    countries = countries_of(history)
    if history is not None:
        years = range(FIRST_HISTORY, LAST_HISTORY + 1)
        past_key = (history, HISTORY_TAG, TRENDS_TAG)
        trends |= draw_group_trends(years, GroupChanges(), past_key, countries)
    if draw is not None:
        before = trends.get(LAST_HISTORY, GroupChanges())
        key = (*_future_key(seed, draw, history), TRENDS_TAG)
        years = range(LAST_HISTORY + 1, last_year + 1)
        trends |= draw_group_trends(years, before, key, countries)
    return trends


def _future_key(seed: int, draw: int, history: int | None) -> tuple[int, ...]:
    return (seed, MACRO_TAG, draw, *(() if history is None else (history,)))


def _price_and_wage_index(
    rates: dict[int, MacroRates],
) -> tuple[dict[int, float], dict[int, float]]:
    """Consumer prices and nominal wages, both 1 in 2022; the history has published prices."""
    prices = dict(CPI)
    real = {LAST_HISTORY: 1.0}
    for year in range(LAST_HISTORY, min(rates), -1):
        real[year - 1] = real[year] / (1.0 + rates[year][1])
        prices.setdefault(year - 1, prices[year] / (1.0 + rates[year][2]))
    for year in range(LAST_HISTORY + 1, max(rates) + 1):
        real[year] = real[year - 1] * (1.0 + rates[year][1])
        prices[year] = prices[year - 1] * (1.0 + rates[year][2])
    return prices, {year: prices[year] * real[year] for year in rates}


def _draw(
    years: range,
    p: Section,
    key: tuple[int, ...],
    before: dict[int, MacroRates],
    countries: tuple[str, ...],
    known_inflation: Mapping[int, float],
) -> Iterator[tuple[int, MacroRates]]:
    """Draw `years` from the Markov-switching process around a resampled trend of growth.

    Growth responds to inflation. Where that is known, the panel records it, and a forecaster can
    learn the response.
    """
    first = years.start
    unemployment, _, inflation = before[first - 1]
    change = unemployment - before[first - 2][0]
    recession = False
    past = np.array([before[year][1] for year in range(first - PAST_YEARS, first)])
    trend = draw_growth(past, len(years), (*key, TRENDS_TAG), countries)
    for year, mean_growth in zip(years, trend, strict=True):
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence((*key, year))))
        switch = rng.random()
        e = rng.standard_normal(3)
        recession = switch >= p.recession_end if recession else switch < p.recession_start
        change = (
            p.unemployment_momentum * change
            - p.unemployment_reversion * (unemployment - p.unemployment_mean)
            + p.recession_rise * recession
            + p.unemployment_sd * e[0]
        )
        change = max(unemployment + change, p.unemployment_floor) - unemployment
        unemployment += change
        inflation = known_inflation.get(
            year,
            p.inflation_mean
            + p.inflation_persistence * (inflation - p.inflation_mean)
            + p.inflation_on_unemployment * change
            + p.inflation_sd * e[1],
        )
        growth = (
            mean_growth
            + p.growth_on_unemployment * change
            + p.growth_on_inflation * (inflation - p.inflation_mean)
            + p.growth_sd * e[2]
        )
        yield year, (float(unemployment), float(growth), float(inflation))


EMPLOYERS_TAG, CLOSINGS_TAG = 0x656D70, 0x636C6F  # separate these random streams from others
EDUCATION_FIELDS = "0123456789"  # SUN2000Inr, one digit
MANAGER = "1"  # first digit of managers' codes in SSYK 2012
N_LEVELS = len(schema.EDUCATION_LEVELS)

_COUNTIES = read_columns("counties")  # in the order of schema.COUNTIES
_POPULATION = to_numbers(_COUNTIES["population_share"])
COUNTY_SHARE: Floats = _POPULATION / _POPULATION.sum()
COUNTY_UNEMPLOYMENT = to_numbers(_COUNTIES["relative_unemployment"])  # to the whole country
COUNTY_PREMIUM = to_numbers(_COUNTIES["pay_premium"])  # log
COUNTY_PULL_ON_IMMIGRANTS = to_numbers(_COUNTIES["pull_on_immigrants"])
COUNTY_PULL_ON_YOUNG = to_numbers(_COUNTIES["pull_on_young"])

_INDUSTRIES = read_columns("industries")
INDUSTRY_CODES = tuple(_INDUSTRIES["industry"])
INDUSTRY_CYCLE = to_numbers(_INDUSTRIES["cycle_sensitivity"])  # of job loss; mean near 1
INDUSTRY_PREMIUM = to_numbers(_INDUSTRIES["pay_premium"])  # log
INDUSTRY_LOG_EMPLOYER_SIZE = to_numbers(_INDUSTRIES["log_employer_size"])  # log persons
INDUSTRY_SIZE_TREND = to_numbers(_INDUSTRIES["size_trend"])  # log growth of the industry a year
INDUSTRY_OWN_FIRMS = to_numbers(_INDUSTRIES["own_firms"])  # relative to all industries

_OCCUPATIONS = read_columns("occupations")
OCCUPATION_CODES = tuple(_OCCUPATIONS["occupation"])
OCCUPATION_PREMIUM = to_numbers(_OCCUPATIONS["pay_premium"])  # log
OCCUPATION_PART_TIME: Bools = to_numbers(_OCCUPATIONS["part_time"]) > 0  # part time is common
IS_MANAGER: Bools = np.array([code.startswith(MANAGER) for code in OCCUPATION_CODES])
MANAGERS: Ints = np.flatnonzero(IS_MANAGER)


def draw_index(cumulative: Floats, u: Floats) -> Ints:
    """Inverse-CDF draws of indices (n,).

    `cumulative` are cumulative shares, (k,) or one row per draw (n, k); `u` (n,) is uniform.
    """
    if cumulative.ndim == 1:
        return np.minimum(np.searchsorted(cumulative, u, side="right"), len(cumulative) - 1)
    return np.asarray(
        np.minimum((cumulative <= u[:, None]).sum(axis=1), cumulative.shape[1] - 1), dtype=np.int64
    )


def cumulate(weights: Floats) -> Floats:
    """Cumulative shares along the last axis."""
    total = np.cumsum(weights, axis=-1)
    return np.asarray(total / total[..., -1:], dtype=np.float64)


@cache
def field_cdf() -> Floats:
    """Cumulative shares of fields of education (level 4, sex 2, field 10)."""
    table = read_columns("education_fields")
    shares = [to_numbers(table[f"field_{digit}"]) for digit in EDUCATION_FIELDS]
    return cumulate(np.stack(shares, axis=1).reshape(N_LEVELS, 2, len(EDUCATION_FIELDS)))


@cache
def occupation_cdf(p: Section) -> Floats:
    """Cumulative shares of occupations in a new job (level 4, field 10, sex 2, occupation)."""
    weights = np.zeros((N_LEVELS, len(EDUCATION_FIELDS), 2, len(OCCUPATION_CODES)))
    columns = ("weight", "education_level", "share_women", "education_fields")
    rows = zip(*(_OCCUPATIONS[column] for column in columns), strict=True)
    for j, (weight, level_cell, women_cell, fields) in enumerate(rows):
        usual_level, women = int(level_cell), float(women_cell)
        manager = p.new_managers if IS_MANAGER[j] else 1.0
        for level in range(N_LEVELS):
            # Below the usual level of an occupation entry is hard; above it, people prefer others.
            fall = p.underqualified if level < usual_level else p.overqualified
            by_level = np.exp(-fall * abs(usual_level - level))
            for k, digit in enumerate(EDUCATION_FIELDS):
                by_field = p.field_match if digit in fields and level > 0 else 1.0
                base = float(weight) * by_level * by_field * manager
                weights[level, k, :, j] = base * (1.0 - women), base * women
    return cumulate(weights)


@cache
def industry_cdf(year: int, p: Section) -> Floats:
    """Cumulative shares of industries by occupation in `year` (occupation, industry).

    The industries that the table names for an occupation have weights 1, 1/2, 1/3, ... in its
    order, times their size in `year` relative to the reference year. Others have a small weight.
    """
    trend_years = min(year, p.last_trend_year) - p.trend_reference_year
    relative_size = np.exp(INDUSTRY_SIZE_TREND * trend_years)
    weights = np.tile(p.industry_spill * relative_size, (len(OCCUPATION_CODES), 1))
    for j, codes in enumerate(_OCCUPATIONS["industries"]):
        for order, code in enumerate(c for c in codes.split() if c in INDUSTRY_CODES):
            k = INDUSTRY_CODES.index(code)
            weights[j, k] += relative_size[k] / (1.0 + order)
    return cumulate(weights)


@dataclass(frozen=True)
class Employers:
    """The employers of a register, sorted by industry; the same for all chunks of a seed.

    Attributes:
        per_industry: Number of employers in each industry.
        size: Number of persons (employer,).
        effect: Log pay premium; larger employers pay more (employer,).
        colleague_pay: Mean log pay of colleagues beyond the premium (employer,).
        hiring_cdf: Cumulative shares of an industry's jobs (industry, per_industry).
        parameters: Parameters of the pool and of closings.
    """

    per_industry: int
    size: Floats
    effect: Floats
    colleague_pay: Floats
    hiring_cdf: Floats
    parameters: Section

    @classmethod
    def draw(cls, seed: int, p: Section) -> Employers:
        """The pool of `seed`.

        Sizes are lognormal within an industry. Effects have the spread found by AKM decompositions
        (sd about .08 [M]).
        """
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, EMPLOYERS_TAG))))
        shape = (len(INDUSTRY_CODES), p.employers_per_industry)
        noise = rng.standard_normal(shape)
        mean_log_size = INDUSTRY_LOG_EMPLOYER_SIZE[:, None] - p.employer_size_shift
        log_size = mean_log_size + p.employer_size_sd * noise
        effect = p.employer_effect_sd * rng.standard_normal(shape) + p.employer_effect_by_size * (
            log_size - p.employer_effect_reference
        )
        size = np.maximum(np.round(np.exp(log_size)), 1.0)
        # Jobs are drawn, not employers: weight by size, with a bound for the very largest.
        largest = p.largest_employer * np.median(size, axis=1, keepdims=True)
        colleague_pay = p.colleague_mix_sd * rng.standard_normal(shape)
        return cls(
            per_industry=p.employers_per_industry,
            size=size.ravel(),
            effect=effect.ravel(),
            colleague_pay=colleague_pay.ravel(),
            hiring_cdf=cumulate(np.minimum(size, largest)),
            parameters=p,
        )

    def hire(self, industry: Ints, u: Floats) -> Ints:
        """Employer index of each new job; `industry` and the uniforms `u` are (n,)."""
        return industry * self.per_industry + draw_index(self.hiring_cdf[industry], u)

    def draw_closings(self, seed: int, draw: int | None, year: int, job_loss: float) -> Bools:
        """Flags of the employers that shed most of their jobs, more often small ones (employer,).

        Args:
            seed: Seed of the register.
            draw: Number of the macro draw; None for the years of the panel.
            year: Calendar year.
            job_loss: Share of the employed in the economy who lose their job in `year`.
        """
        p = self.parameters
        key = (seed, CLOSINGS_TAG, 0 if draw is None else draw + 1, year)
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))
        factor = p.closing_smallest - p.closing_size_slope * np.log(self.size)
        factor = np.clip(factor, p.closing_floor, p.closing_smallest)
        return np.asarray(rng.random(len(self.size)) < p.closing_share * job_loss * factor)
