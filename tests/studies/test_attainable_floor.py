"""The attainable floor: the curve is right, and sizes differ only in persons."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from saga.evaluation.baselines.naive.groupq import GroupQuantiles
from saga.evaluation.contest import Contest, ContestOptions
from saga.evaluation.scoring.comparison import BUNDLE_NAME
from saga.evaluation.scoring.gap import CLAIRVOYANT
from saga.training.fit import train
from saga.training.harness import RunOptions
from saga.training.train_config import load_config

from saga.bundle import Bundle
from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.errors import UsageError
from saga.forecaster import Forecaster
from studies import attainable_floor as study
from studies.attainable_floor import GAP_START, fit_floors, floor_table, subset, uncalibrated

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"saga:0.1": 20_000, "saga:0.3": 60_000, "saga:1": 200_000}
PERSONS = np.array(list(SIZES.values()))
FLOOR, A = np.array([0.18, 0.52]), np.array([0.008, 0.012])


def _power_law(b: float) -> np.ndarray:
    """CRPS (n_horizon, n_size) by the power law."""
    crps: np.ndarray = FLOOR[:, None] + A[:, None] * (PERSONS / PERSONS.max()) ** -b
    return crps


def _metrics(crps: dict[str, np.ndarray]) -> pl.DataFrame:
    rows = [
        {"model": model, "horizon": h, "value": value}
        for model, values in crps.items()
        for h, value in zip((1, 20), values.tolist(), strict=True)
    ]
    same = {"metric": "crps_log", "group": "all", "setting": "forward", "n": 9, "se": 0.01}
    return pl.DataFrame(rows).with_columns(**{name: pl.lit(v) for name, v in same.items()})


@pytest.mark.parametrize("b", [0.2, 0.5, 1.0])
def test_a_power_law_without_noise_is_recovered(b: float) -> None:
    floor, exponent = fit_floors(list(SIZES.values()), _power_law(b))
    assert exponent == pytest.approx(b)
    assert floor == pytest.approx(FLOOR)


def test_the_floor_is_the_mean_if_more_persons_do_not_help() -> None:
    floor, _ = fit_floors(list(SIZES.values()), np.array([[0.20, 0.21, 0.25]]))
    assert floor == pytest.approx([0.22])


def test_the_closed_share_is_that_of_the_gap_and_null_without_one() -> None:
    crps = dict(zip(SIZES, _power_law(0.7).T, strict=True))
    crps |= {GAP_START: np.array([0.29, 0.52]), CLAIRVOYANT: FLOOR - 0.05}
    table = floor_table(_metrics({**crps, BUNDLE_NAME: FLOOR + 0.01}), SIZES)
    # Of .29 to the floor of .18 all but .01; from .52 no floor is lower.
    assert table["closed"][0] == pytest.approx(1 - 0.01 / 0.11, rel=1e-3)
    assert table["closed"][1] is None
    assert table["of_bound"][0] == pytest.approx(0.10 / 0.16)
    assert table["reached"].to_list() == [True, False]
    assert (table["floor_0.5"] < table["floor"]).all()
    assert (table["floor"] < table["floor_1"]).all()


def test_subsets_are_nested_and_leave_out_training_persons_only(register_panel: Panel) -> None:
    everybody, training = set(register_panel.persons()), set(persons_of(register_panel, "train"))
    previous: set[str] = set()
    for share in (0.1, 0.3, 1.0):
        persons = set(subset(register_panel, share, seed=1).persons())
        assert persons - training == everybody - training
        assert previous <= persons
        error = 4 * np.sqrt(share * (1 - share) / len(training)) + 1e-9
        assert abs(len(persons & training) / len(training) - share) < error
        previous = persons


def test_an_uncalibrated_contestant_has_raw_marginals_and_no_sets(register_panel: Panel) -> None:
    bundle = Bundle.load(ROOT / "bundles" / "small")
    contest = Contest(register_panel, ContestOptions(n_paths=20, n_persons=10, until=2022))
    setting = next(contest.settings())
    entrant = uncalibrated(bundle, "saga:1", "light")
    assert entrant.key != contest.bundle(Forecaster(bundle)).key
    (block,) = entrant.forecasts(setting.past, setting.origins, horizons=[1, 5], n_paths=20, seed=0)
    (raw,) = Forecaster(bundle).marginals(setting.past, recalibrate=False)
    assert np.array_equal(block.marginals.cdf, raw.at_horizons([1, 5]).cdf, equal_nan=True)
    assert np.isnan(block.lower).all()


@pytest.mark.thorough
def test_the_command_trains_scores_reports_and_resumes(
    register_dir: Path, register_panel: Panel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, out = tmp_path / "few.yaml", tmp_path / "out"
    config.write_text("{extends: tiny, max_steps: 4, warmup_steps: 1, validate_every: 2}")
    run = RunOptions(progress=False)
    bundle = train(register_panel, tmp_path / "bundle", config=config, seed=1, run=run)
    argv = ["attainable_floor", str(register_dir), "--panel", str(register_dir), "--out", str(out)]
    argv += ["--bundle", str(bundle.path), "--persons", "24", "--paths", "8", "--config"]
    monkeypatch.setattr(sys, "argv", [*argv, str(config)])
    # Group quantiles replace GKOS, whose estimation takes half a minute.
    monkeypatch.setattr(GroupQuantiles, "name", GAP_START)
    monkeypatch.setattr(study, "select_baselines", lambda names: [GroupQuantiles() for _ in names])
    assert study.main() == 1, "four steps of training reach no target"
    page = (out / "attainable.md").read_text()
    assert pl.read_parquet(out / "attainable.parquet")["horizon"].to_list() == [1, 5, 10, 20]
    (folder,) = (p for p in out.glob("few-0.3-4-1-*") if p.suffix != ".run")
    smaller, whole = Bundle.load(folder), bundle
    parts = [one.metrics["training"]["persons"]["validation"] for one in (smaller, whole)]
    assert parts[0] == parts[1]
    patience = whole.config["training"]["patience"]
    assert {**smaller.config["training"], "patience": patience} == whole.config["training"]
    with monkeypatch.context() as patched:
        never = pytest.fail
        patched.setattr("studies.trained_bundle.train", lambda *_, **__: never("trained again"))
        assert study.main() == 1
    assert (out / "attainable.md").read_text() == page
    monkeypatch.setattr(sys, "argv", [*argv, "tiny"])
    with pytest.raises(UsageError, match="differ in more than their persons"):
        study.main()


def test_bundles_of_another_register_and_too_few_shares_are_refused(
    register_panel: Panel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="of another register"):
        study.matching_config(
            Bundle.load(ROOT / "bundles" / "small"), register_panel, load_config("small")
        )
    for wrong in (["0.1", "1"], ["0.1", "0.3", "0.5"], ["0", "0.3", "1"]):
        argv = ["study", "register", "--panel", "judged", "--shares", *wrong]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit):
            study.arguments()
        assert "three or more" in capsys.readouterr().err
