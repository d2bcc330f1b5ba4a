"""Several years together in the diagnostics, and the adaptive state in the report."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import SecretStr
from saga.api.settings import Settings
from saga.calibration.adaptive.adaptive_state import AdaptiveState, ExcessCounts, compute_states
from saga.calibration.adaptive.ledger import open_ledger
from saga.calibration.diagnostics.adaptive_table import with_state
from saga.calibration.diagnostics.diagnosis import Findings, summarise
from saga.calibration.diagnostics.person_results import SeveralYears, crps_thresholds, judge_persons
from saga.calibration.fit.split_conformal import fit_calibration, in_map_fold
from saga.calibration.fit.thresholds import fit_thresholds
from typer.testing import CliRunner

from saga.cli import app
from saga.conformal.calibrator import Calibrator
from saga.conformal.families.present_value import SimulatedValues
from saga.conformal.published_sets import band_intervals, value_intervals
from saga.conformal.recalibration import map_paths
from saga.data.panel import FLOOR
from saga.diagnostics_tables import Diagnostics
from saga.distributions import Marginals
from saga.lifetime import present_value, realised_value
from saga.pages.report import render_report
from saga.paths import Paths
from saga.requests import COVERAGE, RATE

Array = NDArray[np.float64]
TrueWorld = Callable[..., tuple[Marginals, Array]]
Judged = tuple[Calibrator, Marginals, Paths, Array]


def draw_paths(marginals: Marginals, seed: int) -> Paths:
    """Raw paths of independent years, from the marginals themselves."""
    u = np.random.default_rng(seed).uniform(size=(*marginals.p_zero.shape, 60))
    earnings = marginals.quantiles(u).astype(np.float32)
    return Paths(marginals.person_id, marginals.birth_year, marginals.origin_year, earnings)


@pytest.fixture(scope="module")
def judged(true_world: TrueWorld) -> Judged:
    calibration, truth = true_world(1_200, 21)
    calibrator = fit_calibration(calibration, truth, seed=0)
    in_threshold_fold = np.flatnonzero(~in_map_fold(calibration.person_id, 0))
    paths = draw_paths(calibration.take(in_threshold_fold), 1)
    calibrator = fit_thresholds(calibrator, calibration, truth, seed=0, paths=paths)
    marginals, outcomes = true_world(900, 22)
    mapped = calibrator.recalibrate(marginals)
    return calibrator, mapped, map_paths(draw_paths(marginals, 2), mapped), outcomes


def diagnosed(calibrator: Calibrator, several_years: SeveralYears, judged: Judged) -> Diagnostics:
    _, marginals, _, outcomes = judged
    sets = calibrator.intervals(marginals, calibrator.coverage)
    results = {
        h: judge_persons(
            marginals,
            sets,
            outcomes[:, h - 1],
            h,
            thresholds=crps_thresholds(outcomes[:, h - 1], FLOOR),
            floor=FLOOR,
            low_pay=1e5,
        )
        for h in (1, 2)
    }
    return summarise(
        Findings(results, several_years),
        None,
        calibrator,
        provenance={"bundle": "b", "persons": 900},
    )


def test_several_years_are_judged_by_the_published_bands_and_sums(judged: Judged) -> None:
    calibrator, marginals, paths, outcomes = judged
    several_years = SeveralYears.of(calibrator, marginals, paths, outcomes, [2])
    published = band_intervals(calibrator, marginals, 2, COVERAGE).covered(outcomes).min(axis=1)
    assert np.array_equal(several_years.inside["band", 2], published)
    values = SimulatedValues.of(paths, partial(present_value, years=2, to_age=34))
    sums = value_intervals(calibrator, values, np.full(len(values), 2), COVERAGE, RATE)
    truth = realised_value(outcomes, rate=RATE, years=2)[:, None]
    assert np.array_equal(
        several_years.inside["present_value", 2], (sums.lower <= truth) & (truth <= sums.upper)
    )


def test_several_years_are_green_if_covered_as_stated_and_red_if_not(judged: Judged) -> None:
    calibrator, marginals, paths, outcomes = judged
    good = diagnosed(
        calibrator, SeveralYears.of(calibrator, marginals, paths, outcomes, [2]), judged
    )
    assert set(good["together"]["question"]) == {"band", "present_value"}
    assert set(good["together"]["horizon"]) == {2}
    assert (
        not good["verdicts"].filter(question="together")["status"].is_in(["watch", "fails"]).any()
    )
    too_low = (
        replace(marginals, grid=marginals.grid + np.log(0.4)),
        paths.with_earnings((0.4 * paths.earnings).astype("float32")),
    )
    bad = diagnosed(calibrator, SeveralYears.of(calibrator, *too_low, outcomes, [2]), judged)
    assert set(bad["together"].filter(level=0.9)["status"]) == {"fails"}
    assert bad["verdicts"].filter(question="together")["status"].to_list() == ["fails"]
    page = render_report(bad)
    assert "Several years together" in page
    assert "Do they cover as stated for several years together?" in page
    assert "next years inside the path band" in page.split("Where to be careful")[1]


def test_present_values_of_fewer_paths_than_calibrated_are_not_judged(judged: Judged) -> None:
    calibrator, marginals, paths, outcomes = judged
    few = paths.with_earnings(paths.earnings[..., :30])
    inside = SeveralYears.of(calibrator, marginals, few, outcomes, [2]).inside
    assert np.isnan(inside["present_value", 2]).all()


def state_after_misses(persons: int, score: float) -> AdaptiveState:
    counts = ExcessCounts.of(
        np.full((persons, 2), score),
        np.tile([0.5, 0.9], (persons, 1)),
        np.tile([0.5, 0.9], (persons, 1)),
    )
    cells = compute_states((0.5, 0.9), {(1, 2023): counts})
    return AdaptiveState(3, 2023, {("all", *key): cell for key, cell in cells.items()})


def test_the_report_shows_the_adaptive_state_and_no_figure_of_few_persons(
    faultless: Diagnostics,
) -> None:
    shown = with_state(faultless, state_after_misses(400, 0.99), {"settled": 400, "waiting": 7})
    row = shown["adaptive"].filter(horizon=1, level=0.9).row(0, named=True)
    assert (row["n"], row["inside"], row["last_year"]) == (400, 0.0, 2023)
    assert row["size"] > 0
    page = render_report(shown)
    assert (
        "It has outcomes up to 2023 (state 3); 400 issued intervals were compared with their"
        " outcome, 7 have no outcome yet" in page
    )
    assert "higher" in page.split("Change of the 90 % upper limits by later outcomes")[1]
    few = with_state(faultless, state_after_misses(4, 0.99), {"settled": 4, "waiting": 0})
    assert few["adaptive"].filter(horizon=1, level=0.9)["n"].to_list() == [None]
    assert "fewer than 10" in render_report(few).split("Change of the 90 % upper limits")[1]
    empty = render_report(with_state(faultless, None, {"settled": 0, "waiting": 0}))
    assert "It has no outcome yet" in empty
    assert "What later outcomes have changed" not in render_report(faultless)
    assert (
        with_state(shown, state_after_misses(400, 0.99), {"settled": 400, "waiting": 7}).provenance
        == shown.provenance
    ), "not twice"


def test_command_and_service_show_the_ledgers_state(
    tiny_bundle: Path,
    register_dir: Path,
    tmp_path: Path,
    start: Callable[[Settings], AbstractContextManager[Any]],
) -> None:
    bundle, url, page = (
        tmp_path / "bundle",
        f"sqlite:///{tmp_path / 'ledger.sqlite'}",
        tmp_path / "r.html",
    )
    shutil.copytree(tiny_bundle, bundle)
    options = (
        f"--panel {register_dir} --paths 25 --horizons 1,2 --persons 60 --threads 1 --store --json"
    )
    done = CliRunner().invoke(app, ["report", str(bundle), "--out", str(page), *options.split()])
    assert done.exit_code == 0, done.output
    assert "What later outcomes have changed" not in page.read_text()
    open_ledger(url).close()
    done = CliRunner().invoke(
        app, ["report", str(bundle), "--out", str(page), "--database", url, "--json"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["provenance"]["adaptive_settled"] == "0"
    assert "It has no outcome yet" in page.read_text()
    with start(Settings(bundle=bundle, threads=1, database=SecretStr(url))) as service:
        service.wait_until_ready()
        history = [{"year": year, "earnings": 2e5} for year in (2019, 2020, 2021)]
        persons = [
            {"person_id": f"P{i}", "birth_year": 1985, "history": history} for i in range(12)
        ]
        service.forecast({"persons": persons, "horizons": [1], "paths": 25, "record": True})
        before = service.client.get("/v1/calibration/report").text
        outcomes = [{"person_id": f"P{i}", "year": 2022, "earnings": 9e7} for i in range(12)]
        service.client.post("/v1/outcomes", json={"outcomes": outcomes})
        after = service.client.get("/v1/calibration/report").text
    assert "It has no outcome yet" in before
    assert (
        "It has outcomes up to 2022 (state 1); 12 issued intervals were compared with their outcome"
        in after
    )
