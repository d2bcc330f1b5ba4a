"""Rights of careers: the law by hand, an independent calculation, and what must hold for any rule.

The base amounts here are those of the law, written down again: they do not come from the code.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import get_args

import numpy as np
import polars as pl
import pytest

from saga import Draws, Forecaster, PensionRequest, read_panel
from saga.data.facts import shipped_facts
from saga.errors import UsageError
from saga.pensions.pension_rights import Career, measures, pensionable
from saga.pensions.pension_rules import PensionLaw, Years
from saga.pensions.pension_table import reform_table
from saga.requests import PensionSource, UnknownYears
from saga.tax.swedish_tax import SwedishTax
from tests.command_line import done

PRICE_BASE = dict(
    zip(
        range(2003, 2027),
        (38_600, 39_300, 39_400, 39_700, 40_300, 41_000, 42_800, 42_400, 42_800, 44_000, 44_500,
         44_400, 44_500, 44_300, 44_800, 45_500, 46_500, 47_300, 47_600, 48_300, 52_500, 57_300,
         58_800, 59_200),
        strict=True,
    )
)  # fmt: skip
INCOME_BASE = dict(
    zip(
        range(2003, 2027),
        (40_900, 42_300, 43_300, 44_500, 45_900, 48_000, 50_900, 51_100, 52_100, 54_600, 56_600,
         56_900, 58_100, 59_300, 61_500, 62_500, 64_400, 66_800, 68_200, 71_000, 74_300, 76_200,
         80_600, 83_400),
        strict=True,
    )
)  # fmt: skip
# Indexed monthly average -> monthly benefit of those who reach 62 in 2022, 2023 and 2024.
BEND_POINTS = {2022: (1_024, 6_172), 2023: (1_115, 6_721), 2024: (1_174, 7_078)}

# The formula of best years in SEK.
BEST_YEARS = """title: own
source: own
currency: SEK
formula: best_years
kind: yearly_pension
index: income_base_amount
first_year: 2003
"""
ONE_YEAR = {"person_id": "1", "birth_year": 1985, "earnings": 3e5, "year": [2022]}


def law_of(source: str = "se", price_year: int = 2026, currency: str = "SEK") -> PensionLaw:
    return PensionLaw.of(PensionSource(source), shipped_facts(), price_year, currency)


def career_of(law: PensionLaw, first: int, nominal: list[float], growth: float = 0.0) -> Career:
    """A career of one path, with earnings in prices of each year; born 20 years before it.

    It has the year after the last one, in which the last right is credited.
    """
    years = np.arange(first, first + len(nominal) + 1)
    earnings = np.array([*nominal, math.nan]) / law.to_law(law.known_years(years))
    later = np.maximum(years - law.last_year, 0)
    return Career(years, earnings[:, None], (1 + growth) ** later[:, None], first - 20)


def rights(law: PensionLaw, career: Career, name: str = "rights") -> float:
    """At the end of the last year but one."""
    last = int(career.years[-1]) - career.birth_year - 1
    return float(measures(law, career, [last])[name][0, 0])


# Ten careers by the law's text: 93 % of the income (the fee to the nearest 100, 50 down) up to 7.5
# income base amounts, nothing below 42.3 % of the price base amount; 18.5 % of it. A right is fixed
# in the year after that of the earnings; from this year on the balance has the ratio of the income
# base amounts (62:18, 20). After the turn of the year, in SEK of the year that ends.
BY_HAND = {
    "one year": (2026, [400_000], 68_820.00),  # 0.185 x (400,000 - 28,000)
    "below the floor": (2026, [25_000], 0.00),  # 0.423 x 59,200 = 25,041.60
    "above the floor": (2026, [25_100], 4_310.50),  # 0.185 x (25,100 - 1,800): 1,757 is rounded
    "above the ceiling": (2026, [900_000], 115_717.50),  # 0.185 x 7.5 x 83,400
    "below the ceiling": (2026, [672_000], 115_625.00),  # 0.185 x (672,000 - 47,000)
    "whole hundreds": (2026, [400_099], 68_820.00),
    # 1,750 is rounded down: 0.185 x (25,000 - 1,700) x 80,600 / 74,300
    "fee of exactly fifty": (2022, [25_000, 0, 0], 4_675.99),
    "first of two years is indexed": (2024, [400_000, 400_000], 140_030.77),  # x 83,400 / 80,600
    "a year without earnings": (2023, [400_000, 0, 400_000], 144_142.68),  # x 83,400 / 76,200
    "the first year": (2003, [300_000, *[0] * 22], 101_765.74),  # 0.185 x 279,000 x 83,400 / 42,300
}


@pytest.mark.parametrize(("first", "nominal", "expected"), BY_HAND.values(), ids=BY_HAND)
def test_careers_by_hand_have_the_same_rights(
    first: int, nominal: list[float], expected: float
) -> None:
    law = law_of(price_year=first + len(nominal) - 1)
    career = career_of(law, first, nominal)
    assert rights(law, career) == pytest.approx(expected, abs=0.005)
    funded = rights(law, career, "funded_rights")
    assert funded == pytest.approx(expected * 2.5 / 18.5, abs=0.01)


@pytest.mark.parametrize("year", PRICE_BASE)
def test_each_year_has_the_floor_and_the_ceiling_of_the_law(year: int) -> None:
    floor, ceiling = 0.423 * PRICE_BASE[year], 7.5 * INCOME_BASE[year]
    hundreds = 100 * math.ceil(floor / 100)
    earnings = np.array([[hundreds - 100.0, hundreds, 8.07 * INCOME_BASE[year] + 100, 1e7]])
    counted = pensionable(law_of(), np.array([year]), earnings, np.ones((1, 4)))[0]
    fee = 100 * math.ceil(0.07 * hundreds / 100 - 0.5)
    assert counted.tolist() == pytest.approx([0.0, hundreds - fee, ceiling, ceiling])


@pytest.mark.parametrize("year", range(2020, 2027))
def test_the_fee_is_that_of_the_income_tax(year: int) -> None:
    earnings = np.arange(0.0, 600_000.0, 1_037.0)
    tax = SwedishTax.of(shipped_facts(), year).breakdown(earnings)["pension_fee"]
    counted = pensionable(
        law_of("base: se\nparameters:\n  ceiling: 1000\n"),
        np.array([year]),
        earnings[None],
        np.ones((1, len(earnings))),
    )[0]
    some = counted > 0
    assert (np.floor(earnings / 100) * 100 - counted)[some] == pytest.approx(tax[some])
    assert (tax[~some] == 0).all()


def _by_the_law(first: int, nominal: np.ndarray, growth: float) -> float:
    """Rights of one career in SEK of 2026, year by year, without arrays."""

    def base_of(year: int) -> float:
        """With a mean rise of prices, for the balance of a year has the index of the next one."""
        later = max(year - 2026, 0)
        return INCOME_BASE[min(year, 2026)] * ((1 + growth) * inflation) ** later

    prices = shipped_facts().price_index
    inflation = float((prices[2026] / prices[2003]) ** (1 / 23))
    total = 0.0
    for k, amount in enumerate(nominal.tolist()):
        year = first + k
        known = min(year, 2026)
        base = INCOME_BASE[known] * (1 + growth) ** max(year - 2026, 0)
        income = math.floor(round(amount, 6) / 100) * 100
        if income < 0.423 * PRICE_BASE[known]:
            counted = 0.0
        else:
            whole, rest = divmod(round(0.07 * min(income, 8.07 * base), 6), 100)
            counted = min(income - 100 * (whole + (rest > 50)), 7.5 * base)
        # Later earnings are in SEK of 2026.
        right = 0.185 * counted * inflation ** max(year - 2026, 0)
        total += right * base_of(first + len(nominal)) / base_of(year + 1)
    return total / inflation ** max(first + len(nominal) - 1 - 2026, 0)


def test_four_thousand_random_careers_agree_with_an_independent_calculation() -> None:
    rng, law = np.random.default_rng(1), law_of()
    for first in (2003, 2010, 2016, 2024):
        n_years = 2030 - first
        years = np.arange(first, first + n_years + 1)
        nominal = rng.lognormal(12.6, 0.9, (n_years, 1_000)) * (rng.random((n_years, 1_000)) < 0.85)
        nominal = np.concatenate([nominal, np.full((1, 1_000), math.nan)])  # of the year after
        earnings = nominal / law.to_law(law.known_years(years))[:, None]
        growth = np.broadcast_to(
            1.013 ** np.maximum(years - 2026, 0)[:, None], nominal.shape
        ).astype(float)
        career = Career(years, earnings, growth, first - 20)
        found = measures(law, career, [int(years[-2]) - career.birth_year])["rights"][0]
        expected = [_by_the_law(first, nominal[:-1, k], 0.013) for k in range(1_000)]
        assert found == pytest.approx(expected, abs=0.5)  # a krona


def _benefit(average: float, eligible: int) -> float:
    first, second = BEND_POINTS[eligible]
    shares = 0.9 * min(average, first) + 0.32 * max(min(average, second) - first, 0)
    monthly = shares + 0.15 * max(average - second, 0)
    return math.floor(round(monthly * 10, 6)) / 10


@pytest.mark.parametrize("eligible", BEND_POINTS)
@pytest.mark.parametrize("monthly", [500.0, 1_100.0, 3_000.0, 7_000.0, 9_000.0])
def test_american_benefits_of_a_level_career_are_those_of_its_bend_points(
    eligible: int, monthly: float
) -> None:
    law = law_of("us", 2022, "USD")
    years = np.arange(eligible - 44, eligible + 1)  # from age 18 to 62
    wages = np.array([law.amounts["average_wage"][year] for year in years.tolist()])
    level = law.amounts["average_wage"][eligible - 2]
    nominal = 12 * monthly * wages / level
    nominal[-2:] = 0.0  # earnings after 60 count as they are
    base = np.array([law.amounts["contribution_base"][year] for year in years.tolist()])
    indexed = sorted(np.minimum(nominal, base) / wages * level)[-35:]
    average = math.floor(round(sum(indexed) / 420, 6))
    career = Career(years, (nominal / law.to_law(years))[:, None], np.ones((45, 1)), eligible - 62)
    yearly = rights(law, career) * law.to_law(np.array([eligible]))[0]
    assert yearly == pytest.approx(12 * _benefit(average, eligible), abs=0.005)


def test_the_law_is_that_of_the_year_of_eligibility() -> None:
    """Of who is 62 in 2022, whichever age is asked for."""
    years = np.arange(1978, 2025)
    career = Career(years, np.full((47, 1), 50_000.0), np.ones((47, 1)), 1960)

    def at(ages: list[int], text: str) -> np.ndarray:
        return measures(law_of(f"base: us\n{text}", 2022, "USD"), career, ages)["rights"][:, 0]

    for name, value in (("share_1", 0.5), ("best_years", 20), ("index_age", 58)):
        changed, later = (f"parameters: {{{name}: {{{year}: {value}}}}}\n" for year in (2022, 2023))
        assert (at([50, 62, 64], changed) != at([50, 62, 64], "")).all(), name
        assert (at([50, 62, 64], later) == at([50, 62, 64], "")).all(), name


@pytest.mark.parametrize("rule", ["se", BEST_YEARS])
def test_rights_at_an_age_do_not_depend_on_the_other_ages(
    forecaster: Forecaster, rule: str
) -> None:
    """With best years, too, although the wages of age 60 count."""
    person = {"person_id": "1", "birth_year": 1985, "earnings": 3e5, "year": [2020, 2021, 2022]}
    panel = read_panel(pl.DataFrame(person))
    alone, among = (
        forecaster.pensions(
            panel, PensionRequest(PensionSource(rule), ages=ages, unknown_years="zero"), Draws(4)
        ).table.filter(age=50, measure="rights")["mean"][0]
        for ages in ((50,), (50, 64))
    )
    assert alone == pytest.approx(among, rel=0.005)  # longer paths have slightly other earnings


@pytest.mark.parametrize(
    ("rule", "reform"),
    [
        ("se", "base: se\nfirst_year: 2010\n"),
        ("base: se\nfirst_year: 2010\n", "se"),
        ("base: se\nparameters: {rate: 0.1}\n", "base: se\nindex: price_base_amount\n"),
    ],
)
@pytest.mark.parametrize("unknown", ["zero", "interpolate"])
def test_a_rule_and_the_difference_add_up_to_the_reform(
    forecaster: Forecaster, rule: str, reform: str, unknown: UnknownYears
) -> None:
    """Each knows the years from its own first one on."""
    person = {"person_id": "1", "birth_year": 1985, "earnings": 3e5, "year": [2003, 2010, 2022]}
    panel = read_panel(pl.DataFrame(person))

    def table(rule: str, reform: str | None = None) -> dict[str, float | None]:
        source = None if reform is None else PensionSource(reform)
        request = PensionRequest(
            PensionSource(rule), source, (64,), unrounded=True, unknown_years=unknown
        )
        rows = forecaster.pensions(panel, request, Draws(n_paths=4)).table
        return dict(rows.select("measure", "mean").iter_rows())

    both, alone = table(rule, reform), table(reform)
    for name in ("rights", "funded_rights", "contribution_years"):
        parts = both[name], both[f"difference_{name}"]
        if alone[name] is None or None in parts:
            assert None in parts
        else:
            assert sum(parts) == pytest.approx(alone[name])  # type: ignore[arg-type]


def test_careers_are_ordered_by_all_their_earnings(
    forecaster: Forecaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by those of years before the rule, which give no right."""
    years = [*range(1990, 2003), 2022]
    ids = {"person_id": ["early"] * 14 + ["late"] * 14, "birth_year": 1970, "year": years * 2}
    earnings = [*[2e6] * 13, 3e5, *[0.0] * 13, 3e5]
    seen: list[np.ndarray] = []
    monkeypatch.setattr("saga.plans.pension_plan.reform_table", seen.append)
    request = PensionRequest(reform=PensionSource("base: se\n"), unknown_years="zero")
    forecaster.pensions(read_panel(pl.DataFrame(ids | {"earnings": earnings})), request, Draws(4))
    early, late = seen[0][:, 0].mean(-1)
    assert early - late > 13 * 2e6 / 49


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (
            PensionRequest(reform=PensionSource("accrual"), unknown_years="zero"),
            "gives a yearly pension, the pension rule .* a balance",
        ),
        (
            PensionRequest(PensionSource(BEST_YEARS), first_age=62, ages=(64,)),
            "to age 60, before the first age that counts, 62",
        ),
    ],
)
def test_rights_that_cannot_be_compared_or_indexed_are_refused(
    forecaster: Forecaster, request_: PensionRequest, told: str
) -> None:
    panel = read_panel(pl.DataFrame(ONE_YEAR))
    with pytest.raises(UsageError, match=told):
        forecaster.pensions(panel, request_, Draws(n_paths=4))


