"""The one door: parity, order, ages, people who cannot be forecast, intervals that are nested and labelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from numpy.typing import NDArray

from saga.bundle import Bundle
from saga.conformal.calibrator import Calibrator
from saga.data.eligibility import find_ineligible
from saga.data.origins import history, origins_at
from saga.data.panel import Panel, PanelMeta
from saga.data.reading import read_panel
from saga.errors import InputError, UsageError
from saga.forecast_checks import check_scenario, check_tax
from saga.forecast_tables import percent_label
from saga.forecaster import Forecaster
from saga.macro.process import MacroProcess
from saga.requests import COVERAGE, Draws, ForecastRequest, LifetimeRequest

PATHS = 60
ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "bundles/small"
Floats = NDArray[np.float64]


@pytest.fixture(scope="module")
def forecaster(tiny_bundle: Path) -> Forecaster:
    return Forecaster.load(tiny_bundle, threads=2)


@pytest.fixture(scope="module")
def people(forecaster: Forecaster, register_panel: Panel) -> Panel:
    blocked = find_ineligible(register_panel)
    able = [p for p in register_panel.persons() if p not in blocked]
    return register_panel.only(able[:: len(able) // 25][:25])


@pytest.fixture(scope="module")
def table(forecaster: Forecaster, people: Panel) -> pl.DataFrame:
    return forecaster.forecast(people, draws=Draws(PATHS, 3))


def test_a_person_has_bitwise_the_same_numbers_alone_in_another_order_and_for_fewer_horizons(
    forecaster: Forecaster, people: Panel, table: pl.DataFrame
) -> None:
    ids = people.persons()
    for person in (ids[0], ids[11], ids[-1]):
        alone = forecaster.forecast(people.only([person]), draws=Draws(PATHS, 3))
        assert alone.equals(table.filter(pl.col("person_id") == person))
    few = forecaster.forecast(
        people.only(ids[5:2:-1]), ForecastRequest(horizons=(7, 1)), Draws(PATHS, 3)
    )
    same = table.filter(pl.col("person_id").is_in(ids[3:6]), pl.col("horizon").is_in([1, 7]))
    assert few.equals(same)


@pytest.mark.parametrize(
    "wrong",
    [
        {"horizons": [0, 5]},
        {"horizons": [31]},
        {"coverage": [1.0]},
        {"quantiles": [1.5]},
        {"quantiles": []},
    ],
    ids=str,
)
def test_the_library_refuses_what_the_command_line_refuses(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        ForecastRequest(**wrong)
    refused: list[dict[str, Any]] = [{"rate": 2.0}, {"quantiles": [1.5]}, {"coverage": [0.0]}]
    for option in refused:
        with pytest.raises(UsageError):
            LifetimeRequest(**option)


def test_another_rollout_than_the_calibrated_one_is_given_without_a_promise(
    tiny_bundle: Path, people: Panel, table: pl.DataFrame
) -> None:
    light = Forecaster.load(tiny_bundle, rollout="light")
    other = light.forecast(people, draws=Draws(PATHS, 3))
    assert "assumption" in table["guarantee_50"].unique()
    assert set(other["guarantee_50"].unique()) <= {"extrapolated", "none"}
    first = pl.col("horizon") == 1
    assert other.filter(first)["mean"].equals(
        table.filter(first)["mean"]
    )  # the first year is the decoder's in both
    assert light.provenance()["rollout"] == "light"


def test_a_bundle_remembers_the_rollout_it_was_calibrated_with(
    tiny_bundle: Path, people: Panel
) -> None:
    bundle = Bundle.load(tiny_bundle)
    metrics = {
        **bundle.metrics,
        "calibration": {**bundle.metrics["calibration"], "rollout": "light"},
    }
    served = Forecaster(replace(bundle, metrics=metrics))
    assert served.rollout == "light"
    assert "assumption" in served.forecast(people, draws=Draws(PATHS, 3))["guarantee_50"].unique()


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


def test_threads_do_not_change_a_bit(tiny_bundle: Path, people: Panel, table: pl.DataFrame) -> None:
    assert (
        Forecaster.load(tiny_bundle, threads=1)
        .forecast(people, draws=Draws(PATHS, 3))
        .equals(table)
    )


def test_rows_stop_at_64_and_years_follow_the_origin(people: Panel, table: pl.DataFrame) -> None:
    born = people.frame.select("person_id", "birth_year").unique()
    joined = table.join(born, on="person_id")
    assert (joined["year"] - joined["birth_year"]).to_numpy().max() <= 64
    assert (table["year"] == table["origin_year"] + table["horizon"]).all()
    last = people.frame.group_by("person_id").agg(pl.col("year").max())
    assert table.join(
        last, left_on=["person_id", "origin_year"], right_on=["person_id", "year"], how="anti"
    ).is_empty()


def test_quantiles_are_ordered_and_within_reach(table: pl.DataFrame) -> None:
    names = [c for c in table.columns if c.startswith("q")]
    values = table.select(names).to_numpy()
    assert (np.diff(values, axis=1) >= 0).all()
    assert (values >= 0).all()
    assert table["p_zero"].is_between(0, 1).all()


def test_intervals_are_nested_and_say_what_they_promise(table: pl.DataFrame) -> None:
    assert set(table["guarantee_90"]) <= {"assumption", "extrapolated", "none"}
    names = [percent_label(c) for c in COVERAGE]
    for inner, outer in pairwise(names):
        rows = table.filter(
            (pl.col(f"guarantee_{inner}") != "none") & (pl.col(f"guarantee_{outer}") != "none")
        )
        positive = rows.filter(pl.col(f"upper_{inner}") > 0)
        assert (positive[f"lower_{outer}"] <= positive[f"lower_{inner}"]).all()
        assert (positive[f"upper_{outer}"] >= positive[f"upper_{inner}"]).all()
        assert (~rows[f"includes_zero_{inner}"] | rows[f"includes_zero_{outer}"]).all()
    none = table.filter(pl.col("guarantee_90") == "none")
    assert none["lower_90"].is_null().all()


def test_earnings_alone_and_gaps_are_enough(forecaster: Forecaster) -> None:
    rows = [("one", 2022, 1980, 300_000.0)]
    rows += [
        ("many", year, 1960, 250_000.0 if year % 3 else 0.0)
        for year in range(1982, 2021)
        if year not in (1990, 1991, 2005)
    ]
    frame = pl.DataFrame(rows, ["person_id", "year", "birth_year", "earnings"], orient="row")
    table = forecaster.forecast(Panel.of(frame, PanelMeta("somebody")), draws=Draws(20))
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
    assert {k: v.rule for k, v in find_ineligible(panel).items()} == {
        "old": "too-old",
        "silent": "no-earnings",
        "dead": "has-left",
    }
    with pytest.raises(InputError) as caught:
        forecaster.forecast(panel, draws=Draws(10))
    assert len(caught.value.problems) == 3
    assert "1e5" not in str(caught.value)
    assert "100000" not in str(caught.value)


def test_a_scenario_of_other_years_is_refused_and_two_of_one_name_are_told_apart(
    forecaster: Forecaster, tmp_path: Path
) -> None:
    rows = [("sixty", 2022, 1962, 1e5), ("young", 2010, 1990, 1e5)]
    panel = Panel.of(
        pl.DataFrame(rows, ["person_id", "year", "birth_year", "earnings"], orient="row"),
        PanelMeta("p"),
    )

    def of(year: int, unemployment: float = 0.1) -> str:
        file = tmp_path / "mine.csv"
        file.write_text(
            f"year,unemployment,real_wage_growth,inflation\n{year},{unemployment},0,0.02\n"
        )
        return str(file)

    for year, years in ((2011, 1), (2026, 10), (2024, 2)):
        check_scenario(forecaster.scenario(of(year)), panel, years)
    check_scenario(forecaster.scenario("baseline"), panel, 1)
    for year, years in ((2012, 1), (2015, 1), (2055, 30), (2010, 5)):
        with pytest.raises(UsageError, match=f"about {year} to {year}"):
            check_scenario(forecaster.scenario(of(year)), panel, years)
    seen = [forecaster.provenance(Draws(scenario=of(2023, share))) for share in (0.1, 0.2, 0.1)]
    assert [one["scenario"] for one in seen] == ["mine"] * 3
    assert seen[0]["scenario_digest"] == seen[2]["scenario_digest"] != seen[1]["scenario_digest"]
    assert "scenario_digest" not in forecaster.provenance()


def test_whom_no_year_that_is_asked_for_reaches_is_named(forecaster: Forecaster) -> None:
    rows = [("sixty", 2022, 1962, 1e5), ("young", 2022, 1990, 1e5)]
    panel = Panel.of(
        pl.DataFrame(rows, ["person_id", "year", "birth_year", "earnings"], orient="row"),
        PanelMeta("p"),
    )
    for horizons, persons in (((4, 10), {"sixty", "young"}), ((5, 10), {"young"})):
        table = forecaster.forecast(panel, ForecastRequest(horizons=horizons), Draws(10))
        assert set(table["person_id"]) == persons
    assert not find_ineligible(panel, ahead=4)
    late = find_ineligible(panel, ahead=5)
    assert {person: problem.rule for person, problem in late.items()} == {"sixty": "too-old"}
    assert "5 years on" in late["sixty"].message


def test_swedish_tax_is_not_taken_from_other_money(tiny_bundle: Path) -> None:
    bundle = Bundle.load(tiny_bundle)
    foreign = Forecaster(
        replace(bundle, transforms={**bundle.transforms, "currency": "USD", "price_year": 2018})
    )
    check_tax("none", foreign.transforms)
    with pytest.raises(UsageError, match="SEK of 2022"):
        check_tax("se-2022", foreign.transforms)


def test_another_currency_is_refused(forecaster: Forecaster, people: Panel) -> None:
    with pytest.raises(UsageError, match="USD"):
        forecaster.forecast(Panel(people.frame, PanelMeta("us", currency="USD")), draws=Draws(10))


def economy(unemployment: Sequence[float], growth: float = 0.013) -> list[dict[str, float]]:
    """A scenario of the years from 2023 on."""
    rest = {"real_wage_growth": growth, "inflation": 0.02}
    return [
        {"year": year, "unemployment": share, **rest}
        for year, share in enumerate(unemployment, start=2023)
    ]


def lower_tail(earnings: Floats) -> Floats:
    """Each person's 10 % quantile over the median among positive earnings (n, H, M), shape (n, H)."""
    low, middle = np.nanquantile(np.where(earnings > 0, earnings, np.nan), (0.1, 0.5), axis=-1)
    ratio: Floats = low / middle
    return ratio


