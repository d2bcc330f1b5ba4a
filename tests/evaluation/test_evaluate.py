"""`evaluate` with a real bundle on a small register, with the bundle's own intervals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from saga.evaluation.bundle_evaluation import (
    EvaluationOptions,
    evaluate,
    require_amounts_above_floor,
)
from saga.evaluation.contest import ContestOptions
from saga.evaluation.scoring.futures import true_futures

from saga.data.origins import history, origins_at
from saga.data.panel import Panel
from saga.errors import InputError
from saga.forecaster import Forecaster
from saga.requests import ForecastRequest
from saga.scores import covered


def test_amounts_below_the_floor_are_not_judged(tiny_bundle: Path, register_panel: Panel) -> None:
    require_amounts_above_floor(register_panel)
    amounts = register_panel.frame.with_columns(pl.col("earnings") / 1000)
    thousands = register_panel.with_frame(amounts)
    with pytest.raises(InputError, match=r"(?s)24,150 SEK of 2022.*scale: 1000.*floor:") as caught:
        evaluate(tiny_bundle, thousands, Path("unused"), ContestOptions(), EvaluationOptions())
    assert caught.value.problems[0].column == "earnings"
    require_amounts_above_floor(replace(thousands, meta=replace(thousands.meta, floor=24.15)))
    require_amounts_above_floor(replace(thousands, meta=replace(thousands.meta, floor=None)))


@pytest.mark.thorough
def test_evaluate_scores_the_bundle_and_baselines_in_both_settings(
    tiny_bundle: Path, register_dir: Path, register_panel: Panel, tmp_path: Path
) -> None:
    steps: list[tuple[str, int, int]] = []
    table = evaluate(
        tiny_bundle,
        register_panel,
        tmp_path,
        ContestOptions(horizons=(1, 5), n_paths=20, n_persons=60),
        EvaluationOptions(
            baselines=("carry", "groupq", "clairvoyant"),
            tables=("all",),
            futures=register_dir,
            register=register_dir,
        ),
        progress=lambda *step: steps.append(step),
    )
    whole = table.filter(pl.col("group") == "all", pl.col("metric") == "crps_log")
    rows = set(whole.select("model", "setting", "horizon").iter_rows())
    rivals, placebos = (
        ("carry", "groupq", "clairvoyant"),
        ("saga:permuted", "saga:window-5", "saga:static"),
    )
    hindsight = {("saga:told", "in-time", h) for h in (1, 5)}
    assert rows == hindsight | {
        (m, s, h)
        for m in ("saga", *rivals, *placebos)
        for s in ("in-time", "forward")
        for h in (1, 5)
    }
    in_time = dict(whole.filter(setting="in-time", horizon=5).select("model", "value").iter_rows())
    assert in_time["saga:told"] != in_time["saga"], (
        "conditioning on realised macro changes the forecasts"
    )
    assert any(
        line.startswith("| 5 |")
        for line in (tmp_path / "tables.md")
        .read_text()
        .split("What knowing realised macro")[1]
        .splitlines()
    )
    assert whole["value"].is_finite().all()
    assert whole.group_by("setting", "horizon").agg(pl.col("n").n_unique())[
        "n"
    ].unique().to_list() == [1]  # the same persons for all
    assert {step for step, _, _ in steps} >= {
        "fit groupq",
        "in-time: saga",
        "forward: groupq",
        "lifetimes: carry",
    }

    for _, setting in whole.group_by("setting"):
        crps = dict(setting.filter(horizon=1).select("model", "value").iter_rows())
        assert crps["clairvoyant"] < min(crps["saga"], crps["carry"], crps["groupq"])
    closed = table.filter(
        pl.col("metric") == "gap_closed",
        pl.col("group") == "all",
        ~pl.col("model").str.contains(":"),
    )
    assert set(closed.select("model", "setting").iter_rows()) == {
        (m, s) for m in ("saga", "carry") for s in ("in-time", "forward")
    }

    lifetimes = pl.read_parquet(tmp_path / "lifetimes.parquet").filter(
        statistic="crps", rate=0.02, group="all"
    )
    assert set(lifetimes["model"]) == {"saga", *rivals}
    assert lifetimes["years"].unique().to_list() == ["to age 64, at most 20 years"]
    # Coverage is that of the intervals that the forecaster gives for these persons.
    scores = pl.read_parquet(tmp_path / "scores/saga-forward-*.parquet").filter(
        pl.col("model") == "saga",
        pl.col("setting") == "forward",
        pl.col("draw") == 0,
        pl.col("horizon") == 1,
    )
    judged = register_panel.only(scores["person_id"])
    origins = origins_at(judged, 2022)
    _, outcomes = next(true_futures(register_dir, origins, [1], price_year=2022))
    request = ForecastRequest(horizons=[1, 5], coverage=(0.5,), unrounded=True)
    forecast = Forecaster.load(tiny_bundle).forecast(history(judged, origins), request).table
    ends = forecast.filter(pl.col("horizon") == 1)
    lower, upper = (
        ends[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
        for name in ("lower_50", "upper_50")
    )
    inside = covered(outcomes[:, 0], lower, upper, ends["includes_zero_50"].to_numpy())
    assert ends["person_id"].to_list() == scores["person_id"].to_list()
    assert np.isfinite(inside).any()
    assert np.array_equal(
        scores["coverage_50"].fill_null(np.nan).to_numpy(), inside, equal_nan=True
    )
