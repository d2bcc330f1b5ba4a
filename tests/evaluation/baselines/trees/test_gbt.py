"""Boosted trees: conditional quantiles, marginals and dependence of paths, no later rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from saga.evaluation.baselines.trees.atom_quantiles import AtomQuantiles
from saga.evaluation.baselines.trees.copula import (
    estimate_correlations,
    extend_correlations,
    joint_uniforms,
)
from saga.evaluation.baselines.trees.gbt import BoostedTrees
from scipy.special import expit, ndtri
from scipy.stats import kstest, norm, spearmanr

from saga.data.origins import Origins, draw_origins, history, realised_earnings
from saga.data.panel import Panel, PanelMeta
from saga.errors import InputError
from saga.requests import QUANTILES
from saga.trees.recent_years import Window
from saga.trees.tree_forecast import increasing
from tests.panels import yearly_panel

YEARS = np.arange(2000, 2016)
STAY, LEAVE = 0.8, 0.1  # of the process below: the chance of zero after a zero, and after an amount


def quick(**options: Any) -> BoostedTrees:
    """Settings for tests: three horizons, one choice of leaves and rate."""
    return BoostedTrees(
        **{"grid": (1, 2, 5), "leaves": (6,), "rates": (0.1,), "threads": 1, **options}
    )


def employment(n: int, seed: int) -> Panel:
    """A Markov chain of zero and work; log amounts 12.5 + a +- spread, a fixed by person."""
    rng = np.random.default_rng(seed)
    woman, ability = rng.random(n) < 0.5, rng.choice([-0.5, 0.5], n)
    zero = np.empty((n, len(YEARS)), dtype=bool)
    zero[:, 0] = rng.random(n) < LEAVE / (LEAVE + 1 - STAY)
    for t in range(1, len(YEARS)):
        zero[:, t] = rng.random(n) < np.where(zero[:, t - 1], STAY, LEAVE)
    log = 12.5 + ability[:, None] + np.where(woman, 0.4, 0.2)[:, None] * rng.normal(size=zero.shape)
    born, sex = rng.integers(1960, 1976, n), np.where(woman, "female", "male")
    meta = PanelMeta("employment", floor=1_000.0)
    return yearly_panel(np.where(zero, 0.0, np.exp(log)), YEARS, born, meta, sex=sex)


@pytest.fixture(scope="module")
def trees() -> BoostedTrees:
    return quick().fit(employment(1500, 0), seed=0)


@pytest.fixture(scope="module")
def judged() -> tuple[Panel, Origins]:
    panel = employment(1000, 1)
    return panel, draw_origins(panel, max_horizon=5, seed=0)


def exact(panel: Panel, origins: Origins) -> tuple[np.ndarray, np.ndarray]:
    """Next year's probability of zero (n,) and log quantiles (n, 9), by Bayes' rule."""
    past = history(panel, origins).frame
    last = past.group_by("person_id", maintain_order=True).last()
    spread = np.where(last["sex"] == "female", 0.4, 0.2)
    logs = (
        past.filter(pl.col("earnings") > 0)
        .group_by("person_id")
        .agg((pl.col("earnings").log() - 12.5).sum().alias("sum"))
    )
    total = (
        last.select("person_id")
        .join(logs, on="person_id", how="left", maintain_order="left")["sum"]
        .fill_null(0.0)
        .to_numpy()
    )
    able = expit(total / spread**2)  # the two levels lie one apart, around 12.5
    grid = np.linspace(10, 15, 2001)
    chance = able[:, None] * norm.cdf(grid, 13.0, spread[:, None]) + (1 - able)[:, None] * norm.cdf(
        grid, 12.0, spread[:, None]
    )
    quantiles = grid[np.stack([(chance < level).sum(axis=1) for level in QUANTILES], axis=1)]
    return np.where(last["earnings"] == 0, STAY, LEAVE), quantiles


@pytest.mark.thorough
def test_trees_recover_the_conditional_quantiles_of_a_known_process(
    trees: BoostedTrees, judged: tuple[Panel, Origins]
) -> None:
    panel, origins = judged
    result = trees.marginals(history(panel, origins), origins, [1])
    zero, quantiles = exact(panel, origins)
    # A leaf of 40 examples estimates a probability of 0.8 within 0.06 and the normal 10 % quantile
    # within 0.27 deviations; forecasts are means of many trees, and errors average over persons.
    assert np.abs(result.zero[:, 0] - zero).mean() < 0.06
    for group in (zero == STAY, zero == LEAVE):
        assert result.zero[group, 0].mean() == pytest.approx(zero[group].mean(), abs=0.03)
    error = result.logs[:, 0] - quantiles
    deviation = np.where(
        history(panel, origins).frame.group_by("person_id", maintain_order=True).last()["sex"]
        == "female",
        0.4,
        0.2,
    )
    inner = slice(2, -2)
    for spread in (0.2, 0.4):
        rows = deviation == spread
        assert np.abs(error[rows, inner].mean(axis=0)).max() < 0.27 * spread
        assert np.abs(error[rows, inner]).mean() < 0.4 * spread
    shuffled = (
        np.roll(result.logs[:, 0], 1, axis=0) - quantiles
    )  # forecasts of somebody else: the errors of one who learned nothing
    assert np.abs(shuffled[:, inner]).mean() > 2 * np.abs(error[:, inner]).mean()


@pytest.mark.thorough
def test_forecasts_of_the_known_process_are_calibrated_and_a_broken_one_is_not(
    trees: BoostedTrees, judged: tuple[Panel, Origins]
) -> None:
    panel, origins = judged
    outcomes = realised_earnings(panel, origins, [1])
    rng = np.random.default_rng(0)

    def uniform(marginals: AtomQuantiles) -> float:
        within = marginals.zero + (1 - marginals.zero) * marginals.ranks(outcomes)
        u = np.where(outcomes == 0, marginals.zero * rng.random(within.shape), within)[
            np.isfinite(outcomes)
        ]
        return float(kstest(u, "uniform").pvalue)

    good = trees.marginals(history(panel, origins), origins, [1])
    assert uniform(good) > 0.001
    assert uniform(replace(good, logs=good.logs + 0.1)) < 0.001
    assert uniform(replace(good, zero=good.zero * 0.5)) < 0.001


def test_crossing_quantiles_are_sorted_and_the_inverse_is_exact() -> None:
    rng = np.random.default_rng(0)
    crossing = rng.normal(size=(50, 3, len(QUANTILES)))
    result = AtomQuantiles(rng.random((50, 3)), increasing(crossing))
    assert (np.diff(result.logs, axis=-1) > 0).all()
    assert np.allclose(result.logs, np.sort(crossing, axis=-1), atol=1e-4)
    work, rank = rng.random((50, 3, 40)), rng.random((50, 3, 40))
    amounts = result.amounts(work, rank)
    assert np.array_equal(amounts == 0, work < result.zero[..., None])
    back = np.stack([result.ranks(amounts[..., k]) for k in range(40)], axis=-1)
    assert np.allclose(back[amounts > 0], rank[amounts > 0], atol=1e-6)


@pytest.mark.thorough
def test_path_marginals_are_the_fitted_distribution(
    trees: BoostedTrees, judged: tuple[Panel, Origins]
) -> None:
    panel, origins = judged
    subset = origins.take(slice(0, 5))
    past = history(panel, subset)
    paths = trees.simulate(past, subset, to_horizon=4, n_paths=4000, seed=0)
    marginals = trees.marginals(past, subset, [1, 2, 3, 4])
    for i, h in np.ndindex(5, 4):
        draws = paths.earnings[i, h].astype(np.float64)
        if np.isnan(draws).any():
            continue
        zero = marginals.zero[i, h]
        assert (draws == 0).mean() == pytest.approx(zero, abs=4 * np.sqrt(0.25 / 4000))
        for k, level in enumerate(QUANTILES):
            share = (np.log(draws[draws > 0]) <= marginals.logs[i, h, k]).mean()
            assert share == pytest.approx(
                level, abs=4 * np.sqrt(level * (1 - level) / (draws > 0).sum())
            )


@pytest.mark.parametrize("atoms", [(), (0.4,), (0.3, 1.0)])
def test_the_copula_is_recovered_from_partly_seen_outcomes_with_atoms(
    atoms: tuple[float, ...],
) -> None:
    """Scores of an autoregression, half of them unobserved, some known to be in an atom only."""
    rng = np.random.default_rng(0)
    size, n, rho = 5, 4000, 0.8
    truth = rho ** np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    levels = norm.cdf(rng.multivariate_normal(np.zeros(size), truth, n))
    edges = np.array([0.0, *atoms])
    which = np.searchsorted(edges[1:], levels)
    inside = which < len(atoms)
    lower = np.where(inside, edges[which], levels)
    upper = np.where(inside, edges[np.minimum(which + 1, len(atoms))], levels)
    unseen = rng.random(levels.shape) < 0.5
    result = estimate_correlations(
        np.where(unseen, 0.0, lower), np.where(unseen, 1.0, upper), np.random.default_rng(1)
    )
    # A quarter of the persons show a pair of horizons: the standard error of a correlation is at
    # most 1 / sqrt(n / 4) if all ranks are known, and about twice that if only the side of an atom
    # is (tetrachoric correlations).
    tolerance = 4 * len(edges) / np.sqrt(n / 4) / 2
    assert result == pytest.approx(truth, abs=tolerance)
    if atoms:  # breaking ties at random instead loses dependence: the truncation is needed
        broken = np.corrcoef(
            ndtri(lower + (upper - lower) * rng.random(levels.shape)), rowvar=False
        )
        assert np.abs(broken - truth).max() > tolerance


def test_drawn_levels_have_the_rank_correlations_of_the_copula() -> None:
    matrix = np.array([[1.0, 0.7, 0.3], [0.7, 1.0, 0.6], [0.3, 0.6, 1.0]])
    draws = joint_uniforms(matrix, 20_000, ["a"], "test")[0]
    expected = 6 / np.pi * np.arcsin(matrix / 2)  # Spearman's, of a Gaussian copula (Pearson 1907)
    assert spearmanr(draws, axis=1).statistic == pytest.approx(expected, abs=4 / np.sqrt(20_000))
    assert all(kstest(row, "uniform").pvalue > 0.001 for row in draws)
    longer = extend_correlations(matrix, 6)
    assert np.linalg.eigvalsh(longer).min() > 0
    assert longer[4, 3] == pytest.approx(0.6)
    assert np.array_equal(
        joint_uniforms(longer, 50, ["a"], "test")[:, :3], joint_uniforms(matrix, 50, ["a"], "test")
    )


def test_features_agree_with_the_records() -> None:
    earnings = [100.0, 200.0, 0.0, None, 400.0]
    frame = pl.DataFrame(
        {
            "year": [2001, 2002, 2003, 2004, 2006],
            "birth_year": [1970] * 5,
            "earnings": earnings,
            "transfers": [0.0, 0.0, 50.0, 20.0, 10.0],
            "county": ["01", "01", "03", None, "03"],
        }
    )
    ten = pl.DataFrame({"person_id": list("abcdefghij")})  # codes of fewer persons do not count
    panel = Panel.of(ten.join(frame, how="cross"), PanelMeta("one", floor=10.0))
    window = Window(panel)
    (result,) = window.features(panel, Origins(np.array(["a"]), np.array([2006])))
    value = dict(zip(window.names, result.tolist(), strict=True))
    typical = window.reference.level(np.array(2006))
    assert value["age"] == 36
    assert value["level_0"] == pytest.approx(np.log(400 / typical), abs=1e-5)
    assert np.isnan([value["level_1"], value["level_2"], value["zero_1"]]).all()
    assert (value["zero_3"], value["zero_4"], value["zeros_so_far"], value["years_known"]) == (
        1,
        0,
        1,
        4,
    )
    assert (value["since_positive"], value["since_known"], value["known_in_window"]) == (0, 0, 4)
    assert value["transfers"] == pytest.approx(10 / typical)
    assert value["county"] == window.codes["county"].index("03")
    assert "spouse_earnings" not in window.names


def test_last_known_earnings_do_not_depend_on_years_without_a_record() -> None:
    """A person interviewed every year and one interviewed every second year, by hand."""
    yearly, second = [10.0, 20.0, 0.0, 40.0, 80.0, 160.0], [10.0, None, 20.0, 40.0]
    frame = pl.DataFrame(
        {
            "person_id": ["a"] * 6 + ["b"] * 4,
            "year": [*range(2000, 2006), 2000, 2002, 2004, 2006],
            "birth_year": [1970] * 10,
            "earnings": [*yearly, *second],
        }
    )
    window = Window(Panel.of(frame, PanelMeta("two", floor=1.0)))
    panel = Panel.of(frame, PanelMeta("two", floor=1.0))
    origins = Origins(np.array(["a", "b", "b"]), np.array([2004, 2006, 2002]))
    a, b, early = (
        dict(zip(window.names, row, strict=True))
        for row in window.features(panel, origins).astype(np.float64)
    )
    level = {year: float(window.reference.level(np.array(year))) for year in range(2000, 2007)}

    def known(row: dict[str, float]) -> list[float]:
        return [row[f"known_{k}"] for k in range(5)]

    def gaps(row: dict[str, float]) -> list[float]:
        return [row[f"known_gap_{k}"] for k in range(5)]

    by_hand = [
        np.log(max(y, 1.0) / level[2000 + t]) for t, y in reversed(list(enumerate(yearly[:5])))
    ]
    assert known(a) == pytest.approx(by_hand, abs=1e-5)
    assert gaps(a) == [0, 1, 1, 1, 1]
    of_b = [np.log(40 / level[2006]), np.log(20 / level[2004]), np.log(10 / level[2000])]
    assert known(b)[:3] == pytest.approx(of_b, abs=1e-5)
    assert gaps(b)[:3] == [0, 2, 4]
    assert np.isnan([*known(b)[3:], *gaps(b)[3:]]).all()
    assert (gaps(early)[0], early["zero_share"]) == (2, 0)  # the row of 2002 has no earnings
    assert a["zero_share"] == pytest.approx(0.2)
    shares = [y / level[2000 + t] for t, y in enumerate(yearly[:5])]
    assert a["mean_amount"] == pytest.approx(np.log(np.mean(shares)), abs=1e-5)


def test_too_few_outcomes_are_refused() -> None:
    with pytest.raises(InputError, match="nothing to learn"):
        quick().fit(employment(8, 0), seed=0)
