"""Statistics of weighted persons equal textbook formulas, and their errors a known truth."""

from __future__ import annotations

import numpy as np
import pytest

from saga.population.cell_statistics import (
    STATISTICS,
    earnings_classes,
    estimate,
    poverty_lines,
    replicate,
    sort_by_path,
)

GROUPS = 20


def test_weights_count_as_so_many_persons_and_formulas_are_those_of_textbooks() -> None:
    rng = np.random.default_rng(1)
    earnings = np.where(rng.random((40, 3)) < 0.2, 0, rng.lognormal(10, 1, (40, 3)))
    weights = rng.integers(1, 4, 40)
    expanded = np.repeat(earnings, weights, axis=0)
    random = np.arange(40) % GROUPS
    cell = sort_by_path(earnings, weights.astype(float), random)
    lines = poverty_lines(cell, GROUPS)
    values = dict(zip(STATISTICS, replicate(cell, GROUPS, lines)[0].T, strict=True))
    n = len(expanded)
    assert values["persons"] == pytest.approx([n] * 3)
    assert values["total"] == pytest.approx(expanded.sum(0))
    assert values["mean"] == pytest.approx(expanded.mean(0))
    assert values["zero_share"] == pytest.approx((expanded == 0).mean(0))
    medians = np.quantile(expanded, 0.5, axis=0, method="inverted_cdf")
    assert values["p50"] == pytest.approx(medians)
    assert values["poverty_share"] == pytest.approx((expanded < 0.6 * medians).mean(0))
    differences = np.abs(expanded[:, None] - expanded[None]).sum((0, 1))
    assert values["gini"] == pytest.approx(differences / (2 * n**2 * expanded.mean(0)))


def test_absent_persons_do_not_count() -> None:
    earnings = np.array([[1.0, np.nan], [3.0, 5.0], [np.nan, 7.0]])
    cell = sort_by_path(earnings, np.ones(3), np.arange(3))
    values = replicate(cell, 3, poverty_lines(cell, 3))[0]
    assert values[:, STATISTICS.index("persons")].tolist() == [2, 2]
    assert values[:, STATISTICS.index("mean")].tolist() == [2, 6]


def test_the_errors_of_a_mean_are_those_of_a_known_process() -> None:
    """Earnings = person + macro future + own shock, all normal with known variances."""
    n, n_paths, repetitions = 400, 50, 60
    of_person, of_macro, of_shock = 3.0, 0.5, 6.0
    rng = np.random.default_rng(2)
    errors = []
    for _ in range(repetitions):
        earnings = 100 + (
            of_person * rng.standard_normal((n, 1))
            + of_macro * rng.standard_normal((1, n_paths))
            + of_shock * rng.standard_normal((n, n_paths))
        )
        cell = sort_by_path(earnings, np.ones(n), rng.permutation(n) % GROUPS)
        estimates = estimate(replicate(cell, GROUPS, np.zeros((1 + GROUPS, n_paths))))
        mean = STATISTICS.index("mean")
        errors.append([errors_of[mean] for errors_of in estimates[1:]])
    variances = (np.array(errors) ** 2).mean(0)
    truth = [
        of_person**2 / n,
        (of_macro**2 + of_shock**2 / n) / n_paths,
        of_macro**2,
    ]
    # A jackknife variance from 20 groups has the relative error sqrt(2 / 19) in one repetition.
    tolerance = 4 * np.sqrt(2 / 19 / repetitions)
    assert variances == pytest.approx(truth, rel=tolerance)


def test_more_persons_and_paths_do_not_reduce_the_spread_of_macro_futures() -> None:
    rng = np.random.default_rng(3)
    spreads = []
    for n, n_paths in ((200, 40), (800, 160)):
        earnings = 100 + rng.standard_normal((1, n_paths)) + rng.standard_normal((n, n_paths))
        cell = sort_by_path(earnings, np.ones(n), rng.permutation(n) % GROUPS)
        estimates = estimate(replicate(cell, GROUPS, np.zeros((1 + GROUPS, n_paths))))
        spreads.append(estimates.spread_macro[STATISTICS.index("mean")])
    assert spreads == pytest.approx([1, 1], rel=4 / np.sqrt(2 * 39))


def test_classes_are_zero_and_fifths_of_the_positive() -> None:
    earnings = np.array([0.0, 5, 4, 3, 2, 1, np.nan])[:, None]
    assert earnings_classes(earnings)[:, 0].tolist() == [0, 5, 4, 3, 2, 1, -1]
