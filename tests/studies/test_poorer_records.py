"""Poorer records: losses are ratios of mean scores, verdicts come from paired tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from saga.evaluation.contest import Contest, ContestOptions
from saga.evaluation.scoring.comparison import HINDSIGHT, clustered_test

from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.files.tables import read_provenance
from saga.forecaster import Forecaster
from studies import poorer_records
from studies.poorer_records import (
    BETTER,
    SCHEMA,
    UNSURE,
    WORSE,
    compare_reductions,
    list_shortfalls,
    score_reduction,
    to_markdown,
)
from studies.record_reductions import REDUCTIONS, WHOLE, Reduction, keep_last_three

Make = Callable[..., Panel]
SCRIPT = Path(__file__).resolve().parents[2] / "studies" / "poorer_records.py"
REDUCED = Reduction("poor", "3 years", years=keep_last_three)


@pytest.fixture(scope="module")
def files(
    random_walk: Make, walker: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, dict[str, list[Path]]], Contest]:
    """The exact forecaster, wide for short records, beside a wide, an equal and the best one."""

    class Learner(walker):  # type: ignore[misc]
        def paths(self, past: Panel, origins: Origins, **options: Any) -> Iterator[Any]:
            short = past.frame.group_by("person_id").len()["len"].max() == 3
            yield from walker(self.name, spread=2.5 if short else 1.3).paths(
                past, origins, **options
            )

    folder = tmp_path_factory.mktemp("scores")
    contest = Contest(random_walk(4000), ContestOptions(horizons=(1, 5), n_paths=40))
    scored: dict[str, dict[str, list[Path]]] = {}
    for reduction in (WHOLE, REDUCED):
        reduced = [reduction.setting(s) for s in contest.settings()]
        rivals = (
            walker("vague", spread=3.5),
            walker("same", spread=1.3),
            walker("best"),
            Learner("saga"),
        )
        scored[reduction.name] = {
            rival.name: [contest.scores(rival, s, folder) for s in reduced] for rival in rivals
        }
    return scored, contest


@pytest.fixture(scope="module")
def table(files: tuple[dict[str, dict[str, list[Path]]], Contest]) -> pl.DataFrame:
    scored, contest = files
    return compare_reductions(scored, list(contest.settings()), contest.horizons)


def _row(table: pl.DataFrame, record: str, model: str, horizon: int) -> dict[str, Any]:
    return table.filter(record=record, model=model, horizon=horizon).row(0, named=True)


def test_losses_and_gains_are_ratios_of_mean_scores(
    table: pl.DataFrame, files: tuple[dict[str, dict[str, list[Path]]], Contest]
) -> None:
    assert dict(table.schema) == SCHEMA

    def scores(record: str, model: str) -> np.ndarray:
        rows = (
            pl.read_parquet(files[0][record][model])
            .filter(pl.col("horizon") == 5)
            .sort("person_id")
        )
        return rows["crps_log"].cast(pl.Float64).to_numpy()

    bundle, whole, vague = scores("poor", "saga"), scores("all", "saga"), scores("poor", "vague")
    saga_row, vague_row = _row(table, "poor", "saga", 5), _row(table, "poor", "vague", 5)
    assert (saga_row["crps"], saga_row["n"]) == (pytest.approx(bundle.mean()), len(bundle))
    assert saga_row["loss"] == pytest.approx(bundle.mean() / whole.mean() - 1)
    paired = clustered_test(bundle - whole, np.arange(len(bundle)))
    assert paired is not None
    assert saga_row["loss_se"] == pytest.approx(paired["se"] / whole.mean())
    assert saga_row["loss"] > 3 * saga_row["loss_se"]
    assert vague_row["gain"] == pytest.approx(1 - bundle.mean() / vague.mean())
    assert _row(table, "all", "saga", 5)["loss"] is None
    assert vague_row["loss"] is None


def test_verdicts_distinguish_better_equal_and_worse(table: pl.DataFrame) -> None:
    for horizon in (1, 5):
        for record in ("all", "poor"):
            assert _row(table, record, "vague", horizon)["verdict"] == BETTER
            assert _row(table, record, "best", horizon)["verdict"] == WORSE
        # The same process with other random numbers.
        assert _row(table, "all", "same", horizon)["verdict"] != BETTER
        # `same` does not need the hidden years.
        assert _row(table, "poor", "same", horizon)["verdict"] == WORSE
    shortfalls = "\n".join(list_shortfalls(table))
    assert "vague" not in shortfalls
    assert (
        "poor, in-time: not surely better than best at h = 1 (not better), h = 5 (not better)"
        in shortfalls
    )
    assert list_shortfalls(table.filter(pl.col("model") == "vague")) == []
    unsure = table.filter(pl.col("model") == "vague").with_columns(pl.lit(UNSURE).alias("verdict"))
    assert len(list_shortfalls(unsure)) == 2


def test_in_time_the_bundle_conditioned_on_realised_macro_is_judged(
    files: tuple[dict[str, dict[str, list[Path]]], Contest],
) -> None:
    """If `best` is the informed bundle, no rival is as good."""
    scored, contest = files
    informed = {record: {**models, HINDSIGHT: models["best"]} for record, models in scored.items()}
    table = compare_reductions(informed, list(contest.settings()), contest.horizons)
    row, same = _row(table, "poor", "vague", 5), _row(table, "poor", "same", 5)
    assert row["informed_gain"] > row["gain"]
    assert same["gain"] < 0 < same["informed_gain"]
    assert (same["verdict"], row["informed_verdict"]) == (WORSE, BETTER)
    assert "vague" not in "\n".join(list_shortfalls(table))
    lines = to_markdown(table, {"all": "everything", "poor": "short"}).splitlines()
    assert "saga informed" in lines[2]
    assert len({line.count("|") for line in lines[2:]}) == 1


def test_the_page_has_one_row_a_record_and_horizon_and_marks_shortfalls(
    table: pl.DataFrame,
) -> None:
    lines = to_markdown(table, {"all": "everything", "poor": "short"}).splitlines()
    assert lines[0] == "## in-time"
    assert [line.split(" | ")[0] for line in lines[4:]] == ["| everything"] * 2 + ["| short"] * 2
    assert len({line.count("|") for line in lines[2:]}) == 1
    assert all("**!**" in line for line in lines[4:])  # `best` is not beaten
    assert f"{_row(table, 'poor', 'saga', 1)['crps']:.4f}" in lines[6]


@pytest.mark.thorough
def test_the_command_scores_the_bundle_and_baselines_on_every_record(
    tiny_bundle: Path,
    register_dir: Path,
    register_panel: Panel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, report = tmp_path / "out", tmp_path / "report.md"
    argv = [str(SCRIPT), str(register_dir), "--out", str(out), "--bundle", str(tiny_bundle)]
    argv += ["--baselines", "carry,groupq", "--persons", "60", "--paths", "20"]
    argv += ["--report", str(report)]
    monkeypatch.setattr(sys, "argv", argv)
    assert poorer_records.main() == 1  # sixty persons are too few to be sure
    table = pl.read_parquet(out / "missing.parquet")
    models, settings = {"saga", "carry", "groupq"}, {"in-time", "forward"}
    cells = {
        (r.name, s, h, m)
        for r in REDUCTIONS
        for s in settings
        for h in (1, 5, 10, 20)
        for m in models
    }
    cells |= {(r.name, "in-time", h, HINDSIGHT) for r in REDUCTIONS for h in (1, 5, 10, 20)}
    assert set(table.select("record", "setting", "horizon", "model").iter_rows()) == cells
    assert table["crps"].is_finite().all()
    counts = table.group_by("setting", "horizon").agg(pl.col("n").n_unique())["n"]
    assert counts.unique().to_list() == [1]  # the same outcomes for all
    # groupq reads sex, education and the last years, but not occupation.
    groupq = {
        r: table.filter(model="groupq", record=r)["crps"].to_list()
        for r in ("all", "no-occupation-industry", "earnings")
    }
    assert groupq["all"] == groupq["no-occupation-industry"]
    assert groupq["all"] != groupq["earnings"]
    assert report.read_text() == (out / "missing.md").read_text()
    assert (
        read_provenance(out / "missing.parquet")["bundle"]
        == Forecaster.load(tiny_bundle).bundle.digest
    )

    # A second run reuses every score, and another contest reuses those of the whole record.
    before = {file: file.stat().st_mtime_ns for file in (out / "kept").glob("*.parquet")}
    contest = Contest(
        register_panel, ContestOptions(n_paths=20, n_persons=60, until=2022, cache=out / "kept")
    )
    score_reduction(
        contest,
        WHOLE,
        list(contest.settings(register_dir)),
        Forecaster.load(tiny_bundle),
        [],
        out / "kept",
    )
    assert {file: file.stat().st_mtime_ns for file in (out / "kept").glob("*.parquet")} == before
