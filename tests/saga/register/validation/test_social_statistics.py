"""Circumstances of life measured on panels of a few persons whose figures are known."""

import numpy as np
import pytest

from saga.register.simulation.economy import CPI
from saga.register.validation.register_arrays import FACTS, arrays_of_panel
from saga.register.validation.reported import circumstances as targets
from saga.register.validation.social_statistics import circumstances
from tests.saga.register.panels import panel_of

ENOUGH = 200_000.0  # SEK of 2022, above half a price base amount


def life(name: str, born: int, years, **cells) -> list[dict[str, object]]:
    """The rows of a native man: a cell is a value, or a function of the year."""
    fixed = {
        "person_id": name,
        "birth_year": born,
        "sex": "male",
        "birth_region": "sweden",
        "earnings": 0.0,
        **cells,
    }
    return [
        {
            "year": year,
            **{key: value(year) if callable(value) else value for key, value in fixed.items()},
        }
        for year in years
    ]


def measured(*lives, years=(1990, 2022)) -> dict[str, float]:
    """Key without its first word -> value."""
    people = arrays_of_panel(panel_of([row for rows in lives for row in rows]).lazy(), {"years": years})
    return {
        key.removeprefix("circumstance."): estimate.value for key, estimate in circumstances(people)
    }


def real(amount: float):
    return lambda year: amount * CPI[year]


def test_each_target_has_its_measure_and_each_measure_its_target():
    years = range(1990, 2023)
    keys = measured(life("1", 1960, range(1990, 2023)), life("2", 1968, years))
    assert {f"circumstance.{key}" for key in keys} == {target.key for target in targets()}


def test_without_the_years_nothing_is_yielded():
    assert set(measured(life("1", 1960, range(1995, 1999)), years=(1995, 1998))) == {
        "mothers",
        "leavers",
        "zero_again",
        "zero_after_three",
    }


def test_facts_are_read_from_their_columns_and_from_no_other():
    rows = {
        "sickness": {"sickness_benefit": 1.0},
        "parental": {"parental_benefit": 1.0},
        "unemployment": {"unemployment_benefit": 1.0},
        "disability": {"disability_pension": 1.0},
        "pension": {"pension_income": 1.0},
        "jobs": {"employers": 2.0},
        "workplace": {
            "employer_size": 1.0
        },  # an employee of the smallest firm whose working time was lost
        "own": {"employer_size": 1.0, "employment_rate": 0.5},
        "occupation": {"occupation": "214"},
        "manager": {"occupation": "121"},
        "none": {"employers": 1.0, "industry": "47", "employment_rate": 1.0, "full_time": 1.0},
    }
    names = sorted(rows)
    people = arrays_of_panel(
        panel_of([row for name in names for row in life(name, 1980, [2000], **rows[name])]).lazy(),
        {"years": (2000, 2000)},
    )
    implied = {"own": {"workplace"}, "manager": {"occupation"}}
    for place, name in enumerate(names):
        seen = {fact for fact in FACTS if people.has(fact, 2000)[place]}
        assert seen == ({name} | implied.get(name, set())) - {"none"}, name


def test_spouses_are_ranked_within_sex_and_year_among_couples_at_work():
    """Four men whose partners stand in the opposite order: a rank correlation of -1 (ranks of four have 15/16 of the variance of uniform
    ones); whoever is too young, alone or with a partner without earnings is not counted."""
    couples = [
        life(
            str(k),
            1970,
            range(2011, 2023),
            earnings=real(ENOUGH * (1 + k)),
            spouse_earnings=real(ENOUGH * (9 - k)),
        )
        for k in range(4)
    ]
    others = [
        life("young", 2000, range(2016, 2023), earnings=real(9e6), spouse_earnings=real(9e6)),
        life("alone", 1970, range(2011, 2023), earnings=real(9e6)),
        life("idle", 1970, range(2011, 2023), earnings=real(9e6), spouse_earnings=0.0),
    ]
    assert measured(*couples, *others)["spouses"] == pytest.approx(-15 / 16)


def test_a_year_abroad_lies_between_25_and_34():
    lives = {
        "stayed": range(1995, 2010),
        "gap": [year for year in range(1995, 2010) if year != 2000],
        "before 25": [year for year in range(1990, 2010) if year != 1992],
        "left": range(1995, 2003),
    }
    assert measured(*(life(name, 1970, years) for name, years in lives.items()))[
        "abroad"
    ] == pytest.approx(1 / 3)


def test_origin():
    full = {"employment_rate": 1.0, "full_time": 1.0}
    lives = [life(f"n{k}", 1975, range(2010, 2023), earnings=300_000.0, **full) for k in range(3)]
    abroad = {"birth_region": "africa"}
    lives += [
        life(
            f"f{k}", 1975, range(2010, 2023), earnings=270_000.0, entry_year=2005, **full, **abroad
        )
        for k in range(2)
    ]
    lives += [
        life(
            "new",
            1975,
            range(2011, 2023),
            earnings=0.0,
            employment_rate=0.0,
            entry_year=2011,
            **abroad,
        )
    ]
    found = measured(*lives, years=(2010, 2022))
    assert found["foreign"] == pytest.approx(3 / 6)
    assert found["foreign_pay"] == pytest.approx(np.log(0.9))
    assert found["settled"] == pytest.approx(0.0)
    gone = [
        life(
            "old",
            1975,
            range(2010, 2023),
            earnings=0.0,
            employment_rate=0.0,
            entry_year=2005,
            **abroad,
        )
    ]
    assert measured(*lives, *gone, years=(2010, 2022))["settled"] == pytest.approx(-1 / 3)


