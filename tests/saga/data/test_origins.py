"""Origins are drawn by one keyed rule; outcomes distinguish zero, death, emigration and gaps."""

from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from saga.data.origins import (
    Origins,
    draw_origins,
    eligible_origins,
    history,
    origins_at,
    realised_earnings,
)
from saga.data.panel import Panel, PanelMeta
from saga.errors import UsageError
from tests import panels


def panel_of(rows: dict[str, list[Any]]) -> Panel:
    return Panel.of(pl.DataFrame(rows), PanelMeta(panel_id="toy"))


def full_panel(persons: int, years: range = range(1990, 2023), birth_year: int = 1965) -> Panel:
    n = len(years)
    return panel_of(
        {
            "person_id": np.repeat([f"p{i:05d}" for i in range(persons)], n).tolist(),
            "year": list(years) * persons,
            "birth_year": [birth_year] * (n * persons),
            "earnings": [100_000.0] * (n * persons),
        }
    )


@pytest.fixture
def exits() -> Panel:
    """Persons with a death or an emigration in 2005, with a gap and a null, and aged 65 in 2004."""
    last: dict[str, Any] = {"dead": (1970, 2005, "dead"), "gone": (1970, 2005, "emigrated")}
    last |= {"gap": (1970, None, None), "old": (1939, None, None)}
    years: dict[str, Any] = {"dead": range(2000, 2005), "gone": range(2000, 2005)}
    years |= {"gap": (2000, 2001, 2002, 2006), "old": range(2000, 2007)}
    rows = [
        (
            person,
            year,
            birth,
            None if (person, year) == ("gap", 2006) else 10.0 * (year - 1999),
            *at,
        )
        for person, (birth, *at) in last.items()
        for year in years[person]
    ]
    return panels.panel_of(rows, "exit_year", "exit_reason")


def test_outcomes_are_zero_after_death_and_nan_where_not_observed(exits: Panel) -> None:
    origins = Origins(np.array(["dead", "gone", "gap", "old"]), np.array([2002] * 4))
    y = realised_earnings(exits, origins, range(1, 6))
    nan = np.nan
    expected = [[40, 50, 0, 0, nan], [40, 50, nan, nan, nan], [nan] * 5, [40, nan, nan, nan, nan]]
    np.testing.assert_array_equal(y, np.array(expected, dtype=float))


def test_outcomes_follow_the_order_of_origins_and_horizons(exits: Panel) -> None:
    origins = Origins(np.array(["old", "dead"]), np.array([2000, 2001]))
    np.testing.assert_array_equal(realised_earnings(exits, origins, [3, 1]), [[40, 20], [50, 30]])


def test_history_ends_at_the_origin_without_later_exits(exits: Panel) -> None:
    past = history(exits, Origins(np.array(["dead", "gap"]), np.array([2003, 2001])))
    assert past.frame.select("person_id", "year").rows() == [
        ("dead", y) for y in range(2000, 2004)
    ] + [("gap", 2000), ("gap", 2001)]
    assert past.frame["exit_year"].null_count() == len(past)
    assert past.frame["exit_reason"].null_count() == len(past)


def test_horizons_are_uniform_and_origins_uniform_given_the_horizon() -> None:
    persons, max_horizon = 20_000, 10
    origins = draw_origins(full_panel(persons), max_horizon=max_horizon, seed=1)
    # Eligible: third record (1992) to 2022 - h. P(origin = t) is the mean over h of
    # 1{t <= 2022 - h} / (2022 - h - 1991).
    years = np.arange(1992, 2022)
    h = np.arange(1, max_horizon + 1)[:, None]
    expected = np.where(years <= 2022 - h, 1 / (2022 - h - 1991), 0).mean(axis=0)
    observed = np.array([(origins.year == t).sum() for t in years])
    assert len(origins) == persons == observed.sum()
    assert stats.chisquare(observed, expected * persons).pvalue > 1e-6


def test_every_origin_has_the_required_history_age_and_horizon() -> None:
    """Persons born in 1945 become too old in the panel; those born in 1980 start too young."""
    for birth_year, first, last in ((1945, 1992, 2005), (1980, 2000, 2021)):
        rows = full_panel(300, birth_year=birth_year).frame.filter(
            pl.Series(np.random.default_rng(0).random(300 * 33) < 0.5)
        )
        panel = Panel.of(rows, PanelMeta(panel_id="gappy"))
        origins = draw_origins(panel, max_horizon=5, seed=0)
        records = origins.frame().join(panel.frame, on="person_id")
        assert len(origins) > 290
        assert (
            records.filter(pl.col("year") <= pl.col("origin"))
            .group_by("person_id")
            .len()["len"]
            .min()
            == 3
        )
        assert records.filter(pl.col("year") == pl.col("origin")).height == len(origins)
        assert (origins.year.min(), origins.year.max()) == (first, last)


def test_origins_are_drawn_from_the_given_person_years() -> None:
    panel = full_panel(100)
    admitted = eligible_origins(panel, ages=(41, 43)).filter(pl.col("year") != 2007)
    assert set(draw_origins(panel, max_horizon=5, seed=0, among=admitted).year.tolist()) == {
        2006,
        2008,
    }


def test_no_origin_has_its_outcome_after_64_or_after_the_panel() -> None:
    assert len(draw_origins(full_panel(5, range(2013, 2016), 1990), max_horizon=3, seed=0)) == 0
    old = draw_origins(full_panel(200, range(1990, 2023), 1945), max_horizon=30, seed=0)
    assert (old.year - 1945).max() <= 60
    assert (old.year + 1 <= 2022).all()


def test_an_origin_depends_on_the_seed_and_not_on_other_persons() -> None:
    panel = full_panel(200)
    alone = draw_origins(panel.only(["p00007"]), max_horizon=10, seed=3)
    together = draw_origins(panel, max_horizon=10, seed=3)
    assert alone.year[0] == together.year[together.person_id == "p00007"][0]
    assert not np.array_equal(together.year, draw_origins(panel, max_horizon=10, seed=4).year)


def test_the_forward_setting_starts_all_persons_in_the_last_year(exits: Panel) -> None:
    assert origins_at(full_panel(3)).year.tolist() == [2022] * 3
    assert origins_at(exits, 2002).person_id.tolist() == ["dead", "gap", "gone"]


def test_an_empty_panel_and_a_horizon_of_zero_are_refused() -> None:
    panel = full_panel(1)
    with pytest.raises(UsageError, match="without rows"):
        origins_at(panel.with_frame(panel.frame.clear()))
    with pytest.raises(UsageError, match="horizon"):
        draw_origins(panel, max_horizon=0, seed=0)
