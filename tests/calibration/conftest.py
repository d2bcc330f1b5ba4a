"""A synthetic world for calibration.

An atom of 5-45 %, heavy-tailed positive earnings, and a sampler that is wrong about both.
"""

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from calibration.diagnostics.diagnosis import Diagnostics, summarise
from calibration.diagnostics.person_results import crps_thresholds, judge_persons
from calibration.fit.split_conformal import fit_calibration
from saga.data.panel import FLOOR
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


def diagnose_world(
    seed: int = 3, n: int = 1_500, fault: Callable[[Paths], Paths] | None = None
) -> Diagnostics:
    """Diagnostics of a calibrated forecaster; `fault` changes its forecasts after calibration."""
    calibration, truth = draw_world(800, 10_000 + seed, wrong=False)
    paths, outcomes = draw_world(n, seed, wrong=False)
    calibrator = fit_calibration(calibration, truth, seed=seed)
    paths = calibrator.recalibrate(paths)
    paths = paths if fault is None else fault(paths)
    sets = calibrator.intervals(paths, calibrator.coverage)
    cases = {
        h: judge_persons(
            paths, sets, y, h, thresholds=crps_thresholds(y, FLOOR), floor=FLOOR, low_pay=150_000.0
        )
        for h, y in ((1, outcomes[:, 0]), (2, outcomes[:, 1]))
    }
    rng = np.random.default_rng(seed)
    regions = np.where(
        np.arange(n) < 4, "europe", rng.choice(["sweden", "elsewhere"], n, p=[0.9, 0.1])
    )
    groups = pl.DataFrame(
        {
            "person_id": paths.person_id.tolist(),
            "sex": rng.choice(["female", "male"], n).tolist(),
            "birth_region": regions.tolist(),
        }
    )
    return summarise(
        cases,
        groups,
        calibrator,
        provenance={"bundle": "b", "panel": "toy", "currency": "SEK"},
        seed=seed,
    )


@pytest.fixture(scope="session")
def diagnosed() -> Callable[..., Diagnostics]:
    return diagnose_world


@pytest.fixture(scope="session")
def faultless() -> Diagnostics:
    return diagnose_world()
