"""System GMM for a first-order autoregression with fixed effects, on panels with gaps.

    r_it = rho r_i,t-1 + c + mu_i + u_it

Moments (Arellano and Bond 1991; Blundell and Bond 1998): in differences E[r_i,t-l (du_it)] = 0 for
lags l from `first_lag` on, in levels E[dr_i,t-first_lag+1 (mu_i + u_it)] = 0. A first lag of 2 is
valid if u has no serial correlation, 3 if r has a transitory part, which makes u a moving average.
Instruments are collapsed (Roodman 2009, one moment per lag), so that their number does not grow
with the panel. The estimate is two-step, with the standard error of Windmeijer (2005).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from saga.arrays import Floats
from saga.errors import InputError, Problem

CHUNK = 5_000  # persons whose equations are in memory at once


@dataclass(frozen=True)
class GmmEstimate:
    """An estimated autoregression.

    Attributes:
        rho: Persistence from one step to the next.
        constant: The constant c.
        se: Standard error of `rho`.
        hansen: Hansen's J statistic, a test of the moments.
        p_hansen: Its p-value.
        persons: Number of persons with an equation.
    """

    rho: float
    constant: float
    se: float
    hansen: float
    p_hansen: float
    persons: int


def system_gmm(
    residual: Floats, *, first_lag: int = 3, lags: int = 3, step: int = 1
) -> GmmEstimate:
    """Estimate the autoregression of residuals.

    Args:
        residual: (n, T), NaN if unknown.
        first_lag: First lag that is an instrument.
        lags: Number of lags that are instruments.
        step: Columns between a value and its first lag.

    Raises:
        InputError: If too few persons have an equation with an instrument, or if past residuals do
            not vary.
    """
    zx, zy, weight = _moments(residual, first_lag, lags, step)
    has_equation = (zx != 0).any(axis=(1, 2))
    has_instrument = (zx[:, :-1] != 0).any(axis=(1, 2))  # the last instrument is the constant
    if has_instrument.sum() <= 2 * zx.shape[1]:
        years = first_lag + 1
        fix = f"Give more persons with earnings in at least {years} years of the panel's rhythm."
        raise InputError(
            "Persistence cannot be estimated",
            [Problem("few-records", "too few persons have records that long", fix)],
        )
    zx, zy = zx[has_equation], zy[has_equation]
    n, total_zx, total_zy = len(zx), zx.sum(axis=0), zy.sum(axis=0)

    # One-step estimate beta1, from weights w1, and two-step estimate beta2, from the weights w2
    # that the one-step residuals give; g are moments at an estimate, v its variance.
    w1 = np.linalg.pinv(weight)
    information = total_zx.T @ w1 @ total_zx
    if np.linalg.matrix_rank(information) < 2:
        fix = "Give a panel in which earnings change from year to year."
        raise InputError(
            "Persistence cannot be estimated",
            [Problem("no-variation", "past earnings do not predict later ones", fix)],
        )
    m1 = np.linalg.inv(information)
    beta1 = m1 @ total_zx.T @ w1 @ total_zy
    g1 = zy - zx @ beta1  # (n, q), person by person
    s = g1.T @ g1
    w2 = np.linalg.pinv(s)
    v2 = np.linalg.inv(total_zx.T @ w2 @ total_zx)
    beta2 = v2 @ total_zx.T @ w2 @ total_zy
    v1 = m1 @ total_zx.T @ w1 @ s @ w1 @ total_zx @ m1

    g2 = total_zy - total_zx @ beta2
    correction = np.empty((2, 2))
    # Column j: how beta2 moves with coefficient j of beta1, on which its weights w2 depend
    # (Windmeijer 2005, eq. 3.2).
    for j in range(2):
        half = zx[:, :, j].T @ g1  # half of minus the derivative of s
        correction[:, j] = v2 @ total_zx.T @ w2 @ (half + half.T) @ w2 @ g2
    variance = v2 + correction @ v2 + v2 @ correction.T + correction @ v1 @ correction.T
    hansen = float(g2 @ w2 @ g2)
    se = float(np.sqrt(max(variance[0, 0], 0.0)))
    degrees = zx.shape[1] - 2
    return GmmEstimate(
        float(beta2[0]), float(beta2[1]), se, hansen, float(chi2.sf(hansen, degrees)), n
    )


def _moments(
    residual: Floats, first_lag: int, lags: int, step: int
) -> tuple[Floats, Floats, Floats]:
    """Z'X (n, q, 2) and Z'y (n, q) of each person, and the one-step weight sum Z'HZ (q, q).

    q = lags + 2, the constant last.
    """
    n, q = len(residual), lags + 2
    zx, zy, weight = np.zeros((n, q, 2)), np.zeros((n, q)), np.zeros((q, q))
    for start in range(0, n, CHUNK):
        rows = slice(start, start + CHUNK)
        for phase in range(step):  # columns a step apart are one series of the person
            part = _equations(residual[rows, phase::step], first_lag, lags)
            if part is not None:
                zx[rows] += part[0]
                zy[rows] += part[1]
                weight += part[2]
    return zx, zy, weight


def _equations(r: Floats, first_lag: int, lags: int) -> tuple[Floats, Floats, Floats] | None:
    """As `_moments`, of persons whose columns are one step apart; None with too few columns."""
    n, years = r.shape
    if years < 3:
        return None
    q = lags + 2
    change = np.full(r.shape, np.nan)
    change[:, 1:] = np.diff(r, axis=1)

    def lagged(x: Floats, lag: int) -> Floats:
        out = np.full(x.shape, np.nan)
        if lag < years:
            out[:, lag:] = x[:, : years - lag]
        return out

    in_levels = ~np.isnan(r) & ~np.isnan(lagged(r, 1))
    in_changes = ~np.isnan(change) & ~np.isnan(lagged(change, 1))
    z_change, z_level = np.zeros((n, years, q)), np.zeros((n, years, q))
    for k in range(lags):
        z_change[:, :, k] = np.where(in_changes, np.nan_to_num(lagged(r, first_lag + k)), 0.0)
    z_level[:, :, lags] = np.where(in_levels, np.nan_to_num(lagged(change, first_lag - 1)), 0.0)
    z_level[:, :, lags + 1] = in_levels

    x_change = np.stack([lagged(change, 1), np.zeros(r.shape)], axis=-1)
    x_level = np.stack([lagged(r, 1), np.ones(r.shape)], axis=-1)
    zx = _sum_over_years(z_change, np.nan_to_num(x_change))
    zx += _sum_over_years(z_level, np.nan_to_num(x_level))
    zy = _sum_over_years(z_change, np.nan_to_num(change)[..., None])[..., 0]
    zy += _sum_over_years(z_level, np.nan_to_num(r)[..., None])[..., 0]
    # H: the covariance of (du, u) for independent u of variance one, without the fixed effect
    # (Roodman 2009, h = 3). Differences of neighbouring years share a u.
    flat = (-1, q)
    d, e = z_change.reshape(flat), z_level.reshape(flat)
    next_d, previous_e = np.zeros_like(z_change), np.zeros_like(z_level)
    next_d[:, :-1], previous_e[:, 1:] = z_change[:, 1:], z_level[:, :-1]
    neighbours = d.T @ next_d.reshape(flat)
    cross = d.T @ e - d.T @ previous_e.reshape(flat)
    return zx, zy, 2 * d.T @ d - neighbours - neighbours.T + e.T @ e + cross + cross.T


def _sum_over_years(z: Floats, x: Floats) -> Floats:
    """Z'X of each person, (n, q, k), from z (n, T, q) and x (n, T, k)."""
    return np.asarray(np.matmul(z.transpose(0, 2, 1), x))
