"""Social statistics on panels of a few persons whose figures are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from saga.register.simulation.economy import CPI
from saga.register.validation.register_arrays import FLAGS, arrays_of_panel
from saga.register.validation.register_check import targets
from saga.register.validation.social_statistics import all_social_statistics
from tests.saga.register.panels import Row, panel_of

ENOUGH = 200_000.0  # SEK of 2022, above half a price base amount
FULL_JOB = {"employment_rate": 1.0, "full_time": 1.0}
IDLE = {"earnings": 0.0, "employment_rate": 0.0}


def person(name: str, born: int, years: Iterable[int], **cells: object) -> list[Row]:
    """The rows of a native man; a cell is a value, or a function of the year."""
    defaults = {"sex": "male", "birth_region": "sweden", "earnings": 0.0}
    fixed = {"person_id": name, "birth_year": born, **defaults, **cells}
    return [
        {
            "year": year,
            **{key: cell(year) if callable(cell) else cell for key, cell in fixed.items()},
        }
        for year in years
    ]


def statistics(*persons: list[Row], years: tuple[int, int] = (1990, 2022)) -> dict[str, float]:
    """Key without its first word -> value."""
    panel = panel_of([row for rows in persons for row in rows])
    arrays = arrays_of_panel(panel.lazy(), {"years": years})
    return {
        key.removeprefix("circumstance."): estimate.value
        for key, estimate in all_social_statistics(arrays)
        if key.startswith("circumstance.")
    }


def real(amount: float) -> Callable[[int], float]:
    return lambda year: amount * CPI[year]


def test_each_target_has_its_statistic_and_each_statistic_its_target() -> None:
    years = range(1990, 2023)
    keys = statistics(person("1", 1960, years), person("2", 1968, years))
    family = {target.key for target in targets() if target.family == "circumstance"}
    assert {f"circumstance.{key}" for key in keys} == family


def test_facts_are_read_from_their_columns_and_from_no_other() -> None:
    cells: dict[str, dict[str, object]] = {
        "sickness": {"sickness_benefit": 1.0},
        "parental": {"parental_benefit": 1.0},
        "unemployment": {"unemployment_benefit": 1.0},
        "disability": {"disability_pension": 1.0},
        "pension": {"pension_income": 1.0},
        "several_employers": {"employers": 2.0},
        # An employee of the smallest firm whose working time is unknown
        "workplace": {"employer_size": 1.0},
        "one_person_firm": {"employer_size": 1.0, "employment_rate": 0.5},
        "occupation": {"occupation": "214"},
        "manager": {"occupation": "121"},
        "none": {"employers": 1.0, "industry": "47", **FULL_JOB},
    }
    names = sorted(cells)
    panel = panel_of([row for name in names for row in person(name, 1980, [2000], **cells[name])])
    arrays = arrays_of_panel(panel.lazy(), {"years": (2000, 2000)})
    implied = {"one_person_firm": {"workplace"}, "manager": {"occupation"}}
    for row, name in enumerate(names):
        flags = {flag for flag in FLAGS if arrays.has(flag, 2000)[row]}
        assert flags == ({name} | implied.get(name, set())) - {"none"}, name


def test_spouses_are_ranked_within_sex_and_year_among_working_couples() -> None:
    """Four men whose partners have the opposite ranks: a rank correlation of -1.

    Ranks of four have 15/16 of the variance of uniform ones. Persons who are too young, alone or
    have a partner without earnings are not counted.
    """
    years = range(2011, 2023)
    couples = [
        person(
            str(k),
            1970,
            years,
            earnings=real(ENOUGH * (1 + k)),
            spouse_earnings=real(ENOUGH * (9 - k)),
        )
        for k in range(4)
    ]
    rich = real(9e6)
    others = [
        person("young", 2000, range(2016, 2023), earnings=rich, spouse_earnings=rich),
        person("alone", 1970, years, earnings=rich),
        person("idle", 1970, years, earnings=rich, spouse_earnings=0.0),
    ]
    assert statistics(*couples, *others)["spouses"] == pytest.approx(-15 / 16)


def test_statistics_by_origin() -> None:
    years, born_abroad = range(2010, 2023), {"birth_region": "africa"}
    persons = [person(f"n{k}", 1975, years, earnings=300_000.0, **FULL_JOB) for k in range(3)]
    settled = {"earnings": 270_000.0, "entry_year": 2005, **FULL_JOB, **born_abroad}
    persons += [person(f"f{k}", 1975, years, **settled) for k in range(2)]
    persons += [person("new", 1975, range(2011, 2023), entry_year=2011, **IDLE, **born_abroad)]
    values = statistics(*persons, years=(2010, 2022))
    assert values["foreign"] == pytest.approx(3 / 6)
    assert values["foreign_pay"] == pytest.approx(np.log(0.9))
    assert values["settled"] == pytest.approx(0.0)
    idle = person("old", 1975, years, entry_year=2005, **IDLE, **born_abroad)
    assert statistics(*persons, idle, years=(2010, 2022))["settled"] == pytest.approx(-1 / 3)


def test_degrees_after_thirty_and_unknown_education() -> None:
    def educated(first: str, second: str, change: int) -> Callable[[int], str]:
        return lambda year: second if year > change else first

    years = range(2000, 2023)
    upper, tertiary = "upper_secondary", "short_tertiary"
    persons = [
        person("same", 1975, years, education_level=upper),
        person("rose", 1975, years, education_level=educated(upper, tertiary, 2010)),
        person("early", 1975, years, education_level=educated(upper, tertiary, 2003)),
        person("unknown", 1975, years),
        person(
            "school", 1980, range(2000, 2016), education_level=educated("compulsory", upper, 2009)
        ),
        person("never", 1980, range(2000, 2016), education_level="compulsory"),
        person("absent", 1980, range(2000, 2015), education_level="compulsory"),
    ]
    values = statistics(*persons, years=(2000, 2022))
    assert values["late_degree"] == pytest.approx(1 / 3)
    assert values["second_chance"] == pytest.approx(1 / 2)
    assert values["level_unknown"] == pytest.approx(1 / 4)


def test_pensions_and_absences() -> None:
    infant_in_2019 = {
        "parental_benefit": lambda year: float(year == 2019),
        "youngest_child": lambda year: "infant" if year == 2019 else "none",
    }
    sick_with_infant = {"sickness_benefit": 1.0, "youngest_child": "infant", "earnings": 1.0}
    persons = [
        person("ill", 1950, range(1990, 2015), disability_pension=1.0),
        person("well", 1950, range(1990, 2015), earnings=1.0),
        person("retired", 1940, range(1995, 2005), pension_income=1.0),
        person("both", 1940, range(1995, 2005), pension_income=1.0, earnings=1.0),
        person("mother", 1990, [2018, 2019], sex="female", earnings=1.0, **infant_in_2019),
        person("unpaid", 1990, [2017, 2018, 2019], sex="female", **sick_with_infant),
        person("father", 1990, [2018, 2019], **sick_with_infant),
        person("colleague", 1990, [2018, 2019], earnings=1.0),
        person("jobless", 1990, [2018, 2019], sickness_benefit=1.0),
    ]
    values = statistics(*persons)
    assert values["disability.2005"] == pytest.approx(1 / 2)
    assert values["pensioners"] == pytest.approx(1 / 2)
    assert values["sickness.men"] == pytest.approx(1 / 2)
    assert values["sickness.women"] == pytest.approx(1 / 2)
    assert values["mothers"] == pytest.approx(1 / 4)


def test_years_without_earnings() -> None:
    def history(name: str, *amounts: float, **cells: object) -> list[Row]:
        years = range(2000, 2000 + len(amounts))
        return person(name, 1970, years, earnings=lambda year: amounts[year - 2000], **cells)

    persons = [
        history("back", 1, 0, 1, 1),
        history("stays", 1, 0, 0, 0),
        history("long", 0, 0, 0, 0),
        history("ends", 0, 0, 0, 1),
        history("ill", 0, 0, 0, 1, disability_pension=1.0),
    ]
    values = statistics(*persons, years=(2000, 2003))
    assert values["zero_again"] == pytest.approx(1 / 2)
    assert values["zero_after_three"] == pytest.approx(1 / 2)


def test_a_change_of_industry_is_between_two_known_industries_at_work() -> None:
    def worker(name: str, *industries: str | None, earnings: float = ENOUGH) -> list[Row]:
        def industry(year: int) -> str | None:
            return industries[min(year - 2009, len(industries) - 1)]

        return person(name, 1970, range(2009, 2020), earnings=earnings, industry=industry)

    persons = [
        worker("stays", "41"),
        worker("moves", "41", "47"),
        worker("unknown", "41", None, "47"),
        worker("idle", "41", "47", earnings=0.0),
    ]
    values = statistics(*persons, years=(2009, 2019))
    assert values["industry_change"] == pytest.approx(1 / (10 + 10 + 8))


def test_a_scar_is_the_loss_of_pay_against_that_of_others() -> None:
    """The real pay of all doubles, but that of two persons with benefit is a tenth lower."""

    def worker(name: str, last_pay: float, **cells: object) -> list[Row]:
        def earnings(year: int) -> float:
            return CPI[year] * (last_pay if year == 2005 else 3e5)

        return person(name, 1965, [2000, 2001, 2005], earnings=earnings, **{**FULL_JOB, **cells})

    def benefit(year: int) -> float:
        return float(year == 2001)

    persons = [
        *(worker(f"worked{k}", 6e5) for k in range(5)),
        *(worker(f"lost{k}", 5.4e5, unemployment_benefit=benefit) for k in range(2)),
        worker("part time", 1e5, full_time=0.0, unemployment_benefit=benefit),
        worker("before", 1e5, unemployment_benefit=1.0),
    ]
    scar = statistics(*persons, years=(2000, 2005))["scar"]
    assert scar == pytest.approx(np.log(0.9), abs=1e-5)  # in single precision


def test_job_loss_by_industry_counts_workers_without_benefit_in_the_year_before() -> None:
    """Downturn: 1/2 in goods production, 1/8 in public services. Upturn: 1/4 in each."""

    def worker(
        name: str, industry: str, year: int, *, lost: bool, before: bool = False
    ) -> list[Row]:
        def benefit(y: int) -> float:
            return float(lost if y == year else before)

        cells = {"earnings": ENOUGH, "industry": industry, "unemployment_benefit": benefit}
        return person(name, 1965, [year - 1, year], **cells)

    persons = [
        *(worker(f"goods{k}", "29", 1993, lost=k < 2) for k in range(4)),
        *(worker(f"public{k}", "85", 1993, lost=k < 1) for k in range(8)),
        worker("again", "85", 1993, lost=True, before=True),
        worker("shop", "47", 1993, lost=True),
        *(
            worker(f"{industry}{k}", industry, 1999, lost=k < 1)
            for k in range(4)
            for industry in ("29", "85")
        ),
    ]
    values = statistics(*persons, years=(1990, 2007))
    assert values["loss_by_trade"] == pytest.approx(4.0)
    assert values["loss_cycle"] == pytest.approx(np.log(4.0))
