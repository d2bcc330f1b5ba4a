"""The Swedish economy around the lives: 1990-2022 as it was, before it a constant past, after it drawn futures.

Rates are fractions a year. The history is the same in every seed. A future is a draw of a Markov-switching process, each
innovation named by (seed, draw, year), so a longer future begins like a shorter one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from saga.data.prices import CPI_SWEDEN
from saga.macro.history import programmes, sweden_as_published
from saga.register.simulation.parameters import EconomyParameters

FIRST_HISTORY, LAST_HISTORY = 1990, 2022

# Price base amounts, SEK: Statistics Sweden. The macro series are those of `saga.macro.process` and `saga.data.prices`, which name their sources.
BASE_AMOUNT: dict[int, int] = {
    1990: 29_700, 1991: 32_200, 1992: 33_700, 1993: 34_400, 1994: 35_200, 1995: 35_700, 1996: 36_200, 1997: 36_300, 1998: 36_400,
    1999: 36_400, 2000: 36_600, 2001: 36_900, 2002: 37_900, 2003: 38_600, 2004: 39_300, 2005: 39_400, 2006: 39_700, 2007: 40_300,
    2008: 41_000, 2009: 42_800, 2010: 42_400, 2011: 42_800, 2012: 44_000, 2013: 44_500, 2014: 44_400, 2015: 44_500, 2016: 44_300,
    2017: 44_800, 2018: 45_500, 2019: 46_500, 2020: 47_300, 2021: 47_600, 2022: 48_300,
}  # fmt: skip
CPI: dict[int, float] = {
    year: CPI_SWEDEN[year] / CPI_SWEDEN[LAST_HISTORY] for year in BASE_AMOUNT
}  # 2022 = 1


@dataclass(frozen=True)
class MacroYear:
    """One year of the economy.

    `prices` is the CPI (2022 = 1), `wages` the nominal wage level (2022 = 1): prices times the cumulated real wage growth. `rise` is the
    change of joblessness (unemployment and programmes), `job_loss` and `job_finding` the yearly flows between work and unemployment.
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


class Economy:
    """The macro years that a run needs: the past, the history and, with `draw`, a drawn future."""

    def __init__(self, years: dict[int, MacroYear], draw: int | None = None) -> None:
        self.years = years
        self.draw = draw

    def __getitem__(self, year: int) -> MacroYear:
        return self.years[year]

    @property
    def last_year(self) -> int:
        """Last year that is known or drawn."""
        return max(self.years)

    def to_frame(self, first: int, last: int) -> pl.DataFrame:
        """Columns year, unemployment, real_wage_growth, inflation (fractions), one row a year."""
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
    first_year: int, last_year: int, p: EconomyParameters, *, seed: int = 0, draw: int | None = None
) -> Economy:
    """The economy of `first_year`..`last_year`; years after 2022 need a `draw` and depend on (seed, draw, year) alone."""
    series = dict.fromkeys(
        range(first_year - 1, FIRST_HISTORY), (p.past_unemployment, p.past_growth, p.past_inflation)
    )
    known = sweden_as_published()
    series |= {
        known.first_year + t: (float(u), float(g), float(i))
        for t, (u, g, i) in enumerate(known.values)
    }
    if last_year > LAST_HISTORY:
        if draw is None:
            raise ValueError(f"years after {LAST_HISTORY} are drawn: name the draw")
        series |= _future(
            last_year, p, seed, draw, series[LAST_HISTORY - 1][0], series[LAST_HISTORY]
        )
    prices, wages = _levels(series)
    years: dict[int, MacroYear] = {}
    interest = p.past_inflation + 0.03
    for year in range(first_year, last_year + 1):
        unemployment, growth, inflation = series[year]
        jobless = (series[y][0] + programmes(y) for y in (year - 1, year))
        before, now = (
            p.unemployment_mean + p.felt * (share - p.unemployment_mean) for share in jobless
        )
        loss, finding = labour_flows(before, now, p)
        interest = 0.75 * interest + 0.25 * (
            max(inflation, 0.0) + 0.012
        )  # nominal rates follow inflation with a lag
        base = BASE_AMOUNT.get(year, BASE_AMOUNT[LAST_HISTORY] * prices[year])
        years[year] = MacroYear(
            year,
            unemployment,
            now - before,
            growth,
            inflation,
            prices[year],
            wages[year],
            base,
            interest,
            loss,
            finding,
        )
    return Economy(years, draw)


def labour_flows(before: float, now: float, p: EconomyParameters) -> tuple[float, float]:
    """Job loss and job finding (shares a year) that carry unemployment from `before` to `now`.

    Finding falls with unemployment; loss solves the stock-flow identity u' = u (1 - f) + (1 - u) s (Shimer 2012).
    """
    finding = min(max(p.finding_at_two - p.finding_slope * (now - 0.02), p.finding_floor), 0.85)
    loss = (now - before * (1.0 - finding)) / (1.0 - before)
    return max(loss * p.loss_scale, p.loss_floor), finding


def _levels(
    series: dict[int, tuple[float, float, float]],
) -> tuple[dict[int, float], dict[int, float]]:
    """CPI and nominal wage level, both 1 in 2022, from the growth rates (the CPI of the history is its own series)."""
    prices = dict(CPI)
    real = {LAST_HISTORY: 1.0}
    for year in range(LAST_HISTORY, min(series), -1):
        real[year - 1] = real[year] / (1.0 + series[year][1])
        prices.setdefault(year - 1, prices[year] / (1.0 + series[year][2]))
    for year in range(LAST_HISTORY + 1, max(series) + 1):
        real[year] = real[year - 1] * (1.0 + series[year][1])
        prices[year] = prices[year - 1] * (1.0 + series[year][2])
    return prices, {year: prices[year] * real[year] for year in series}


def _future(
    last_year: int,
    p: EconomyParameters,
    seed: int,
    draw: int,
    before: float,
    start: tuple[float, float, float],
) -> dict[int, tuple[float, float, float]]:
    """Markov-switching law of motion after the history: year -> (unemployment, real wage growth, inflation)."""
    out: dict[int, tuple[float, float, float]] = {}
    (u, _, inflation), recession = start, False
    change = u - before
    for year in range(LAST_HISTORY + 1, last_year + 1):
        rng = np.random.Generator(
            np.random.Philox(np.random.SeedSequence((seed, 0x6D6163, draw, year)))
        )
        switch = rng.random()
        e = rng.standard_normal(3)
        recession = switch >= p.recession_end if recession else switch < p.recession_start
        change = (
            p.unemployment_momentum * change
            - p.unemployment_reversion * (u - p.unemployment_mean)
            + p.recession_rise * recession
            + p.unemployment_sd * e[0]
        )
        change = max(u + change, 0.025) - u
        u += change
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
        out[year] = (float(u), float(growth), float(inflation))
    return out