def answers_unemployment(calm: Floats, recession: Floats) -> bool:
    """Whether the share of zeros rises, the mean falls and the lower tail grows longer, in each year and beyond four standard errors.

    Earnings (n, H, M) of the same persons and paths. Persons of a random sample whose economy is given are independent of each other, so
    the mean over persons of their paired differences has the standard error sd / sqrt(n), with the paths' luck in it. A tail is asked of
    who has enough positive earnings in both economies, which favours neither.
    """
    often = ((calm > 0).sum(-1) >= 20).all(1) & ((recession > 0).sum(-1) >= 20).all(1)
    worse = (
        (recession == 0).mean(-1) - (calm == 0).mean(-1),
        calm.mean(-1) - recession.mean(-1),
        lower_tail(calm[often]) - lower_tail(recession[often]),
    )
    return all((one.mean(0) > 4 * one.std(0, ddof=1) / len(one) ** 0.5).all() for one in worse)


def test_unemployment_itself_lowers_and_skews_near_earnings_and_a_deaf_network_shows_none_of_it(
    register_panel: Panel,
) -> None:
    """Wages grow alike in both economies: the wage index moves levels by itself, so it would hide a network that hears nothing."""
    bundle = Bundle.load(SHIPPED)
    shipped = Forecaster(bundle, threads=2)
    unheard = torch.zeros_like(bundle.weights["head.macro.weight"])
    deaf = Forecaster(
        replace(bundle, weights={**bundle.weights, "head.macro.weight": unheard}), threads=2
    )
    known = MacroProcess.from_dict(bundle.macro).history.values[:, 0]
    calm, rise = [known[-1]] * 3, [0.11, 0.125, 0.13]
    assert max(rise) < known.max()
    assert np.diff([known[-1], *rise]).max() < np.diff(known).max()  # no steeper than has been seen
    origins = origins_at(register_panel, 2022).take(slice(None, None, 2))
    sample = history(register_panel, origins)

    def drawn(forecaster: Forecaster, scenario: list[dict[str, float]], seed: int = 1) -> Floats:
        return forecaster.simulate(
            sample, Draws(100, seed, scenario), to_horizon=3
        ).earnings.astype(float)

    assert answers_unemployment(drawn(shipped, economy(calm)), drawn(shipped, economy(rise)))
    unmoved = drawn(deaf, economy(calm))
    assert np.array_equal(
        unmoved, drawn(deaf, economy(rise))
    )  # nothing but the head tells the two economies apart
    assert not answers_unemployment(unmoved, unmoved)
    assert not answers_unemployment(
        unmoved, drawn(deaf, economy(rise), seed=2)
    )  # nor is luck an answer,
    poorer = drawn(deaf, economy(rise, growth=-0.02))
    assert poorer.mean() < unmoved.mean()
    assert not answers_unemployment(
        unmoved, poorer
    )  # nor the wage index, which lowers everybody's earnings alike


