"""Tax rules by name, in the money of a forecast.

Forecasts are in prices of one year, the law of a year in its own prices. Earnings are converted to
the prices of the law by the consumer price index, and the tax is converted back. All years are
taxed by the law as it stands, in real terms.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.data.facts import TAX_SERIES, Facts, shipped_facts
from saga.errors import UsageError
from saga.requests import law_year_of
from saga.schema import PRICE_YEAR
from saga.tax.swedish_tax import SwedishTax


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

    def tax(self, earnings: Floats) -> Floats:
        """Annual tax, SEK 2022, of annual `earnings`, SEK 2022, any shape; NaN stays NaN."""
        state = self.state_rate * np.maximum(earnings - self.state_threshold, 0.0)
        return (
            self.municipal_rate * earnings
            + state
            + self.pension_fee_rate * np.minimum(earnings, self.pension_fee_to)
        )


@dataclass(frozen=True)
class TaxRule:
    """A tax rule in the prices of a forecast.

    Args:
        name: Name of the rule.
        policy: The rule of one year, in that year's prices.
        law_year: The year of the law.
        to_law_prices: Factor from the forecast's prices to those of the law.
        marks: Parameters of the law that no public source gives, with their marks.
    """

    name: str
    policy: SwedishTax | PaperRule
    law_year: int
    to_law_prices: float = 1.0
    marks: tuple[tuple[str, str], ...] = ()

    def tax(self, earnings: NDArray[np.floating[Any]]) -> Floats:
        """Annual tax of annual earnings, both in the forecast's prices; NaN stays NaN.

        Raises UsageError for earnings below zero.
        """
        amounts = np.asarray(earnings, dtype=np.float64)
        if bool((amounts < 0.0).any()) or bool(np.isinf(amounts).any()):
            raise UsageError(
                "Tax is defined for finite earnings from zero up, but some are negative or "
                "infinite. Correct the earnings first."
            )
        return self.policy.tax(amounts * self.to_law_prices) / self.to_law_prices

    def describe(self) -> dict[str, object]:
        """What identifies the rule in a result."""
        content: dict[str, object] = {
            "name": self.name,
            "law_year": self.law_year,
            "to_law_prices": self.to_law_prices,
        }
        digest = hashlib.sha256(json.dumps([content, repr(self.policy)]).encode()).hexdigest()
        if self.marks:
            content["not_published"] = dict(self.marks)
        return {**content, "digest": digest}


def resolve_tax(
    name: str,
    facts: Facts | None = None,
    price_year: int = PRICE_YEAR,
    currency: str = "SEK",
) -> TaxRule:
    """The rule of a name, for earnings in a currency of `price_year`.

    `facts` are by default the shipped ones. Raises UsageError if they lack the year of the law or
    its prices, or the currency is not SEK.
    """
    if currency != "SEK":
        raise UsageError(
            f"The tax rule {name!r} is for SEK, the amounts are in {currency}. Leave the tax out."
        )
    facts = facts or shipped_facts()
    if name == "paper":
        return TaxRule("paper", PaperRule(), PRICE_YEAR, _factor(facts, price_year, PRICE_YEAR))
    year = law_year_of(name)
    law = SwedishTax.of(facts, year)
    marks = [(series, facts.series[series].marks[year]) for series in TAX_SERIES]
    return TaxRule(
        name,
        law,
        year,
        _factor(facts, price_year, year),
        tuple((series, mark) for series, mark in marks if mark in "EMC"),
    )


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