def test_degrees_after_thirty_and_unknown_levels():
    lives = [
        life("same", 1975, range(2000, 2023), education_level="upper_secondary"),
        life(
            "rose",
            1975,
            range(2000, 2023),
            education_level=lambda y: "short_tertiary" if y > 2010 else "upper_secondary",
        ),
        life(
            "early",
            1975,
            range(2000, 2023),
            education_level=lambda y: "short_tertiary" if y > 2003 else "upper_secondary",
        ),
        life("unknown", 1975, range(2000, 2023)),
        life(
            "school",
            1980,
            range(2000, 2016),
            education_level=lambda y: "compulsory" if y < 2010 else "upper_secondary",
        ),
        life("never", 1980, range(2000, 2016), education_level="compulsory"),
        life("gone", 1980, range(2000, 2015), education_level="compulsory"),
    ]
    found = measured(*lives, years=(2000, 2022))
    assert found["late_degree"] == pytest.approx(1 / 3)
    assert found["second_chance"] == pytest.approx(1 / 2)
    assert found["level_unknown"] == pytest.approx(1 / 4)


def test_pensions_and_absences():
    lives = [
        life("ill", 1950, range(1990, 2015), disability_pension=1.0),
        life("well", 1950, range(1990, 2015), earnings=1.0),
        life("retired", 1940, range(1995, 2005), pension_income=1.0),
        life("both", 1940, range(1995, 2005), pension_income=1.0, earnings=1.0),
        life("mother", 1990, [2018, 2019], sex="female", earnings=1.0, parental_benefit=lambda y: float(y == 2019),
             youngest_child=lambda y: "infant" if y == 2019 else "none"),
        life("unpaid", 1990, [2017, 2018, 2019], sex="female", earnings=1.0, youngest_child="infant", sickness_benefit=1.0),
        life("father", 1990, [2018, 2019], earnings=1.0, sickness_benefit=1.0, youngest_child="infant"),
        life("colleague", 1990, [2018, 2019], earnings=1.0),
        life("jobless", 1990, [2018, 2019], sickness_benefit=1.0),
    ]  # fmt: skip
    found = measured(*lives)
    assert found["disability.2005"] == pytest.approx(1 / 2)
    assert found["pensioners"] == pytest.approx(1 / 2)
    assert found["sickness.men"] == pytest.approx(1 / 2)
    assert found["sickness.women"] == pytest.approx(1 / 2)
    assert found["mothers"] == pytest.approx(1 / 4)


def test_firms_jobs_and_managers():
    job = {
        "employer_size": 50.0,
        "employment_rate": 1.0,
        "full_time": 1.0,
        "earnings": 1.0,
        "employers": 1.0,
        "occupation": "214",
    }
    lives = [life(f"y{k}", 1985, [2015], **job) for k in range(3)]
    lives += [life(f"o{k}", 1965, [2015], **job) for k in range(2)]
    lives += [life("boss", 1965, [2015], **{**job, "occupation": "112", "employers": 2.0})]
    lives += [
        life(
            "own",
            1965,
            [2015],
            **{**job, "occupation": None, "employer_size": 1.0, "full_time": None},
        )
    ]
    lives += [life("unseen", 1965, [2015], **{**job, "occupation": None, "employer_size": None})]
    found = measured(*lives, years=(2015, 2015))
    assert found["own_firm"] == pytest.approx(1 / 7)
    assert found["jobs"] == pytest.approx(1 / 8)
    assert found["managers"] == pytest.approx(1 / 3)


def test_pay_by_age():
    """Log pay of plus and minus .1 at 30-34 and of plus and minus .3 at 50-54 around whatever the year pays: variances .01 and .09."""
    full = {"employment_rate": 1.0, "full_time": 1.0}
    lives = [
        life(f"{age}{sign}", 2010 - age, [2010], earnings=real(3e5 * np.exp(sign * fan)), **full)
        for age, fan in ((30, 0.1), (50, 0.3))
        for sign in (-1, 1)
    ]
    rest = [
        life(f"{year}{k}", year - age, [year], earnings=real(3e5), **full)
        for year in (2019,)
        for k, age in enumerate((27, 28, 50, 52))
    ]
    found = measured(*lives, *rest, years=(2010, 2019))
    assert found["age_pay"] == pytest.approx(1.0)
    assert found["pay_fan"] == pytest.approx(
        0.3**2 / 2 - 0.1**2
    )  # two of the four old ones fan out, the two young ones do


