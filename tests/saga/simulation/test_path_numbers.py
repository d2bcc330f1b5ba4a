"""Numbers of paths: uniform and independent for one path, spread evenly over a person's paths."""

from __future__ import annotations

import numpy as np
from scipy import stats

from saga.simulation.path_numbers import path_orders, path_uniforms

PERSONS = [f"p{i}" for i in range(400)]
YEAR = np.full(len(PERSONS), 2023)
PATHS = 100
P = 1e-6


def numbers(step: int, seed: int = 0, n_paths: int = PATHS) -> np.ndarray:
    orders = path_orders(n_paths, seed, PERSONS)
    return path_uniforms(orders, step, seed, PERSONS, YEAR + step)


def test_the_number_of_one_path_is_uniform_and_independent_of_other_years_and_persons() -> None:
    years = np.stack([numbers(step)[:, 7] for step in (0, 1, 5, 40)])
    for u in years:
        assert stats.kstest(u, "uniform").pvalue > P
    bound = stats.norm.isf(P) / np.sqrt(len(PERSONS))
    for one in range(4):
        for other in range(one):
            assert abs(stats.spearmanr(years[one], years[other]).statistic) < bound
    for u in years:
        assert abs(stats.spearmanr(u[:-1], u[1:]).statistic) < bound


def test_all_paths_are_exchangeable() -> None:
    """A pair of paths has the same distribution as any other pair."""
    distances = [
        [abs(u[:, one] - u[:, other]) for u in (numbers(0), numbers(3))]
        for one, other in ((0, 1), (0, 64), (50, 99))
    ]
    for step in range(2):
        assert stats.ks_2samp(distances[0][step], distances[1][step]).pvalue > P
        assert stats.ks_2samp(distances[0][step], distances[2][step]).pvalue > P


def test_paths_fill_each_year_and_two_years_evenly() -> None:
    first, second = numbers(0, n_paths=64), numbers(1, n_paths=64)
    for u in (first, second):
        assert (np.sort((u * 64).astype(int), axis=1) == np.arange(64)).all()
    squares = np.sort((first * 8).astype(int) * 8 + (second * 8).astype(int), axis=1)
    assert (squares == np.arange(64)).all()
    # Independent numbers leave a third of the squares empty.
    rng = np.random.default_rng(0)
    assert len(np.unique((rng.random(64) * 8).astype(int) * 8 + rng.integers(0, 8, 64))) < 60


def test_numbers_depend_on_seed_person_and_year_alone() -> None:
    orders = path_orders(PATHS, 3, PERSONS)
    together = path_uniforms(orders, 2, 3, PERSONS, YEAR)
    alone = path_uniforms(path_orders(PATHS, 3, ["p9"]), 2, 3, ["p9"], YEAR[:1])
    assert np.array_equal(together[9], alone[0])
    assert (numbers(2, seed=4) != numbers(2, seed=3)).mean() > 0.99
    assert (path_uniforms(orders, 2, 3, PERSONS, YEAR + 1) != together).mean() > 0.99
    # Midpoints of 2**32 intervals: neither 0 nor 1 can occur.
    assert ((together * 2**32) % 1 == 0.5).all()
