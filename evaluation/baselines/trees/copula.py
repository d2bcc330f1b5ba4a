"""Dependence over horizons: a Gaussian copula of known marginals, which may have atoms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr, ndtri

from saga.arrays import Floats
from saga.keyed_random import Identity, uniform_rows

SWEEPS = 100  # sweeps of the sampler; the result is the mean of the second half
TINY = 1e-9  # smallest distance of a rank from 0 and 1
WEIGHT = 20.0  # weight of the starting correlations, in persons


def estimate_correlations(lower: Floats, upper: Floats, rng: np.random.Generator) -> Floats:
    """Correlations (H, H) of the normal scores of n persons' ranks over H horizons.

    A rank lies between `lower` and `upper`, (n, H). If it is known, the two are equal; if the
    horizon was not observed, they are 0 and 1; if the outcome is an atom, they are its ends.

    A score that is not known is drawn given the other scores of the person (Gibbs sampling), and
    correlations are computed from the completed scores (stochastic EM, Celeux and Diebolt 1985;
    atoms are truncations as in Hoff 2007, with known marginals). The starting correlations are
    those of a random walk, sqrt(h / k) for h < k; they have weight WEIGHT in the estimate.
    """
    persons, size = lower.shape
    horizon = np.arange(1.0, size + 1)
    start = np.sqrt(np.minimum.outer(horizon, horizon) / np.maximum.outer(horizon, horizon))
    lowest, highest = (  # scores, infinite without a bound
        ndtri(np.where((bound <= 0) | (bound >= 1), bound, np.clip(bound, TINY, 1 - TINY)))
        for bound in (lower, upper)
    )
    is_known = lower == upper
    scores = ndtri(np.clip((lower + upper) / 2, TINY, 1 - TINY))
    matrix, total = start, np.zeros_like(start)
    for sweep in range(SWEEPS):
        precision = np.linalg.inv(matrix)
        for h in range(size):
            rows = np.flatnonzero(~is_known[:, h])
            spread = 1 / np.sqrt(precision[h, h])
            mean = scores[rows, h] - scores[rows] @ precision[h] * spread**2
            p_lowest, p_highest = (  # under the conditional distribution
                ndtr((bound[rows, h] - mean) / spread) for bound in (lowest, highest)
            )
            p = p_lowest + rng.random(len(rows)) * (p_highest - p_lowest)
            draws = mean + spread * ndtri(np.clip(p, TINY, 1 - TINY))
            scores[rows, h] = np.clip(draws, lowest[rows, h], highest[rows, h])
        moment = (scores.T @ scores + WEIGHT * start) / (persons + WEIGHT)
        scale = np.sqrt(np.diag(moment))
        matrix = moment / np.outer(scale, scale)
        if sweep >= SWEEPS // 2:
            total += matrix
    return np.asarray(total / (SWEEPS - SWEEPS // 2))


def extend_correlations(matrix: Floats, size: int) -> Floats:
    """The correlations (size, size), extended to horizons that were not observed.

    Such a horizon depends on earlier ones only through the horizon directly before it; their
    correlation is that of the last two observed horizons.
    """
    step = matrix[-1, -2] if len(matrix) > 1 else 0.0
    while len(matrix) < size:
        last = matrix[-1] * step
        matrix = np.block([[matrix, last[:, None]], [last[None], np.ones((1, 1))]])
    return matrix[:size, :size]


def joint_uniforms(
    matrix: Floats, n_paths: int, ids: Sequence[Identity], *key: int | str
) -> Floats:
    """Uniforms (n, H, n_paths) strictly inside (0, 1), joint over horizons by the copula.

    They are independent over paths and persons. A person's numbers depend on the key and the id
    alone; those of the first horizons do not depend on the number of horizons.
    """
    size = len(matrix)
    normal = ndtri(uniform_rows(size * n_paths, ids, *key)).reshape(len(ids), size, n_paths)
    factor = np.linalg.cholesky(matrix)
    joint = np.empty_like(normal)
    for h in range(size):  # in a fixed order: rounding of a matrix product depends on its size
        joint[:, h] = sum(factor[h, j] * normal[:, j] for j in range(h + 1))
    return np.asarray(np.clip(ndtr(joint), TINY, 1 - TINY))
