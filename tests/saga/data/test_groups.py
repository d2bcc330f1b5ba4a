"""Groups depend on the record up to the origin, and on cut-offs of training persons."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from saga.data.groups import GROUPINGS, UNKNOWN, Grouping, last_record_origins
from saga.data.origins import Origins, draw_origins
from saga.data.panel import Panel
from saga.data.split import persons_of
from studies.record_reductions import reduce_to_profile
from tests.panels import panel_of


@pytest.fixture(scope="module")
def grouping(register_panel: Panel) -> Grouping:
    return Grouping.fit(register_panel.only(persons_of(register_panel, "train")))


@pytest.fixture(scope="module")
def origins(register_panel: Panel) -> Origins:
    return draw_origins(register_panel, max_horizon=30, seed=1)


def test_records_after_the_origin_do_not_change_groups(
    grouping: Grouping, register_panel: Panel, origins: Origins
) -> None:
    hidden = {"earnings": 9e6, "education_level": None, "county": None, "transfers": None}
    later, types = pl.col("year") > pl.col("origin"), register_panel.frame.schema
    rows = register_panel.frame.join(
        origins.frame(), on="person_id", how="left", maintain_order="left"
    )
    frame = rows.with_columns(
        pl.when(later).then(pl.lit(value, dtype=types[name])).otherwise(pl.col(name)).alias(name)
        for name, value in hidden.items()
    ).drop("origin")
    changed = grouping.assign(register_panel.with_frame(frame), origins)
    assert changed.equals(grouping.assign(register_panel, origins))


def test_a_quintile_contains_a_fifth_of_persons_outside_training(
    grouping: Grouping, register_panel: Panel
) -> None:
    training = set(persons_of(register_panel, "train"))
    outside = register_panel.only([p for p in register_panel.persons() if p not in training])
    year = 2010
    rows = outside.frame.filter(pl.col("year") == year, pl.col("earnings").is_not_null())
    groups = grouping.assign(
        outside,
        Origins(np.array(rows["person_id"].to_list()), rows["year"].to_numpy().astype(np.int64)),
    )
    shares = (
        groups.drop_nulls("quintile")["quintile"].value_counts()["count"].to_numpy()
        / groups["quintile"].count()
    )
    n = groups["quintile"].count()
    assert len(shares) == 5
    # Cut-offs from about 50 to 250 persons a band have an error, too: the total is at most twice
    # the binomial one.
    assert np.abs(shares - 0.2).max() < 5 * 2 * (0.16 / n) ** 0.5


def test_labels_have_the_order_of_the_origins_and_a_name_for_unknown(grouping: Grouping) -> None:
    rows = [
        ("b", 2000, 1960, 0.0, None, None),
        ("a", 2000, 1961, 2e5, "female", "06"),
        ("a", 2001, 1961, None, None, "25"),
    ]
    panel = panel_of(rows, "sex", "county")
    labels = grouping.labels(panel, Origins(np.array(["b", "a"]), np.array([2000, 2001])))
    assert labels["sex"].tolist() == [UNKNOWN, "female"]
    assert labels["county_type"].tolist() == [UNKNOWN, "north"]
    assert labels["origin"].tolist() == ["zero", "positive"]
    assert labels["age"].tolist() == ["40-49", "40-49"]
    assert labels["profile"].tolist() == ["earnings", "survey"]
    assert labels["education_level"].tolist() == [UNKNOWN, UNKNOWN]
    assert set(labels) == set(GROUPINGS)
    assert last_record_origins(panel).year.tolist() == [2001, 2000]


@pytest.mark.parametrize("profile", ["register", "survey", "earnings"])
def test_a_poorer_record_has_its_profile(
    grouping: Grouping, register_panel: Panel, origins: Origins, profile: str
) -> None:
    shown = reduce_to_profile(register_panel, profile)
    assert grouping.assign(shown, origins)["profile"].unique().to_list() == [profile]
    assert shown.frame["earnings"].equals(register_panel.frame["earnings"])


def test_cut_offs_are_averages_of_persons_and_small_bands_have_none(register_panel: Panel) -> None:
    grouping = Grouping.fit(register_panel)
    cuts = grouping.cuts.select("cut0", "cut1", "cut2", "cut3")
    means = register_panel.frame.group_by("person_id").agg(pl.col("earnings").rolling_mean(5))
    assert not np.isin(
        cuts.to_numpy(), means.explode("earnings")["earnings"].drop_nulls().to_numpy()
    ).any()
    assert (np.diff(cuts.to_numpy(), axis=1) >= 0).all()
    few = Grouping.fit(register_panel.only(register_panel.persons()[:30]))
    assert few.cuts.is_empty()
    assert few.assign(register_panel, last_record_origins(register_panel))[
        "quintile"
    ].null_count() == len(register_panel.persons())
