"""The Swedish income tax of 2022 to the krona, and properties of every income tax."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from saga.errors import UsageError
from saga.requests import TaxName
from saga.tax import POLICIES, PaperRule, Sweden2022, income_tax, parameters

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
    items = Sweden2022().breakdown(np.array([float(row[0])]))
    assert {name: int(items[name][0]) for name in ITEMS} == dict(zip(ITEMS, row[1:], strict=True))


def test_the_table_of_taxes_equals_the_assessment_below_at_and_above_its_end() -> None:
    rng = np.random.default_rng(1)
    gross = np.concatenate(
        [rng.uniform(0, 3e6, 20_000), np.arange(0, 2.1e6, 100.0), [1_999_999.99, 2_000_000.0, 5e7]]
    )
    np.testing.assert_array_equal(income_tax(gross), Sweden2022().breakdown(gross)["tax"])


def test_the_allowance_has_the_published_lowest_and_highest_amounts() -> None:
    allowance = Sweden2022().breakdown(
        np.array([30_000.0, 140_000.0, 145_000.0, 381_000.0, 900_000.0])
    )["allowance"]
    assert allowance.tolist() == [20_500, 37_200, 37_200, 14_200, 14_200]
    assert (
        Sweden2022().breakdown(np.array([12_345.0]))["allowance"][0] == 12_300
    )  # never above the income


def test_the_pension_fee_starts_ends_and_rounds_as_the_law_states() -> None:
    fee = Sweden2022().breakdown(
        np.array([20_430.0, 20_500.0, 65_000.0, 65_100.0, 572_900.0, 573_000.0, 5e6])
    )["pension_fee"]
    # 7 % of 65,000 is 4,550: an exact fifty goes down.
    assert fee.tolist() == [0, 1_400, 4_500, 4_600, 40_100, 40_100, 40_100]


def test_net_income_falls_with_gross_income_only_at_the_start_of_the_pension_fee() -> None:
    net = Sweden2022().breakdown(np.arange(0.0, 3e6, 100.0))["net"]
    falls = np.flatnonzero(np.diff(net) < 0) * 100
    # Below the taxable minimum the fee of 7 % is not credited, so net income falls by 1,400 SEK.
    assert falls.tolist() == [20_400]


def test_marginal_rates_lie_between_zero_and_the_statutory_top() -> None:
    gross = np.arange(30_000.0, 3e6, 10_000.0)
    marginal = np.diff(income_tax(gross)) / 10_000.0
    rounding = 2 * 100 / 10_000.0  # fee and allowance are counted in hundreds
    assert marginal.min() >= -rounding
    assert marginal.max() <= 0.3224 + 0.20 + 0.03 + rounding
    at = gross[:-1]
    np.testing.assert_allclose(marginal[(at > 680_000) & (at < 1_700_000)], 0.5524, atol=3e-4)
    np.testing.assert_allclose(marginal[at > 1_800_000], 0.5224, atol=3e-4)  # the credit is used up
    np.testing.assert_allclose(marginal[(at > 505_000) & (at < 540_000)], 0.3224, atol=3e-4)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_tax_keeps_the_shape_is_zero_at_zero_and_leaves_missing_years_missing(
    name: TaxName,
) -> None:
    gross = np.array([[[0.0, np.nan], [350_000.0, 2_500_000.0]]], dtype=np.float32)
    tax = income_tax(gross, name)
    assert tax.shape == gross.shape
    assert tax[0, 0, 0] == 0.0
    assert np.isnan(tax[0, 0, 1])
    assert np.all((tax[0, 1] >= 0) & (tax[0, 1] < gross[0, 1]))


def test_the_paper_rule_takes_its_three_rates_and_nothing_else() -> None:
    tax = income_tax(np.array([100_000.0, 554_900.0, 1_000_000.0]), "paper")
    ceiling = 0.07 * 8.07 * 71_000
    np.testing.assert_allclose(tax, [39_400.0, 0.394 * 554_900, 324_000 + 0.2 * 445_100 + ceiling])
    assert float(np.max(income_tax(np.array([250_000.0]), "none"))) == 0.0


def test_a_reform_is_a_changed_parameter_and_leaves_the_default_rules_as_they_are() -> None:
    reform = replace(Sweden2022(), state_rate=0.25)
    gross = np.array([500_000.0, 700_000.0])
    np.testing.assert_allclose(
        income_tax(gross, reform) - income_tax(gross), [0.0, 0.05 * (700_000 - 14_200 - 540_700)]
    )


def test_the_work_credit_before_2022_gives_another_tax() -> None:
    """The older coefficients (34.05 %, 1.703, 2.323) were replaced by SFS 2021:1160."""
    before = replace(
        Sweden2022(),
        work_credit=(
            (0.0, 0.0, 1.0),
            (0.91, 0.91, 0.3405),
            (3.24, 1.703, 0.128),
            (8.08, 2.323, 0.0),
        ),
    )
    gross = np.array([float(row[0]) for row in WORKED[1:]])
    assert np.all(income_tax(gross, before) > income_tax(gross))


def test_every_parameter_has_a_title_a_unit_and_a_source() -> None:
    for policy in (Sweden2022(), PaperRule()):
        for parameter in parameters(policy):
            assert all(parameter[key] for key in ("name", "title", "unit", "source"))


def test_an_unknown_rule_and_negative_earnings_are_refused() -> None:
    with pytest.raises(UsageError, match="se-2022, paper, none"):
        income_tax(np.zeros(1), "se-2023")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="negative"):
        income_tax(np.array([-1.0]))