def test_a_ratio_has_quantiles_and_no_mean(forecaster: Forecaster) -> None:
    """A few paths with hardly any earnings at the end would decide it."""
    panel = read_panel(pl.DataFrame(ONE_YEAR))
    request = PensionRequest(ages=(64,), unknown_years="zero")
    rows = forecaster.pensions(panel, request, Draws(n_paths=4)).table
    is_ratio = rows["measure"].str.starts_with("ratio_")
    assert is_ratio.sum() == 3
    assert (rows["mean"].is_null() == is_ratio).all()
    assert rows["q50"].null_count() == 0


def test_an_accrual_rate_gives_its_share_of_indexed_earnings() -> None:
    law = law_of("accrual")
    career = career_of(law, 2024, [300_000, 0, 400_000])
    expected = 0.01 * (300_000 * INCOME_BASE[2026] / INCOME_BASE[2024] + 400_000)
    assert rights(law, career) == pytest.approx(expected)


def test_after_the_last_known_year_amounts_follow_wages() -> None:
    """Who always earns the same number of base amounts gains the same number of them each year."""
    law, growth = law_of(), 0.02
    nominal = [9 * INCOME_BASE[2026] * (1 + growth) ** k for k in range(30)]
    career = career_of(law, 2026, nominal, growth)
    level = 0.185 * 7.5 * INCOME_BASE[2026] * (1 + growth) ** 29
    assert rights(law, career) == pytest.approx(30 * level)


