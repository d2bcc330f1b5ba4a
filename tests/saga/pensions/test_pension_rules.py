"""Rule files: shipped ones have sources, changed ones keep the rest, faulty ones are refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from saga.data.facts import shipped_facts
from saga.errors import UsageError
from saga.pensions.pension_rules import (
    PARAMETERS,
    SHIPPED_RULES,
    PensionLaw,
    pension_rule,
    read_pension_rule,
)
from saga.population.scored_paths import PathRows
from saga.population.simulated_careers import pensionable_earnings, with_career_groups
from saga.requests import PensionSource

NO_RATE = """\
title: own
source: act 1
currency: SEK
formula: sum
kind: balance
index: income_base_amount
first_year: 2003
"""
OWN = f"{NO_RATE}parameters: {{rate: 0.01}}\n"


def of(text: str) -> PensionLaw:
    return PensionLaw.of(PensionSource(text), shipped_facts(), 2022, "SEK")


@pytest.mark.parametrize("name", SHIPPED_RULES)
def test_shipped_rules_have_a_source_and_bind(name: str) -> None:
    rule = pension_rule(PensionSource(name))
    assert rule.source
    law = PensionLaw.of(PensionSource(name), shipped_facts(), 2022, rule.currency)
    assert law.last_year >= 2024


def test_a_reform_holds_from_its_year_and_keeps_the_rest() -> None:
    rule = pension_rule(PensionSource("base: se\nparameters:\n  ceiling: {2030: 9}\n"))
    years = np.array([2003, 2029, 2030, 2050])
    assert rule.of_years("ceiling", years).tolist() == [7.5, 7.5, 9.0, 9.0]
    assert rule.of_years("rate", years).tolist() == [0.16] * 4
    plain = pension_rule(PensionSource("base: se\nparameters:\n  ceiling: 9\n"))
    assert plain.of_years("ceiling", years).tolist() == [9.0] * 4
    assert rule.title != pension_rule(PensionSource("se")).title
    assert rule.describe()["digest"] != plain.describe()["digest"]


@pytest.mark.parametrize(
    ("text", "name", "before"),
    [
        ("base: accrual\n", "fee_rate", 0.0),
        ("base: accrual\n", "floor", 0.0),
        ("base: se\n", "divisor", 1.0),
        (NO_RATE, "rate", 0.0),
    ],
)
def test_a_number_that_begins_later_is_the_default_before(
    text: str, name: str, before: float
) -> None:
    """Whether a base lacks it or a rule of its own."""
    rule = pension_rule(PensionSource(f"{text}parameters:\n  {name}: {{2045: 0.4}}\n"))
    years = np.array([1990, 2003, 2044, 2045, 2060])
    assert rule.of_years(name, years).tolist() == [before, before, before, 0.4, 0.4]


def test_the_command_line_reads_a_file_and_a_name(tmp_path: Path) -> None:
    for name in ("own.yaml", "OWN.YML"):
        file = tmp_path / name
        file.write_text(OWN, encoding="utf-8-sig")
        assert read_pension_rule(str(file)) == OWN
    assert read_pension_rule("se") == "se"
    (tmp_path / "wide.yaml").write_text(OWN, encoding="utf-16")
    for name in ("none.yaml", "wide.yaml"):
        with pytest.raises(UsageError, match=f"{name} cannot be read. Check its path, and save"):
            read_pension_rule(str(tmp_path / name))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "has no keys"),
        ("- 1\n", "has no keys"),
        ("base: [\n", r"a fault in r.yaml.*\n.*line 2 is not YAML"),
        ("base: no\n", "r.yaml, base: there is no rule"),
        ("a: &a [x, x]\nb: &b [*a, *a]\nbase: *b\n", "line 2: .a stands for another part"),
        ("title: own\n", "r.yaml, source: a text is missing"),
        ("base: se\nsource: ' '\n", "r.yaml, source: a text is missing"),
        ("base: se\nceilin: 8\n", "r.yaml, ceilin: there is no such key"),
        ("base: se\nformula: magic\n", "r.yaml, formula: unknown"),
        ("base: se\nindex: 3\n", "r.yaml, index: a text is missing"),
        ("base: se\nfloor_index: 3\n", "r.yaml, floor_index: not a text"),
        ("base: se\nfirst_year: soon\n", "r.yaml, first_year: no calendar year"),
        ("base: se\nbands: [3, 1]\n", "r.yaml, bands: not ascending"),
        ("base: se\nbands: [1, 3.0000001, 3.0000002]\n", "r.yaml, bands: not ascending"),
        ("base: se\nbands: 3\n", "r.yaml, bands: not ascending"),
        ("base: se\nbands: [.nan]\n", "r.yaml, bands: not ascending"),
        (f"base: se\nbands: [{'9' * 400}]\n", "line 2: a number is too long"),
        (f"base: se\nbands: {[*range(1, 22)]}\n", "r.yaml, bands: too many"),
        (f"base: {'[' * 9_000}\n", "line 1: there are too many levels"),
        (f"base: se # {'x' * 20_000}\n", "r.yaml is longer than 20,000 characters"),
        ("base: se\nfirst_year: 2001-99-99\n", "r.yaml, first_year: no calendar year"),
        (f"base: se\nfirst_year: {'9' * 5_000}\n", "line 2: a number is too long"),
        (f"base: se\nparameters: {{rate: 0x{'f' * 6_000}}}\n", "rate: the value is not possible"),
        ("base: se\nparameters: {ceiling: {2030: 010}}\n", "ceiling, 2030: the value is not"),
        ("base: se\nparameters: {ceiling: {2030: 7:30}}\n", "ceiling, 2030: the value is not"),
        ("base: se\nkind: pension\n", "r.yaml, kind: unknown"),
        ("base: se\nkind: yearly_pension\n", "r.yaml, kind: not that of the base"),
        ("base: se\nformula: best_years\n", "r.yaml, formula: not that of the base"),
        ("base: us\ncurrency: SEK\n", "currency: not that of the base .* us has USD"),
        ("base: se\ncurrency: EUR\n", "currency: not that of the base .* se has SEK"),
        (OWN.replace("kind: balance\n", ""), "r.yaml, kind: a text is missing Write balance or"),
        (OWN.replace("sum", "best_years"), "r.yaml, kind: best_years gives a yearly pension"),
        (f"{OWN}floor_index: price_base_amount\n", "price_amounts: not said for price_base_amount"),
        (f"{OWN}floor_index: income_base_amount\n", "floor_index: it has no effect without floor"),
        (f"{OWN}ceiling_index: wage\nprice_amounts: []\n", "no effect without ceiling"),
        ("base: se\nprice_amounts: [wage]\n", "price_amounts: not amounts of the rule"),
        ("base: se\nfirst_year: 2150\n", "first_year: no calendar year Give a year from 1900"),
        ("base: se\nparameters: {best_years: 20}\n", "best_years: it has no effect Remove it"),
        ("base: se\nparameters: {share_1: 0.6}\n", "share_1: it has no effect Remove it"),
        ("base: us\nparameters: {rate: 0.1}\n", "rate: it has no effect Remove it"),
        ("base: accrual\nparameters: {fee_to: 8}\n", "fee_to: it has no effect without fee_rate"),
        ("base: se\nparameters: {ceiling: {}}\n", "line 2: ceiling has no content"),
        ("base: se\nparameters: null\n", "r.yaml, parameters: not a mapping"),
        ("base: se\nprice_amounts: null\n", "price_amounts: not amounts of the rule"),
        ("base: se\nparameters: {ceiling: {2190: 9}}\n", "ceiling, 2190: no calendar year"),
        ("base: se\nparameters: {ceiling: {1990: 9}}\n", "1990: it has no effect .*begins in 2003"),
        (
            "base: se\nseries: {income_base_amonut: {2027: 9}}\n",
            "use it.* uses: .*, prices.* Is it income_base_amount",
        ),
        ("base: us\nparameters: {best_years: 34.9}\n", "best_years: .* Give a whole number from 1"),
        ("base: us\nparameters: {bend_1: 0.2}\n", "parameters, bend_1: above bend_2 in 1951"),
        ("base: us\nparameters: {bend_2: {2030: 0.01}}\n", "bend_1: above bend_2 in 2030"),
        ("base: us\nparameters: {index_age: 63}\n", "index_age: above eligibility_age in 1951"),
        ("base: us\nparameters: {share_1: 1.2}\n", "share_1: the value is not possible"),
        (
            "base: us\nparameters: {eligibility_age: {2030: 63}}\n",
            "eligibility_age: it cannot change",
        ),
        ("base: se\nparameters: {credited_after: {2030: 0}}\n", "credited_after: it cannot change"),
        ("base: se\nparameters: {credited_after: 2}\n", "credited_after: .* number from 0 to 1"),
        ("base: se\nparameters: {credited_after: 0.5}\n", "credited_after: .* whole number from 0"),
        ("base: us\nparameters: {credited_after: 1}\n", "credited_after: it has no effect"),
        ("base: se\nparameters: {rate: {2030: 0.98}}\n", "rate: above 1 with funded_rate in 2030"),
        ("base: se\nparameters: {ceiling: 9, ceiling: 1}\n", "line 2: ceiling stands twice"),
        ("base: se\nparameters: {rate: 0.1}\nparameters: {floor: 1}\n", "line 3: parameters stand"),
        ('{"base": "se", "bands": [1],\n"bands": [2]}\n', "line 2: bands stands twice"),
        ("base: se\nparameters: 3\n", "r.yaml, parameters: not a mapping"),
        (NO_RATE, "parameters, rate: missing, so no year gives"),
        ("base: se\nseries: 3\n", "r.yaml, series: not a mapping"),
        ("base: se\nparameters: {ceilin: 8}\n", "parameters, ceilin: .*Is it ceiling"),
        ("base: se\nparameters: {rate: 16}\n", "rate: .* from 0 to 1, such as 0.185 for 18.5 %"),
        ("base: se\nparameters: {rate: -0.1}\n", "rate: the value is not possible"),
        ("base: se\nparameters: {rate: '0.1'}\n", "rate: the value is not possible"),
        ("base: se\nparameters: {rate: 0,16}\n", "line 2: 16 has no content .* write 8.07"),
        ("base: se\nrate: 0.16\n", "rate: there is no such key Write it below `parameters`"),
        ("base: se\nparameters: {rate: .nan}\n", "parameters, rate: the value is not possible"),
        ("base: se\nparameters: {rate: yes}\n", "parameters, rate: the value is not possible"),
        ("base: se\nparameters: {rate: {x: 1}}\n", "parameters, rate, x: no calendar year"),
        (
            "base: se\nparameters: {rate: {2003: 0.1, 2004: 3}}\n",
            "parameters, rate, 2004: the value is not possible",
        ),
        ("base: se\nseries: {wage: 3}\n", "series, wage: not by year"),
        ("base: se\nseries: {wage: {2003: -1}}\n", "series, wage, 2003: the value is not possible"),
    ],
)
def test_a_faulty_rule_file_is_refused_with_its_place(
    content: str, complaint: str, tmp_path: Path
) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(content)
    with pytest.raises(UsageError) as caught:
        read_pension_rule(str(file))
    problems = [f"{problem.message} {problem.fix}" for problem in caught.value.problems]
    assert re.search(complaint, " ".join([str(caught.value), *problems]))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("no", "no pension rule 'no'"),
        ("../se.yaml", "no pension rule"),  # over HTTP a file is not read
        ("us", "is for USD, the amounts are in SEK"),
        (OWN.replace("income_base_amount", "wage"), "needs the yearly amounts wage"),
        (OWN.replace("income_b", "Income_b"), "amounts Income_base.* Is it income_base_amount"),
        (OWN.replace("2003", "1999"), "has no income_base_amount of 1999.*of your own"),
        (OWN.replace("2003", "'1999'"), "has no income_base_amount of 1999.*of your own"),
        (OWN.replace("2003", "2050"), "begins in 2050, after the last year of its amounts, 2026"),
        ("base: se\nparameters: {floor: 20}\n", "floor: above the ceiling in 2003"),
        ("base: se\nparameters: {ceiling: {2040: 0.2}}\n", "floor: above the ceiling in 2040"),
        (
            f"{OWN}series: {{income_base_amount: {{2003: 1, 2005: 2}}}}\n",
            "no income_base_amount of",
        ),
        (f"{OWN}series: {{prices: {{2003: 1, 2022: 2}}}}\n", "it has no prices of 2004"),
    ],
)
@pytest.mark.parametrize(
    ("role", "other"), [("rule", "the reform"), ("reform", "the pension rule")]
)
def test_a_rule_that_does_not_fit_is_refused_as_what_it_is(
    text: str, complaint: str, role: str, other: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        PensionLaw.of(PensionSource(text), shipped_facts(), 2022, "SEK", role)
    assert other not in str(caught.value).lower()
    assert {problem.column for problem in caught.value.problems} <= {role}
    if "\n" in text:
        (tmp_path / "r.yaml").write_text(text)
        source = read_pension_rule(str(tmp_path / "r.yaml"))
        with pytest.raises(UsageError, match=r"fault in r.yaml") as caught:
            PensionLaw.of(source, shipped_facts(), 2022, "SEK", role)
        assert {problem.column for problem in caught.value.problems} == {None}


def test_the_amounts_of_the_facts_are_not_those_of_another_currency() -> None:
    euro = PensionSource(OWN.replace("SEK", "EUR"))
    with pytest.raises(UsageError, match="amounts income_base_amount"):
        PensionLaw.of(euro, shipped_facts(), 2022, "EUR")


@pytest.mark.parametrize(("rule", "money"), [("se", (2022, "SEK")), ("us", (2022, "USD"))])
def test_the_last_band_of_each_rule_begins_at_its_ceiling(
    rule: str, money: tuple[int, str]
) -> None:
    law = PensionLaw.of(PensionSource(rule), shipped_facts(), *money)
    ceilings = {
        year: float(pensionable_earnings(law, year, np.full((1, 1), 1e7))[0, 0])
        for year in (2022, 2045)
    }
    earnings = {"below": 0.9, "above": 1.2}  # times what counts at most; a fee is 7 %
    rows = [
        {"person_id": name, "path": 0, "year": year, "earnings": ceiling * factor}
        for year, ceiling in ceilings.items()
        for name, factor in {"none": 0.0, **earnings}.items()
    ]
    paths = PathRows(pl.LazyFrame(rows), {})
    banded = with_career_groups(paths, ["base_amounts"], pl.DataFrame(), law)
    of_rows = banded.rows.collect().group_by("person_id").agg(pl.col("base_amounts").unique())
    levels = banded.levels("base_amounts")
    assert dict(of_rows.iter_rows()) == {
        "none": [levels[0]],
        "below": [levels[-3]],
        "above": ["ceiling"],
    }
    assert levels[-3].endswith("-ceiling")


@pytest.mark.parametrize("floor_index", ["price_base_amount", "income_base_amount"])
def test_an_amount_follows_prices_or_wages_whatever_else_has_it(floor_index: str) -> None:
    law = of(f"base: se\nfloor_index: {floor_index}\nceiling_index: price_base_amount\n"
             "price_amounts: [price_base_amount]\n")  # fmt: skip
    years, growth = law.known_years(np.array([2026, 2050])), np.array([[1.0], [1.5]])
    for name, factor in (("price_base_amount", 1.0), ("income_base_amount", 1.5)):
        known, later = law.amount(name, years, growth)[:, 0]
        assert later / known == factor


def test_every_parameter_is_explained_where_it_is_used() -> None:
    page = Path(__file__).parents[3] / "docs" / "method" / "pensions.md"
    text = page.read_text(encoding="utf-8")
    stems = {name.replace("_2", "_1").replace("_3", "_1") for name in PARAMETERS}
    assert [name for name in stems if f"`{name}`" not in text] == []


def test_the_rules_of_the_pages_are_accepted() -> None:
    page = Path(__file__).parents[3] / "docs" / "how-to" / "pensions.md"
    texts = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert [of(text).rule.kind for text in texts] == ["yearly_pension", "balance"]
