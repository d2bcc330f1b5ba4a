"""Paths and marginals are raw or recalibrated; what needs the other kind refuses them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from saga.calibration.diagnostics.person_results import judge_persons
from saga.calibration.fit.cqr import fit_cqr
from saga.calibration.fit.split_conformal import fit_calibration

from saga.arrays import Floats
from saga.conformal.calibrator import Calibrator
from saga.conformal.families import BAND, POSITIVE, PRESENT_VALUE
from saga.conformal.published_sets import band_intervals, one_sided_limits
from saga.conformal.recalibration import map_paths
from saga.data.panel import Panel, PanelMeta
from saga.distributions import Marginals
from saga.errors import UsageError
from saga.forecast_tables import forecast_table, lifetime_table
from saga.paths import Paths
from saga.requests import ForecastRequest, LifetimeRequest
from saga.training_records import TrainingRecords

N, YEARS, M = 12, 3, 30
COVERAGE = (0.8, 0.9)


@pytest.fixture(scope="module")
def raw() -> Paths:
    earnings = np.random.default_rng(0).lognormal(12, 0.5, (N, YEARS, M)).astype(np.float32)
    ids = np.array([f"p{i:02d}" for i in range(N)])
    return Paths(ids, np.full(N, 1980), np.full(N, 2020), earnings)


@pytest.fixture(scope="module")
def outcomes(raw: Paths) -> Floats:
    return raw.earnings[:, :, 0].astype(np.float64)


IDENTITY = Calibrator()
PANEL = Panel.of(pl.DataFrame(schema=["person_id"]), PanelMeta("empty"))
RECORDS = TrainingRecords(1990, 2022, 32, 16, 64)


@pytest.fixture(scope="module")
def marginals(raw: Paths) -> Marginals:
    """Raw marginals of the paths."""
    return replace(Marginals.from_samples(raw.earnings), person_id=raw.person_id)


@pytest.fixture(scope="module")
def forecasts(raw: Paths, marginals: Marginals) -> dict[str, Any]:
    """Marginals and paths, raw and recalibrated."""
    recalibrated = IDENTITY.recalibrate(marginals)
    return {
        "raw marginals": marginals,
        "recalibrated marginals": recalibrated,
        "raw paths": raw,
        "recalibrated paths": map_paths(raw, recalibrated),
    }


NEED_RECALIBRATED_MARGINALS = [
    lambda m, _: IDENTITY.intervals(m, COVERAGE),
    lambda m, _: one_sided_limits(IDENTITY, m, COVERAGE),
    lambda m, _: band_intervals(IDENTITY, m, YEARS, COVERAGE),
    lambda m, y: POSITIVE.scores(m.at_horizon(1), y[:, :1], 0.9),
    lambda m, y: BAND.scores(m, y, 0.9),
    lambda m, _: forecast_table(m, IDENTITY, ForecastRequest(horizons=(1,)), RECORDS),
    lambda m, y: judge_persons(
        m,
        IDENTITY.intervals(replace(m, recalibrated=True), COVERAGE),
        y[:, 0],
        1,
        floor=None,
        low_pay=0.0,
    ),
]
NEED_RECALIBRATED_PATHS = [
    lambda paths, y: PRESENT_VALUE.scores(paths, y, 0.9),
    lambda paths, _: lifetime_table(paths, IDENTITY, PANEL, LifetimeRequest(to_age=43), RECORDS),
]
NEED_RAW_MARGINALS = [
    lambda m, _: IDENTITY.recalibrate(m),
    lambda m, y: fit_calibration(m, y, seed=0),
    lambda m, y: fit_cqr(m, y, COVERAGE),
]


@pytest.mark.parametrize(
    ("given", "needed", "told", "use"),
    [
        (given, needed, told, use)
        for given, needed, told, uses in (
            ("raw marginals", "recalibrated marginals", "are raw", NEED_RECALIBRATED_MARGINALS),
            ("raw paths", "recalibrated paths", "are raw", NEED_RECALIBRATED_PATHS),
            ("recalibrated marginals", "raw marginals", "already recal", NEED_RAW_MARGINALS),
        )
        for use in uses
    ],
)
def test_the_other_kind_of_forecasts_is_refused(
    forecasts: dict[str, Any],
    outcomes: Floats,
    given: str,
    needed: str,
    told: str,
    use: Callable[[Any, Floats], object],
) -> None:
    with pytest.raises(UsageError, match=told):
        use(forecasts[given], outcomes)
    use(forecasts[needed], outcomes)


def test_paths_are_mapped_once_and_to_recalibrated_marginals(
    raw: Paths, marginals: Marginals
) -> None:
    with pytest.raises(UsageError, match="are raw"):
        map_paths(raw, marginals)
    mapped = map_paths(raw, IDENTITY.recalibrate(marginals))
    with pytest.raises(UsageError, match="already recalibrated"):
        map_paths(mapped, IDENTITY.recalibrate(marginals))


def test_subsets_joins_and_other_earnings_keep_what_the_paths_are(raw: Paths) -> None:
    done = replace(raw, recalibrated=True, conditioned=True)
    kept = [done.take(slice(0, 3)), done.with_earnings(2 * done.earnings), Paths.joined([done])]
    assert all(paths.recalibrated and paths.conditioned for paths in kept)
    assert not raw.take(np.arange(3)).recalibrated
    with pytest.raises(ValueError, match="cannot be joined"):
        Paths.joined([raw, done])


def test_paths_whose_shapes_disagree_are_refused(raw: Paths) -> None:
    with pytest.raises(ValueError, match="need arrays of 12 rows; birth_year has 11"):
        replace(raw, birth_year=raw.birth_year[1:])
