"""Uniform numbers of simulated paths, spread evenly over the paths of a person.

The paths of a person are the points of a Sobol sequence in random order, and a year is a
coordinate. Each year a random shift, keyed by (seed, person, year), is added to the bits of all
numbers (Owen 2003). The number of a path is then uniform on (0, 1) and independent of its other
years, so the distribution of a single path is exactly that of the model. All paths of a person
together fill (0, 1) evenly, in one year and in neighbouring years, so their averages are less noisy
than those of independent numbers.

A number does not depend on simulated earnings: in a scenario, a path keeps its numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from saga.keyed_random import uniforms
from saga.requests import MAX_PATHS
from saga.schema import MAX_AGE, MIN_AGE

_BITS = 2.0**32


def path_orders(n_paths: int, seed: int, person_ids: Iterable[str]) -> NDArray[np.int64]:
    """Index (n, M) of each path's point of the sequence: a random order for each person."""
    keys = [uniforms(n_paths, "path-order", seed, person) for person in person_ids]
    return np.argsort(np.stack(keys), axis=1, kind="stable")


def path_uniforms(
    orders: NDArray[np.int64],
    step: int,
    seed: int,
    person_ids: Iterable[str],
    years: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Numbers (n, M) of the paths in a year, strictly inside (0, 1).

    Args:
        orders: Orders of the paths from `path_orders`, (n, M).
        step: Number of years that were simulated before this one.
        seed: Seed of the keyed random numbers.
        person_ids: The persons (n,).
        years: Calendar year of each person (n,).
    """
    shifts = [
        uniforms(1, "path", seed, person, year)
        for person, year in zip(person_ids, years.tolist(), strict=True)
    ]
    shift = (np.stack(shifts) * _BITS).astype(np.uint64)
    bits = _sobol()[step][orders] ^ shift
    return np.asarray((bits.astype(np.float64) + 0.5) / _BITS)


@cache
def _sobol() -> NDArray[np.uint64]:
    """Bits of the points, one row for each step: shape (steps, points)."""
    engine = torch.quasirandom.SobolEngine(MAX_AGE - MIN_AGE)  # type: ignore[no-untyped-call]
    points = engine.draw(MAX_PATHS, dtype=torch.float64)
    return np.ascontiguousarray((points.T.numpy() * _BITS).astype(np.uint64))
