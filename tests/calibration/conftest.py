"""A synthetic world for calibration.

An atom of 5-45 %, heavy-tailed positive earnings, and a sampler that is wrong about both.
"""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from saga.paths import Paths

World = Callable[..., tuple[Paths, NDArray[np.float64]]]


def draw_world(
    n: int, seed: int, *, horizons: int = 2, count: int = 60, wrong: bool = True
) -> tuple[Paths, NDArray[np.float64]]:
    """Paths (n, H, M) and outcomes (n, H) of exchangeable persons.

    `wrong`: the sampler has too few zeros and is too high and too narrow.
    """
    rng = np.random.default_rng(seed)
    zero, centre, sd = (
        rng.uniform(0.05, 0.45, (n, 1)),
        rng.normal(12.3, 0.4, (n, 1)),
        rng.uniform(0.3, 0.7, (n, 1)),
    )
    outcomes = np.where(
        rng.random((n, horizons)) < zero, 0, np.exp(centre + sd * rng.normal(size=(n, horizons)))
    )
    shift, squeeze, share = (0.2, 0.8, 0.7) if wrong else (0.0, 1.0, 1.0)
    noise = rng.normal(size=(n, horizons, count))
    positive = np.exp(centre[..., None] + shift + squeeze * sd[..., None] * noise)
    earnings = np.where(
        rng.random((n, horizons, count)) < share * zero[..., None], 0, positive
    ).astype(np.float32)
    ids = np.array([f"{seed}-{i}" for i in range(n)])
    return Paths(ids, np.full(n, 1970), np.full(n, 2000), earnings), outcomes


@pytest.fixture(scope="session")
def world() -> World:
    return draw_world
