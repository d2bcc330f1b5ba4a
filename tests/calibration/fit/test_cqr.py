"""Method "cqr", the paper's intervals: compared with MAPIE and with theory."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from saga.calibration.adaptive.issuance import AdaptedForecaster
from saga.calibration.fit.cqr import cqr_threshold, fit_cqr

from saga.arrays import Floats
from saga.conformal.families.quantile_intervals import QUANTILE_INTERVALS, central_probabilities
from saga.data.panel import Panel
from saga.distributions import Marginals
from saga.errors import UsageError
from saga.files.tables import read_provenance
from saga.forecaster import Forecaster
from saga.requests import COVERAGE, Draws, ForecastRequest, LifetimeRequest
from tests.calibration.worlds import draw_world, split_quantile
from tests.command_line import answer, done
from tests.conftest import quick_calibration


def central_quantiles(marginals: Marginals, coverage: float) -> tuple[Floats, Floats]:
    """The two quantiles (n,) of the first horizon."""
    lower, upper = (marginals.quantiles(p)[:, 0, 0] for p in central_probabilities((coverage,)))
    return lower, upper


def conformity_scores(marginals: Marginals, outcomes: Floats, coverage: float) -> Floats:
    return QUANTILE_INTERVALS.scores(marginals, outcomes, coverage)[:, 0]


# --- thresholds ---


@pytest.mark.parametrize("coverage", COVERAGE)
def test_mapies_threshold_is_the_order_statistic_of_the_larger_miss(coverage: float) -> None:
    marginals, outcomes = draw_world(400, 21)
    expected = split_quantile(conformity_scores(marginals, outcomes, coverage), coverage)
    ends = central_quantiles(marginals, coverage)
    threshold = cqr_threshold(*ends, outcomes[:, 0], coverage, neighbours=1)
    assert threshold == pytest.approx(expected, rel=1e-12, abs=1e-9)


def test_every_number_of_persons_gives_a_threshold_or_none() -> None:
    # Horizons near the end of a short panel may be known for one, nine or ten persons only.
    for n in range(1, 45):
        marginals, outcomes = draw_world(n, 26)
        for coverage in COVERAGE:
            ends = central_quantiles(marginals, coverage)
            q = cqr_threshold(*ends, outcomes[:, 0], coverage, neighbours=1)
            assert math.isfinite(q) == (n * min(coverage, 1 - coverage) > 1)


def test_a_stored_threshold_is_the_average_of_ten_order_statistics() -> None:
    marginals, outcomes = draw_world(400, 27)
    cell = fit_cqr(marginals, outcomes, (0.9,)).cells[1, "all"]
    k = math.ceil(401 * 0.9 - 1e-9)
    expected = np.sort(conformity_scores(marginals, outcomes, 0.9))[k - 1 : k + 9].mean()
    assert cell.thresholds[0.9] == pytest.approx(expected, rel=1e-12)


# --- from the command line to the forecast ---


@pytest.fixture(scope="module")
def young(register_panel: Panel) -> Panel:
    persons = register_panel.frame.filter(pl.col("birth_year").is_between(1985, 1995))
    return register_panel.only(sorted(set(persons["person_id"]))[:40])


@pytest.fixture(scope="module")
def cqr_bundle(
    tiny_bundle: Path, register_panel: Panel, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The tiny bundle calibrated by `saga calibrate --method cqr`."""
    folder = tmp_path_factory.mktemp("cqr")
    register_panel.frame.write_parquet(folder / "panel.parquet")
    options = f"--method cqr --paths 50 --threads 1 --prices 2022 --out {folder / 'bundle'}"
    with quick_calibration():
        facts = answer("calibrate", tiny_bundle, "--panel", folder / "panel.parquet", options)
    assert facts["method"] == "cqr"
    assert facts["reach"]["0.9"][-1] > 1
    return folder / "bundle"


def test_forecasts_publish_the_intervals_and_name_the_method(
    cqr_bundle: Path, young: Panel, tmp_path: Path
) -> None:
    young.frame.write_parquet(tmp_path / "people.parquet")
    options = "--paths 50 --horizons 1,2 --prices 2022 --limits --bands 2 --threads 1"
    line = f"forecast {tmp_path}/people.parquet --bundle {cqr_bundle} --out {tmp_path}/f.parquet"
    done(line, options)
    table = pl.read_parquet(tmp_path / "f.parquet")
    assert read_provenance(tmp_path / "f.parquet")["calibration_method"] == "cqr"

    q = Forecaster.load(cqr_bundle).calibrator.cells[1, "all"].thresholds[0.9]
    assert q is not None
    first = table.filter(pl.col("horizon") == 1)
    wide = first.select(
        lower=(pl.col("q05") - q).clip(lower_bound=0), upper=(pl.col("q95") + q).clip(0)
    )
    # Quantiles are the raw forecast's; an interval also contains those of lower coverage.
    assert (first["lower_90"] <= wide["lower"] + 1e-6).all()
    assert (first["upper_90"] >= wide["upper"] - 1e-6).all()
    assert set(table["guarantee_90"]) == {"assumption"}
    assert (table["includes_zero_90"] == (table["lower_90"] == 0)).all()
    assert set(table["guarantee_limits_90"]) == set(table["guarantee_band_90"]) == {"none"}


def test_present_values_and_ledgers_are_not_offered(cqr_bundle: Path, young: Panel) -> None:
    forecaster = Forecaster.load(cqr_bundle)
    table = forecaster.lifetime(young, LifetimeRequest(), Draws(30)).table
    assert set(table["guarantee_90"]) == {"none"}
    assert table["lower_90"].null_count() == len(table)
    with pytest.raises(UsageError, match="no intervals to record"):
        AdaptedForecaster.of(forecaster, None).check_recordable(ForecastRequest(), Draws())
