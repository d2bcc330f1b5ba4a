"""Dynamics of careers: those of a process whose moments are known, and nothing of few persons."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy.stats import multivariate_normal, norm
from scored_folder import path_rows

from saga.pages.group import _moves
from saga.population.disclosure import DisclosureRules
from saga.population.scored_paths import PathRows
from saga.population.simulated_careers import LAGS, dynamics_table

PERSONS, YEARS, PATHS = 4_000, 12, 3
RHO, SD = 0.9, 0.3  # of log earnings: their autocorrelation and standard deviation


def careers(persons: int = PERSONS, seed: int = 1) -> pl.DataFrame:
    """Stationary Gaussian AR(1) in logs, with some years without earnings."""
    rng = np.random.default_rng(seed)
    logs = np.empty((persons, YEARS, PATHS))
    logs[:, 0] = rng.normal(0, SD, (persons, PATHS))
    for year in range(1, YEARS):
        shock = rng.normal(0, SD * (1 - RHO**2) ** 0.5, (persons, PATHS))
        logs[:, year] = RHO * logs[:, year - 1] + shock
    earnings = np.exp(12 + logs)
    earnings[rng.random(earnings.shape) < 0.05] = 0
    return path_rows(earnings)


def table_of(rows: pl.DataFrame, records: pl.DataFrame | None = None) -> pl.DataFrame:
    return dynamics_table(PathRows(rows.lazy(), {}), records, DisclosureRules())


@pytest.mark.parametrize("source", ["paths", "panel"])
def test_moments_are_those_of_the_process(source: str) -> None:
    panel = careers(seed=2).filter(path=0).drop("path")
    table = table_of(careers(), panel).filter(source=source)
    value = {(row[1], row[2]): row[4] for row in table.iter_rows()}
    for lag in LAGS:
        sd_change = SD * (2 * (1 - RHO**lag)) ** 0.5
        assert value[lag, "autocorrelation"] == pytest.approx(RHO**lag, abs=0.03)
        expected = 2 * norm.ppf(0.9) * sd_change
        assert value[lag, "p90_p10_change"] == pytest.approx(expected, rel=0.04)
        assert value[lag, "kelley_change"] == pytest.approx(0, abs=0.05)
        assert value[lag, "crow_siddiqui_change"] == pytest.approx(0, abs=0.15)
        ranks = 6 / np.pi * np.arcsin(RHO**lag / 2)  # Spearman's rho of a normal pair
        assert value[lag, "rank_correlation"] == pytest.approx(ranks, abs=0.03)
        limits = norm.ppf(np.arange(0, 1.1, 0.2)).clip(-9, 9)
        pair = multivariate_normal(cov=[[1, RHO**lag], [RHO**lag, 1]])
        for k, j in np.ndindex(5, 5):
            ends, starts = (limits[[k + 1, j + 1]], limits[[k, j]])
            share = pair.cdf(ends, lower_limit=starts) / 0.2
            assert value[lag, f"fifth_{k + 1}_to_{j + 1}"] == pytest.approx(share, abs=0.03)
    has_band = table["lower_90"].is_not_null().all()
    assert has_band == (source == "paths")


def test_quantiles_of_few_persons_are_not_published() -> None:
    table = table_of(careers(90))
    shown = table.drop_nulls("value")["statistic"].unique().sort().to_list()
    of_moves = [name for name in shown if name.startswith("fifth")]
    assert len(of_moves) == 25
    assert [name for name in shown if name not in of_moves] == [
        "autocorrelation",
        "rank_correlation",
    ]
    n_rows = len(LAGS) * (5 + 25)
    assert table_of(careers(9)).select("persons", "value").null_count().row(0) == (n_rows, n_rows)


def test_numbers_of_persons_are_rounded_as_in_all_tables() -> None:
    """Exact ones of two lags, or of two panels, tell of the persons that only one of them has."""
    assert table_of(careers(33))["persons"].unique().to_list() == [35]


def test_the_page_has_the_panel_beside_the_paths_and_no_small_number() -> None:
    few = careers(9).filter(path=0).drop("path")
    shown, hidden = (
        [section["blocks"][0] for section in _moves(table_of(careers(90), panel))]
        for panel in (careers(200, seed=2).filter(path=0).drop("path"), few)
    )
    for lag, block, of_few in zip(LAGS, shown, hidden, strict=True):
        assert block["years"] == ["paths", "panel"], lag
        texts = {row["groups"][0]: row["texts"] for row in block["rows"]}
        assert len(texts) == 5 + 25
        (paths, band, _), (panel, no_band, _) = texts["autocorrelation"]
        lower, upper = map(float, band.split(" to "))
        assert lower <= float(paths) <= upper
        assert abs(float(panel) - RHO**lag) < 0.1
        assert no_band == ""
        assert texts["p90 p10 change"][0] == ("x", "", "")
        assert all(row["texts"][1] == ("x", "", "") for row in of_few["rows"])


def test_where_few_persons_of_the_panel_went_is_not_published() -> None:
    """Of the paths only the fifth from which they come has to be large enough."""
    rows = careers(200)
    table = table_of(rows, rows.filter(path=0).drop("path")).filter(lag=1)
    moves = table.filter(pl.col("statistic").str.starts_with("fifth"))
    assert moves.filter(source="paths")["value"].null_count() == 0
    whole = moves.filter(source="panel").with_columns(of=pl.col("statistic").str.slice(0, 7))
    hidden = whole.group_by("of").agg(
        pl.col("value").is_null().all(), n=pl.col("value").is_null().any()
    )
    assert hidden["value"].to_list() == hidden["n"].to_list(), "a row is hidden as a whole"
    assert hidden["value"].any()
