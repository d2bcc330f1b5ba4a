"""Maps R from forecast probabilities to calibrated ones, from randomised PIT values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from saga.calibration.fit.person_scores import PersonCounts

from saga.arrays import Floats
from saga.distributions import Marginals
from saga.keyed_random import uniforms
from saga.small_groups import MIN_PERSONS

MAX_BLOCKS = 198  # of a map
MIN_MAP_PERSONS = 100  # persons that a map needs; with fewer the raw forecast is better
_MAP_FOLDS = 5  # of the map fold, to choose how smooth a map is and how far it is shrunk
_MAP_BLOCKS = (10, 25, 70, MAX_BLOCKS)
_MAP_WEIGHTS = np.linspace(0.0, 1.0, 11)


def pit(marginals: Marginals, outcomes: Floats, v: Floats) -> Floats:
    """Randomised probability integral transform of outcomes (n, H) with uniforms v (n, H).

    Uniform under the forecast: F(y) for positive y, and v times the probability of zero for y = 0
    (Czado, Gneiting and Held 2009).
    """
    below = marginals.probability(outcomes)
    return np.where(outcomes == 0, v * below, below)


def fit_map(
    u: Floats, map_persons: int = MIN_MAP_PERSONS, counts: PersonCounts | None = None
) -> tuple[Floats, Floats]:
    """The map R as knots (K,) and values (K,), from randomised PIT values `u` (n,).

    `u` is that of the map fold; with fewer than `map_persons` persons there is no map (empty
    arrays). The map is (1 - w) identity + w R, where R is the smoothed empirical distribution
    (`empirical_map`). The weight w and the number of blocks of R are those with the highest
    cross-validated log score: a map from few persons adds noise, and is used as far as it helps.
    The order of `u` does not matter. `counts` says whose values they are, if a person has several.
    """
    order = np.argsort(u, kind="stable")
    n_persons, smallest, unit = len(u), MIN_PERSONS, np.arange(len(u))
    if counts is not None and counts.n_origins > 1:
        # Folds of persons; otherwise of ranks, so that the order of u does not matter.
        persons, unit = np.unique(counts.persons[order], return_inverse=True)
        n_persons, smallest = len(persons), MIN_PERSONS * counts.n_origins
    if n_persons < max(map_persons, MIN_PERSONS) or len(u) < 2 * smallest:
        return np.empty(0), np.empty(0)
    fold = (np.argsort(uniforms(n_persons, "map-folds")) % _MAP_FOLDS)[unit]
    blocks, weight = _choose_map(u[order], fold, smallest)
    if weight == 0:
        return np.array([0.0, 1.0]), np.array([0.0, 1.0])
    knots, values = empirical_map(u, blocks, smallest)
    return knots, (1 - weight) * knots + weight * values


def _choose_map(ordered: Floats, fold: NDArray[np.int64], smallest: int) -> tuple[int, float]:
    """The number of blocks and the weight with the best log score of values left out."""
    gain = np.zeros((len(_MAP_BLOCKS), len(_MAP_WEIGHTS)))
    for k in range(_MAP_FOLDS):
        left_out = ordered[fold == k]
        for i, blocks in enumerate(_MAP_BLOCKS):
            knots, values = empirical_map(ordered[fold != k], blocks, smallest)
            # Density of R at the values of the fold that was left out.
            density = np.diff(values) / np.maximum(np.diff(knots), 1e-9)
            inside = np.clip(np.searchsorted(knots, left_out, side="right"), 1, len(knots) - 1) - 1
            for j, weight in enumerate(_MAP_WEIGHTS):
                gain[i, j] += np.log1p(weight * (density[inside] - 1)).sum()
    best = divmod(int(gain.argmax()), len(_MAP_WEIGHTS))
    return _MAP_BLOCKS[best[0]], float(_MAP_WEIGHTS[best[1]])


def empirical_map(
    u: Floats, blocks: int = MAX_BLOCKS, smallest: int = MIN_PERSONS
) -> tuple[Floats, Floats]:
    """The smoothed empirical distribution of `u` (n,), as knots (K,) and values (K,).

    Each inner knot is the average of a block of `smallest` neighbouring order statistics or more,
    its value their average rank / (n + 1). There are at most `blocks`. They are finer towards 0 and
    1, where tails are decided. The map takes 0 to 0 and 1 to 1.
    """
    n = len(u)
    ordered, ranks = np.sort(u), np.arange(1, n + 1) / (n + 1)
    blocks = min(blocks, n // smallest)
    ideal = np.round(n * np.sin(np.pi / 2 * np.linspace(0, 1, blocks + 1)) ** 2).astype(np.int64)
    bounds = [0]
    for bound in ideal[1:]:
        if bound - bounds[-1] >= smallest and (n - bound >= smallest or bound == n):
            bounds.append(int(bound))
    bounds[-1] = n
    sizes = np.diff(bounds)
    inner = np.add.reduceat(ordered, bounds[:-1]) / sizes
    value = np.add.reduceat(ranks, bounds[:-1]) / sizes
    return np.concatenate([[0.0], inner, [1.0]]), np.concatenate([[0.0], value, [1.0]])