def test_measures_describe_the_career() -> None:
    law = law_of()
    base = INCOME_BASE[2026]
    multiples = [0, 0.2, 2, 4, 6, 8.07, 10]
    career = career_of(law, 2026, [base * k for k in multiples])
    found = {name: float(values[0, 0]) for name, values in measures(law, career, [26]).items()}
    bands = ("0_to_1", "1_to_3", "3_to_5", "5_to_8.07")
    assert [found[f"years_{band}"] for band in bands] == [1, 1, 1, 1]
    assert (found["years_without"], found["years_from_8.07"]) == (1, 2)
    assert found["contribution_years"] == 5  # 0.2 base amounts are below the floor
    mean = base * sum(multiples) / 7
    assert found["ratio_lifetime"] == pytest.approx(found["rights"] / mean)
    assert found["ratio_best_15"] == found["ratio_lifetime"]  # fewer years than 15
    final = base * sum(multiples[-5:]) / 5
    assert found["ratio_final"] == pytest.approx(found["rights"] / final)


@pytest.mark.parametrize("price_year", [2003, 2022, 2030])
@pytest.mark.parametrize("limit", [1, 3, 5, 8.07])
def test_earnings_exactly_at_a_limit_are_not_below_it(limit: float, price_year: int) -> None:
    """Neither below a floor nor in a lower band, although prices go to and fro."""
    law = law_of(f"base: accrual\nbands: [{limit}]\nparameters: {{floor: {limit}}}\n", price_year)
    for year, base in INCOME_BASE.items():
        for exact, counted in ((limit * base, 1), (limit * base - 0.01, 0)):
            found = measures(law, career_of(law, year, [exact]), [20])
            numbers = found[f"years_from_{limit:g}"], found["contribution_years"]
            assert [float(number[0, 0]) for number in numbers] == [counted] * 2, (year, exact)


