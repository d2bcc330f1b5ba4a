"""What the economy did once is not learnt as a fault of the model: maps are told of it, sets are not."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import calibration.fit.bundle_calibration as command
from calibration.diagnostics.diagnosis import summarise
from calibration.diagnostics.person_results import crps_thresholds, judge_persons
from calibration.fit.split_conformal import NEIGHBOURS, fit_calibration, in_map_fold, rank_needed
from saga.data.split import persons_of
from saga.errors import UsageError
from saga.forecaster import Forecaster
from saga.paths import Paths
from saga.requests import COVERAGE

P = 1e-6
SURPRISE, SPREAD = (
    0.25,
    0.2,
)  # of the economy that came, and of those that are drawn, in log earnings
NINETY = COVERAGE.index(0.9)


def economy(n: int, seed: int, count: int = 80):
    """Persons with luck of their own in one economy that went better than its law; a model that is right about both.

    Returns paths that follow drawn economies, the same told the one that came, and the outcomes.
    """
    rng = np.random.default_rng(seed)
    centre = rng.normal(12.3, 0.4, (n, 1))
    drawn = SPREAD * np.random.default_rng(0).normal(
        size=count
    )  # path k of every person lives in the same economy
    outcomes = np.exp(centre + SURPRISE + 0.3 * rng.normal(size=(n, 1)))
    luck = centre[..., None] + 0.3 * rng.normal(size=(n, 1, count))
    ids = np.array([f"{seed}-{i}" for i in range(n)])
    paths = Paths(ids, np.full(n, 1970), np.full(n, 2000), np.exp(luck + drawn).astype(np.float32))
    return paths, replace(paths, earnings=np.exp(luck + SURPRISE).astype(np.float32)), outcomes


def raised(calibrator, paths: Paths) -> float:
    """By how much the maps raise forecasts, in logs."""
    return float(np.log(calibrator.recalibrate(paths).earnings / paths.earnings).mean())


def test_the_luck_of_one_economy_is_not_added_to_every_future():
    paths, came, outcomes = economy(2_000, 1)
    told, untold = (
        fit_calibration(paths, outcomes, seed=0, realised=came),
        fit_calibration(paths, outcomes, seed=0),
    )
    fresh = economy(1_000, 2)[0]
    # The map's own noise: its ranks are those of 1,000 persons, whose mean outcome is known to .3 / sqrt(1,000).
    assert abs(raised(told, fresh)) < 5 * 0.3 / 1_000**0.5
    assert raised(untold, fresh) > 0.8 * SURPRISE


@pytest.mark.parametrize("informed", [True, False])
def test_sets_hold_in_the_years_that_came_whatever_the_maps_were_told(informed):
    paths, came, outcomes = economy(3_000, 3)
    calibrator = fit_calibration(paths, outcomes, seed=0, realised=came if informed else None)
    fresh, _, truth = economy(6_000, 4)
    hits = int(
        calibrator.intervals(calibrator.recalibrate(fresh), COVERAGE)
        .covered(truth)[:, 0, NINETY]
        .sum()
    )
    n = calibrator.cells[1, "all"].n
    k = rank_needed(n, 0.9)
    low, high = (stats.betabinom(6_000, r, n + 1 - r) for r in (k, k + NEIGHBOURS - 1))
    assert low.ppf(P / 2) <= hits <= high.isf(P / 2)


def test_paths_that_were_told_come_in_any_order_and_only_half_a_is_asked_for():
    paths, came, outcomes = economy(600, 5)
    learners = np.flatnonzero(in_map_fold(paths.person_id, 0))
    one = fit_calibration(paths, outcomes, seed=0, realised=came)
    assert (
        fit_calibration(paths, outcomes, seed=0, realised=came.take(learners[::-1])).digest
        == one.digest
    )
    with pytest.raises(UsageError, match="not those of the map fold"):
        fit_calibration(paths, outcomes, seed=0, realised=came.take(learners[1:]))
    with pytest.raises(UsageError, match="not those of the map fold"):
        fit_calibration(
            paths,
            outcomes,
            seed=0,
            realised=replace(came, earnings=came.earnings.repeat(2, axis=1)),
        )


def test_the_report_tells_the_economys_part_from_the_models():
    """Right about people, surprised by the economy: no red light where people are judged, and the surprise is shown."""
    paths, came, outcomes = economy(2_000, 6)
    calibrator = fit_calibration(paths, outcomes, seed=0, realised=came)
    fresh, told, truth = economy(2_000, 7)
    thresholds = crps_thresholds(truth[:, 0], 1.0)

    def judged(of: Paths):
        mapped = calibrator.recalibrate(of)
        sets = calibrator.intervals(mapped, COVERAGE)
        return {
            1: judge_persons(
                mapped, sets, truth[:, 0], 1, thresholds=thresholds, floor=1.0, low_pay=150_000.0
            )
        }

    def lights(*cases):
        found = summarise(
            cases[0], None, calibrator, None, *cases[1:], provenance={"bundle": "b"}, seed=0
        )
        return dict(found["lights"].select("question", "status").iter_rows()), found["level"].row(
            0, named=True
        )

    right, level = lights(judged(fresh), judged(told))
    assert right["coverage"] == right["shape"] == right["level"] == "holds"
    mean_drawn = SPREAD * np.random.default_rng(0).normal(size=80).mean()
    assert level["economy"] == pytest.approx(SURPRISE - mean_drawn, abs=0.01)
    assert lights(judged(fresh))[0]["shape"] == "fails", (
        "without being told, the economy's luck looks like a fault"
    )


def test_calibrate_tells_half_a_and_nobody_else(tiny_bundle, register_panel, tmp_path, monkeypatch):
    asked, given = [], []
    simulate, fit = Forecaster.simulate, fit_calibration

    def spied(self, panel, draws, **options):
        asked.append((panel.persons(), draws.scenario))
        return simulate(self, panel, draws, **options)

    monkeypatch.setattr(Forecaster, "simulate", spied)
    monkeypatch.setattr(
        command,
        "fit_calibration",
        lambda paths, outcomes, **options: (
            given.append(options["realised"]) or fit(paths, outcomes, **options)
        ),
    )
    spared = set(persons_of(register_panel, "calibration")[60:])
    few = register_panel.only(
        [person for person in register_panel.persons() if person not in spared]
    )
    options = command.CalibrationOptions(n_paths=25, profiles=True)
    command.calibrate_bundle(tiny_bundle, few, options, out=tmp_path / "bundle")
    everybody, untold = asked[0]
    assert untold is None
    learners = [
        person
        for person, own in zip(everybody, in_map_fold(np.array(everybody), 0), strict=True)
        if own
    ]
    assert [len(persons) for persons, _ in asked] == [
        len(everybody),
        len(learners),
    ] * 3  # full records, survey-like ones, earnings alone
    assert all(persons == learners and told.name == "observed" for persons, told in asked[1::2])
    assert all(came.person_id.tolist() == learners for came in given)


def test_there_is_nothing_to_tell_where_panel_bundle_or_years_have_no_economy(
    tiny_bundle, register_panel
):
    forecaster = Forecaster.load(tiny_bundle)
    assert max(forecaster.realised_macro(register_panel, 2015).rows) == 2015
    assert forecaster.realised_macro(register_panel, 1980) is None
    assert (
        forecaster.realised_macro(
            replace(register_panel, meta=replace(register_panel.meta, macro=None)), 2015
        )
        is None
    )
    forecaster.process = None
    assert forecaster.realised_macro(register_panel, 2015) is None
