"""Tax rules by name, in the money of a forecast: prices, and uprating of the years after the law.

Forecasts are in prices of one year, the law of a year in its own prices. Earnings are converted to
the prices of the law by the consumer price index, and the tax is converted back. Years up to that
of the law are taxed by it as it stands, in real terms; later years by the stated uprating.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from saga.data.facts import ASSUMED_INFLATION, TAX_SERIES, Facts, shipped_facts
from saga.errors import UsageError
from saga.requests import TaxReform, TaxSource, Uprating, law_year_of
from saga.schema import PRICE_YEAR
from saga.tax.swedish_tax import SwedishTax

Array = NDArray[np.float64]

# The state threshold rises by the change of consumer prices and 2 percentage points (IL 65:5).
STATE_THRESHOLD_GROWTH = 0.02
_LONG_RUN = range(1996, 2026)  # years whose mean growth of real wages is assumed for the future


class Policy(Protocol):
    """A tax rule of one year."""

    def tax(self, earnings: Array) -> Array:
        """Annual tax of annual earnings, both SEK of the rule's year; NaN stays NaN."""


@dataclass(frozen=True)
class PaperRule:
    """The paper's rule: flat municipal tax, one state bracket and the pension fee; no credits.

    In SEK of 2022. As written it takes at least 32.4 % of any income, so the paper's mean effective
    rates of 29 to 31 % cannot come from it alone.
    """

    municipal_rate: float = 0.324
    state_threshold: float = 554_900.0
    state_rate: float = 0.20
    pension_fee_rate: float = 0.07
    pension_fee_to: float = 8.07 * 71_000.0

    def tax(self, earnings: Array) -> Array:
        """Annual tax, SEK 2022, of annual `earnings`, SEK 2022, any shape; NaN stays NaN."""
        state = self.state_rate * np.maximum(earnings - self.state_threshold, 0.0)
        return (
            self.municipal_rate * earnings
            + state
            + self.pension_fee_rate * np.minimum(earnings, self.pension_fee_to)
        )


@dataclass(frozen=True)
class NoTax:
    """No tax: net equals gross."""

    def tax(self, earnings: Array) -> Array:
        """Zero in the shape of `earnings`; NaN stays NaN."""
        return earnings * 0.0


@dataclass(frozen=True)
class TaxRule:
    """A tax rule for the years of a forecast, in the prices of the forecast.

    Args:
        name: Name of the rule or the reform.
        policy: The rule of one year, in that year's prices.
        law_year: The year of the law.
        to_law_prices: Factor from the forecast's prices to those of the law.
        uprating: What the amounts of the law follow in later years.
        real_wage_growth: Assumed growth of real wages a year, for the upratings wages and law.
        changes: Parameters that a reform changes.
        marks: Parameters of the law that no public source gives, with their marks.
    """

    name: str
    policy: Policy
    law_year: int
    to_law_prices: float = 1.0
    uprating: Uprating = "prices"
    real_wage_growth: float = 0.0
    changes: tuple[tuple[str, float], ...] = ()
    marks: tuple[tuple[str, str], ...] = ()

    def tax(
        self, earnings: NDArray[np.floating[Any]], years: NDArray[np.int64] | None = None
    ) -> Array:
        """Annual tax of annual earnings, both in the forecast's prices; NaN stays NaN.

        `years` are the calendar years of the leading axes of `earnings`; None: that of the law.
        Raises UsageError for earnings below zero.
        """
        amounts = np.asarray(earnings, dtype=np.float64)
        if bool((amounts < 0.0).any()) or bool(np.isinf(amounts).any()):
            raise UsageError(
                "Tax is defined for finite earnings from zero up, but some are negative or "
                "infinite. Correct the earnings first."
            )
        if years is None or self.uprating == "prices":
            return self._tax(amounts, self.policy)
        tax = np.empty(amounts.shape)
        for year in np.unique(years):
            rows = years == year
            tax[rows] = self._tax(amounts[rows], self._policy_of(int(year)))
        return tax

    def _tax(self, amounts: Array, policy: Policy) -> Array:
        return policy.tax(amounts * self.to_law_prices) / self.to_law_prices

    def _policy_of(self, year: int) -> Policy:
        n_years = year - self.law_year
        if n_years <= 0 or not isinstance(self.policy, SwedishTax):
            return self.policy
        return _uprated(self.policy, self.uprating, (1 + self.real_wage_growth), n_years)

    def describe(self) -> dict[str, object]:
        """What identifies the rule in a result; nothing for none."""
        if isinstance(self.policy, NoTax):
            return {}
        content: dict[str, object] = {
            "name": self.name,
            "law_year": self.law_year,
            "uprating": self.uprating,
            "to_law_prices": self.to_law_prices,
        }
        if self.uprating != "prices":
            content["real_wage_growth"] = self.real_wage_growth
        if self.changes:
            content["changes"] = dict(self.changes)
        digest = hashlib.sha256(json.dumps([content, repr(self.policy)]).encode()).hexdigest()
        if self.marks:
            content["not_published"] = dict(self.marks)
        return {**content, "digest": digest}


