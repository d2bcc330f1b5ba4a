"""A world whose distributions are known exactly, and diagnostics of a forecaster that knows them.

An atom of 2-95 % and lognormal positive earnings.
"""

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from saga.calibration.diagnostics.diagnosis import Findings, summarise
from saga.calibration.diagnostics.person_results import (
    judge_persons,
)
from saga.calibration.diagnostics.several_years import judge_several_years, seed_ranges
from saga.calibration.diagnostics.simple_rules import GROUPS, SimpleRules
from saga.calibration.fit.split_conformal import fit_calibration

from saga.arrays import Floats
from saga.conformal.calibrator import Calibrator
from saga.data.panel import FLOOR
from saga.diagnostics_tables import Diagnostics
from saga.distributions import Marginals
from tests.calibration.worlds import lognormal_marginals

TrueWorld = Callable[..., tuple[Marginals, Floats]]


def draw_true_world(n: int, seed: int, *, horizons: int = 2) -> tuple[Marginals, Floats]:
    """The true raw marginals (n, H) of exchangeable persons, and outcomes (n, H)."""
    rng = np.random.default_rng(seed)
    zero, centre, sd = (
        np.where(rng.random(n) < 0.2, rng.uniform(0.5, 0.95, n), rng.uniform(0.02, 0.45, n)),
        rng.normal(12.3, 0.4, n),
        rng.uniform(0.3, 0.7, n),
    )
    zero, centre, sd = (np.tile(values[:, None], (1, horizons)) for values in (zero, centre, sd))
    positive = np.exp(centre + sd * rng.normal(size=(n, horizons)))
    outcomes = np.where(rng.random((n, horizons)) < zero, 0.0, positive)
    return lognormal_marginals(zero, centre, sd, str(seed)), outcomes


@pytest.fixture(scope="session")
def true_world() -> TrueWorld:
    return draw_true_world


def judge_years(
    calibrator: Calibrator, marginals: Marginals, outcomes: Floats
) -> dict[int, pl.DataFrame]:
    """Results of recalibrated marginals (n, H) and their intervals at each horizon."""
    sets = calibrator.intervals(marginals, calibrator.coverage)
    return {
        h: judge_persons(
            marginals,
            sets,
            y,
            h,
            floor=FLOOR,
            low_pay=150_000.0,
        )
        for h, y in enumerate(outcomes.T, start=1)
    }


def same_for_everybody(outcomes: Floats, known: pl.DataFrame) -> SimpleRules:
    """Rules that know the distribution of all persons, and nothing about one of them."""
    quantiles = np.quantile(outcomes, (np.arange(199) + 0.5) / 199, axis=0).T
    changes = np.quantile(
        outcomes - known["last"].to_numpy()[:, None], (np.arange(199) + 0.5) / 199, axis=0
    ).T
    return SimpleRules(
        dict(enumerate(changes, start=1)),
        {h: {"all": of_horizon} for h, of_horizon in enumerate(quantiles, start=1)},
    )


def diagnose_true_world(
    seed: int = 3,
    n: int = 1_500,
    fault: Callable[[Marginals], Marginals] | None = None,
    calibrated_on: int = 800,
) -> Diagnostics:
    """Diagnostics of a calibrated forecaster; `fault` changes its forecasts after calibration."""
    calibration, truth = draw_true_world(calibrated_on, 10_000 + seed)
    marginals, outcomes = draw_true_world(n, seed)
    calibrator = fit_calibration(calibration, truth, seed=seed)
    marginals = calibrator.recalibrate(marginals)
    marginals = marginals if fault is None else fault(marginals)
    rng = np.random.default_rng(seed)
    known = pl.DataFrame(
        {"person_id": marginals.person_id.tolist(), "last": rng.permutation(outcomes[:, 0])}
    ).with_columns(pl.lit("all").alias(name) for name in GROUPS)
    rules = same_for_everybody(outcomes, known)
    ends = rng.uniform(size=(2, 5, n))
    regions = np.where(
        np.arange(n) < 4, "europe", rng.choice(["sweden", "elsewhere"], n, p=[0.9, 0.1])
    )
    groups = pl.DataFrame(
        {
            "person_id": marginals.person_id.tolist(),
            "sex": rng.choice(["female", "male"], n).tolist(),
            "birth_region": regions.tolist(),
        }
    )
    findings = Findings(
        judge_years(calibrator, marginals, outcomes),
        several_years=judge_several_years(calibrator, marginals, None, outcomes, [2]),
        rules={h: rules.judge(known, outcomes[:, h - 1], h, 0.9) for h in (1, 2)},
        seed_ranges={2: seed_ranges(ends[0], 2 + ends[1], np.ones((5, n)))},
    )
    return summarise(
        findings,
        groups,
        calibrator,
        provenance={"bundle": "b", "panel": "toy", "currency": "SEK"},
        seed=seed,
    )


@pytest.fixture(scope="session")
def diagnosed() -> Callable[..., Diagnostics]:
    return diagnose_true_world


@pytest.fixture(scope="session")
def faultless() -> Diagnostics:
    return diagnose_true_world()


@pytest.fixture(scope="session")
def judged_years() -> Callable[..., dict[int, pl.DataFrame]]:
    return judge_years
