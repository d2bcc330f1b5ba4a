"""`saga train --folds`: members that have not seen a fold, in one bundle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from saga.calibration.diagnostics.diagnosis import diagnose
from saga.calibration.fit.bundle_calibration import CalibrationOptions, calibrate_bundle
from saga.evaluation.contest import Contest, ContestOptions
from saga.training.ensembles import train_final, train_folds

from saga.bundle import Bundle, replace_parts
from saga.data.panel import Panel
from saga.data.split import SPLIT_SHARES, assign_folds, assign_parts
from saga.diagnostics_tables import Diagnostics
from saga.errors import UsageError
from saga.forecaster import Forecaster
from saga.pages.report import render_report
from saga.requests import Draws, ForecastRequest
from saga.trees.mixture import tree_members
from saga.trees.tree_forecast import TreeOptions
from tests.toy_training import QUIET, TOY, make_panel

pytestmark = pytest.mark.thorough
FOLDS = 3
CONFIG = replace(TOY, learning_rate=5e-3, trees=True)


@pytest.fixture(scope="module", autouse=True)
def few_trees() -> Iterator[None]:
    few = TreeOptions(grid=(1, 2), leaves=(6,), rates=(0.1,), threads=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("saga.training.tree_member.TreeOptions", lambda threads: few)
        yield


@pytest.fixture(scope="module")
def panel() -> Panel:
    panel = make_panel()
    return Panel.of(panel.frame, replace(panel.meta, macro=None))


@pytest.fixture(scope="module")
def bundle(few_trees: None, panel: Panel, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("folds") / "b"
    bundle = train_folds(panel, out, FOLDS, config=CONFIG, seed=3, run=QUIET)
    assert not out.with_name("b.run").exists()
    return bundle


@pytest.fixture(scope="module")
def sibling(bundle: Bundle, panel: Panel, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The bundle with its calibration."""
    return calibrate_bundle(bundle.path, panel, out=tmp_path_factory.mktemp("sets") / "sibling")


def test_the_bundle_states_its_members_and_folds(bundle: Bundle, panel: Panel) -> None:
    assert bundle.config["members"] == FOLDS
    assert bundle.split == {
        "panel_id": "toy",
        "scheme": "folds",
        "folds": FOLDS,
        "shares": [90, 0, 0, 10],
    }
    assert {name.split(".")[1] for name in bundle.weights} == {"0", "1", "2"}
    assert "3 members" in bundle.card
    persons = np.array(panel.persons())
    persons = persons[assign_parts("toy", persons) != "test"]
    folds = assign_folds("toy", persons, FOLDS)
    for k, report in enumerate(bundle.metrics["training"]["by_member"]):
        seen = report["persons"]["train"] + report["persons"]["validation"]
        assert seen == (folds != k).sum()


def test_a_member_does_not_depend_on_its_fold(bundle: Bundle, panel: Panel, tmp_path: Path) -> None:
    """Other earnings in fold 1 change members 0 and 2, but not member 1."""
    fold = pl.Series(assign_folds("toy", panel.frame["person_id"].to_list(), FOLDS))
    changed = panel.with_frame(
        panel.frame.with_columns(
            earnings=pl.when(fold == 1).then(pl.col("earnings") * 3).otherwise("earnings")
        )
    )
    other = train_folds(changed, tmp_path / "b", FOLDS, config=CONFIG, seed=3, run=QUIET)
    same = [
        all(
            torch.equal(tensor, other.weights[name])
            for name, tensor in bundle.weights.items()
            if name.startswith(f"members.{k}.")
        )
        for k in range(FOLDS)
    ]
    assert same == [False, True, False]
    assert bundle.trees is not None
    assert other.trees is not None
    of_member = pl.col("member") == 1
    assert bundle.trees.filter(of_member).equals(other.trees.filter(of_member))
    assert not bundle.trees.equals(other.trees)
    assert bundle.config["tree_weights"][1] == other.config["tree_weights"][1]
    assert bundle.transforms["members"][1] == other.transforms["members"][1]


def test_a_forecast_is_the_average_of_the_members(bundle: Bundle, panel: Panel) -> None:
    forecaster = Forecaster(bundle, threads=1)
    people = panel.only(panel.persons()[:5])
    (marginals,) = forecaster.marginals(people)
    assert len(marginals.members) == FOLDS
    at = np.exp(marginals.grid[..., 5:-5:7].astype(np.float64))
    average = np.mean([member.probability(at) for member in marginals.members], axis=0)
    np.testing.assert_allclose(marginals.probability(at), average, atol=2e-3)
    with pytest.raises(UsageError, match="3 members"):
        _ = forecaster.network
    # Each member is the average of its own network and its own trees, before the layer of groups.
    ungrouped = replace(bundle, macro={"series": None})
    (marginals,) = Forecaster(ungrouped, threads=1).marginals(people)
    networks = Forecaster(replace(ungrouped, trees=None), threads=1)
    (alone,) = networks.marginals(people, n_horizons=2)
    for k, trees in enumerate(tree_members(bundle.trees, bundle.config)):
        assert trees is not None
        both = trees.mix_with(people)(np.arange(5), alone.members[k])
        np.testing.assert_array_equal(both.cdf, marginals.members[k].cdf[:, :2])


