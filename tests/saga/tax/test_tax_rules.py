"""Properties of every income tax, and rules in the prices and years of a forecast."""

from __future__ import annotations

import numpy as np
import pytest

from saga.data.facts import shipped_facts
from saga.errors import UsageError
from saga.tax.swedish_tax import SwedishTax
from saga.tax.tax_rules import resolve_tax

LAW = SwedishTax.of(shipped_facts(), 2022)


def tax_of(earnings: np.ndarray, rule: str = "se-2022") -> np.ndarray:
    return resolve_tax(rule).tax(earnings)


def test_the_pension_fee_starts_ends_and_rounds_as_the_law_states() -> None:
    fee = LAW.breakdown(
        np.array([20_430.0, 20_500.0, 65_000.0, 65_100.0, 572_900.0, 573_000.0, 5e6])
    )["pension_fee"]
    # 7 % of 65,000 is 4,550: an exact fifty goes down.
    assert fee.tolist() == [0, 1_400, 4_500, 4_600, 40_100, 40_100, 40_100]


@pytest.mark.parametrize("name", ["paper", "se-2020", "se-2022", "se-2026"])
def test_tax_keeps_the_shape_is_zero_at_zero_and_leaves_missing_years_missing(
    name: str,
) -> None:
    gross = np.array([[[0.0, np.nan], [350_000.0, 2_500_000.0]]], dtype=np.float32)
    tax = tax_of(gross, name)
    assert tax.shape == gross.shape
    assert tax[0, 0, 0] == 0.0
    assert np.isnan(tax[0, 0, 1])
    assert np.all((tax[0, 1] >= 0) & (tax[0, 1] < gross[0, 1]))


def test_the_paper_rule_takes_its_three_rates_and_nothing_else() -> None:
    tax = tax_of(np.array([100_000.0, 554_900.0, 1_000_000.0]), "paper")
    ceiling = 0.07 * 8.07 * 71_000
    np.testing.assert_allclose(tax, [39_400.0, 0.394 * 554_900, 324_000 + 0.2 * 445_100 + ceiling])


def test_an_unknown_rule_and_negative_earnings_are_refused() -> None:
    with pytest.raises(UsageError, match="no tax rule 'us-2022'"):
        tax_of(np.zeros(1), "us-2022")
    with pytest.raises(UsageError, match=r"no tax facts of 2040.*se-2020 to se-2026"):
        tax_of(np.zeros(1), "se-2040")
    with pytest.raises(UsageError, match="negative"):
        tax_of(np.array([-1.0]))


def test_a_law_of_another_year_taxes_earnings_in_its_own_prices() -> None:
    prices = shipped_facts().price_index
    gross, factor = np.array([0.0, 250_000.0, 480_000.0, 900_000.0]), prices[2025] / prices[2022]
    law = SwedishTax.of(shipped_facts(), 2025)
    np.testing.assert_allclose(tax_of(gross, "se-2025"), law.tax(gross * factor) / factor)


def test_a_description_states_law_prices_and_what_no_source_gives() -> None:
    content = resolve_tax("se-2025").describe()
    assert content["law_year"] == 2025
    assert "'income_credit_most': 'E'" in str(content["not_published"])
    assert content["digest"] != resolve_tax("se-2026").describe()["digest"]
