"""The Swedish economy: a constant past, the realised years 1990-2022, and drawn futures.

Rates are fractions a year. The history is the same for every seed. A future is a draw of a
Markov-switching process. Its innovations are functions of (seed, draw, year), so the first years of
a future do not depend on its length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from saga.data.facts import shipped_facts
from saga.macro.history import LAST_REGISTER_YEAR, sweden_as_published, uncounted_jobless
from saga.register.simulation.parameters import Section

FIRST_HISTORY, LAST_HISTORY = 1990, LAST_REGISTER_YEAR
MACRO_TAG = 0x6D6163  # separates these random streams from others

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
    first_year: int, last_year: int, p: Section, *, seed: int = 0, draw: int | None = None
) -> Economy:
    """The economy from `first_year` to `last_year`.

    Years after 2022 depend on (seed, draw, year) alone.

    Raises:
        ValueError: If there are years after 2022 and no `draw`.
    """
    rates = _rates(first_year, last_year, p, seed, draw)
    prices, wages = _price_and_wage_index(rates)
    years: dict[int, MacroYear] = {}
    interest = p.past_inflation + p.past_real_interest
    for year in range(first_year, last_year + 1):
        unemployment, growth, inflation = rates[year]
        before, joblessness = (
            p.unemployment_mean
            + p.felt * (rates[y][0] + uncounted_jobless(y) - p.unemployment_mean)
            for y in (year - 1, year)
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
    first_year: int, last_year: int, p: Section, seed: int, draw: int | None
) -> dict[int, MacroRates]:
    past = (p.past_unemployment, p.past_growth, p.past_inflation)
    rates: dict[int, MacroRates] = dict.fromkeys(range(first_year - 1, FIRST_HISTORY), past)
    history = sweden_as_published()
    for t, (unemployment, growth, inflation) in enumerate(history.values):
        rates[history.first_year + t] = (float(unemployment), float(growth), float(inflation))
    if last_year > LAST_HISTORY:
        if draw is None:
            raise ValueError(f"years after {LAST_HISTORY} are drawn: name the draw")
        rates |= _draw_future(last_year, p, (seed, MACRO_TAG, draw), rates)
    return rates


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


def _draw_future(
    last_year: int, p: Section, key: tuple[int, ...], history: dict[int, MacroRates]
) -> dict[int, MacroRates]:
    """Draw the years after the history from the Markov-switching process."""
    rates: dict[int, MacroRates] = {}
    unemployment, _, inflation = history[LAST_HISTORY]
    change = unemployment - history[LAST_HISTORY - 1][0]
    recession = False
    for year in range(LAST_HISTORY + 1, last_year + 1):
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
        inflation = (
            p.inflation_mean
            + p.inflation_persistence * (inflation - p.inflation_mean)
            + p.inflation_on_unemployment * change
            + p.inflation_sd * e[1]
        )
        growth = (
            p.growth_mean
            + p.growth_on_unemployment * change
            + p.growth_on_inflation * (inflation - p.inflation_mean)
            + p.growth_sd * e[2]
        )
        rates[year] = (float(unemployment), float(growth), float(inflation))
    return rates