@lru_cache(maxsize=128)
def _uprated(law: SwedishTax, uprating: Uprating, wages: float, n_years: int) -> SwedishTax:
    """The law `n_years` later, in the prices of its own year; `wages` is 1 + real growth."""
    if uprating == "wages":
        factor = wages**n_years
        return law.uprated(price_base=factor, income_base=factor, state=factor, fixed=factor)
    return law.uprated(
        price_base=1.0,
        income_base=wages**n_years,
        state=(1 + STATE_THRESHOLD_GROWTH) ** n_years,
        fixed=(1 + ASSUMED_INFLATION) ** -n_years,
    )


def resolve_tax(
    source: TaxSource,
    facts: Facts | None = None,
    price_year: int = PRICE_YEAR,
    currency: str = "SEK",
) -> TaxRule:
    """The rule of a name or a reform, for earnings in a currency of `price_year`.

    `facts` are by default the shipped ones. Raises UsageError if they lack the year of the law or
    its prices, a reform contradicts itself, or there is a tax and the currency is not SEK.
    """
    if source != "none" and currency != "SEK":
        name = source if isinstance(source, str) else source.name
        raise UsageError(
            f"The tax rule {name!r} is for SEK, the amounts are in {currency}. Leave the tax out."
        )
    facts = facts or shipped_facts()
    if source == "none":
        return TaxRule("none", NoTax(), price_year)
    if source == "paper":
        return TaxRule("paper", PaperRule(), PRICE_YEAR, _factor(facts, price_year, PRICE_YEAR))
    reform = source if isinstance(source, TaxReform) else TaxReform(source, base=source)
    year = law_year_of(reform.base)
    law = replace(SwedishTax.of(facts, year), **dict(reform.parameters))
    growth = reform.real_wage_growth
    marks = [(name, facts.series[name].marks[year]) for name in TAX_SERIES]
    changed = dict(reform.parameters)
    return TaxRule(
        reform.name,
        law,
        year,
        _factor(facts, price_year, year),
        reform.uprating,
        mean_real_wage_growth(facts) if growth is None else growth,
        reform.parameters,
        tuple((name, mark) for name, mark in marks if mark in "EMC" and name not in changed),
    )


def mean_real_wage_growth(facts: Facts) -> float:
    """Mean growth of real wages a year since 1996, a fraction, which is assumed for the future."""
    growth: Mapping[int, float] = facts.series["real_wage_growth"].values
    values = [growth[year] for year in _LONG_RUN if year in growth]
    return round(sum(values) / len(values) / 100, 4)


def _factor(facts: Facts, price_year: int, law_year: int) -> float:
    """Factor from prices of `price_year` to those of `law_year`; exactly 1 for the same year."""
    index = facts.price_index
    for year in (price_year, law_year):
        if year not in index:
            raise UsageError(
                f"The price index has no value of {year}, so earnings cannot be converted to the "
                "prices of the tax rule. Give facts of your own that contain this year."
            )
    return index[law_year] / index[price_year]
