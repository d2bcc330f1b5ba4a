"""The Swedish income tax of 2022 to the krona, and properties of every income tax."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from saga.data.facts import shipped_facts
from saga.errors import UsageError
from saga.requests import TaxReform
from saga.tax.swedish_tax import SwedishTax
from saga.tax.tax_rules import resolve_tax

LAW = SwedishTax.of(shipped_facts(), 2022)
ITEMS = (
    "allowance",
    "municipal",
    "state",
    "pension_fee",
    "work_credit",
    "income_credit",
    "temporary_credit",
    "tax",
    "net",
)


def tax_of(earnings: np.ndarray, rule: str = "se-2022") -> np.ndarray:
    return resolve_tax(rule).tax(earnings)


# Worked by hand from the law: gross, then ITEMS (municipal rate 32.24 %).
WORKED = [
    (50_000, 20_900, 9_381, 0, 3_500, 5_881, 0, 0, 3_500, 46_500),
    (120_000, 34_900, 27_436, 0, 8_400, 12_416, 338, 750, 13_932, 106_068),
    (200_000, 32_300, 54_066, 0, 14_000, 19_613, 957, 1_750, 31_746, 168_254),
    (300_000, 22_300, 89_530, 0, 21_000, 26_964, 1_500, 2_250, 58_816, 241_184),
    (400_000, 14_200, 124_381, 0, 28_000, 33_292, 1_500, 1_125, 88_464, 311_536),
    (500_000, 14_200, 156_621, 0, 35_000, 33_292, 1_500, 0, 121_829, 378_171),
    (554_900, 14_200, 174_321, 0, 38_800, 33_292, 1_500, 0, 139_529, 415_371),
    (700_000, 14_200, 221_101, 29_020, 40_100, 31_912, 1_500, 0, 216_709, 483_291),
    (1_000_000, 14_200, 317_821, 89_020, 40_100, 22_912, 1_500, 0, 382_429, 617_571),
]


@pytest.mark.parametrize("row", WORKED, ids=lambda row: f"gross {row[0]}")
def test_every_item_of_the_worked_assessments_is_right_to_the_krona(row: tuple[int, ...]) -> None:
    items = LAW.breakdown(np.array([float(row[0])]))
    assert {name: int(items[name][0]) for name in ITEMS} == dict(zip(ITEMS, row[1:], strict=True))


def test_the_table_of_taxes_equals_the_assessment_below_at_and_above_its_end() -> None:
    rng = np.random.default_rng(1)
    gross = np.concatenate(
        [rng.uniform(0, 3e6, 20_000), np.arange(0, 2.1e6, 100.0), [1_999_999.99, 2_000_000.0, 5e7]]
    )
    np.testing.assert_array_equal(tax_of(gross), LAW.breakdown(gross)["tax"])


def test_the_allowance_has_the_published_lowest_and_highest_amounts() -> None:
    allowance = LAW.breakdown(np.array([30_000.0, 140_000.0, 145_000.0, 381_000.0, 900_000.0]))[
        "allowance"
    ]
    assert allowance.tolist() == [20_500, 37_200, 37_200, 14_200, 14_200]
    assert LAW.breakdown(np.array([12_345.0]))["allowance"][0] == 12_300  # never above the income


def test_the_pension_fee_starts_ends_and_rounds_as_the_law_states() -> None:
    fee = LAW.breakdown(
        np.array([20_430.0, 20_500.0, 65_000.0, 65_100.0, 572_900.0, 573_000.0, 5e6])
    )["pension_fee"]
    # 7 % of 65,000 is 4,550: an exact fifty goes down.
    assert fee.tolist() == [0, 1_400, 4_500, 4_600, 40_100, 40_100, 40_100]


def test_net_income_falls_with_gross_income_only_at_the_start_of_the_pension_fee() -> None:
    net = LAW.breakdown(np.arange(0.0, 3e6, 100.0))["net"]
    falls = np.flatnonzero(np.diff(net) < 0) * 100
    # Below the taxable minimum the fee of 7 % is not credited, so net income falls by 1,400 SEK.
    assert falls.tolist() == [20_400]


def test_marginal_rates_lie_between_zero_and_the_statutory_top() -> None:
    gross = np.arange(30_000.0, 3e6, 10_000.0)
    marginal = np.diff(tax_of(gross)) / 10_000.0
    rounding = 2 * 100 / 10_000.0  # fee and allowance are counted in hundreds
    assert marginal.min() >= -rounding
    assert marginal.max() <= 0.3224 + 0.20 + 0.03 + rounding
    at = gross[:-1]
    np.testing.assert_allclose(marginal[(at > 680_000) & (at < 1_700_000)], 0.5524, atol=3e-4)
    np.testing.assert_allclose(marginal[at > 1_800_000], 0.5224, atol=3e-4)  # the credit is used up
    np.testing.assert_allclose(marginal[(at > 505_000) & (at < 540_000)], 0.3224, atol=3e-4)


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


def test_the_work_credit_before_2022_gives_another_tax() -> None:
    """The older coefficients (34.05 %, 1.703, 2.323) were replaced by SFS 2021:1160."""
    before = replace(
        LAW, work_credit_share_2=0.3405, work_credit_amount_3=1.703, work_credit_amount_4=2.323
    )
    gross = np.array([float(row[0]) for row in WORKED[1:]])
    assert np.all(before.tax(gross) > tax_of(gross))


def test_the_tax_of_2022_has_the_bits_of_the_first_version() -> None:
    gross = np.concatenate([np.arange(0.0, 3e6, 37.7), [1_999_999.99, 2_000_000.0, 5e7]])
    digest = hashlib.sha256(tax_of(gross).tobytes()).hexdigest()
    assert digest == "7444ead8c241965888ef4b377bf8e7702e262e7000b8122b58253d8f803333d1"


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
    reform = TaxReform("l", base="se-2026", uprating="law", real_wage_growth=0.02)
    rule = resolve_tax(reform)
    policy = rule._policy_of(2036)
    assert isinstance(policy, SwedishTax)
    law = SwedishTax.of(shipped_facts(), 2026)
    assert policy.price_base_amount == law.price_base_amount
    assert policy.income_base_amount == pytest.approx(law.income_base_amount * 1.02**10)
    assert policy.state_threshold == pytest.approx(law.state_threshold * 1.02**10)
    assert policy.income_credit_most == pytest.approx(1_500 / 1.02**10)


def test_a_description_states_law_prices_uprating_and_what_no_source_gives() -> None:
    content = resolve_tax("se-2025").describe()
    assert content["law_year"] == 2025
    assert content["uprating"] == "prices"
    assert "'income_credit_most': 'E'" in str(content["not_published"])
    assert content["digest"] != resolve_tax("se-2026").describe()["digest"]
    assert resolve_tax("none").describe() == {}
