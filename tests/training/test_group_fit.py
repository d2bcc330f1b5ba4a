"""The economy of groups of a panel: known effects are found, and the network's own trend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import polars as pl
import pytest
from saga.training.group_fit import beside_network, group_history

from saga.data.panel import Panel, PanelMeta
from saga.distributions import Marginals

FIRST, LAST, N = 2003, 2022, 6_000
PACE = 0.008  # by which the log ratio of women to men rises each year
WAGES = 0.015  # expected growth after the last year


def make_people() -> pl.DataFrame:
    """Person-years of a world whose effects are known; the educated become more over time."""
    rng = np.random.default_rng(1)
    years = np.arange(FIRST, LAST + 1)
    born, n = rng.integers(FIRST - 64, LAST - 16 + 1, N), N
    frame = pl.DataFrame(
        {
            "person_id": [f"{i:06d}" for i in range(n)],
            "birth_year": born,
            "female": rng.random(n) < 0.5,
            "person": rng.normal(size=n) * 0.5,
            "tertiary": rng.random(n) < 0.2 + 0.01 * (born - born.min()),
        }
    ).join(pl.DataFrame({"year": years}), how="cross")
    age = (frame["year"] - frame["birth_year"]).to_numpy()
    female, tertiary = (frame[name].to_numpy() for name in ("female", "tertiary"))
    gap = -0.40 + PACE * (frame["year"].to_numpy() - FIRST)
    log = 12 + 0.02 * age - 0.0002 * age**2 + gap * female + 0.3 * tertiary
    log += frame["person"].to_numpy() + 0.2 * rng.normal(size=len(age))
    works = rng.random(len(age)) < np.where(female, 0.8, 0.9)
    return frame.select(
        "person_id",
        "year",
        "birth_year",
        earnings=pl.Series(np.where(works, np.exp(log), 0.0)),
        sex=pl.when("female").then(pl.lit("female")).otherwise(pl.lit("male")),
        education_level=pl.when("tertiary")
        .then(pl.lit("long_tertiary"))
        .otherwise(pl.lit("upper_secondary")),
    ).filter((pl.col("year") - pl.col("birth_year")).is_between(16, 64))


class NetworkThatContinues:
    """Forecasts persons' mean earnings by age and group, with the trend of women going on.

    All grow by `drift` a year beside wages, which grow by `WAGES`.
    """

    process: object = True  # of macro series

    def __init__(self, pace: float, drift: float) -> None:
        self.pace, self.drift, self.model = pace, drift, self

    def expected_growth(self, origin: int) -> np.ndarray:
        """Expected growth of wages after the last year."""
        assert origin == LAST
        return WAGES * np.arange(1, 31)

    def marginals(self, panel: Panel, *, recalibrate: bool) -> Iterator[Marginals]:
        """Degenerate distributions: a person's mean, and the share of the group at work."""
        assert not recalibrate
        last = panel.frame.group_by("person_id", maintain_order=True).last()
        female = (last["sex"] == "female").to_numpy()
        tertiary = (last["education_level"] == "long_tertiary").fill_null(value=False).to_numpy()
        ahead = np.arange(1, 31)
        age = (LAST - last["birth_year"].to_numpy())[:, None] + ahead
        gap = -0.40 + PACE * (LAST - FIRST) + self.pace * ahead
        log = 12 + 0.02 * age - 0.0002 * age**2 + gap * female[:, None]
        log = log + 0.3 * tertiary[:, None] + (0.5**2 + 0.2**2) / 2
        log = log + (WAGES + self.drift) * ahead
        grid = log[..., None] + np.array([-1e-3, 1e-3])
        p_zero = np.broadcast_to(np.where(female, 0.2, 0.1)[:, None], log.shape)
        cdf = np.stack([p_zero, np.ones_like(p_zero)], axis=-1)
        ids, year = last["person_id"].to_numpy().astype(np.str_), np.full(len(last), LAST)
        yield Marginals(ids, last["birth_year"].to_numpy(), year, grid, cdf, p_zero)


def fitted(
    frame: pl.DataFrame, pace: float = 0.0, drift: float = 0.0, *, macro: bool = True
) -> Any:
    panel = Panel.of(frame, PanelMeta("p"))
    persons, network = panel.persons(), cast("Any", NetworkThatContinues(pace, drift))
    network.process = True if macro else None
    trends = group_history(panel, persons, everybody=not macro)
    return trends and beside_network(network, panel, persons, trends)


@pytest.fixture(scope="module")
def people() -> pl.DataFrame:
    return make_people()


def test_effects_at_equal_age_and_education_are_found(people: pl.DataFrame) -> None:
    trends = fitted(people)
    women = trends.series["earnings"].level @ trends.contrast("female/male")
    years = np.arange(FIRST, LAST + 1) - FIRST
    # Means of thousands of persons whose logs have a deviation of .54.
    np.testing.assert_allclose(women, -0.40 + PACE * years, atol=4 * 0.54 * 2 / np.sqrt(N / 2))
    educated = trends.series["earnings"].level @ trends.contrast("long_tertiary/upper_secondary")
    assert educated[-1] == pytest.approx(0.3, abs=0.06)
    odds = trends.series["odds"].level @ trends.contrast("female/male")
    assert odds[-1] == pytest.approx(np.log(4 / 9), abs=0.2)
    for series in trends.series.values():
        np.testing.assert_allclose(series.level[:, :2] @ series.weights[:2], 0, atol=1e-9)


