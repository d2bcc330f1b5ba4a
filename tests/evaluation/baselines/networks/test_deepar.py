"""DeepAR: scale and windows; with GluonTS also a known process and no use of later rows."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from saga.evaluation.baselines.networks.deepar import BINS, INSTALL, Bins, DeepAR

from saga.data.origins import draw_origins, history, realised_earnings
from saga.data.panel import Panel, PanelMeta
from tests.panels import yearly_panel

installed = importlib.util.find_spec("gluonts") is not None
needs_gluonts = pytest.mark.skipif(not installed, reason=f"GluonTS is not installed: {INSTALL}")
QUICK = {"width": 24, "passes": 15, "batch": 8, "rate": 1e-2}
STAY, LEAVE = 0.8, 0.1


def chain(n: int, seed: int) -> Panel:
    """A Markov chain of zero and work; amounts exp(12.5 + 0.3 e) when at work."""
    rng = np.random.default_rng(seed)
    years = np.arange(2000, 2016)
    zero = np.empty((n, len(years)), dtype=bool)
    zero[:, 0] = rng.random(n) < LEAVE / (LEAVE + 1 - STAY)
    for t in range(1, len(years)):
        zero[:, t] = rng.random(n) < np.where(zero[:, t - 1], STAY, LEAVE)
    born = rng.integers(1960, 1976, n)
    earnings = np.where(zero, 0.0, np.exp(12.5 + 0.3 * rng.normal(size=zero.shape)))
    sex = rng.choice(["female", "male"], n)
    return yearly_panel(earnings, years, born, PanelMeta("chain", floor=1_000.0), sex=sex)


def test_the_target_scale_is_undone_exactly_within_the_outer_bins() -> None:
    rng = np.random.default_rng(0)
    relative = rng.normal(0, 1, 20_000)
    bins = Bins.of(relative)
    level = np.full(1000, 12.0)
    earnings = np.where(rng.random(1000) < 0.2, 0.0, np.exp(12 + rng.normal(0, 0.5, 1000)))
    assert np.allclose(bins.amounts(bins.target(earnings, level), level), earnings)
    width = (bins.highest - bins.lowest) / BINS
    # Wherever in its bin a zero or an amount is drawn, it stays one.
    assert (bins.amounts(bins.lowest + width * rng.random(100), level[:100]) == 0).all()
    assert (bins.amounts(bins.above + width * rng.random(100), level[:100]) > 0).all()
    assert np.isnan(bins.target(np.array([np.nan]), np.array([12.0]))).all()


@pytest.mark.skipif(installed, reason="GluonTS is installed")
def test_without_gluonts_the_command_that_installs_it_is_named() -> None:
    with pytest.raises(ModuleNotFoundError, match="gluonts") as error:
        DeepAR()
    assert INSTALL in str(error.value)


@pytest.fixture(scope="module")
def fitted() -> DeepAR:
    return DeepAR(**QUICK).fit(chain(300, 0), seed=0)  # type: ignore[arg-type]


@needs_gluonts
def test_paths_follow_the_known_process_jointly(fitted: DeepAR) -> None:
    panel = chain(80, 1)
    origins = draw_origins(panel, max_horizon=3, seed=0)
    past = history(panel, origins)
    paths = fitted.simulate(past, origins, to_horizon=3, n_paths=200, seed=0).earnings
    idle = (
        past.frame.group_by("person_id", maintain_order=True).last()["earnings"] == 0
    ).to_numpy()
    zero = paths == 0
    assert zero[idle, 0].mean() == pytest.approx(STAY, abs=0.1)
    assert zero[~idle, 0].mean() == pytest.approx(LEAVE, abs=0.06)
    assert (zero[:, 0] & zero[:, 1]).sum() / zero[:, 0].sum() == pytest.approx(STAY, abs=0.1)
    logs = np.log(paths[paths > 0])
    assert logs.mean() == pytest.approx(12.5, abs=0.1)
    assert logs.std() == pytest.approx(0.3, abs=0.06)
    assert np.isfinite(realised_earnings(panel, origins, [1])).any()