def test_the_ratio_of_each_age_has_the_divisor_of_its_year() -> None:
    law = law_of("base: se\nparameters:\n  divisor: {2003: 16, 2025: 20}\n")
    career = career_of(law, 2003, [300_000] * 24)
    found = measures(law, career, [41, 42])  # in 2024 and 2025
    plain = measures(law_of(), career, [41, 42])
    for name in ("ratio_final", "ratio_best_15", "ratio_lifetime"):
        divisors = plain[name] / found[name]
        assert divisors[:, 0].tolist() == pytest.approx([16, 20])


def test_an_unknown_year_makes_everything_unknown_from_then_on() -> None:
    law = law_of()
    career = career_of(law, 2024, [300_000, math.nan, 300_000])
    found = measures(law, career, [20, 21, 22])
    for name, values in found.items():
        assert not np.isnan(values[0, 0]), name
        assert np.isnan(values[1:, 0]).all(), name


def test_a_year_that_both_the_record_and_the_rule_lack_is_one_unknown_year(
    forecaster: Forecaster,
) -> None:
    """From 1986 on, with a rule from 2003 on: 17 years before it, 18 without a record."""
    person = {"person_id": "1", "birth_year": 1970, "earnings": 3e5, "year": [2000, 2005, 2022]}
    panel = read_panel(pl.DataFrame(person))
    for fill in get_args(UnknownYears):
        request = PensionRequest(ages=(64,), unknown_years=fill)
        table = forecaster.pensions(panel, request, Draws(n_paths=4)).table
        assert table["unknown_years"].unique().to_list() == [17 + 18]