def test_the_slope_on_lifetime_earnings_is_one_where_profiles_are_parallel_and_more_where_they_fan_out():
    def slope(growth: float) -> float:
        lives = [
            life(
                f"{level}",
                1966,
                range(1990, 2023),
                earnings=lambda y, a=level: CPI[y] * 3e5 * np.exp(a * (1 + growth * (y - 1991))),
            )
            for level in (-0.4, 0.0, 0.4)
        ]
        return measured(*lives)["lifetime_slope"]

    assert slope(0.0) == pytest.approx(1.0, abs=1e-6)
    assert slope(0.05) > 1.2


def test_who_leaves_work_has_nothing_two_years_later():
    def lives(**later):
        return life(
            "left",
            1970,
            range(2000, 2003),
            earnings=lambda y: ENOUGH if y == 2000 else 0.0,
            **later,
        )

    stays = [life(str(k), 1970, range(2000, 2003), earnings=ENOUGH) for k in range(3)]
    abroad = life("gone", 1970, [2000, 2001], earnings=ENOUGH)
    assert measured(lives(), *stays, abroad, years=(2000, 2002))["leavers"] == pytest.approx(1 / 4)
    assert (
        measured(lives(unemployment_benefit=1.0), *stays, abroad, years=(2000, 2002))["leavers"]
        == 0.0
    )


def test_years_without_earnings():
    def path(name: str, *amounts: float, **cells) -> list[dict[str, object]]:
        return life(
            name,
            1970,
            range(2000, 2000 + len(amounts)),
            earnings=lambda y: amounts[y - 2000],
            **cells,
        )

    lives = [
        path("back", 1, 0, 1, 1),
        path("stays", 1, 0, 0, 0),
        path("long", 0, 0, 0, 0),
        path("ends", 0, 0, 0, 1),
    ]
    ill = path("ill", 0, 0, 0, 1, disability_pension=1.0)
    found = measured(*lives, ill, years=(2000, 2003))
    assert found["zero_again"] == pytest.approx(1 / 2)
    assert found["zero_after_three"] == pytest.approx(1 / 2)


def test_a_change_of_industry_is_between_two_known_ones_at_work():
    def worker(name: str, *industries: str | None, **cells) -> list[dict[str, object]]:
        cells = {"earnings": ENOUGH, **cells}
        return life(
            name,
            1970,
            range(2009, 2020),
            industry=lambda y: industries[min(y - 2009, len(industries) - 1)],
            **cells,
        )

    lives = [
        worker("stays", "41"),
        worker("moves", "41", "47"),
        worker("lost", "41", None, "47"),
        worker("idle", "41", "47", earnings=0.0),
    ]
    assert measured(*lives, years=(2009, 2019))["industry_change"] == pytest.approx(
        1 / (10 + 10 + 8)
    )


def test_a_scar_is_what_pay_loses_against_that_of_others():
    """Everybody's pay doubles in real terms, but that of the two who drew benefit in between: it falls by a tenth behind."""
    full = {"employment_rate": 1.0, "full_time": 1.0}

    def worker(name: str, end: float, **cells) -> list[dict[str, object]]:
        return life(
            name,
            1965,
            [2000, 2001, 2005],
            earnings=lambda y: CPI[y] * (end if y == 2005 else 3e5),
            **{**full, **cells},
        )

    def benefit(year):
        return float(year == 2001)

    lives = [worker(f"kept{k}", 6e5) for k in range(5)] + [
        worker(f"lost{k}", 5.4e5, unemployment_benefit=benefit) for k in range(2)
    ]
    others = [
        worker("part", 1e5, full_time=0.0, unemployment_benefit=benefit),
        worker("before", 1e5, unemployment_benefit=1.0),
    ]
    assert measured(*lives, *others, years=(2000, 2005))["scar"] == pytest.approx(
        np.log(0.9), abs=1e-5
    )  # in single precision


def test_job_loss_by_trade_counts_those_who_worked_without_benefit_before():
    """In the downturn half of those in goods production and an eighth of those in public services, in the upturn a quarter of each."""

    def worker(
        name: str, industry: str, year: int, *, lost: bool, before: bool = False
    ) -> list[dict[str, object]]:
        cells = {"earnings": ENOUGH, "industry": industry}
        return life(
            name,
            1965,
            [year - 1, year],
            unemployment_benefit=lambda y: float(lost if y == year else before),
            **cells,
        )

    lives = [worker(f"g{k}", "29", 1993, lost=k < 2) for k in range(4)] + [
        worker(f"p{k}", "85", 1993, lost=k < 1) for k in range(8)
    ]
    lives += [
        worker("again", "85", 1993, lost=True, before=True),
        worker("shop", "47", 1993, lost=True),
    ]
    lives += [
        worker(f"{code}{k}", code, 1999, lost=k < 1) for k in range(4) for code in ("29", "85")
    ]
    found = measured(*lives, years=(1990, 2007))
    assert found["loss_by_trade"] == pytest.approx(4.0)
    assert found["loss_cycle"] == pytest.approx(np.log(4.0))