def test_the_networks_own_trend_is_measured_for_what_a_person_has_for_life(
    people: pl.DataFrame,
) -> None:
    still, goes_on = (fitted(people, pace) for pace in (0.0, 0.006))
    women = still.contrast("female/male")
    own = (goes_on.series["earnings"].implied - still.series["earnings"].implied) @ women
    # A tenth is lost or won, because a parabola is shrunk by its error.
    np.testing.assert_allclose(own, 0.006 * np.arange(1, 31), rtol=0.1)
    # Beside zero: the persons of an age now and later differ by chance.
    assert abs(still.series["earnings"].implied[19] @ women) < 4 * 0.54 * 2 / np.sqrt(N / 3)
    assert not goes_on.series["earnings"].implied[:, 2:4].any()
    assert not goes_on.series["odds"].implied.any()


def test_what_the_network_adds_to_wages_at_all_ages_is_measured(people: pl.DataFrame) -> None:
    """It expects careers of another profile than the newest cross-section has."""
    still, grows = (fitted(people, drift=drift) for drift in (0.0, 0.01))
    own = grows.series["earnings"].implied - still.series["earnings"].implied
    np.testing.assert_allclose(own[:, 4], 0.01 * np.arange(1, 31), rtol=0.1)
    np.testing.assert_array_equal(own[:, 4], own[:, 5])
    assert np.abs(own[:, :4]).max() < 0.004
    assert np.abs(still.series["earnings"].implied[9, 4]) < 4 * 0.54 / np.sqrt(N / 2)


def test_without_macro_series_the_networks_growth_is_that_of_everybody(
    people: pl.DataFrame,
) -> None:
    still, grows = (fitted(people, drift=drift, macro=False) for drift in (0.0, 0.01))
    own = grows.everybody.implied - still.everybody.implied
    np.testing.assert_allclose(own, 0.01 * np.arange(1, 31), rtol=0.1)
    # The error of a parabola at twenty years is that of the cells' means, which is twice as large.
    assert still.everybody.implied[19] == pytest.approx(20 * WAGES, abs=8 * 0.54 / np.sqrt(N / 2))
    assert not grows.series["earnings"].implied[:, 4:].any()
    # Nothing grows in the panel, and the prior is 2 % a year with a spread of 2 %.
    assert abs(still.everybody.growth.state_mean[-1].sum()) < 0.01
    assert still.everybody.start_sd == pytest.approx(0.58 / np.sqrt(0.85 * 3_400), rel=0.3)


def test_the_pay_of_the_young_beside_the_old_is_found(people: pl.DataFrame) -> None:
    steeper = 0.004 * (pl.col("year") - FIRST) * (42 - pl.col("year") + pl.col("birth_year")) / 20
    changed = fitted(people.with_columns(pl.col("earnings") * steeper.exp()))
    young = fitted(people).contrast("age_22/age_62")
    before, after = (t.series["earnings"].level @ young for t in (fitted(people), changed))
    np.testing.assert_allclose(
        after - before, 0.008 * (np.arange(FIRST, LAST + 1) - FIRST), atol=0.03
    )


def test_cells_of_fewer_than_ten_workers_count_for_nothing(people: pl.DataFrame) -> None:
    few = people["person_id"].unique().sort()[:9]
    rich = pl.when(pl.col("person_id").is_in(few.implode()))
    odd = people.with_columns(
        education_level=rich.then(pl.lit("compulsory")).otherwise("education_level"),
        earnings=rich.then(1e9).otherwise("earnings"),
    )
    without = people.filter(~pl.col("person_id").is_in(few.implode()))
    assert fitted(odd).columns == fitted(without).columns
    for one, other in zip(
        fitted(odd).series.values(), fitted(without).series.values(), strict=True
    ):
        np.testing.assert_array_equal(one.level, other.level)


def test_a_panel_of_one_group_has_ages_alone_and_one_of_few_ages_nothing(
    people: pl.DataFrame,
) -> None:
    nothing = pl.lit(None, dtype=pl.String)
    one = fitted(people.with_columns(sex=pl.lit("male"), education_level=nothing))
    assert [name for name, _ in one.columns] == ["age"]
    assert [name for name, _ in fitted(people.drop("education_level")).columns] == ["sex", "age"]
    ageing = pl.col("birth_year").is_between(LAST - 48, LAST - 38)
    assert fitted(people.filter(ageing)) is None
    cohorts = group_history(
        Panel.of(people.filter(ageing), PanelMeta("p")),
        people["person_id"].to_list(),
        everybody=True,
    )
    assert cohorts is not None
    assert cohorts.everybody is not None
    assert cohorts.columns == []
    np.testing.assert_array_equal(cohorts.everybody.implied, cohorts.everybody.expected)
