"""Standard errors cover, bands hold, and the pages say what the table says."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import polars as pl
import pytest
from saga.calibration.diagnostics.verdicts import coverage_band
from saga.evaluation.report.contest_summary import ContestSummary
from saga.evaluation.report.evaluation_results import Results
from saga.evaluation.report.pages import to_html
from saga.evaluation.report.result_tables import build_tables
from saga.evaluation.scoring.metrics import COLUMNS, METRICS, metrics_table
from scipy import stats


def _replicas(
    values: np.ndarray,
    persons: np.ndarray,
    draw: np.ndarray | None = None,
    metric: str = "crps_log",
) -> pl.DataFrame:
    """The metrics table of (runs, n) scores at horizon 1: one model and one row per run."""
    runs, n = values.shape
    scores = pl.DataFrame(
        {
            "model": np.repeat([f"{i:03d}" for i in range(runs)], n).tolist(),
            "setting": ["in-time" if draw is None else "forward"] * (runs * n),
            "draw": pl.Series(
                [None] * (runs * n) if draw is None else np.tile(draw, runs), dtype=pl.Int32
            ),
            "person_id": np.tile(persons.astype(str), runs).tolist(),
            "horizon": pl.Series([1] * (runs * n), dtype=pl.Int32),
            "p_zero": pl.Series([0.0] * (runs * n), dtype=pl.Float32),
            **{name: values.ravel() if name == metric else None for name in METRICS},
        }
    )
    filled = scores.with_columns(pl.col(METRICS).cast(pl.Float64))
    table = metrics_table(
        filled.lazy(), pl.DataFrame(schema={"setting": pl.String, "person_id": pl.String}), [1]
    )
    return table.filter(pl.col("metric") == metric)


def _share_inside(table: pl.DataFrame, truth: float, quantile: float) -> float:
    return float(
        table.select(((pl.col("value") - truth).abs() < quantile * pl.col("se")).mean()).item()
    )


RUNS = 400


def test_standard_errors_clustered_by_person_cover_and_naive_ones_would_not() -> None:
    rng = np.random.default_rng(0)
    persons, repeats = 60, 4
    values = np.repeat(rng.normal(1, 1, (RUNS, persons)), repeats, axis=1) + rng.normal(
        0, 0.5, (RUNS, persons * repeats)
    )
    table = _replicas(values, np.repeat(np.arange(persons), repeats))
    assert table["n"].unique().to_list() == [persons]
    assert _share_inside(table, 1, stats.t.ppf(0.975, persons - 1)) == pytest.approx(
        0.95, abs=4 * np.sqrt(0.95 * 0.05 / RUNS)
    )
    naive = np.abs(values.mean(axis=1) - 1) < 1.96 * values.std(axis=1) / np.sqrt(persons * repeats)
    assert naive.mean() < 0.85


def test_forward_errors_are_those_between_futures() -> None:
    rng = np.random.default_rng(0)
    draws, persons = 20, 30
    common = rng.normal(2, 1, (RUNS, draws))  # what a macro future does to everybody
    values = np.repeat(common, persons, axis=1) + rng.normal(0, 0.3, (RUNS, draws * persons))
    table = _replicas(
        values, np.tile(np.arange(persons), draws), np.repeat(np.arange(draws), persons)
    )
    assert _share_inside(table, 2, stats.t.ppf(0.975, draws - 1)) == pytest.approx(
        0.95, abs=4 * np.sqrt(0.95 * 0.05 / RUNS)
    )
    assert table["sd_futures"].mean() == pytest.approx(1, rel=0.05)


def test_the_error_of_a_root_is_that_of_the_square_over_twice_the_root() -> None:
    values, persons = np.random.default_rng(1).gamma(2, size=(3, 60)), np.arange(60)
    squares, roots = (_replicas(values, persons, metric=m) for m in ("crps_log", "rmse_log"))
    np.testing.assert_allclose(roots["value"], squares["value"].sqrt())
    np.testing.assert_allclose(roots["se"], squares["se"] / (2 * roots["value"]))


@pytest.mark.parametrize(("calibrated_on", "n"), [(None, 500), (2000, 500), (300, 5000)])
def test_the_band_contains_19_of_20_calibrated_forecasters(
    calibrated_on: int | None, n: int
) -> None:
    rng = np.random.default_rng(0)
    runs, level = 4000, 0.9
    if calibrated_on is None:
        true = np.full(runs, level)
    else:  # coverage given the calibration sample: an order statistic (Vovk 2012)
        k = int(np.ceil((calibrated_on + 1) * level))
        true = rng.beta(k, calibrated_on + 1 - k, runs)
    share = rng.binomial(n, true) / n
    low, high = coverage_band(level, n, calibrated_on)
    inside = ((low <= share) & (share <= high)).mean()
    # Discrete shares and the averaged order statistics make it wider, never narrower.
    assert 0.95 - 4 * np.sqrt(0.05 * 0.95 / runs) < inside < 0.99


def test_coverage_is_also_given_by_the_probability_of_zero() -> None:
    p_zero = np.array([0.0, 0.05, 0.07, 0.1, 0.79, 0.95])
    n = len(p_zero)
    scores = pl.DataFrame(
        {
            "model": ["saga"] * n + ["carry"] * n,
            "setting": ["in-time"] * (2 * n),
            "draw": pl.Series([None] * (2 * n), dtype=pl.Int32),
            "person_id": [str(i) for i in range(n)] * 2,
            "horizon": pl.Series([1] * (2 * n), dtype=pl.Int32),
            "p_zero": np.tile(p_zero, 2),
            **{name: np.tile(np.arange(n) % 2.0, 2) for name in METRICS},
        }
    )
    table = metrics_table(
        scores.lazy(), pl.DataFrame(schema={"setting": pl.String, "person_id": pl.String}), [1]
    )
    binned = table.filter(pl.col("group") != "all", metric="coverage_90")
    assert set(binned["model"]) == {"saga"}
    shares = {row["group"]: (row["n"], row["value"]) for row in binned.iter_rows(named=True)}
    assert shares == {
        "p_zero=00-05": (1, 0.0),
        "p_zero=05-10": (2, 0.5),
        "p_zero=10-20": (1, 1.0),
        "p_zero=70-80": (1, 0.0),
        "p_zero=80-100": (1, 1.0),
    }
    titles = [t.title for t in build_tables(table)]
    assert "Coverage of saga's sets by probability of no earnings, in-time" in titles


def _table() -> pl.DataFrame:
    rows: list[dict[str, Any]] = [
        {
            "model": model,
            "setting": "in-time",
            "metric": metric,
            "horizon": 10,
            "group": group,
            "value": value,
            "se": 0.01,
            "n": 1234,
        }
        | {
            "sd_futures": None,
            "band_lower": 0.89 if metric == "coverage_90" else None,
            "band_upper": 0.91 if metric == "coverage_90" else None,
        }
        for model, value in (("saga", 0.5), ("carry", 0.9))
        for metric in ("mae_log", "coverage_90")
        for group in ("all", "sex=<female>")
    ]
    return pl.DataFrame(rows, schema=COLUMNS)


def test_the_html_page_is_self_contained_and_escapes_text() -> None:
    table = _table()
    summary = ContestSummary.of(Results(table, {"panel": "saga-register-1-10"}))
    page = to_html(build_tables(table), {"bundle": "abc"}, summary)
    assert not re.search(r"\b(src|href)=|url\(|@import", page)
    assert "sex=&lt;female&gt;" in page
    assert "sex=<female>" not in page
    assert "0.5000 ± 0.0100" in page
    assert "abc" in page
    assert "Simulated people, not real" in page
