"""Income tax of 2020 to 2026: worked cases, and an independent calculation of the acts."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

import numpy as np
import pytest

from saga.data.facts import shipped_facts
from saga.tax.swedish_tax import SwedishTax

YEARS = range(2020, 2027)
# Earnings from which state tax is due, as published (bjornlunden.se, fidelisekonomi.se, SKV 433).
PUBLISHED_LIMITS = {
    2020: 523_200,
    2021: 537_200,
    2022: 554_900,
    2023: 613_900,
    2024: 615_300,
    2025: 643_100,
    2026: 660_400,
}


@dataclass(frozen=True)
class Act:
    """The numbers of a year as an act prints them, in base amounts (B) and per cent."""

    base: int
    income_base: int
    municipal: str
    threshold: int
    credit_share: str
    credit_amount: str
    credit_middle: str
    credit_cap: str
    falls: bool


ACTS = {
    2020: Act(47_300, 66_800, "32.28", 509_300, "34.05", "1.703", "12.8", "2.323", True),
    2021: Act(47_600, 68_200, "32.27", 523_200, "34.05", "1.703", "12.8", "2.323", True),
    2022: Act(48_300, 71_000, "32.24", 540_700, "38.74", "1.813", "12.8", "2.432", True),
    2023: Act(52_500, 74_300, "32.24", 598_500, "38.74", "1.813", "12.8", "2.432", True),
    2024: Act(57_300, 76_200, "32.37", 598_500, "38.74", "1.813", "16.43", "2.608", True),
    2025: Act(58_800, 80_600, "32.41", 625_800, "38.74", "1.813", "19.9", "2.776", False),
    2026: Act(59_200, 83_400, "32.38", 643_000, "38.74", "1.813", "25.1", "3.027", False),
}


def allowance_of(income: int, base: int) -> int:
    """IL 63:3, each band as an amount and a share of the income above its lower limit."""
    bands = (("7.88", "0.293", 0), ("3.11", "0.77", -10), ("2.72", "0.77", 0), ("0.99", None, 20))
    amount = Fraction("0.423") * base
    for limit, start, per_cent in bands:
        from_income = Fraction(limit) * base
        if income > from_income:
            level = Fraction("0.423") if start is None else Fraction(start)
            amount = level * base + Fraction(per_cent, 100) * (income - from_income)
            break
    return min(100 * ceil(amount / 100), income)


def work_credit_of(income: int, allowance: int, act: Act) -> int:
    """IL 67:7."""
    base, rate = act.base, Fraction(act.municipal) / 100
    low, middle, high = (Fraction(limit) * base for limit in ("0.91", "3.24", "8.08"))
    if income <= low:
        counted = Fraction(income)
    elif income <= middle:
        counted = low + Fraction(act.credit_share) / 100 * (income - low)
    elif income <= high:
        counted = Fraction(act.credit_amount) * base
        counted += Fraction(act.credit_middle) / 100 * (income - middle)
    else:
        counted = Fraction(act.credit_cap) * base
    credit = (counted - allowance) * rate
    top = Fraction("13.54") * base
    if act.falls and income > top:
        credit -= Fraction(3, 100) * (income - top)
    return floor(max(credit, Fraction(0)))


def further_credits_of(income: int, taxable: int, year: int) -> tuple[int, int]:
    """IL 67:46-47 from 2021 on, and the temporary credit of 2021 and 2022."""
    general = temporary = 0
    if year >= 2021 and taxable > 40_000:
        general = 1_500 if taxable >= 240_000 else floor(Fraction(75, 10_000) * (taxable - 40_000))
    if year in (2021, 2022) and 60_000 < income < 500_000:
        if income <= 240_000:
            exact = Fraction(125, 10_000) * (income - 60_000)
        else:
            exact = Fraction(2_250) - Fraction(1_125, 100_000) * max(income - 300_000, 0)
        temporary = floor(exact)
    return general, temporary


def assess(earnings: float, year: int) -> int:
    """The tax of a year in whole SEK, item by item as in an assessment notice."""
    act = ACTS[year]
    income = int(earnings // 100) * 100
    allowance = allowance_of(income, act.base)
    taxable = income - allowance
    municipal = floor(Fraction(act.municipal) / 100 * taxable)
    state = floor(Fraction(20, 100) * max(taxable - act.threshold, 0))
    fee = 0
    if income >= Fraction("0.423") * act.base:
        exact = Fraction(7, 100) * min(Fraction(income), Fraction("8.07") * act.income_base)
        hundreds, rest = divmod(exact, 100)
        fee = int(hundreds) * 100 + (100 if rest > 50 else 0)
    left = municipal + state
    left -= min(fee, left)
    left -= min(work_credit_of(income, allowance, act), municipal, left)
    general, temporary = further_credits_of(income, taxable, year)
    left -= min(general, left)
    left -= min(temporary, left)
    return left + fee


def law(year: int) -> SwedishTax:
    return SwedishTax.of(shipped_facts(), year)


# Worked from the formulas of the acts: year, gross, then ITEMS.
ITEMS = ("allowance", "municipal", "state", "pension_fee", "work_credit", "income_credit", "tax")
WORKED = [
    (2020, 0, 0, 0, 0, 0, 0, 0, 0),
    (2020, 50_000, 20_700, 9_458, 0, 3_500, 5_958, 0, 3_500),
    (2020, 200_000, 31_200, 54_488, 0, 14_000, 17_862, 0, 36_626),
    (2020, 400_000, 13_900, 124_633, 0, 28_000, 30_981, 0, 93_652),
    (2020, 700_000, 13_900, 221_473, 35_360, 37_700, 29_194, 0, 227_639),
    (2020, 1_000_000, 13_900, 318_313, 95_360, 37_700, 20_194, 0, 393_479),
    (2021, 0, 0, 0, 0, 0, 0, 0, 0),
    (2021, 50_000, 20_800, 9_422, 0, 3_500, 5_922, 0, 3_500),
    (2021, 200_000, 31_500, 54_374, 0, 14_000, 17_884, 963, 33_777),
    (2021, 400_000, 14_000, 124_562, 0, 28_000, 31_164, 1_500, 90_773),
    (2021, 700_000, 14_000, 221_372, 32_560, 38_500, 29_499, 1_500, 222_933),
    (2021, 1_000_000, 14_000, 318_182, 92_560, 38_500, 20_499, 1_500, 388_743),
    (2022, 0, 0, 0, 0, 0, 0, 0, 0),
    (2022, 50_000, 20_900, 9_381, 0, 3_500, 5_881, 0, 3_500),
    (2022, 200_000, 32_300, 54_066, 0, 14_000, 19_613, 957, 31_746),
    (2022, 400_000, 14_200, 124_381, 0, 28_000, 33_292, 1_500, 88_464),
    (2022, 700_000, 14_200, 221_101, 29_020, 40_100, 31_912, 1_500, 216_709),
    (2022, 1_000_000, 14_200, 317_821, 89_020, 40_100, 22_912, 1_500, 382_429),
    (2023, 0, 0, 0, 0, 0, 0, 0, 0),
    (2023, 50_000, 22_300, 8_930, 0, 3_500, 5_430, 0, 3_500),
    (2023, 200_000, 36_800, 52_615, 0, 14_000, 20_056, 924, 31_635),
    (2023, 400_000, 16_800, 123_543, 0, 28_000, 34_757, 1_500, 87_286),
    (2023, 700_000, 15_400, 220_715, 17_220, 42_000, 36_199, 1_500, 200_236),
    (2023, 1_000_000, 15_400, 317_435, 77_220, 42_000, 27_524, 1_500, 365_631),
    (2024, 0, 0, 0, 0, 0, 0, 0, 0),
    (2024, 50_000, 24_300, 8_319, 0, 3_500, 4_819, 0, 3_500),
    (2024, 200_000, 42_000, 51_144, 0, 14_000, 20_795, 885, 29_464),
    (2024, 400_000, 22_000, 122_358, 0, 28_000, 37_906, 1_500, 82_952),
    (2024, 700_000, 16_800, 221_151, 16_940, 43_000, 42_935, 1_500, 193_656),
    (2024, 1_000_000, 16_800, 318_261, 76_940, 43_000, 36_210, 1_500, 357_491),
    (2025, 0, 0, 0, 0, 0, 0, 0, 0),
    (2025, 50_000, 24_900, 8_134, 0, 3_500, 4_634, 0, 3_500),
    (2025, 200_000, 43_600, 50_689, 0, 14_000, 21_031, 873, 28_785),
    (2025, 400_000, 23_600, 121_991, 0, 28_000, 40_412, 1_500, 80_079),
    (2025, 700_000, 17_300, 221_263, 11_380, 45_500, 47_295, 1_500, 183_848),
    (2025, 1_000_000, 17_300, 318_493, 71_380, 45_500, 47_295, 1_500, 341_078),
    (2026, 0, 0, 0, 0, 0, 0, 0, 0),
    (2026, 50_000, 25_100, 8_062, 0, 3_500, 4_562, 0, 3_500),
    (2026, 200_000, 44_000, 50_512, 0, 14_000, 21_171, 870, 28_471),
    (2026, 400_000, 24_000, 121_748, 0, 28_000, 43_902, 1_500, 76_346),
    (2026, 700_000, 17_400, 221_025, 7_920, 47_100, 52_390, 1_500, 175_055),
    (2026, 1_000_000, 17_400, 318_165, 67_920, 47_100, 52_390, 1_500, 332_195),
]


@pytest.mark.parametrize("row", WORKED, ids=lambda row: f"{row[0]} gross {row[1]}")
def test_the_worked_assessments_are_right_to_the_krona(row: tuple[int, ...]) -> None:
    items = law(row[0]).breakdown(np.array([float(row[1])]))
    assert {name: int(items[name][0]) for name in ITEMS} == dict(zip(ITEMS, row[2:], strict=True))


@pytest.mark.parametrize("year", YEARS)
def test_random_incomes_and_the_limits_of_bands_agree_with_an_independent_calculation(
    year: int,
) -> None:
    rng, act = np.random.default_rng(year), ACTS[year]
    limits = np.array([0.423, 0.91, 0.99, 2.72, 3.11, 3.24, 7.88, 8.08, 13.54])
    near = 100 * np.round(limits * act.base / 100)[:, None] + np.array([-100.0, 0, 100])
    incomes = np.concatenate(
        [
            *(rng.uniform(0, top, n) for top, n in ((120_000, 1_500), (8e5, 1_500), (4e6, 1_000))),
            near.ravel(),
            [round(8.07 * act.income_base), 39_900, 60_000, 240_000, 300_000, 499_900, 500_000],
        ]
    ).round(2)
    expected = [assess(income, year) for income in incomes.tolist()]
    np.testing.assert_array_equal(law(year).tax(incomes), expected)


@pytest.mark.parametrize("year", YEARS)
def test_state_tax_is_due_from_the_published_earnings_on(year: int) -> None:
    limit = PUBLISHED_LIMITS[year]
    state = law(year).breakdown(np.array([limit, limit + 100.0]))["state"]
    assert state.tolist() == [0.0, 20.0]


@pytest.mark.parametrize("amount", [100.0, 240_000.0, 2_000_000.0, 2_000_100.0])
def test_a_rounding_error_of_prices_changes_no_tax(amount: float) -> None:
    """Whole hundreds of the law's year that went through the prices of another year and back."""
    for year in YEARS:
        near = np.array([np.nextafter(amount, 0), amount, amount * (1 + 1e-15)])
        assert law(year).tax(near).tolist() == [assess(amount, year)] * 3


@pytest.mark.parametrize("year", YEARS)
def test_nobody_without_earnings_pays_and_net_income_never_falls_above_the_fee(year: int) -> None:
    rule = law(year)
    assert rule.tax(np.zeros(1))[0] == 0.0
    gross = np.arange(0.0, 3e6, 100.0)
    falls = gross[1:][np.diff(rule.breakdown(gross)["net"]) < 0]
    # Below the taxable minimum the fee of 7 % is not credited, so net income falls where it starts.
    assert falls.tolist() == [100 * np.ceil(0.423 * ACTS[year].base / 100)]


def test_a_wrong_coefficient_of_one_year_is_noticed() -> None:
    """The work credit of 2024 in 2025 changes the tax of a middle income."""
    wrong = SwedishTax(**{**law(2025).__dict__, "work_credit_share_3": 0.1643})
    assert wrong.tax(np.array([400_000.0]))[0] != assess(400_000, 2025)