def test_nothing_is_promised_about_a_world_that_somebody_chose() -> None:
    """Thresholds were learnt from outcomes of drawn economies: under a scenario every interval says that it is no promise."""
    shipped, people = Forecaster.load(SHIPPED), read_panel(ROOT / "examples/people.csv")
    request = ForecastRequest(horizons=(1, 5), coverage=(0.9,), limits=True, bands=5)
    kinds = ["guarantee_90", "guarantee_limits_90", "guarantee_positive_90", "guarantee_band_90"]
    for scenario, word in (
        (None, "assumption"),
        ("baseline", "assumption"),
        ("recession-1990s", "extrapolated"),
    ):
        draws = Draws(200, scenario=scenario)
        found = shipped.forecast(people, request, draws)
        assert {one for kind in kinds for one in found[kind]} == {word}
        lives = shipped.lifetime(people, LifetimeRequest(to_age=50), draws)
        assert set(lives.table["guarantee_90"]) == {word}


def test_present_values_are_the_discounted_sums_of_the_forecast_paths(
    forecaster: Forecaster, people: Panel
) -> None:
    lives = forecaster.lifetime(people, LifetimeRequest(rate=0.02, tax="se-2022"), Draws(30, 2))
    paths = forecaster.simulate(people, Draws(30, 2), to_horizon=None)
    weights = 1.02 ** -np.arange(1.0, paths.n_horizons + 1)
    expected = np.nansum(paths.earnings.astype(float) * weights[None, :, None], axis=1)
    np.testing.assert_allclose(lives.values, expected, rtol=1e-6)
    assert (lives.table["net_mean"] < lives.table["mean"]).all()
    assert lives.population.filter(pl.col("statistic") == "mean")["mc_error"][0] > 0


