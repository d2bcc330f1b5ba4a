"""The one way from a request to its result: pieces of any size give what the whole gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from saga.calibration.adaptive.issuance import AdaptedForecaster

from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.errors import UsageError
from saga.forecast_warnings import add_counts
from saga.forecaster import Forecaster
from saga.requests import Draws, ForecastRequest, LifetimeRequest, PathsRequest, Request
from tests.panels import rows_of

SHIPPED = Path(__file__).parents[2] / "bundles/small"
DRAWS = Draws(12, 3)
REQUESTS: list[Request] = [
    ForecastRequest((1, 4), (0.5, 0.9), (0.5,), limits=True, bands=3),
    LifetimeRequest(to_age=50, from_age=20, tax="se-2022", coverage=(0.5, 0.9)),
    PathsRequest(to_age=45),
    PathsRequest(to_age=45, states=True),
]
IDS = ["forecasts", "lifetimes", "paths", "states"]
every_request = pytest.mark.parametrize("request_", REQUESTS, ids=IDS)


@pytest.fixture(scope="module")
def forecaster() -> Forecaster:
    return Forecaster.load(SHIPPED, threads=1)


@pytest.fixture(scope="module")
def panel() -> Panel:
    """Five persons who can be forecast, one without known earnings and one who is too old."""
    born = {"a": 1985, "b": 1990, "c": 1978, "d": 1995, "e": 1983, "old": 1958, "silent": 1990}
    rows = [
        (person, year, birth_year, None if person == "silent" else 2e5 + 7e3 * (year - 2010))
        for person, birth_year in born.items()
        for year in range(2014, 2023)
    ]
    return read_panel(rows_of(rows), prices=2022)


@every_request
@pytest.mark.parametrize("n_persons", [1, 2, 64])
def test_pieces_of_any_size_give_the_result_of_the_whole(
    forecaster: Forecaster, panel: Panel, request_: Request, n_persons: int
) -> None:
    whole = forecaster.run(request_, panel, DRAWS)
    plan = forecaster.plan(request_, panel, DRAWS)
    pieces = plan.pieces(n_persons)
    assert max(piece.n_persons for piece in pieces) <= n_persons
    in_pieces = plan.result([plan.compute(piece) for piece in pieces])
    assert_frame_equal(in_pieces.table, whole.table, check_exact=True)
    assert whole.table["person_id"].unique(maintain_order=True).to_list() == list("abcde")
    assert in_pieces.warnings == whole.warnings
    assert in_pieces.provenance == whole.provenance
    assert in_pieces.left_out == whole.left_out


@every_request
def test_the_seed_decides_what_is_drawn(
    forecaster: Forecaster, panel: Panel, request_: Request
) -> None:
    """A forecast of single years draws nothing, so neither seed nor number of paths matter."""
    all_draws = (Draws(12, 3), Draws(12, 3), Draws(12, 4), Draws(9, 3))
    first, same, *others = (forecaster.run(request_, panel, d).table for d in all_draws)
    assert first.equals(same)
    assert {first.equals(other) for other in others} == {isinstance(request_, ForecastRequest)}


def test_who_has_an_unknown_past_is_not_in_the_distribution(
    forecaster: Forecaster, panel: Panel
) -> None:
    lifetimes = forecaster.lifetime(panel, LifetimeRequest(to_age=50, from_age=20), DRAWS)
    assert np.isnan(lifetimes.values).any(axis=1).tolist() == [True, True, True, False, True]
    mean = lifetimes.population.filter(statistic="mean")["value"].item()
    assert mean == pytest.approx(lifetimes.values[3].mean(), abs=1)


@every_request
def test_those_left_out_are_named_with_the_reason(
    forecaster: Forecaster, panel: Panel, request_: Request
) -> None:
    result = forecaster.run(request_, panel, DRAWS)
    reasons = {problem.person_id: problem.rule for problem in result.left_out}
    assert reasons == {"old": "too-old", "silent": "no-earnings"}
    assert not set(result.table["person_id"]) & reasons.keys()


def test_a_warning_about_the_result_is_given_once(forecaster: Forecaster, panel: Panel) -> None:
    """Also after parts were computed apart, as those of a batch."""
    whole, *parts = (
        forecaster.run(REQUESTS[0], panel.only(list(persons)), DRAWS).warnings
        for persons in ("abcde", "ab", "cde")
    )
    together = add_counts([[warning.as_dict() for warning in part] for part in parts])
    codes = [warning.code for warning in whole if warning.person_id is None]
    assert codes.count("simulated-people") == 1
    assert [w["code"] for w in together if "count" not in w] == codes


@every_request
def test_amounts_are_rounded_once_and_nothing_else_is(
    forecaster: Forecaster, panel: Panel, request_: Request
) -> None:
    rounded = forecaster.run(request_, panel, DRAWS).table
    exact = forecaster.run(replace(request_, unrounded=True), panel, DRAWS).table
    shares = pl.selectors.by_name("p_zero", "rate", "wage_index", require_all=False)
    expected = exact.with_columns((pl.selectors.float() - shares).round())
    if "net_mean" in expected.columns:
        expected = expected.with_columns(net_mean=pl.col("mean") - pl.col("tax_mean"))
    assert_frame_equal(rounded, expected, check_exact=True)
    assert not rounded.equals(exact)


def test_provenance_names_the_product_its_options_and_the_state_of_a_ledger(
    forecaster: Forecaster, panel: Panel
) -> None:
    adapted = AdaptedForecaster.of(forecaster, None)
    provenance = forecaster.run(REQUESTS[1], panel, DRAWS, adapted).provenance
    assert forecaster.provenance(DRAWS).items() <= provenance.items()
    options = {name: provenance[name] for name in ("product", "to_age", "from_age", "tax")}
    assert options == {"product": "lifetimes", "to_age": 50, "from_age": 20, "tax": "se-2022"}
    assert provenance["adaptive"] == adapted.identity()


def test_what_is_recorded_is_what_was_issued_in_every_piece(
    forecaster: Forecaster, panel: Panel
) -> None:
    adapted = AdaptedForecaster.of(forecaster, None)
    request = ForecastRequest((1, 4), (0.5,))
    plan = forecaster.plan(request, panel, DRAWS, adapted, record=True)
    result = plan.result([plan.compute(piece) for piece in plan.pieces(2)])
    n_issued = result.table.filter(pl.col("guarantee_50") == "assumption").height
    assert len(result.issued) == n_issued > 5
    assert not forecaster.run(request, panel, DRAWS, adapted).issued


def test_a_coverage_that_was_not_fitted_is_refused_before_anything_is_computed(
    forecaster: Forecaster, panel: Panel
) -> None:
    with pytest.raises(UsageError, match="coverage"):
        forecaster.plan(ForecastRequest(coverage=(0.77,)), panel)
