"""The comparison with exact forecasters: zero against itself, errors are detected, it resumes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from saga.evaluation.textbook.exact_forecaster import ExactForecaster
from saga.evaluation.textbook.gaussian_ar1 import GaussianProcess
from saga.evaluation.textbook.kalman_filter import KalmanFilter

import studies.trained_bundle
from saga.bundle import Bundle
from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.distributions import Marginals
from saga.paths import Paths
from studies import known_truth
from studies.known_truth import (
    HISTORIES,
    HORIZONS,
    JudgedPersons,
    bundle_scores,
    compare,
    extended_process,
    new_persons,
    person_scores,
)

PATHS, PERSONS = 200, 400
SCRIPT = Path(__file__).resolve().parents[2] / "studies" / "known_truth.py"


class RecordBlind(ExactForecaster):
    """Uses the process and ignores the record."""

    def simulate(
        self, history: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Paths:
        unknown = history.with_frame(
            history.frame.with_columns(pl.lit(None, pl.Float64).alias("earnings"))
        )
        return super().simulate(unknown, origins, to_horizon=to_horizon, n_paths=n_paths, seed=seed)


class Biased(ExactForecaster):
    """Forecasts 5 % above the exact forecaster."""

    def simulate(
        self, history: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Paths:
        paths = super().simulate(
            history, origins, to_horizon=to_horizon, n_paths=n_paths, seed=seed
        )
        return paths.with_earnings(paths.earnings * np.float32(np.exp(0.05)))


@pytest.fixture(scope="module")
def process() -> GaussianProcess:
    long_process = extended_process("gaussian")
    assert isinstance(long_process, GaussianProcess)
    return long_process


@pytest.fixture(scope="module")
def judged(process: GaussianProcess) -> JudgedPersons:
    return new_persons(process, PERSONS, 10, seed=5)


@pytest.fixture(scope="module")
def exact(process: GaussianProcess, judged: JudgedPersons) -> pl.DataFrame:
    return person_scores(ExactForecaster(KalmanFilter(process)), judged, n_paths=PATHS, seed=0)


def test_every_record_length_has_outcomes_at_every_horizon(process: GaussianProcess) -> None:
    for years in HISTORIES:
        persons = new_persons(process, 5, years, seed=1)
        assert np.isfinite(persons.outcomes).all()
        assert persons.past.frame.group_by("person_id").len()["len"].unique().to_list() == [years]
        assert persons.past.frame["year"].max() == persons.origins.year[0]


def test_the_exact_forecaster_loses_nothing_against_itself(exact: pl.DataFrame) -> None:
    table = compare(exact, exact)
    assert table["horizon"].to_list() == list(HORIZONS)
    assert (table.select("loss", "bias").to_numpy() == 0).all()
    assert table["reached"].all()
    assert table["sure"].all()
    assert (np.abs(table["coverage"] - 0.9) < 4 * table["coverage_se"]).all()


def test_a_forecaster_that_ignores_the_record_misses_the_targets(
    process: GaussianProcess, judged: JudgedPersons, exact: pl.DataFrame
) -> None:
    table = compare(
        person_scores(RecordBlind(KalmanFilter(process)), judged, n_paths=PATHS, seed=0),
        exact,
    )
    assert not table["reached"].any()
    assert table["sure"].all()
    assert (table["loss"] > 0.15).all()


def test_a_bias_of_five_per_cent_misses_the_target(
    process: GaussianProcess, judged: JudgedPersons, exact: pl.DataFrame
) -> None:
    table = compare(
        person_scores(Biased(KalmanFilter(process)), judged, n_paths=PATHS, seed=0), exact
    )
    # The same random numbers: the bias is 0.05 but for the floor of the logs.
    assert np.abs(table["bias"].to_numpy() - 0.05).max() < 0.002
    assert not table["reached"].any()
    assert table["sure"].all()


def test_marginals_of_the_exact_distribution_lose_nothing(
    process: GaussianProcess, judged: JudgedPersons, exact: pl.DataFrame
) -> None:
    class Known:
        def marginals(self, past: Panel, *, recalibrate: bool) -> Iterator[Marginals]:
            paths = ExactForecaster(KalmanFilter(process)).simulate(
                past, judged.origins, to_horizon=HORIZONS[-1], n_paths=1_000, seed=3
            )
            yield replace(
                Marginals.from_samples(paths.earnings),
                person_id=paths.person_id,
                birth_year=paths.birth_year,
                origin_year=paths.origin_year,
            )

    forecaster: Any = Known()
    table = compare(bundle_scores(forecaster, judged, recalibrate=True), exact)
    assert table["loss"].abs().max() < 0.01  # type: ignore[operator]
    assert (table["bias"].abs() < 4 * table["bias_se"] + 0.002).all()


def test_scores_of_other_persons_are_refused(exact: pl.DataFrame) -> None:
    with pytest.raises(ValueError, match="same persons"):
        compare(exact.head(-4), exact)


@pytest.mark.thorough
def test_the_command_trains_scores_reports_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "few.yaml"
    few = "{extends: tiny, max_steps: 4, warmup_steps: 1, validate_every: 2"
    config.write_text(few + "}")
    argv = ["known_truth.py", "--out", str(tmp_path), "--report", str(tmp_path / "report.md")]
    argv += ["--config", str(config), "--persons", "400", "--judged", "16"]
    monkeypatch.setattr(sys, "argv", [*argv, "--process", "gaussian", "--paths", "8"])
    assert known_truth.main() == 1, "four steps of training reach no target"
    page = (tmp_path / "report.md").read_text()
    assert page.count("| MISSED") >= 10

    def never(*_: object, **__: object) -> None:
        raise AssertionError("an existing file was not used")

    with monkeypatch.context() as patched:
        for module, name in (
            (studies.trained_bundle, "train"),
            (known_truth, "generate_register"),
            (known_truth, "person_scores"),
            (known_truth, "bundle_scores"),
        ):
            patched.setattr(module, name, never)
        assert known_truth.main() == 1
        assert (tmp_path / "report.md").read_text() == page
    # An edited configuration is another bundle, raw and calibrated; a raised version of the exact
    # forecaster is another truth.
    folder = tmp_path / "gaussian-400-1"
    config.write_text(few + ", learning_rate: 0.01}")
    monkeypatch.setattr(ExactForecaster, "version", ExactForecaster.version + 1)
    assert known_truth.main() == 1
    bundles = [Bundle.load(path) for path in folder.glob("few-4-*") if path.suffix != ".run"]
    rates = [bundle.config["training"]["learning_rate"] for bundle in bundles]
    assert (len(rates), rates.count(0.01)) == (4, 2)
    assert len(list((folder / "scores").iterdir())) == 2 * 3 * len(HISTORIES)
