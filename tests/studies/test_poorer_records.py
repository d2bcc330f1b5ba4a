"""Poorer records: losses are ratios of mean scores, verdicts come from paired tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from saga.evaluation.contest import Contest, ContestOptions
from saga.evaluation.contestants import LazyContestant

from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.files.tables import read_provenance
from saga.forecaster import Forecaster
from studies import poorer_records
from studies.poorer_records import (
    UNTOLD,
    contestants_of,
    score_reduction,
    shortfalls,
    to_markdown,
    with_losses,
)
from studies.record_reductions import REDUCTIONS, WHOLE

pytestmark = pytest.mark.thorough
Make = Callable[..., Panel]
(SHORT,) = (reduction for reduction in REDUCTIONS if reduction.name == "last-3")


@pytest.fixture(scope="module")
def judged(
    random_walk: Make, walker: Any, tmp_path_factory: pytest.TempPathFactory
) -> pl.DataFrame:
    """The exact forecaster, wide for short records, beside a wide, an equal and the best one."""

    class Learner(walker):  # type: ignore[misc]
        def paths(self, past: Panel, origins: Origins, **options: Any) -> Iterator[Any]:
            short = past.frame.group_by("person_id").len()["len"].max() == 3
            yield from walker(self.name, spread=2.5 if short else 1.3).paths(
                past, origins, **options
            )

    folder = tmp_path_factory.mktemp("scores")
    contest = Contest(random_walk(4000), ContestOptions(horizons=(1, 5), n_paths=40))

    rivals = [walker("vague", spread=3.5), walker("same", spread=1.3), walker("best")]
    lazy = [LazyContestant.of(rival) for rival in (*rivals, Learner("saga"))]
    settings = list(contest.settings())
    parts = [score_reduction(contest, one, settings, lazy, folder) for one in (WHOLE, SHORT)]
    return with_losses(pl.concat(parts))


def row_of(table: pl.DataFrame, record: str, model: str, horizon: int = 5) -> dict[str, Any]:
    return table.filter(record=record, model=model, horizon=horizon).row(0, named=True)


def test_losses_are_ratios_and_verdicts_distinguish_better_equal_and_worse(
    judged: pl.DataFrame,
) -> None:
    table = judged
    poor, whole = row_of(table, "last-3", "saga"), row_of(table, "all", "saga")
    vague = row_of(table, "last-3", "vague")
    assert poor["loss"] == pytest.approx(poor["value"] / whole["value"] - 1)
    assert poor["loss"] > 0 == whole["loss"]
    assert vague["relative"] == pytest.approx(1 - poor["value"] / vague["value"])
    missed = shortfalls(table)
    assert set(missed.filter(record="last-3")["model"]) == {"best", "same"}
    assert row_of(table, "all", "best")["difference"] < 0  # the same process, better known
    lines = to_markdown(table).splitlines()
    assert lines[0] == "## in-time"
    assert len({line.count("|") for line in lines[2:]}) == 1
    assert all("**!**" in line for line in lines if "| best |" in line)
    assert not any("**!**" in line or "?" in line for line in lines if "| vague |" in line)


def test_the_command_scores_the_bundle_and_baselines_on_every_record(
    tiny_bundle: Path,
    register_dir: Path,
    register_panel: Panel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, report = tmp_path / "out", tmp_path / "report.md"
    argv = ["poorer_records", str(register_dir), "--out", str(out), "--bundle", str(tiny_bundle)]
    argv += ["--baselines", "carry,groupq", "--persons", "60", "--paths", "20"]
    monkeypatch.setattr(sys, "argv", [*argv, "--report", str(report)])
    assert poorer_records.main() == 1  # sixty persons are too few to be sure
    table = pl.read_parquet(out / "missing.parquet")
    models = {
        "in-time": {"saga", UNTOLD, "carry", "groupq"},
        "forward": {"saga", "carry", "groupq"},
    }
    expected = {
        (r.name, s, h, m)
        for r in REDUCTIONS
        for s, names in models.items()
        for h in (1, 5, 10, 20)
        for m in names
    }
    assert set(table.select("record", "setting", "horizon", "model").iter_rows()) == expected
    assert table["value"].is_finite().all()
    counts = table.group_by("setting", "horizon").agg(pl.col("n").n_unique())["n"]
    assert counts.unique().to_list() == [1]  # the same outcomes for all
    # groupq reads sex, education and the last years, but not occupation.
    groupq = {
        r: table.filter(model="groupq", record=r)["value"].to_list()
        for r in ("all", "no-occupation-industry", "earnings")
    }
    assert groupq["all"] == groupq["no-occupation-industry"] != groupq["earnings"]
    assert report.read_text() == (out / "missing.md").read_text()
    forecaster = Forecaster.load(tiny_bundle)
    assert read_provenance(out / "missing.parquet")["bundle"] == forecaster.bundle.digest

    # Another contest reuses the scores of the whole record.
    before = {file: file.stat().st_mtime_ns for file in (out / "kept").glob("*.parquet")}
    contest = Contest(
        register_panel, ContestOptions(n_paths=20, n_persons=60, until=2022, cache=out / "kept")
    )
    settings = list(contest.settings(register_dir))
    contestants = contestants_of(contest, WHOLE, forecaster, ["carry"])
    score_reduction(contest, WHOLE, settings, contestants, out / "kept")
    assert {file: file.stat().st_mtime_ns for file in (out / "kept").glob("*.parquet")} == before
