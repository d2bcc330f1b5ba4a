"""The contest on a process with a known exact forecast exposes miscalibrated forecasters."""

from __future__ import annotations

import errno
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scoringrules as sr
from saga.evaluation import contest_tables
from saga.evaluation.contest import Contest, ContestOptions
from saga.evaluation.contest_tables import write_results
from saga.evaluation.scoring.metrics import METRICS
from saga.evaluation.scoring.score_frame import score_block
from saga.evaluation.scoring.small_cells import hide_small_cells
from saga.evaluation.scoring.year_forecasts import YearForecasts
from saga.evaluation.selection import select_baselines

from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.errors import InputError, UsageError
from saga.files.tables import read_provenance
from saga.paths import Paths
from tests.evaluation.conftest import Walker

Make = Callable[..., Panel]


@pytest.fixture(scope="module")
def table(random_walk: Make, tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    out = tmp_path_factory.mktemp("contest")
    contest = Contest(random_walk(6000), ContestOptions(horizons=(1, 5), n_paths=100))
    return contest.run(
        [
            Walker("exact", block=100),
            Walker("overconfident", spread=0.6, block=100),
            Walker("vague", spread=1.7, block=100),
        ],
        out,
    )


def _at(
    table: pl.DataFrame,
    model: str,
    metric: str,
    horizon: int,
    group: str = "all",
    setting: str = "in-time",
) -> dict[str, float]:
    keys = {
        "model": model,
        "metric": metric,
        "horizon": horizon,
        "group": group,
        "setting": setting,
    }
    return table.filter(*(pl.col(name).eq(value) for name, value in keys.items())).row(
        0, named=True
    )


@pytest.mark.parametrize("metric", ["coverage_50", "coverage_80", "coverage_90", "coverage_95"])
@pytest.mark.parametrize("horizon", [1, 5])
def test_coverage_distinguishes_exact_and_miscalibrated_forecasters(
    table: pl.DataFrame, metric: str, horizon: int
) -> None:
    exact, over, vague = (
        _at(table, model, metric, horizon) for model in ("exact", "overconfident", "vague")
    )
    # Eight figures are tested, so the 95 % band is widened by a half.
    slack = 0.5 * (exact["band_upper"] - exact["band_lower"]) / 2
    assert exact["band_lower"] - slack <= exact["value"] <= exact["band_upper"] + slack
    assert over["value"] < over["band_lower"]
    assert vague["value"] > vague["band_upper"]


@pytest.mark.parametrize("wrong", ["overconfident", "vague"])
def test_proper_scores_rank_the_exact_forecaster_first(table: pl.DataFrame, wrong: str) -> None:
    for metric in ("crps_log", "crps_sek", "pinball_log", "logscore", "interval_90"):
        for horizon in (1, 5):
            assert (
                _at(table, "exact", metric, horizon)["value"]
                < _at(table, wrong, metric, horizon)["value"]
            ), (metric, horizon)


def test_the_table_has_the_agreed_columns_and_metrics_and_its_provenance(
    random_walk: Make, tmp_path: Path
) -> None:
    panel = random_walk(300)
    metrics = Contest(panel, ContestOptions(horizons=(1,), n_paths=10)).run(
        [Walker("exact")], tmp_path, provenance={"bundle": "abc"}
    )
    assert metrics.columns[:8] == [
        "model",
        "setting",
        "metric",
        "horizon",
        "group",
        "value",
        "se",
        "n",
    ]
    assert set(metrics["metric"]) == set(METRICS)
    written_metrics = pl.read_parquet(tmp_path / "metrics.parquet")
    assert written_metrics.equals(hide_small_cells(metrics))
    assert written_metrics.filter(pl.col("n").is_between(1, 9)).is_empty()
    made_from = read_provenance(tmp_path / "metrics.parquet")
    assert (made_from["bundle"], made_from["panel_digest"]) == ("abc", panel.digest)
    written = {
        "metrics.parquet",
        "comparisons.parquet",
        "cost.parquet",
        "tables.md",
        "tables.html",
        "scores",
    }
    assert {p.name for p in tmp_path.iterdir()} == written


def test_tables_without_their_pages_are_not_written(
    table: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write_results({"metrics": table}, tmp_path, {"seed": 1})
    (tmp_path / "cost.parquet").write_text("of an earlier run")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(contest_tables, "write_pages", fail)
        with pytest.raises(OSError, match="No space"):
            write_results({"metrics": table}, tmp_path, {"seed": 2})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    write_results({"metrics": table}, tmp_path, {"seed": 2})
    assert before.keys() - {path.name for path in tmp_path.iterdir()} == {"cost.parquet"}


def test_scores_equal_scoringrules_and_hand_formulas() -> None:
    rng = np.random.default_rng(0)
    n, m, floor = 40, 60, 24_150.0
    samples = np.where(rng.random((n, 2, m)) < 0.2, 0.0, rng.lognormal(12, 1, (n, 2, m)))
    outcomes = np.where(rng.random((n, 2)) < 0.2, 0.0, rng.lognormal(12, 1, (n, 2)))
    ids = np.array([f"{i:02d}" for i in range(n)])
    sets = YearForecasts.of_samples(ids, samples)
    frame = score_block(sets, outcomes, [1, 5], floor).sort("person_id", "horizon")
    x, y = np.log(np.maximum(samples, floor)), np.log(np.maximum(outcomes, floor))
    lower, upper = sets.lower[..., 2], sets.upper[..., 2]
    inside = np.where(
        outcomes == 0,
        sets.includes_zero[..., 2],
        (lower <= outcomes) & (outcomes <= upper) & (outcomes > 0),
    )
    by_hand = {
        "crps_log": sr.crps_ensemble(y, x, estimator="fair"),
        "crps_sek": sr.crps_ensemble(outcomes, samples, estimator="fair"),
        "mae_log": np.abs(np.median(x, axis=-1) - y),
        "rmse_log": (x.mean(axis=-1) - y) ** 2,
        "brier_zero": ((samples == 0).mean(axis=-1) - (outcomes == 0)) ** 2,
        "coverage_90": inside,
        "width_90": upper - lower,
    }
    for metric, values in by_hand.items():
        assert frame[metric].to_numpy() == pytest.approx(
            np.asarray(values, dtype=float).ravel(), rel=1e-5
        ), metric
    positive = outcomes > 0
    for j, coverage in enumerate((50, 80, 90, 95)):
        ends = sets.lower[..., j], sets.upper[..., j]
        winkler = sr.interval_score(outcomes, *ends, 1 - coverage / 100)
        assert frame[f"interval_{coverage}"].to_numpy()[positive.ravel()] == pytest.approx(
            winkler[positive], rel=1e-5
        )
        assert frame[f"width_{coverage}"].to_numpy() == pytest.approx(
            (ends[1] - ends[0]).ravel(), rel=1e-5
        )


def test_missing_outcomes_and_intervals_are_not_scored() -> None:
    sampled = YearForecasts.of_samples(np.array(["a", "b"]), np.full((2, 1, 5), 2.0))
    missing = np.full((2, 1, 4), np.nan)
    none = replace(sampled, lower=missing, upper=missing, includes_zero=np.zeros((2, 1, 4), bool))
    frame = score_block(none, np.array([[np.nan], [3.0]]), [1], None)
    assert frame["person_id"].to_list() == ["b"]
    assert frame["coverage_90"].null_count() == 1
    assert frame["crps_log"].null_count() == 0


def test_a_horizon_without_outcomes_is_reported_as_empty(random_walk: Make, tmp_path: Path) -> None:
    panel = random_walk(300)
    short = panel.with_frame(panel.frame.filter(pl.col("year") >= 2010))
    metrics = Contest(short, ContestOptions(horizons=(1, 20), n_paths=10)).run(
        [Walker("exact")], tmp_path
    )
    assert _at(metrics, "exact", "crps_log", 20)["n"] == 0
    assert _at(metrics, "exact", "crps_log", 20)["value"] is None
    assert "fewer than 10 outcomes" in (tmp_path / "tables.md").read_text()


def test_the_forward_setting_scores_every_true_future(random_walk: Make, tmp_path: Path) -> None:
    """Two futures, one as expected, one a third poorer: the table has their mean and spread."""
    panel = random_walk(2000)
    final = panel.frame.filter(pl.col("year") == 2022)
    for draw, shift in ((0, 0.0), (1, np.log(2 / 3))):
        rng = np.random.default_rng(draw)
        value = final["earnings"].to_numpy() * np.exp(
            0.01 + shift + rng.normal(0, 0.15, final.height)
        )
        rows = final.select(
            "person_id", pl.lit(2023, pl.Int32).alias("year"), pl.Series("earnings", value)
        )
        (tmp_path / f"future/draw={draw}/birth_year=all").mkdir(parents=True)
        rows.write_parquet(tmp_path / f"future/draw={draw}/birth_year=all/part-0.parquet")
    metrics = Contest(panel, ContestOptions(horizons=(1,), n_paths=50)).run(
        [Walker("exact")], tmp_path / "out", futures=tmp_path
    )
    row = _at(metrics, "exact", "coverage_90", 1, setting="forward")
    draws = (
        pl.read_parquet(tmp_path / "out" / "scores/*.parquet")
        .filter(pl.col("setting") == "forward")
        .group_by("draw")
        .agg(pl.col("coverage_90").mean())
    )
    low, high = sorted(draws["coverage_90"].to_list())
    assert high == pytest.approx(0.9, abs=0.1)
    assert low < 0.3
    assert row["value"] == pytest.approx((low + high) / 2, abs=1e-6)
    assert row["sd_futures"] == pytest.approx((high - low) / np.sqrt(2), abs=1e-6)
    assert row["se"] == pytest.approx((high - low) / 2, abs=1e-6)


def test_futures_in_other_prices_or_absent_are_refused(random_walk: Make, tmp_path: Path) -> None:
    contest = Contest(random_walk(300), ContestOptions(horizons=(1,), n_paths=10))
    with pytest.raises(InputError, match="no futures"):
        contest.run([Walker("exact")], tmp_path / "out", futures=tmp_path)
    (tmp_path / "future/draw=0").mkdir(parents=True)
    (tmp_path / "register.json").write_text('{"future_prices": 2015}')
    with pytest.raises(InputError, match="cannot be compared"):
        contest.run([Walker("exact")], tmp_path / "out", futures=tmp_path)


def test_one_block_of_paths_is_in_memory(random_walk: Make, tmp_path: Path) -> None:
    alive: list[weakref.ref[np.ndarray]] = []
    largest = 0

    class Watched(Walker):
        def paths(self, *args: object, **options: object) -> Iterator[Paths]:
            nonlocal largest
            for block in super().paths(*args, **options):  # type: ignore[arg-type]
                alive.append(weakref.ref(block.earnings))
                largest = max(largest, sum(ref() is not None for ref in alive))
                yield block

    Contest(random_walk(1500), ContestOptions(horizons=(1, 5), n_paths=10)).run(
        [Watched("exact", block=10)], tmp_path
    )
    assert len(alive) > 10
    assert largest <= 2  # the one being scored and the one being made


def test_forecasts_of_other_persons_are_refused(random_walk: Make, tmp_path: Path) -> None:
    class Confused(Walker):
        def paths(
            self, past: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
        ) -> Iterator[Paths]:
            for block in super().paths(
                past, origins, to_horizon=to_horizon, n_paths=n_paths, seed=seed
            ):
                yield block.take(slice(None, None, -1))

    with pytest.raises(ValueError, match="other persons"):
        Contest(random_walk(300), ContestOptions(horizons=(1,), n_paths=10)).run(
            [Confused("confused")], tmp_path
        )


def test_wrong_names_and_horizons_are_refused(random_walk: Make) -> None:
    with pytest.raises(UsageError, match="baseline"):
        select_baselines(["carry", "crystal-ball"])
    assert [baseline.name for baseline in select_baselines(["groupq", "carry", "groupq"])] == [
        "groupq",
        "carry",
    ]
    assert {"carry", "groupq"} <= {baseline.name for baseline in select_baselines(["all"])}
    for horizons in ((0,), (31,), ()):
        with pytest.raises(UsageError, match="horizons"):
            Contest(random_walk(50), ContestOptions(horizons=horizons, n_paths=10))
