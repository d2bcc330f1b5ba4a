"""Recalibrated marginals, and paths that follow them: ranks, zeros, and order of persons."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from saga.calibration.fit.split_conformal import fit_calibration

from saga.arrays import Floats
from saga.conformal.calibrator import Calibrator
from saga.conformal.recalibration import Cell, map_paths
from saga.distributions import Marginals
from tests.calibration.worlds import draw_paths, draw_world

Forecast = tuple[Marginals, Marginals]


@pytest.fixture(scope="module")
def fitted() -> Calibrator:
    return fit_calibration(*draw_world(3_000, 1), seed=0)


@pytest.fixture(scope="module")
def forecast(fitted: Calibrator) -> Forecast:
    """Raw and recalibrated marginals of other persons."""
    raw, _ = draw_world(500, 2)
    return raw, fitted.recalibrate(raw)


def calibrate_probability(u: Floats, cell: Cell) -> Floats:
    return np.interp(u, cell.knots, cell.values)


def test_recalibrated_marginals_are_the_map_of_raw_ones(
    fitted: Calibrator, forecast: Forecast
) -> None:
    raw, recalibrated = forecast
    amounts = draw_world(500, 2)[1]
    for h in range(2):
        cell = fitted.cells[h + 1, "all"]
        before, after = raw.at_horizon(h + 1), recalibrated.at_horizon(h + 1)
        expected = calibrate_probability(before.cdf.astype(np.float64), cell)
        np.testing.assert_allclose(after.cdf, expected, rtol=1e-12)
        np.testing.assert_array_equal(after.grid, before.grid)
        np.testing.assert_allclose(
            after.probability(amounts[:, h : h + 1]),
            calibrate_probability(before.probability(amounts[:, h : h + 1]), cell),
            atol=0.003,
        )


def test_mapped_paths_follow_the_recalibrated_marginals(forecast: Forecast) -> None:
    raw, recalibrated = forecast
    for count in (7, 60, 500):
        mapped = map_paths(draw_paths(raw, count), recalibrated)
        assert mapped.recalibrated
        ordered = np.sort(mapped.earnings, axis=2)
        # The chance of zero agrees to half a path, and so does the mean.
        np.testing.assert_allclose(
            ordered.mean(axis=2, dtype=float), recalibrated.mean, rtol=0.6 / count
        )
        off = np.abs((ordered == 0).mean(axis=2) - recalibrated.p_zero)
        assert (off <= 0.5 / count + 1e-9).all()
        # The path of rank r lies between the quantiles of r / M and (r + 1) / M.
        edges = recalibrated.quantiles(np.arange(count + 1) / count)
        assert (ordered >= edges[..., :-1] * (1 - 1e-6)).all()
        inside = np.arange(count) + 0.5 > recalibrated.p_zero[..., None] * count
        assert (ordered <= edges[..., 1:] * (1 + 1e-6))[inside].all()
    raw_means = draw_paths(raw, 500).earnings.mean(axis=2, dtype=float)
    assert not np.allclose(raw_means, recalibrated.mean, rtol=0.02), "raw paths do not"


def test_paths_keep_their_ranks_and_zeros_go_by_total_earnings(forecast: Forecast) -> None:
    raw, recalibrated = forecast
    paths = draw_paths(raw)
    mapped = map_paths(paths, recalibrated).earnings
    total = paths.earnings.astype(float).sum(axis=1)
    for h in range(2):
        order = np.argsort(paths.earnings[:, h], axis=1, kind="stable")
        rises = np.diff(np.take_along_axis(paths.earnings[:, h], order, axis=1)) > 0
        steps = np.diff(np.take_along_axis(mapped[:, h], order, axis=1))
        assert (steps >= 0)[rises].all()
        was_zero, is_zero = paths.earnings[:, h] == 0, mapped[:, h] == 0
        lowest_positive = np.where(was_zero, np.inf, mapped[:, h]).min(axis=1)
        assert (np.where(was_zero, mapped[:, h], 0).max(axis=1) <= lowest_positive).all()
        # If some of the zeros became positive, they are the ones with the largest totals.
        richest_zero = np.where(was_zero & is_zero, total, -np.inf).max(axis=1)
        poorest_raised = np.where(was_zero & ~is_zero, total, np.inf).min(axis=1)
        assert (richest_zero <= poorest_raised).all()
        assert (is_zero.sum(axis=1) != was_zero.sum(axis=1)).any()


def test_numbers_of_a_person_do_not_depend_on_the_batch_or_its_order(
    fitted: Calibrator, forecast: Forecast
) -> None:
    raw, together = forecast
    paths = draw_paths(raw, 37)
    mapped = map_paths(paths, together)
    for rows in (np.arange(len(raw))[::-1], np.array([17])):
        part = fitted.recalibrate(raw.take(rows))
        assert np.array_equal(part.cdf, together.cdf[rows])
        assert np.array_equal(part.quantiles([0.1, 0.9]), together.quantiles([0.1, 0.9])[rows])
        assert np.array_equal(map_paths(paths.take(rows), part).earnings, mapped.earnings[rows])


def test_a_forecast_without_zeros_gets_none_and_one_of_zeros_keeps_them() -> None:
    lifted = Cell(np.array([0, 0.5, 1.0]), np.array([0, 0.8, 1.0]), 500, {}, 0)
    raw, _ = draw_world(5, 1, horizons=1)
    cdf = (raw.cdf - raw.p_zero[..., None]) / (1 - raw.p_zero[..., None])
    never = replace(raw, cdf=cdf, p_zero=np.zeros_like(raw.p_zero))
    always = replace(raw, cdf=np.ones_like(raw.cdf), p_zero=np.ones_like(raw.p_zero))
    for of_forecast, is_positive in ((never, True), (always, False)):
        mapped = Calibrator({(1, "all"): lifted}).recalibrate(of_forecast)
        assert np.array_equal(mapped.p_zero, of_forecast.p_zero)
        earnings = map_paths(draw_paths(of_forecast, 40), mapped).earnings
        assert ((earnings > 0) == is_positive).all()
