"""The study of group means in drawn histories: it sees a wrong mean and a narrow band."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from saga.evaluation.scoreboard import tables_of

from saga.register.simulation import generation
from studies import group_futures
from studies.group_futures import change_values, group_values, summarise

ROOT = Path(__file__).resolve().parents[2]
HISTORIES, FUTURES = 100, 10


def _worlds(*, shift: float = 0.0, width: float = 1.0) -> pl.DataFrame:
    """Outcomes of groups, each history with its own error; the band is right for width 1."""
    random = np.random.default_rng(1)
    common = random.normal(0, 0.8, (HISTORIES, 1))
    error = shift + common + random.normal(0, 0.6, (HISTORIES, FUTURES))
    history, future = np.indices(error.shape)
    rows = {"history": history.ravel(), "future": future.ravel(), "error": error.ravel()}
    inside = np.abs(error.ravel()) < 1.645 * width
    key = {"horizon": 1, "statistic": "mean", "group": "all"}
    return pl.DataFrame({**rows, "inside": inside}).with_columns(
        scale=pl.lit(1.0), **{name: pl.lit(value) for name, value in key.items()}
    )


def test_right_bands_pass_and_wrong_ones_are_seen() -> None:
    right, biased, narrow = (
        summarise(_worlds(**world), ["horizon"]).row(0, named=True)
        for world in ({}, {"shift": 1.0}, {"width": 0.6})
    )
    assert right["p_holm"] > 0.01
    assert abs(right["bias"]) < 3 * right["bias_se"]
    # Histories are the unit: their errors do not average out over futures.
    assert right["bias_se"] == pytest.approx(np.sqrt(0.8**2 + 0.6**2 / FUTURES) / 10, rel=0.2)
    assert biased["bias"] > 5 * biased["bias_se"]
    assert biased["p_holm"] < 0.001
    assert narrow["p_holm"] < 0.001


def test_only_persons_with_an_outcome_count_on_both_sides() -> None:
    outcomes = np.repeat([10.0, np.nan, 0.0, 2.0], [40, 40, 40, 80])
    paths = np.tile(np.repeat([20.0, 99.0, 0.0, 5.0], [40, 40, 40, 80])[:, None], 3)
    men = np.arange(200) < 80
    members = {
        "all": np.full(200, fill_value=True),
        "male": men,
        "female": ~men,
        "few": men & False,
    }
    values = group_values(outcomes, paths, members)
    assert values["mean", "all"].tolist() == [3.5, 7.5, 7.5, 7.5]
    assert values["zeros", "all"].tolist() == [0.25, 0.25, 0.25, 0.25]
    assert values["mean", "male"].tolist() == [10.0, 20.0, 20.0, 20.0]
    assert values["ratio", "male/female"].tolist() == pytest.approx([7.5, 6.0, 6.0, 6.0])
    assert ("mean", "few") not in values
    assert values["p50", "all"].tolist() == [2.0, 5.0, 5.0, 5.0]
    amounts = np.repeat([0.0, 2.0, 10.0], [40, 80, 40])
    half_difference = np.abs(amounts[:, None] - amounts).mean() / 2
    assert values["gini", "all"][0] == pytest.approx(half_difference / amounts.mean())


def test_paths_whose_ranks_or_changes_are_wrong_are_seen() -> None:
    """Shuffled among persons, paths have the same cross-section, but change too much."""
    random = np.random.default_rng(2)
    level = np.exp(random.normal(12, 0.5, (500, 1)))
    smooth = [level * np.exp(random.normal(0, 0.3, (500, 4))) for _ in range(3)]
    smooth[0][:, 3] = random.permutation(smooth[0][:, 3])
    values = change_values(smooth, 1.0)
    volatility, mobility = values["volatility", "all"], values["mobility", "all"]
    assert volatility[3] > 1.2 * volatility[:3].max()
    assert mobility[3] < 0.2 < mobility[:3].min()
    assert change_values(smooth[:2], 1.0).keys() == {("volatility", "all")}


@pytest.mark.thorough
def test_the_command_judges_histories_and_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = {1965: 40, 1975: 40, 1985: 40, 1995: 40}
    monkeypatch.setattr(generation, "cohort_sizes", lambda *_: few)
    monkeypatch.setattr(group_futures, "MIN_PERSONS", 10)
    sizes = {"histories": 1, "futures": 1, "persons": 160, "paths": 10}
    arguments = [str(ROOT / "bundles" / "small"), "--told", "--out", str(tmp_path)]
    arguments += [f"--{name}={value}" for name, value in sizes.items()]
    monkeypatch.setattr(sys, "argv", ["group_futures", *arguments])
    group_futures.main()
    first = capsys.readouterr().out
    kept = list(tmp_path.rglob("history-*.parquet"))
    assert len(kept) == 1
    monkeypatch.setattr(group_futures, "judge", None)  # nothing is judged twice
    group_futures.main()
    assert capsys.readouterr().out == first
    assert (tmp_path / "results.md").read_text(encoding="utf-8") == first
    sums, paths, _ = tables_of(first)
    assert [row[0] for row in sums["rows"]] == ["1", "5", "10", "20", "lifetimes"]
    assert all(all(row[1:4]) for row in sums["rows"])
    assert all(row[1:3] != ["", ""] for row in paths["rows"])