def test_path_k_follows_member_k(bundle: Bundle, panel: Panel) -> None:
    """The first member's paths change only with the first member."""
    people, draws = panel.only(panel.persons()[:4]), Draws(7, 1)

    def simulate(bundle: Bundle, people: Panel = people) -> np.ndarray:
        forecaster = Forecaster(bundle, threads=1)
        return forecaster.simulate(people, draws, to_horizon=4, recalibrate=False).earnings

    paths = simulate(bundle)
    weights = {
        name: tensor * 0 if name == "members.1.head.cells.weight" else tensor
        for name, tensor in bundle.weights.items()
    }
    other = simulate(replace(bundle, weights=weights))
    same = [np.array_equal(paths[..., k], other[..., k]) for k in range(7)]
    assert same == [True, False, True, True, False, True, True]
    alone = simulate(bundle, people.only(people.persons()[2:3]))
    assert np.array_equal(alone[0], paths[2])


def test_an_interrupted_run_keeps_finished_members(
    bundle: Bundle, panel: Panel, tmp_path: Path
) -> None:
    finished: list[int] = []

    def stop(k: int, _n_members: int, _member: Bundle) -> None:
        finished.append(k)
        if k == 1 and len(finished) == 2:
            raise KeyboardInterrupt

    out = tmp_path / "b"
    with pytest.raises(KeyboardInterrupt):
        train_folds(panel, out, FOLDS, config=CONFIG, seed=3, run=QUIET, progress=stop)
    with pytest.raises(UsageError, match="different settings: folds"):
        train_folds(panel, out, 4, config=CONFIG, seed=3, run=replace(QUIET, resume=True))
    resumed = train_folds(panel, out, FOLDS, config=CONFIG, seed=3, run=replace(QUIET, resume=True))
    assert resumed.weights.keys() == bundle.weights.keys()
    for name, tensor in bundle.weights.items():
        assert torch.equal(tensor, resumed.weights[name]), name


def test_calibration_cross_fits_a_bundle_with_folds(
    bundle: Bundle, sibling: Bundle, panel: Panel, tmp_path: Path
) -> None:
    assert sibling.metrics["calibration"]["method"] == "cv+"
    forecaster = Forecaster(sibling, threads=1)
    request = ForecastRequest(horizons=(1, 2), limits=True, bands=2)
    table = forecaster.forecast(panel.only(panel.persons()[:6]), request).table
    assert set(table["guarantee_80"]) == {"assumption"}
    assert set(table["cell"]) == {"cross-fitted"}
    assert (table["lower_50"] <= table["upper_50"]).all()
    with pytest.raises(UsageError, match="cross-fitted intervals only"):
        calibrate_bundle(bundle.path, panel, CalibrationOptions(method="sets"), out=tmp_path / "d")
    shares = CalibrationOptions(shares=SPLIT_SHARES)
    with pytest.raises(UsageError, match="nobody is kept for calibration"):
        calibrate_bundle(bundle.path, panel, shares, out=tmp_path / "e")


def test_a_final_bundle_learns_from_everybody_and_has_the_report_of_its_sibling(
    bundle: Bundle, sibling: Bundle, panel: Panel, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="no diagnostics"):
        train_final(panel, tmp_path / "f", bundle, run=QUIET)
    report = diagnose(Forecaster(sibling, threads=1), panel, horizons=(1,), draws=Draws(4))
    sibling = replace_parts(
        sibling, tmp_path / "sibling", command="", diagnostics=report.to_table()
    )
    other = Panel.of(panel.frame, replace(panel.meta, panel_id="other"))
    with pytest.raises(UsageError, match="on the panel toy, not on the panel other"):
        train_final(other, tmp_path / "f", sibling, run=QUIET)

    final = train_final(panel, tmp_path / "f", sibling, run=QUIET)
    assert final.split["judged"] == {"name": "sibling", "digest": sibling.digest}
    assert final.manifest["parents"] == [sibling.digest]
    assert final.config["training"] == sibling.config["training"]
    assert final.metrics["training"]["persons"]["train"] == panel.n_persons

    final = calibrate_bundle(final.path, panel)
    assert final.metrics["calibration"]["method"] == "cv+"
    assert final.metrics["calibration"]["persons"] == panel.n_persons
    stored = Diagnostics.of_bundle(final)
    for name in report.tables.keys() - {"provenance"}:
        assert stored[name].equals(report[name]), name
    page = render_report(stored, bundle=final.digest)
    assert f"These are the results of its sibling sibling ({sibling.digest[:12]})" in page

    forecaster = Forecaster(final, threads=1)
    with pytest.raises(UsageError, match="nobody is left to judge it"):
        diagnose(forecaster, panel)
    with pytest.raises(UsageError, match="nobody is left to judge it"):
        Contest(panel, ContestOptions()).bundle(forecaster)
    with pytest.raises(UsageError, match="nobody is left to judge it"):
        train_final(panel, tmp_path / "g", final, run=QUIET)
