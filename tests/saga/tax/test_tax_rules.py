"""Properties of every income tax, and rules in the prices and years of a forecast."""

from __future__ import annotations

import numpy as np
import pytest

from saga.data.facts import shipped_facts
from saga.errors import UsageError
from saga.requests import TaxReform
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


@pytest.mark.parametrize("name", ["none", "paper", "se-2020", "se-2022", "se-2026"])
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
    assert float(np.max(tax_of(np.array([250_000.0]), "none"))) == 0.0


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


def test_a_reform_is_a_changed_parameter_and_leaves_the_rules_of_the_year_as_they_are() -> None:
    reform = TaxReform("higher", base="se-2022", parameters=(("state_rate", 0.25),))
    gross = np.array([500_000.0, 700_000.0])
    np.testing.assert_allclose(
        resolve_tax(reform).tax(gross) - tax_of(gross), [0.0, 0.05 * (700_000 - 14_200 - 540_700)]
    )
    assert resolve_tax(reform).describe()["changes"] == {"state_rate": 0.25}


def test_years_up_to_the_law_and_the_uprating_by_prices_do_not_change_the_law() -> None:
    gross, years = np.full((3, 1), 700_000.0), np.array([2015, 2022, 2050])
    by_prices = resolve_tax("se-2022").tax(gross, years)
    assert set(by_prices.ravel()) == set(tax_of(gross[0]))
    by_wages = resolve_tax(TaxReform("w", base="se-2022", uprating="wages"))
    np.testing.assert_array_equal(by_wages.tax(gross, years)[:2], by_prices[:2])
    assert by_wages.tax(gross, years)[2] < by_prices[2]


@pytest.mark.parametrize("growth", [0.0, 0.02])
def test_under_wage_uprating_earnings_that_grow_with_wages_keep_their_tax_rate(
    growth: float,
) -> None:
    """Amounts are homogeneous of degree one, up to the rounding of hundreds and of whole SEK."""
    reform = TaxReform("w", base="se-2026", uprating="wages", real_wage_growth=growth)
    gross, n_years = np.array([150_000.0, 350_000.0, 600_000.0, 1_200_000.0]), 20
    rule = resolve_tax(reform)
    later = gross * (1 + growth) ** n_years
    now, then = (rule.tax(x, np.full(4, year)) / x for x, year in ((gross, 2026), (later, 2046)))
    np.testing.assert_allclose(now, then, atol=150 / 150_000)


def test_under_the_law_prices_move_the_base_amount_and_the_threshold_rises_faster() -> None:
    rule = resolve_tax(TaxReform("l", base="se-2026", uprating="law", real_wage_growth=0.02))
    law, n_years = SwedishTax.of(shipped_facts(), 2026), 10
    later = law.uprated(
        price_base=1.0, income_base=1.02**n_years, state=1.02**n_years, fixed=1.02**-n_years
    )
    factor = rule.to_law_prices
    gross = np.array([60_000.0, 250_000.0, 650_000.0, 720_000.0, 1_500_000.0])
    expected = later.tax(gross * factor) / factor
    np.testing.assert_allclose(rule.tax(gross, np.full(5, 2026 + n_years)), expected)
    assert (expected != tax_of(gross, "se-2026"))[1:].all()


def test_a_description_states_law_prices_uprating_and_what_no_source_gives() -> None:
    content = resolve_tax("se-2025").describe()
    assert content["law_year"] == 2025
    assert content["uprating"] == "prices"
    assert "'income_credit_most': 'E'" in str(content["not_published"])
    assert content["digest"] != resolve_tax("se-2026").describe()["digest"]
    assert resolve_tax("none").describe() == {}
