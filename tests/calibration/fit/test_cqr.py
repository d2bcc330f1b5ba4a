"""The paper's interval, through MAPIE: the published baseline, and where it fails."""

import math

import numpy as np
import polars as pl
import pytest

from calibration.fit.cqr import cqr_intervals, cqr_threshold, fit_cqr, quantile_limits
from calibration.fit.split_conformal import conformal_quantile, fit_calibration
from saga.conformal.calibrator import Calibrator


def test_mapies_threshold_is_our_order_statistic_of_the_larger_miss(world):
    paths, outcomes = world(400, 21)
    for level in (0.5, 0.8, 0.9, 0.95):
        lower, upper = quantile_limits(paths.earnings[:, 0], level)
        own = conformal_quantile(np.maximum(lower - outcomes[:, 0], outcomes[:, 0] - upper), level)
        assert cqr_threshold(lower, upper, outcomes[:, 0], level) == pytest.approx(
            own, rel=1e-12, abs=1e-9
        )


def test_too_few_persons_give_no_threshold(world):
    paths, outcomes = world(8, 22)
    assert cqr_threshold(*quantile_limits(paths.earnings[:, 0], 0.9), outcomes[:, 0], 0.9) == np.inf
    assert fit_cqr(paths, outcomes, (0.9,))["value"].null_count() == 2


def test_no_number_of_persons_is_too_small_to_calibrate(world):
    # Horizons near the end of a short panel may be known for one, nine or ten persons only.
    for n in range(1, 45):
        paths, outcomes = world(n, 26)
        for level in (0.5, 0.8, 0.9, 0.95):
            q = cqr_threshold(*quantile_limits(paths.earnings[:, 0], level), outcomes[:, 0], level)
            assert math.isfinite(q) == (n * min(level, 1 - level) > 1)


def test_intervals_are_cut_at_zero_and_over_cover_where_there_is_an_atom(world):
    # Without misfit: the closed interval holds zero for nearly everybody, so that 80 % becomes far more.
    paths, outcomes = world(3_000, 23, wrong=False)
    fresh, fresh_outcomes = world(3_000, 24, wrong=False)
    table = fit_cqr(paths, outcomes, (0.8,))
    lower, upper = cqr_intervals(table, fresh, 0.8)
    assert (lower >= 0).all()
    coverage = ((lower <= fresh_outcomes) & (fresh_outcomes <= upper)).mean(axis=0)
    assert (coverage > 0.8 + 5 * (0.16 / 3_000) ** 0.5 * 2**0.5).all()


def test_thresholds_live_in_the_calibration_table(world):
    paths, outcomes = world(600, 25)
    fitted = fit_calibration(paths, outcomes, seed=0)
    both = Calibrator(fitted.cells, fitted.scale, extra=fit_cqr(paths, outcomes, (0.9,)))
    again = Calibrator.from_table(both.to_table())
    assert again.digest == both.digest != fitted.digest
    assert again.coverage == fitted.coverage
    assert again.extra.filter(pl.col("kind") == "cqr").height == 2


def test_a_stored_threshold_is_the_average_of_ten_persons_at_and_above_the_order_statistic(world):
    paths, outcomes = world(400, 27)
    stored = fit_cqr(paths, outcomes, (0.9,)).filter(pl.col("horizon") == 1)["value"][0]
    lower, upper = quantile_limits(paths.earnings[:, 0], 0.9)
    misses = np.sort(np.maximum(lower - outcomes[:, 0], outcomes[:, 0] - upper))
    k = math.ceil(401 * 0.9 - 1e-9)
    assert stored == pytest.approx(misses[k - 1 : k + 9].mean(), rel=1e-12)
