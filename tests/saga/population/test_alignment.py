"""Aligned paths meet their targets, keep ranks, and do no harm to forecasts of persons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from scored_folder import path_rows, write_scored

from saga.population.scored_paths import ScoredPaths
from tests.command_line import answer, refusal

PERSONS, YEARS, PATHS = 200, 3, 20


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(11)
    earnings = rng.lognormal(12, 0.5, (PERSONS, YEARS, PATHS))
    earnings[rng.random(earnings.shape) < 0.2] = 0
    return write_scored(tmp_path_factory.mktemp("scored") / "out", path_rows(earnings))


@pytest.fixture(scope="module")
def panel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sex = np.where(np.arange(PERSONS) % 3 == 0, "female", "male")
    return _write_panel(tmp_path_factory.mktemp("panel") / "panel.csv", sex)


def _write_panel(path: Path, sex: NDArray[np.str_]) -> Path:
    ids = [f"{number:04d}" for number in range(len(sex))]
    fixed = {"year": 2022, "birth_year": 1980, "earnings": 1.0}
    pl.DataFrame({"person_id": ids, "sex": sex}).with_columns(
        **{name: pl.lit(value) for name, value in fixed.items()}
    ).write_csv(path)
    return path


def _totals(scored: Path, panel: Path, weights: pl.DataFrame | None = None) -> pl.DataFrame:
    """Totals by year and sex, mean over paths, computed from the files alone."""
    people = pl.read_csv(panel, infer_schema=False).select("person_id", "sex")
    people = (
        people.with_columns(weight=1.0) if weights is None else people.join(weights, on="person_id")
    )
    rows = pl.read_parquet(scored / "part-*.parquet").join(people, on="person_id")
    total = (pl.col("weight") * pl.col("earnings")).sum() / PATHS
    return rows.group_by("year", "sex").agg(total=total).sort("year", "sex")


def _write_targets(path: Path, totals: pl.DataFrame) -> Path:
    """Totals that are 10 % higher for women, 5 % lower for men, and grow."""
    factor = pl.when(sex="female").then(1.1).otherwise(0.95) + 0.01 * (pl.col("year") - 2023)
    totals.with_columns(total=pl.col("total") * factor).write_csv(path)
    return path


def _align(scored: Path, panel: Path, targets: Path, out: Path, *more: str) -> Any:
    line = ("align", scored, "--targets", targets, "--panel", panel, "--out", out)
    return answer(*line, *more)


def test_adjusted_totals_are_the_targets_and_no_one_changes_place(
    scored: Path, panel: Path, tmp_path: Path
) -> None:
    targets = _write_targets(tmp_path / "targets.csv", _totals(scored, panel))
    _align(scored, panel, targets, tmp_path / "out")
    reached = _totals(tmp_path / "out", panel)["total"]
    wanted = pl.read_csv(targets)["total"]
    assert reached.to_list() == pytest.approx(wanted.to_list(), rel=1e-9)
    before = ScoredPaths(scored).year(2024)
    after = ScoredPaths(tmp_path / "out").year(2024)
    assert np.array_equal(before.earnings == 0, after.earnings == 0)
    women = np.arange(PERSONS) % 3 == 0
    for group in (women, ~women):
        ranks = [np.argsort(year.earnings[group], axis=None) for year in (before, after)]
        assert np.array_equal(ranks[0], ranks[1])
    part = next((tmp_path / "out").glob("part-*.parquet"))
    stated = json.loads(pl.read_parquet_metadata(part)["saga"])["aligned"]
    assert (stated["method"], stated["groups"]) == ("adjust", ["sex"])
    diagnostics = pl.read_csv(tmp_path / "out" / "alignment.csv")
    assert diagnostics["factor"].to_list() == pytest.approx(
        (diagnostics["target"] / diagnostics["before"]).to_list()
    )


def test_weights_meet_the_targets_with_every_path_as_it_was(
    scored: Path, panel: Path, tmp_path: Path
) -> None:
    targets = _write_targets(tmp_path / "targets.csv", _totals(scored, panel))
    said = _align(scored, panel, targets, tmp_path / "out", "--method weights")
    weights = pl.read_parquet(tmp_path / "out" / "weights.parquet")
    reached = _totals(scored, panel, weights)["total"]
    assert reached.to_list() == pytest.approx(pl.read_csv(targets)["total"].to_list(), rel=1e-4)
    assert (weights["weight"] > 0).all()
    assert weights["weight"].sum() == pytest.approx(PERSONS)
    assert 0.5 * PERSONS < said["effective_persons"] < said["effective_persons_before"]
    assert not list((tmp_path / "out").glob("part-*"))
    # They are the closest in entropy: log weights are linear in what the targets add up.
    run, log_weights = ScoredPaths(scored), np.log(weights["weight"].to_numpy())
    means = np.stack([run.year(year).earnings.mean(1) for year in run.years], axis=1)
    women = (np.arange(PERSONS) % 3 == 0)[:, None]
    design = np.hstack([np.ones((PERSONS, 1)), means * women, means * ~women])
    design /= np.abs(design).max(0)
    rest = log_weights - design @ np.linalg.lstsq(design, log_weights, rcond=None)[0]
    assert np.abs(rest).max() < 1e-6


@pytest.mark.parametrize("method", ["adjust", "weights"])
def test_means_are_met_with_the_persons_that_a_group_has_then(
    method: str, scored: Path, panel: Path, tmp_path: Path
) -> None:
    """With weights a group may have more persons than before, and its mean is still the target."""
    wanted, targets, out = [110_000.0, 160_000.0], tmp_path / "targets.csv", tmp_path / "out"
    means = {"year": [2024, 2024], "sex": ["female", "male"], "mean": wanted}
    pl.DataFrame(means).write_csv(targets)
    _align(scored, panel, targets, out, "--method", method)
    with_weights = method == "weights"
    weights = pl.read_parquet(out / "weights.parquet") if with_weights else None
    totals = _totals(scored if with_weights else out, panel, weights).filter(year=2024)
    people = pl.read_csv(panel, infer_schema=False)
    people = (
        people.with_columns(weight=1.0) if weights is None else people.join(weights, "person_id")
    )
    persons = people.group_by("sex").agg(pl.col("weight").sum()).sort("sex")["weight"]
    assert (totals["total"] / persons).to_list() == pytest.approx(wanted, rel=1e-5)
    table = pl.read_csv(out / "alignment.csv")
    for column in ("target", "after"):
        assert table[column].to_list() == pytest.approx(wanted, rel=1e-5)
    assert (table["lower_90"] < table["before"]).all()
    assert (table["before"] < table["upper_90"]).all()


@pytest.mark.parametrize("method", ["adjust", "weights"])
@pytest.mark.parametrize("statistic", ["total", "mean"])
def test_targets_about_residents_hold_without_the_dead_and_who_is_abroad(
    statistic: str, method: str, scored: Path, panel: Path, tmp_path: Path
) -> None:
    rows = pl.read_parquet(scored / "part-*.parquet")
    number = pl.col("person_id").cast(pl.Int32) + pl.col("path") + pl.col("year")
    gone = pl.when(number % 9 == 0).then(pl.lit("abroad")).when(number % 7 == 0)
    state = gone.then(pl.lit("dead")).when(number % 5 > 0).then(pl.lit("employed"))
    codes = pl.Enum(["employed", "dead", "abroad"])
    rows = rows.with_columns(state=state.otherwise(None).cast(codes))
    paths, targets, out = tmp_path / "paths", tmp_path / "targets.csv", tmp_path / "out"
    write_scored(paths, rows)
    wanted = [1.1 * PERSONS * 140_000, 1.02 * PERSONS * 140_000]
    wanted = [amount / (1 if statistic == "total" else PERSONS) for amount in wanted]
    pl.DataFrame({"year": [2023, 2024], statistic: wanted}).write_csv(targets)
    _align(paths, panel, targets, out, "--residents", "--method", method)
    if method == "adjust":
        rows = pl.read_parquet(out / "part-*.parquet").with_columns(weight=1.0)
        assert rows.height == PERSONS * YEARS * PATHS, "nobody is lost"
    else:
        rows = rows.join(pl.read_parquet(out / "weights.parquet"), on="person_id")
    there = rows.filter(~pl.col("state").is_in(["dead", "abroad"]).fill_null(value=False))
    sums = there.group_by("year").agg(
        total=(pl.col("weight") * pl.col("earnings")).sum() / PATHS,
        mean=(pl.col("weight") * pl.col("earnings")).sum() / pl.col("weight").sum(),
    )
    assert sums.sort("year")[statistic][:2].to_list() == pytest.approx(wanted, rel=1e-5)
    assert pl.read_csv(out / "alignment.csv")["after"].to_list() == pytest.approx(wanted, rel=1e-5)


def test_residents_are_known_from_states_only(scored: Path, panel: Path, tmp_path: Path) -> None:
    targets = tmp_path / "targets.csv"
    targets.write_text("year,mean\n2023,1\n")
    line = ("align", scored, "--targets", targets, "--panel", panel, "--out", tmp_path / "out")
    assert "--circumstances" in refusal(*line, "--residents")


@pytest.mark.parametrize("group", ["state", "residents"])
@pytest.mark.parametrize(("statistic", "below"), [("total", 1 - 4 / PATHS), ("mean", 0.0)])
def test_a_path_without_persons_in_a_group_has_a_total_of_zero(
    group: str, statistic: str, below: float, tmp_path: Path
) -> None:
    """On 4 of the paths one person of 1,000 is in it, on the others nobody: at work, or abroad."""
    rows = path_rows(np.full((PERSONS, 1, PATHS), 1_000.0))
    inside = pl.col("path") < 4
    one = pl.when(pl.col("person_id") == "0007").then(inside)
    if group == "state":
        state, by = pl.when(one).then(pl.lit("leave")).otherwise(pl.lit("work")), "state,leave"
    else:
        state, by = pl.when(inside).then(pl.lit("work")).otherwise(pl.lit("abroad")), "sex,female"
    rows = rows.with_columns(state=state.cast(pl.Enum(["leave", "work", "abroad"])))
    scored, targets = write_scored(tmp_path / "paths", rows), tmp_path / "targets.csv"
    name, level = by.split(",")
    targets.write_text(f"year,{name},{statistic}\n2023,{level},900\n")
    sex = np.where(np.arange(PERSONS) == 7, "female", "male")
    panel = _write_panel(tmp_path / "panel.csv", sex)
    more = ["--residents"] if group == "residents" else []
    _align(scored, panel, targets, tmp_path / "out", *more)
    found = pl.read_csv(tmp_path / "out" / "alignment.csv").row(0, named=True)
    assert found["percentile"] == pytest.approx(below)
    assert found["lower_90"] == (0 if statistic == "total" else 1_000)
    assert found["upper_90"] == 1_000


def test_single_forecasts_are_not_aligned_and_bad_targets_are_named(
    scored: Path, panel: Path, tmp_path: Path
) -> None:
    good, targets = "year,sex,total\n2023,female,100\n", tmp_path / "targets.csv"
    rows = path_rows(np.ones((2, 1, 1)))
    forecasts = write_scored(tmp_path / "forecasts", rows, product="forecasts")
    state = pl.lit("work", pl.Enum(["work"]))
    of_states = write_scored(tmp_path / "states", rows.with_columns(state=state))
    for folder, text, more, message in (
        (forecasts, good, (), "joint paths"),
        (scored, "year,sex\n2023,female\n", (), "either total or mean"),
        (scored, "year,base_amounts,total\n2023,0-1,1\n", (), "of `saga tables` only"),
        (of_states, "year,shoe_size,total\n2023,41,1\n", (), "sex, state"),
        (scored, good + "2024,female,-3\n", (), "line 3"),
        (scored, good + "2023,female,200\n", "", "two targets"),
        (scored, good + "2024,female,3,5\n", (), "more cells than the header"),
        (scored, "", (), "no content"),
        (scored, "year,sex,total\n1999,female,3\n", (), "1 of 1 targets"),
        (scored, "year,mean\n2023,1\n2024,1e9\n", "--method weights", "No weights"),
    ):
        targets.write_text(text)
        line = ("align", folder, "--targets", targets, "--panel", panel, "--out", tmp_path / "out")
        assert message in refusal(*line, more)
        assert not (tmp_path / "out").exists()


def test_an_official_figure_is_placed_in_the_band_of_the_same_paths(
    scored: Path, panel: Path, tmp_path: Path
) -> None:
    """The total of a path is above as many paths as have a lower one."""
    people = pl.read_csv(panel, infer_schema=False).select("person_id", "sex")
    rows = pl.read_parquet(scored / "part-*.parquet").join(people, on="person_id")
    by_path = rows.group_by("year", "sex", "path").agg(total=pl.col("earnings").sum())
    by_path = by_path.sort("year", "sex", "total")
    cells = by_path.group_by("year", "sex", maintain_order=True)
    for place, is_outside in ((7, False), (PATHS - 1, True)):
        out, targets = tmp_path / f"out{place}", tmp_path / f"targets{place}.csv"
        factor = 1 if place == 7 else 1.5
        cells.agg((pl.col("total").get(place) + 1) * factor).write_csv(targets)
        said = _align(scored, panel, targets, out)
        table = pl.read_csv(out / "alignment.csv")
        assert table["percentile"].to_list() == [(place + 1) / PATHS] * table.height
        assert said["outside_90"] == table.height * is_outside
        if place == 7:
            assert (table["lower_90"] < table["before"]).all()
            assert (table["before"] < table["upper_90"]).all()
