"""The forecaster: batch invariance, ages, persons who cannot be forecast, intervals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from saga.bundle import Bundle
from saga.conformal.calibrator import Calibrator
from saga.data.panel import Panel, PanelMeta
from saga.data.reading import read_panel
from saga.errors import UsageError
from saga.forecast_checks import check_scenario, find_ineligible
from saga.forecaster import Forecaster
from saga.requests import Draws, ForecastRequest, LifetimeRequest, PathsRequest, PensionRequest
from tests.panels import panel_of
from tests.problems import problems_of

PATHS = 60
ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "bundles/small"


@pytest.fixture(scope="module")
def people(forecaster: Forecaster, register_panel: Panel) -> Panel:
    ineligible = find_ineligible(register_panel)
    eligible = [p for p in register_panel.persons() if p not in ineligible]
    return register_panel.only(eligible[:: len(eligible) // 25][:25])


@pytest.fixture(scope="module")
def table(forecaster: Forecaster, people: Panel) -> pl.DataFrame:
    return forecaster.forecast(people).table


def test_a_person_has_bitwise_the_same_numbers_alone_in_another_order_and_for_fewer_horizons(
    forecaster: Forecaster, people: Panel, table: pl.DataFrame
) -> None:
    ids = people.persons()
    for person in (ids[0], ids[11], ids[-1]):
        alone = forecaster.forecast(people.only([person])).table
        assert alone.equals(table.filter(pl.col("person_id") == person))
    few = forecaster.forecast(people.only(ids[5:2:-1]), ForecastRequest(horizons=(7, 1))).table
    same = table.filter(pl.col("person_id").is_in(ids[3:6]), pl.col("horizon").is_in([1, 7]))
    assert few.equals(same)
    one = forecaster.forecast(people, horizons=np.int64(1)).table  # type: ignore[arg-type]
    assert set(one["horizon"]) == {1}


def test_only_present_values_of_another_rollout_than_the_calibrated_one_are_extrapolated(
    tiny_bundle: Path, people: Panel, table: pl.DataFrame
) -> None:
    light = Forecaster.load(tiny_bundle, rollout="light")
    # A rollout simulates paths; the distributions of single years do not depend on it.
    assert light.forecast(people).table.equals(table)
    assert "assumption" in table["guarantee_50"].unique()
    request = LifetimeRequest(to_age=64, coverage=[0.5])
    values = light.lifetime(people, request, Draws(20)).table
    assert set(values["guarantee_50"].unique()) <= {"extrapolated", "none"}
    assert light.provenance()["rollout"] == "light"


def test_a_forecaster_uses_the_rollout_of_the_calibration(tiny_bundle: Path, people: Panel) -> None:
    bundle = Bundle.load(tiny_bundle)
    metrics = {
        **bundle.metrics,
        "calibration": {**bundle.metrics["calibration"], "rollout": "light"},
    }
    served = Forecaster(replace(bundle, metrics=metrics))
    assert served.rollout == "light"
    assert "assumption" in served.forecast(people).table["guarantee_50"].unique()


def test_a_bundle_without_the_cell_has_no_light_rollout(tiny_bundle: Path) -> None:
    bundle = Bundle.load(tiny_bundle)
    config = {**bundle.config, "model": {**bundle.config["model"], "light": 0}}
    weights = {
        name: value for name, value in bundle.weights.items() if not name.startswith("light.")
    }
    without = replace(bundle, config=config, weights=weights)
    assert Forecaster(without).rollout == "exact"
    with pytest.raises(UsageError, match="--rollout exact"):
        Forecaster(without, rollout="light")


def test_rows_stop_at_64_and_years_follow_the_origin(people: Panel, table: pl.DataFrame) -> None:
    born = people.frame.select("person_id", "birth_year").unique()
    joined = table.join(born, on="person_id")
    assert (joined["year"] - joined["birth_year"]).to_numpy().max() <= 64
    assert (table["year"] == table["origin_year"] + table["horizon"]).all()
    last = people.frame.group_by("person_id").agg(pl.col("year").max())
    assert table.join(
        last, left_on=["person_id", "origin_year"], right_on=["person_id", "year"], how="anti"
    ).is_empty()


def test_quantiles_are_ordered_and_not_negative(table: pl.DataFrame) -> None:
    names = [c for c in table.columns if c.startswith("q")]
    values = table.select(names).to_numpy()
    assert (np.diff(values, axis=1) >= 0).all()
    assert (values >= 0).all()
    assert table["p_zero"].is_between(0, 1).all()


def test_records_with_gaps_and_earnings_alone_are_forecast(forecaster: Forecaster) -> None:
    rows = [("one", 2022, 1980, 300_000.0)]
    rows += [
        ("many", year, 1960, 250_000.0 if year % 3 else 0.0)
        for year in range(1982, 2021)
        if year not in (1990, 1991, 2005)
    ]
    table = forecaster.forecast(panel_of(rows)).table
    assert set(table["person_id"]) == {"one", "many"}
    assert table.filter(pl.col("person_id") == "one").height == 22
    assert table["mean"].is_finite().all()


def test_paths_of_persons_who_cannot_be_forecast_are_refused_without_their_amounts(
    forecaster: Forecaster,
) -> None:
    panel = panel_of([("old", 2022, 1950, 123_456.0), ("silent", 2022, 1980, None)])
    problems = problems_of(forecaster.simulate, panel, Draws(2))
    assert {problem.rule for problem in problems} == {"too-old", "no-earnings"}
    assert "123" not in str(problems)


def test_a_scenario_of_other_years_is_refused_and_equal_names_have_different_digests(
    forecaster: Forecaster, tmp_path: Path
) -> None:
    """Forecasts cover the years after an origin, up to an age; a bundle has one scenario a file."""
    panel = panel_of([("sixty", 2022, 1962, 1e5), ("young", 2010, 1990, 1e5)])

    def scenario_file(year: int, unemployment: float = 0.1) -> str:
        file = tmp_path / "mine.csv"
        file.write_text(
            f"year,unemployment,real_wage_growth,inflation\n{year},{unemployment},0,0.02\n"
        )
        return str(file)

    for year, request in (
        (2011, ForecastRequest((1,))),
        (2026, ForecastRequest((10,))),
        (2024, ForecastRequest((2,))),
        (2054, LifetimeRequest()),
    ):
        check_scenario(forecaster.scenario(scenario_file(year)), panel, request)
    with pytest.raises(UsageError, match="about 2011 to 2030"):
        check_scenario(forecaster.scenario(scenario_file(2054)), panel, LifetimeRequest(to_age=40))
    for year, years in ((2012, 1), (2015, 1), (2055, 30), (2010, 5)):
        with pytest.raises(UsageError, match=f"about {year} to {year}"):
            check_scenario(
                forecaster.scenario(scenario_file(year)), panel, ForecastRequest((years,))
            )
    provenances = [
        forecaster.provenance(Draws(scenario=scenario_file(2023, share)))
        for share in (0.1, 0.2, 0.1)
    ]
    digests = [provenance["scenario_digest"] for provenance in provenances]
    assert digests[0] == digests[2] != digests[1]


def test_swedish_tax_is_refused_for_another_currency(tiny_bundle: Path) -> None:
    bundle = Bundle.load(tiny_bundle)
    foreign = Forecaster(
        replace(bundle, transforms={**bundle.transforms, "currency": "USD", "price_year": 2018})
    )
    assert foreign.tax_rule("none") is None
    with pytest.raises(UsageError, match="is for SEK"):
        foreign.tax_rule("se-2022")


def test_another_currency_is_refused(forecaster: Forecaster, people: Panel) -> None:
    with pytest.raises(UsageError, match="USD"):
        forecaster.forecast(Panel(people.frame, PanelMeta("us", currency="USD")))


def test_intervals_under_a_scenario_are_extrapolated() -> None:
    """Thresholds are fitted with drawn macro series, so a scenario weakens the guarantee."""
    shipped, people = Forecaster.load(SHIPPED), read_panel(ROOT / "examples/people.csv")
    request = ForecastRequest(horizons=(1, 5), coverage=(0.9,), limits=True, bands=5)
    kinds = ["guarantee_90", "guarantee_limits_90", "guarantee_positive_90", "guarantee_band_90"]
    for scenario, word in (
        (None, "assumption"),
        ("baseline", "assumption"),
        ("recession-1990s", "extrapolated"),
    ):
        draws = Draws(200, scenario=scenario)
        table = shipped.forecast(people, request, draws).table
        assert {guarantee for kind in kinds for guarantee in table[kind]} == {word}
        lifetimes = shipped.lifetime(people, LifetimeRequest(to_age=50), draws)
        assert set(lifetimes.table["guarantee_90"]) == {word}


def test_present_values_are_the_discounted_sums_of_the_forecast_paths(
    forecaster: Forecaster, people: Panel
) -> None:
    lifetimes = forecaster.lifetime(people, LifetimeRequest(rate=0.02, tax="se-2022"), Draws(30, 2))
    paths = forecaster.simulate(people, Draws(30, 2), to_horizon=None)
    weights = 1.02 ** -np.arange(1.0, paths.n_horizons + 1)
    expected = np.nansum(paths.earnings.astype(float) * weights[None, :, None], axis=1)
    np.testing.assert_allclose(lifetimes.values, expected, rtol=1e-6)
    assert (lifetimes.table["net_mean"] < lifetimes.table["mean"]).all()
    assert lifetimes.population.filter(pl.col("statistic") == "mean")["mc_error"][0] > 0


def test_the_paths_have_the_distribution_of_the_forecast_table(
    forecaster: Forecaster, people: Panel
) -> None:
    """Of the slices of equal probability, one lies on the border of the atom at zero.

    It is zero or positive as a whole, so the share of zeros is right up to half a path, and the
    mean up to half the slice above.
    """
    draws, m = Draws(PATHS, 3), PATHS
    table = forecaster.forecast(people, ForecastRequest(unrounded=True)).table
    paths = forecaster.simulate(people, draws)
    for h in (1, 5, 10):
        rows = table.filter(pl.col("horizon") == h)
        inside = paths.within_age[:, h - 1]
        earnings = paths.earnings[inside, h - 1].astype(float)
        lowest = np.where(earnings > 0, earnings, np.inf).min(axis=1)
        difference = np.abs(rows["mean"].to_numpy() - earnings.mean(1))
        assert (difference <= 1e-5 * earnings.mean(1) + lowest / m).all()
        share = (earnings == 0).mean(1)
        assert np.abs(rows["p_zero"].to_numpy() - share).max() <= 0.5 / m + 1e-6


def test_paths_have_the_real_wages_of_their_economy(forecaster: Forecaster, people: Panel) -> None:
    """Those of a scenario are known: 5 % a year from the origin on."""
    rows = [
        {"year": year, "unemployment": 0.07, "real_wage_growth": 0.05, "inflation": 0.02}
        for year in range(2000, 2030)
    ]
    request = PathsRequest(unrounded=True, wages=True)
    table = forecaster.run(request, people, Draws(3, 1, rows)).table
    origin = people.frame.group_by("person_id").agg(origin=pl.col("year").max())
    known = table.join(origin, on="person_id").filter(
        pl.col("origin") == 2022, pl.col("year") < 2030
    )
    assert known.height > 100
    expected = 1.05 ** (known["year"] - known["origin"]).to_numpy()
    assert known["wage_index"].to_numpy() == pytest.approx(expected, rel=1e-6)
    without = forecaster.run(replace(request, wages=False), people, Draws(3, 1, rows)).table
    assert table.drop("wage_index").equals(without)
    ensemble = forecaster.with_model(
        replace(forecaster.model, members=2 * forecaster.model.members)
    )
    of_one, of_two = (each.wage_index(Draws(20)) for each in (forecaster, ensemble))
    years = np.arange(2020, 2030)
    np.testing.assert_array_equal(of_one(2022, years), of_two(2022, years))


def test_another_calibrator_gives_another_forecaster_and_does_not_change_the_first(
    forecaster: Forecaster, people: Panel, table: pl.DataFrame
) -> None:
    bare = forecaster.with_calibrator(Calibrator())
    assert bare.network is forecaster.network
    raw = bare.forecast(people).table
    assert set(raw["guarantee_90"]) == {"none"}
    assert not raw.equals(table)
    assert forecaster.forecast(people).table.equals(table)


@pytest.mark.parametrize(
    "request_",
    [
        LifetimeRequest(to_age=64, from_age=60, coverage=(0.5, 0.9), unknown_years="zero"),
        PensionRequest(coverage=(0.5, 0.9), unknown_years="zero"),
    ],
)
def test_a_range_of_futures_is_no_interval_where_too_few_persons_calibrate(
    forecaster: Forecaster, people: Panel, request_: LifetimeRequest | PensionRequest
) -> None:
    """Neither of pensions nor of values that begin later, which have no thresholds of their own."""
    is_young = (pl.col("year") - pl.col("birth_year")).max().over("person_id") < 60
    people = Panel.of(people.frame.filter(is_young), people.meta)
    calibrator = forecaster.calibrator
    cells = {
        at: replace(cell, thresholds={**cell.thresholds, 0.9: None})
        for at, cell in calibrator.cells.items()
    }
    few = forecaster.with_calibrator(replace(calibrator, cells=cells))
    for each, of_90 in ((forecaster, "extrapolated"), (few, "none")):
        rows = each.run(request_, people, Draws(4)).table.drop_nulls("mean")
        assert set(rows["guarantee_50"]) == {"extrapolated"}
        assert set(rows["guarantee_90"]) == {of_90}
        assert rows["lower_90"].null_count() == (len(rows) if of_90 == "none" else 0)
