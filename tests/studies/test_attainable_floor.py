"""The attainable floor: curve and errors are right, and sizes differ only in persons."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from saga.evaluation.baselines.naive.groupq import GroupQuantiles
from saga.evaluation.contest import Contest, ContestOptions
from saga.evaluation.scoring.comparison import BUNDLE_NAME
from saga.evaluation.scoring.gap import CLAIRVOYANT, measure_gap_closed
from saga.evaluation.scoring.score_frame import SCHEMA
from saga.training.fit import train
from saga.training.harness import RunOptions
from saga.training.train_config import load_config
from scipy import stats

from saga.bundle import Bundle
from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.errors import UsageError
from saga.files.tables import read_provenance
from saga.forecaster import Forecaster
from studies import attainable_floor as study
from studies.attainable_floor import subset, uncalibrated
from studies.floor_estimation import (
    FLOORS,
    GAP_START,
    fit_floors,
    floor_table,
    mean_scores,
    to_markdown,
    training_table,
)

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "studies" / "attainable_floor.py"
SIZES = {"saga:0.1": 20_000, "saga:0.3": 60_000, "saga:1": 200_000}
PERSONS = np.array(list(SIZES.values()))
HORIZONS = (1, 20)
FLOOR, A, B = np.array([0.18, 0.52]), np.array([0.008, 0.012]), 0.5
ENDS = {GAP_START: np.array([0.29, 0.62]), CLAIRVOYANT: np.array([0.17, 0.50])}


def _power_law(b: float = B) -> np.ndarray:
    """CRPS (n_horizon, n_size) by the power law."""
    crps: np.ndarray = FLOOR[:, None] + A[:, None] * (PERSONS / PERSONS.max()) ** -b
    return crps


def _score_files(
    folder: Path, rng: np.random.Generator, noise: float, persons: int = 60, futures: int = 20
) -> dict[str, Path]:
    """Files of scores whose means follow the power law. `noise` is specific to each model."""
    expected = {
        **ENDS,
        **dict(zip(SIZES, _power_law().T, strict=True)),
        BUNDLE_NAME: _power_law()[:, -1],
    }
    shape = (len(HORIZONS), futures, persons)
    shared = (
        rng.normal(0, 0.03, (1, 1, persons))
        + rng.normal(0, 0.01, (1, futures, 1))
        + rng.normal(0, 0.1, shape)
    )
    horizon, draw, person = (
        part.ravel()
        for part in np.meshgrid(HORIZONS, np.arange(futures), np.arange(persons), indexing="ij")
    )
    files = {}
    for model, mean in expected.items():
        specific = rng.normal(0, noise, (len(HORIZONS), 1, persons)) + rng.normal(0, noise, shape)
        data = {"horizon": horizon, "draw": draw, "person_id": [f"{i:03d}" for i in person]}
        data |= {
            "crps_log": (mean[:, None, None] + shared + specific).ravel(),
            "model": [model] * person.size,
            "setting": ["forward"] * person.size,
        }
        frame = pl.DataFrame(data).with_columns(
            pl.lit(None, pl.Float32).alias(name) for name in SCHEMA.names if name not in data
        )
        files[model] = folder / f"{model.replace(':', '-')}.parquet"
        frame.select(SCHEMA.names).sample(fraction=1, shuffle=True, seed=1).write_parquet(
            files[model]
        )
    return files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return _score_files(tmp_path_factory.mktemp("scores"), np.random.default_rng(0), noise=0.002)


@pytest.mark.parametrize("b", [0.2, 0.35, 0.5, 0.8, 1.0])
def test_a_power_law_without_noise_is_recovered(b: float) -> None:
    se = np.array([[1.0, 2.0, 1.0], [3.0, 1.0, 2.0]])
    result = fit_floors(list(SIZES.values()), _power_law(b), se)
    assert result.b == pytest.approx(b)
    assert result.floor == pytest.approx(FLOOR)
    assert result.a == pytest.approx(A)
    assert result.squares == pytest.approx(0, abs=1e-20)
    # Curves fitted together equal curves fitted one by one; a wrong exponent moves the floor.
    many = fit_floors(list(SIZES.values()), np.stack([_power_law(b), _power_law(0.4)]), se)
    assert many.b == pytest.approx([b, 0.4])
    assert many.floor == pytest.approx(np.stack([FLOOR, FLOOR]))
    low, high = (
        fit_floors(list(SIZES.values()), _power_law(0.7), se, [side]).floor for side in (0.5, 1.0)
    )
    assert (low < FLOOR).all()
    assert (high > FLOOR).all()


def test_the_floor_is_the_weighted_mean_if_more_persons_do_not_help() -> None:
    worse = np.array([[0.20, 0.21, 0.24]])
    result = fit_floors(list(SIZES.values()), worse, np.array([[1.0, 1.0, 2.0]]))
    assert result.a == pytest.approx([0])
    assert result.floor == pytest.approx([np.average(worse[0], weights=[1, 1, 0.25])])
    with pytest.raises(ValueError, match="no exponent"):
        fit_floors(list(SIZES.values()), worse, np.ones((1, 3)), [])


@pytest.mark.thorough
def test_errors_cover_the_floor_and_the_share(tmp_path: Path) -> None:
    rng, replications = np.random.default_rng(3), 60
    share = (ENDS[GAP_START] - _power_law()[:, -1]) / (ENDS[GAP_START] - FLOOR)
    covered: dict[str, list[np.ndarray]] = {"floor": [], "closed": []}
    errors: dict[str, list[np.ndarray]] = {"floor": [], "closed": []}
    estimates: dict[str, list[np.ndarray]] = {"floor": [], "closed": [], "b": []}
    for _ in range(replications):
        table = floor_table(
            mean_scores(_score_files(tmp_path, rng, noise=0.004), seed=0, replicates=100), SIZES
        )
        for name, true in (("floor", FLOOR), ("closed", share)):
            errors[name].append(table[f"{name}_se"].to_numpy())
            covered[name].append(
                np.abs(table[name].to_numpy() - true) < stats.t.ppf(0.975, 19) * errors[name][-1]
            )
        for name in estimates:
            estimates[name].append(table[name].to_numpy())
    tolerance = 3 * np.sqrt(0.95 * 0.05 / replications)  # of a share of 0.95
    for name in covered:
        assert np.mean(covered[name], axis=0).min() > 0.95 - tolerance
        ratio = np.mean(errors[name], axis=0) / np.std(estimates[name], axis=0)
        assert ratio.max() < np.sqrt(3) * (1 + 3 / np.sqrt(2 * replications)), (
            "the variance is at most three times the true one (Owen 2007)"
        )
    spread = np.std(estimates["b"])
    assert np.mean(estimates["b"]) == pytest.approx(
        B, abs=max(4 * spread / np.sqrt(replications), 0.01)
    )
    assert spread < 0.2, "the exponent is identified"


def test_means_and_shares_are_those_of_the_contest(files: dict[str, Path]) -> None:
    result = mean_scores(files, seed=0, replicates=20)
    assert result.horizons == list(HORIZONS)
    assert result.n == [60, 60]
    rows = pl.scan_parquet(list(files.values()))
    by_draw = rows.group_by("model", "horizon", "draw").agg(pl.col("crps_log").mean()).collect()
    for model in files:
        averages = (
            by_draw.filter(model=model)
            .group_by("horizon")
            .agg(pl.col("crps_log").mean())
            .sort("horizon")
        )
        assert result.of(model)[0] == pytest.approx(averages["crps_log"].to_numpy())
    closed = (
        measure_gap_closed(rows.with_columns(pl.lit("all").alias("group")), "draw")
        .filter(model=BUNDLE_NAME)
        .sort("horizon")
    )
    table = floor_table(result, SIZES)
    assert table["of_bound"].to_numpy() == pytest.approx(closed["value"].to_numpy())
    assert dict(table.schema) == FLOORS
    again = mean_scores(dict(reversed(files.items())), seed=0, replicates=20)
    assert again.of(GAP_START)[1] == pytest.approx(
        result.of(GAP_START)[1]
    )  # the same samples for every model


def test_unpaired_scores_and_observed_futures_are_refused(
    files: dict[str, Path], tmp_path: Path
) -> None:
    scores = pl.read_parquet(files[GAP_START])
    for name, frame in (
        ("fewer", scores.head(-1)),
        ("observed", scores.with_columns(pl.lit(None, pl.Int32).alias("draw"))),
    ):
        frame.write_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(ValueError, match="same outcomes"):
        mean_scores(
            {CLAIRVOYANT: files[CLAIRVOYANT], GAP_START: tmp_path / "fewer.parquet"}, seed=0
        )
    with pytest.raises(UsageError, match="two drawn futures"):
        mean_scores({GAP_START: tmp_path / "observed.parquet"}, seed=0)
    with pytest.raises(UsageError, match="three sizes"):
        floor_table(mean_scores(files, seed=0, replicates=2), dict(list(SIZES.items())[:2]))


def test_the_closed_share_is_null_if_there_is_no_gap(
    files: dict[str, Path],
) -> None:
    result = mean_scores(files, seed=0, replicates=50)
    table = floor_table(result, SIZES)
    assert table["closed"].to_numpy() == pytest.approx(
        (ENDS[GAP_START] - _power_law()[:, -1]) / (ENDS[GAP_START] - FLOOR), abs=0.05
    )
    assert table["reached"].all()
    assert (table["closed"] > table["of_bound"]).all()
    assert (table["floor_half"] < table["floor_one"]).all()
    assert (table["closed_half"] < table["closed_one"]).all()
    # Little of a gap that starts at the smallest size is closed; below the floor there is no gap.
    for begin in ("saga:0.1", CLAIRVOYANT):
        other = mean_scores({**files, GAP_START: files[begin]}, seed=0, replicates=50)
        moved = floor_table(other, SIZES)
        assert not moved["reached"].any()
    assert moved["closed"].null_count() == len(HORIZONS)
    assert "no gap" in to_markdown(moved, training_table(other, _bundles(), SIZES))


def _bundles() -> Mapping[str, Bundle]:
    """The sizes and a wider network, with what `training_table` reads."""
    wide = {**SIZES, BUNDLE_NAME: 200_000}

    class FakeBundle:
        parameters = 1_000

        def __init__(self, persons: int) -> None:
            self.metrics = {"training": {"persons": {"train": persons}, "steps": 12_000}}

    return {name: FakeBundle(persons) for name, persons in wide.items()}  # type: ignore[misc]


def test_subsets_are_nested_and_leave_out_training_persons_only(register_panel: Panel) -> None:
    everybody, training = set(register_panel.persons()), set(persons_of(register_panel, "train"))
    previous: set[str] = set()
    for share in (0.1, 0.3, 1.0):
        smaller_panel = subset(register_panel, share, seed=1)
        subset_persons = set(smaller_panel.persons())
        assert subset_persons - training == everybody - training
        assert previous <= subset_persons
        assert (
            abs(len(subset_persons & training) / len(training) - share)
            < 4 * np.sqrt(share * (1 - share) / len(training)) + 1e-9
        )
        assert subset(register_panel, share, seed=1).frame.equals(smaller_panel.frame)
        assert smaller_panel.frame.equals(
            register_panel.frame.filter(pl.col("person_id").is_in(subset_persons))
        )
        assert persons_of(smaller_panel, "validation") == persons_of(register_panel, "validation")
        previous = subset_persons
    assert previous == everybody
    assert set(subset(register_panel, 0.3, seed=2).persons()) != set(
        subset(register_panel, 0.3, seed=1).persons()
    )


def test_an_uncalibrated_contestant_has_raw_marginals_and_no_sets(register_panel: Panel) -> None:
    bundle = Bundle.load(ROOT / "bundles" / "small")
    contest = Contest(register_panel, ContestOptions(n_paths=20, n_persons=10, until=2022))
    setting = next(contest.settings())
    entrant = uncalibrated(bundle, "saga:1", "light")
    assert entrant.key != contest.bundle(Forecaster(bundle)).key
    assert entrant.key != uncalibrated(bundle, "saga:1", "exact").key
    (block,) = entrant.forecasts(setting.past, setting.origins, horizons=[1, 5], n_paths=20, seed=0)
    (raw,) = Forecaster(bundle).marginals(setting.past, recalibrate=False)
    expected = raw.at_horizons([1, 5])
    assert np.array_equal(block.marginals.cdf, expected.cdf, equal_nan=True)
    assert np.isnan(block.lower).all()


@pytest.mark.thorough
def test_the_command_trains_scores_reports_and_resumes(
    register_dir: Path,
    register_panel: Panel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, wide = tmp_path / "few.yaml", tmp_path / "wide.yaml"
    config.write_text("{extends: tiny, max_steps: 4, warmup_steps: 1, validate_every: 2}")
    wide.write_text(
        "{extends: tiny, model: {width: 48}, max_steps: 4, warmup_steps: 1, validate_every: 2}"
    )
    bundle = train(
        register_panel, tmp_path / "bundle", config=config, seed=1, run=RunOptions(progress=False)
    )
    argv = [str(SCRIPT), str(register_dir), "--panel", str(register_dir)]
    argv += ["--out", str(tmp_path / "out"), "--bundle", str(bundle.path), "--config", str(config)]
    argv += ["--capacity", str(wide), "--persons", "24", "--paths", "8"]
    argv += ["--report", str(tmp_path / "report.md")]
    monkeypatch.setattr(sys, "argv", argv)
    # Group quantiles replace GKOS, whose estimation takes half a minute.
    monkeypatch.setattr(GroupQuantiles, "name", GAP_START)
    monkeypatch.setattr(study, "select_baselines", lambda names: [GroupQuantiles() for _ in names])
    assert study.main() == 1, "four steps of training reach no target"
    page = (tmp_path / "report.md").read_text()
    assert page == (tmp_path / "out" / "attainable.md").read_text()
    table, rows = (
        pl.read_parquet(tmp_path / "out" / f"{name}.parquet") for name in ("attainable", "trained")
    )
    assert table["horizon"].to_list() == [1, 5, 10, 20]
    assert read_provenance(tmp_path / "out" / "attainable.parquet")["bundle"] == bundle.digest
    training = persons_of(register_panel, "train")
    persons = dict(rows.select("model", "persons").iter_rows())
    assert persons["saga:1"] == persons["saga:wide"] == len(training)
    assert persons["saga:0.1"] == len(
        set(subset(register_panel, 0.1, seed=1).persons()) & set(training)
    )
    assert rows["steps"].unique().to_list() == [4]
    (folder,) = (p for p in (tmp_path / "out").glob("few-0.3-4-1-*") if p.suffix != ".run")
    smaller = Bundle.load(folder)
    assert (
        smaller.metrics["training"]["persons"]["validation"]
        == bundle.metrics["training"]["persons"]["validation"]
    )
    assert {
        **smaller.config["training"],
        "patience": bundle.config["training"]["patience"],
    } == bundle.config["training"]

    def never(*_: object, **__: object) -> None:
        raise AssertionError("an existing file was not used")

    monkeypatch.setattr("studies.trained_bundle.train", never)
    before = {
        file: file.stat().st_mtime_ns for file in (tmp_path / "out" / "kept").glob("*.parquet")
    }
    assert study.main() == 1
    assert (tmp_path / "report.md").read_text() == page
    assert {
        file: file.stat().st_mtime_ns for file in (tmp_path / "out" / "kept").glob("*.parquet")
    } == before
    monkeypatch.setattr(sys, "argv", [*argv[:9], "tiny", *argv[10:]])
    with pytest.raises(UsageError, match="differ in more than their persons"):
        study.main()


def test_bundles_of_another_register_and_too_few_shares_are_refused(
    register_panel: Panel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = Bundle.load(ROOT / "bundles" / "small")
    with pytest.raises(UsageError, match="of another register"):
        study.check_register_of(bundle, register_panel)
    assert (
        study.matching_config(bundle, load_config("small")).patience
        == load_config("small").max_steps
    )
    for wrong in (["0.1", "1"], ["0.1", "0.3", "0.5"], ["0", "0.3", "1"]):
        monkeypatch.setattr(
            sys, "argv", [str(SCRIPT), "register", "--panel", "judged", "--shares", *wrong]
        )
        with pytest.raises(SystemExit):
            study.arguments()
        assert "three or more" in capsys.readouterr().err
