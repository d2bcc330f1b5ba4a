"""The one door: parity, order, ages, people who cannot be forecast, intervals that are nested and labelled."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from saga.bundle import Bundle
from saga.errors import InputError, UsageError
from saga.forecaster import Forecaster, level_name
from saga.ingest import read_panel
from saga.options import COVERAGE
from saga.panel import Panel, PanelMeta

PATHS = 60


@pytest.fixture(scope="module")
def forecaster(tiny_bundle: Path) -> Forecaster:
    return Forecaster.load(tiny_bundle, threads=2)


@pytest.fixture(scope="module")
def people(forecaster: Forecaster, register_panel: Panel) -> Panel:
    blocked = forecaster.obstacles(register_panel)
    able = [p for p in register_panel.persons() if p not in blocked]
    return register_panel.only(able[:: len(able) // 25][:25])


@pytest.fixture(scope="module")
def table(forecaster: Forecaster, people: Panel) -> pl.DataFrame:
    return forecaster.forecast(people, paths=PATHS, seed=3)


def test_a_person_has_bitwise_the_same_numbers_alone_in_another_order_and_for_fewer_horizons(
    forecaster: Forecaster, people: Panel, table: pl.DataFrame
) -> None:
    ids = people.persons()
    for person in (ids[0], ids[11], ids[-1]):
        alone = forecaster.forecast(people.only([person]), paths=PATHS, seed=3)
        assert alone.equals(table.filter(pl.col("person_id") == person))
    few = forecaster.forecast(people.only(ids[5:2:-1]), horizons=(7, 1), paths=PATHS, seed=3)
    same = table.filter(pl.col("person_id").is_in(ids[3:6]), pl.col("horizon").is_in([1, 7]))
    assert few.equals(same)


def test_another_rollout_than_the_calibrated_one_is_given_without_a_promise(tiny_bundle: Path, people: Panel, table: pl.DataFrame) -> None:
    light = Forecaster.load(tiny_bundle, rollout="light")
    other = light.forecast(people, paths=PATHS, seed=3)
    assert "assumption" in table["guarantee_50"].unique()
    assert set(other["guarantee_50"].unique()) <= {"extrapolated", "none"}
    first = pl.col("horizon") == 1
    assert other.filter(first)["mean"].equals(table.filter(first)["mean"])  # the first year is the decoder's in both
    assert light.provenance()["rollout"] == "light"


def test_a_bundle_remembers_the_rollout_it_was_calibrated_with(tiny_bundle: Path, people: Panel) -> None:
    bundle = Bundle.load(tiny_bundle)
    metrics = {**bundle.metrics, "calibration": {**bundle.metrics["calibration"], "rollout": "light"}}
    served = Forecaster(replace(bundle, metrics=metrics))
    assert served.rollout == "light"
    assert "assumption" in served.forecast(people, paths=PATHS, seed=3)["guarantee_50"].unique()


def test_a_bundle_without_the_cell_has_no_light_rollout(tiny_bundle: Path) -> None:
    bundle = Bundle.load(tiny_bundle)
    config = {**bundle.config, "model": {**bundle.config["model"], "light": 0}}
    weights = {name: value for name, value in bundle.weights.items() if not name.startswith("light.")}
    without = replace(bundle, config=config, weights=weights)
    assert Forecaster(without).rollout == "exact"
    with pytest.raises(UsageError, match="--rollout exact"):
        Forecaster(without, rollout="light")


def test_threads_do_not_change_a_bit(tiny_bundle: Path, people: Panel, table: pl.DataFrame) -> None:
    assert Forecaster.load(tiny_bundle, threads=1).forecast(people, paths=PATHS, seed=3).equals(table)


def test_rows_stop_at_64_and_years_follow_the_origin(people: Panel, table: pl.DataFrame) -> None:
    born = people.frame.select("person_id", "birth_year").unique()
    joined = table.join(born, on="person_id")
    assert (joined["year"] - joined["birth_year"]).max() <= 64
    assert (table["year"] == table["origin_year"] + table["horizon"]).all()
    last = people.frame.group_by("person_id").agg(pl.col("year").max())
    assert table.join(last, left_on=["person_id", "origin_year"], right_on=["person_id", "year"], how="anti").is_empty()


def test_quantiles_are_ordered_and_within_reach(table: pl.DataFrame) -> None:
    names = [c for c in table.columns if c.startswith("q")]
    values = table.select(names).to_numpy()
    assert (np.diff(values, axis=1) >= 0).all()
    assert (values >= 0).all()
    assert table["p_zero"].is_between(0, 1).all()


def test_intervals_are_nested_and_say_what_they_promise(table: pl.DataFrame) -> None:
    assert set(table["guarantee_90"]) <= {"assumption", "extrapolated", "none"}
    names = [level_name(c) for c in COVERAGE]
    for inner, outer in pairwise(names):
        rows = table.filter((pl.col(f"guarantee_{inner}") != "none") & (pl.col(f"guarantee_{outer}") != "none"))
        positive = rows.filter(pl.col(f"upper_{inner}") > 0)
        assert (positive[f"lower_{outer}"] <= positive[f"lower_{inner}"]).all()
        assert (positive[f"upper_{outer}"] >= positive[f"upper_{inner}"]).all()
        assert (~rows[f"includes_zero_{inner}"] | rows[f"includes_zero_{outer}"]).all()
    none = table.filter(pl.col("guarantee_90") == "none")
    assert none["lower_90"].is_null().all()


def test_earnings_alone_and_gaps_are_enough(forecaster: Forecaster) -> None:
    rows = [("one", 2022, 1980, 300_000.0)]
    rows += [("many", year, 1960, 250_000.0 if year % 3 else 0.0) for year in range(1982, 2021) if year not in (1990, 1991, 2005)]
    frame = pl.DataFrame(rows, ["person_id", "year", "birth_year", "earnings"], orient="row")
    table = forecaster.forecast(Panel.of(frame, PanelMeta("somebody")), paths=20)
    assert set(table["person_id"]) == {"one", "many"}
    assert table.filter(pl.col("person_id") == "one").height == 22
    assert table["mean"].is_finite().all()


def test_people_who_cannot_be_forecast_are_named_with_the_reason(forecaster: Forecaster) -> None:
    rows = [
        ("old", 2022, 1950, 1e5, None, None),
        ("silent", 2022, 1980, None, None, None),
        ("dead", 2020, 1980, 1e5, 2021, "dead"),
        ("fine", 2022, 1980, 1e5, None, None),
    ]
    columns = ["person_id", "year", "birth_year", "earnings", "exit_year", "exit_reason"]
    panel = Panel.of(pl.DataFrame(rows, columns, orient="row"), PanelMeta("p"))
    assert {k: v.rule for k, v in forecaster.obstacles(panel).items()} == {"old": "too-old", "silent": "no-earnings", "dead": "has-left"}
    with pytest.raises(InputError) as caught:
        forecaster.forecast(panel, paths=10)
    assert len(caught.value.problems) == 3
    assert "1e5" not in str(caught.value)
    assert "100000" not in str(caught.value)


def test_a_scenario_of_other_years_is_refused_and_two_of_one_name_are_told_apart(forecaster: Forecaster, tmp_path: Path) -> None:
    rows = [("sixty", 2022, 1962, 1e5), ("young", 2010, 1990, 1e5)]
    panel = Panel.of(pl.DataFrame(rows, ["person_id", "year", "birth_year", "earnings"], orient="row"), PanelMeta("p"))

    def of(year: int, unemployment: float = 0.1) -> str:
        file = tmp_path / "mine.csv"
        file.write_text(f"year,unemployment,real_wage_growth,inflation\n{year},{unemployment},0,0.02\n")
        return str(file)

    for year, years in ((2011, 1), (2026, 10), (2024, 2)):
        forecaster.check_scenario(of(year), panel, years)
    forecaster.check_scenario("baseline", panel, 1)
    for year, years in ((2012, 1), (2015, 1), (2055, 30), (2010, 5)):
        with pytest.raises(UsageError, match=f"about {year} to {year}"):
            forecaster.check_scenario(of(year), panel, years)
    seen = [forecaster.provenance(scenario=of(2023, share)) for share in (0.1, 0.2, 0.1)]
    assert [one["scenario"] for one in seen] == ["mine"] * 3
    assert seen[0]["scenario_digest"] == seen[2]["scenario_digest"] != seen[1]["scenario_digest"]
    assert "scenario_digest" not in forecaster.provenance()


def test_whom_no_year_that_is_asked_for_reaches_is_named(forecaster: Forecaster) -> None:
    rows = [("sixty", 2022, 1962, 1e5), ("young", 2022, 1990, 1e5)]
    panel = Panel.of(pl.DataFrame(rows, ["person_id", "year", "birth_year", "earnings"], orient="row"), PanelMeta("p"))
    assert set(forecaster.forecast(panel, horizons=(4, 10), paths=10)["person_id"]) == {"sixty", "young"}
    assert set(forecaster.forecast(panel, horizons=(5, 10), paths=10)["person_id"]) == {"young"}
    assert not forecaster.obstacles(panel, ahead=4)
    late = forecaster.obstacles(panel, ahead=5)
    assert {person: problem.rule for person, problem in late.items()} == {"sixty": "too-old"}
    assert "5 years on" in late["sixty"].message


def test_swedish_tax_is_not_taken_from_other_money(tiny_bundle: Path) -> None:
    bundle = Bundle.load(tiny_bundle)
    foreign = Forecaster(replace(bundle, transforms={**bundle.transforms, "currency": "USD", "price_year": 2018}))
    foreign.check_tax("none")
    with pytest.raises(UsageError, match="SEK of 2022"):
        foreign.check_tax("se-2022")


def test_another_currency_is_refused(forecaster: Forecaster, people: Panel) -> None:
    with pytest.raises(UsageError, match="USD"):
        forecaster.forecast(Panel(people.frame, PanelMeta("us", currency="USD")), paths=10)


def test_a_recession_lowers_near_earnings_of_the_same_paths(forecaster: Forecaster, people: Panel) -> None:
    steps = {"paths": 40, "seed": 1, "horizons": (5,)}
    recession = forecaster.forecast(people, scenario="recession-1990s", **steps)["mean"].mean()
    growth = forecaster.forecast(people, scenario="high-growth", **steps)["mean"].mean()
    assert recession < growth


def test_nothing_is_promised_about_a_world_that_somebody_chose() -> None:
    """Thresholds were learnt from outcomes of drawn economies: under a scenario every interval says that it is no promise."""
    root = Path(__file__).parents[2]
    shipped, people = Forecaster.load(root / "bundles/small"), read_panel(root / "examples/people.csv")
    asked = {"paths": 200, "horizons": (1, 5), "coverage": (0.9,), "limits": True, "bands": 5}
    kinds = ["guarantee_90", "guarantee_limits_90", "guarantee_positive_90", "guarantee_band_90"]
    for scenario, word in ((None, "assumption"), ("baseline", "assumption"), ("recession-1990s", "extrapolated")):
        found = shipped.forecast(people, scenario=scenario, **asked)
        assert {one for kind in kinds for one in found[kind]} == {word}
        assert set(shipped.lifetime(people, to_age=50, paths=200, scenario=scenario).table["guarantee_90"]) == {word}


def test_present_values_are_the_discounted_sums_of_the_forecast_paths(forecaster: Forecaster, people: Panel) -> None:
    lives = forecaster.lifetime(people, rate=0.02, paths=30, seed=2, tax="se-2022")
    paths = forecaster.simulate(people, to_horizon=None, paths=30, seed=2)
    weights = 1.02 ** -np.arange(1.0, paths.horizons + 1)
    expected = np.nansum(paths.earnings.astype(float) * weights[None, :, None], axis=1)
    np.testing.assert_allclose(lives.values, expected, rtol=1e-6)
    assert (lives.table["net_mean"] < lives.table["mean"]).all()
    assert lives.population.filter(pl.col("statistic") == "mean")["mc_error"][0] > 0


def test_path_marginals_equal_the_forecast_table(forecaster: Forecaster, people: Panel, table: pl.DataFrame) -> None:
    paths = forecaster.simulate(people, paths=PATHS, seed=3)
    for h in (1, 5, 10):
        rows = table.filter(pl.col("horizon") == h)
        inside = paths.within_age[:, h - 1]
        np.testing.assert_allclose(rows["mean"], paths.earnings[inside, h - 1].astype(float).mean(1))
        np.testing.assert_allclose(rows["p_zero"], (paths.earnings[inside, h - 1] == 0).mean(1))


@pytest.mark.parametrize("bad", [{"to_age": 70}, {"to_age": 64, "from_age": 65}])
def test_ages_out_of_range_are_refused(forecaster: Forecaster, people: Panel, bad: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        forecaster.lifetime(people, paths=10, **bad)