def test_the_youngest_have_the_wages_of_the_year_in_which_their_last_right_is_credited(
    forecaster: Forecaster,
) -> None:
    """49 years after the origin."""
    person = {"person_id": "1", "birth_year": 2006, "earnings": 1e5, "year": [2022]}
    request = PensionRequest(ages=(64,))
    table = forecaster.pensions(read_panel(pl.DataFrame(person)), request, Draws(n_paths=4)).table
    assert table.filter(measure="rights")["q50"].null_count() == 0


def test_a_reform_of_few_persons_prints_no_empty_table_of_groups(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    people = Path(__file__).parents[3] / "examples" / "people.csv"
    reform = tmp_path / "reform.yaml"
    reform.write_text("base: se\nparameters: {rate: 0.17}\n")
    options = f"--bundle {tiny_bundle} --unknown-years zero --paths 4 --out {tmp_path}/rights.csv"
    printed = done("pensions", people, f"--reform {reform}", options).stdout
    assert "difference rights" in printed
    assert "Groups" not in printed


def _paths(n_persons: int, n_paths: int = 3) -> tuple[PensionLaw, Years, np.ndarray]:
    rng, years = np.random.default_rng(2), np.arange(2023, 2044)
    return law_of(), years, rng.lognormal(12.9, 0.7, (n_persons, 21, n_paths))


def _values(reform: str, n_persons: int) -> np.ndarray:
    law, years, earnings = _paths(n_persons)
    changed, growth = law_of(reform), np.ones((21, 3))
    rows = []
    for person in earnings:
        career = Career(years, person, growth, 1980)
        both = [measures(rule, career, [62])["rights"][0] for rule in (law, changed)]
        rows.append(np.stack([person.mean(0), *both]))
    return np.stack(rows)


@pytest.mark.parametrize(
    ("parameters", "sign"),
    [
        ("rate: {2030: 0.17}", 1),
        ("ceiling: {2030: 9}", 1),
        ("indexing: {2030: 0}", 0),  # wages do not grow here
        ("fee_rate: 0.08", -1),
        ("floor: 3", -1),
    ],
)
def test_a_reform_moves_rights_the_way_it_must_and_group_sums_add_up(
    parameters: str, sign: int
) -> None:
    table = reform_table(_values(f"base: se\nparameters: {{{parameters}}}\n", 60))
    means = {(row[0], row[2]): row[3] for row in table.iter_rows()}
    change = means["total", "difference"]
    assert np.sign(round(change, 3)) == sign
    assert change == pytest.approx(means["total", "reform"] - means["total", "rule"])
    assert means["total", "losers" if sign > 0 else "winners"] == 0
    for statistic in ("rule", "reform", "difference", "winners", "losers"):
        fifths = [means[f"fifth {k}", statistic] for k in range(1, 6)]
        assert sum(fifths) / 5 == pytest.approx(means["total", statistic])


def test_a_higher_ceiling_gains_nothing_for_the_lowest_fifth() -> None:
    table = reform_table(_values("base: se\nparameters:\n  ceiling: 12\n  fee_to: 13\n", 100))
    gains = table.filter(statistic="difference")["mean"].to_list()
    assert gains[0] < gains[3] < gains[4]


def test_groups_of_fewer_than_ten_persons_are_not_shown() -> None:
    table = reform_table(_values("base: se\nparameters: {rate: 0.17}\n", 49))
    fifths = table.filter(table["group"] != "total")
    # One fifth has nine persons; the others and the total would reveal it.
    assert fifths.select("persons", "mean", "lower_90", "upper_90").null_count().row(0) == (25,) * 4
    assert table.filter(group="total")["persons"].to_list() == [49] * 5
