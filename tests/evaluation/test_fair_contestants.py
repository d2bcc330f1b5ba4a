"""Recalibrated alike: what a contestant gets wrong in spread alone, calibration persons mend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
from saga.evaluation.contest import Contest, ContestOptions
from saga.evaluation.contestants import Contestant
from saga.evaluation.fair_contestants import Recalibrated
from saga.evaluation.scoring.comparison import adjust_holm, adjust_together

from saga.data.panel import Panel
from tests.evaluation.conftest import Walker

Make = Callable[..., Panel]


def test_recalibration_mends_a_wrong_spread_and_leaves_the_exact_forecaster(
    random_walk: Make, part: Callable[[Panel, str], Panel], tmp_path: Path
) -> None:
    panel = random_walk(6000)
    contest = Contest(panel, ContestOptions(horizons=(1, 5), n_paths=100))
    people = part(panel, "calibration")
    walkers = [Walker("exact", block=100), Walker("narrow", spread=0.6, block=100)]
    rivals: list[Contestant] = [*walkers]
    rivals += [Recalibrated(walker, people, seed=0) for walker in walkers]
    table = contest.run(rivals, tmp_path).filter(pl.col("group") == "all")
    for horizon in (1, 5):
        at = table.filter(pl.col("horizon") == horizon, pl.col("n") > 0)
        crps = dict(at.filter(metric="crps_log").select("model", "value").iter_rows())
        inside = {r["model"]: r for r in at.filter(metric="coverage_80").to_dicts()}
        assert inside["narrow"]["value"] < inside["narrow"]["band_lower"]
        # Thresholds are random, too: those of 300 persons have a standard deviation of 2.3 points.
        assert abs(inside["narrow+cal"]["value"] - 0.8) < 0.1
        assert crps["exact"] < crps["narrow+cal"] < crps["narrow"]
        assert abs(crps["exact+cal"] / crps["exact"] - 1) < 0.02


def test_p_is_adjusted_over_all_tests_of_other_methods_together() -> None:
    p = [0.001, 0.02, 0.3, 0.04]
    rows = pl.DataFrame(
        {
            "model": ["a", "b", "saga:told", "a"],
            "metric": ["crps_log", "interval_90", "crps_log", "crps_log"],
            "group": ["all", "all", "all", "all"],
            "p": p,
            "p_holm": p,
        }
    )
    adjusted = adjust_together(rows)
    assert adjusted["model"].to_list() == ["a", "b", "a"]
    expected = adjust_holm(pl.Series([p[0], p[1], p[3]]).to_numpy()).tolist()
    assert adjusted["p_holm"].to_list() == expected