def test_path_marginals_equal_the_forecast_table(
    forecaster: Forecaster, people: Panel, table: pl.DataFrame
) -> None:
    paths = forecaster.simulate(people, Draws(PATHS, 3))
    for h in (1, 5, 10):
        rows = table.filter(pl.col("horizon") == h)
        inside = paths.within_age[:, h - 1]
        np.testing.assert_allclose(
            rows["mean"], paths.earnings[inside, h - 1].astype(float).mean(1)
        )
        np.testing.assert_allclose(rows["p_zero"], (paths.earnings[inside, h - 1] == 0).mean(1))


@pytest.mark.parametrize("bad", [{"to_age": 70}, {"to_age": 64, "from_age": 65}])
def test_ages_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        LifetimeRequest(**bad)


def test_paths_are_recalibrated_unless_raw_ones_are_wanted(
    forecaster: Forecaster, people: Panel
) -> None:
    for calibrator in (forecaster.calibrator, Calibrator.identity()):
        other = forecaster.with_calibrator(calibrator)
        assert other.simulate(people, Draws(4), to_horizon=1).recalibrated
        assert not other.simulate(people, Draws(4), to_horizon=1, recalibrate=False).recalibrated


def test_another_calibrator_makes_another_forecaster_and_leaves_the_first_as_it_is(
    forecaster: Forecaster, people: Panel, table: pl.DataFrame
) -> None:
    bare = forecaster.with_calibrator(Calibrator.identity())
    assert bare.network is forecaster.network
    raw = bare.forecast(people, draws=Draws(PATHS, 3))
    assert set(raw["guarantee_90"]) == {"none"}
    assert not raw.equals(table)
    assert forecaster.forecast(people, draws=Draws(PATHS, 3)).equals(table)
