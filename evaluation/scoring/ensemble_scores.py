"""Un-averaged proper scores of sampled forecasts, one per person and horizon.

A lower score is better; `pit` is no score. Samples are (n, H, M), outcomes (n, H), scores (n, H),
NaN if the outcome or a sample is NaN. Scores in logs use `saga.scores.log_earnings`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.data.panel import FLOOR
from saga.requests import QUANTILES
from saga.scores import log_earnings

Numbers = NDArray[np.floating[Any]]


def crps(samples: Numbers, outcomes: Numbers) -> Floats:
    """Fair ensemble CRPS (Ferro 2014), in the unit of the samples.

    Mean |x - y| less half the mean |x - x'| over different members. Its expectation does not depend
    on M. Needs M >= 2.
    """
    ordered = np.sort(np.asarray(samples, dtype=np.float64), axis=-1)
    m = ordered.shape[-1]
    if m < 2:
        raise ValueError("the fair CRPS needs at least 2 samples")
    distance = np.abs(ordered - np.asarray(outcomes)[..., None]).mean(axis=-1)
    # The sum of x_j - x_i over i < j in sorted order: the i-th smallest counts 2i - M - 1 times.
    spread: Floats = ordered @ (2.0 * np.arange(1, m + 1) - m - 1) / (m * (m - 1))
    return np.asarray(distance - spread, dtype=np.float64)


def crps_log(samples: Numbers, outcomes: Numbers, floor: float | None = FLOOR) -> Floats:
    """Fair CRPS in log of max(earnings, floor)."""
    return crps(log_earnings(samples, floor), log_earnings(outcomes, floor))


def absolute_error_log(samples: Numbers, outcomes: Numbers, floor: float | None = FLOOR) -> Floats:
    """|median - outcome| in log earnings; its mean is `mae_log`."""
    return np.asarray(
        np.abs(np.median(log_earnings(samples, floor), axis=-1) - log_earnings(outcomes, floor)),
        dtype=np.float64,
    )


def squared_error_log(samples: Numbers, outcomes: Numbers, floor: float | None = FLOOR) -> Floats:
    """(mean - outcome) squared in log earnings; the root of its mean is `rmse_log`."""
    return np.asarray(
        (log_earnings(samples, floor).mean(axis=-1) - log_earnings(outcomes, floor)) ** 2,
        dtype=np.float64,
    )


def pinball_log(
    samples: Numbers,
    outcomes: Numbers,
    floor: float | None = FLOOR,
    quantiles: Sequence[float] = QUANTILES,
) -> Floats:
    """Pinball loss in log earnings, the mean over `quantiles`."""
    q = np.asarray(quantiles)
    forecast = np.moveaxis(np.quantile(log_earnings(samples, floor), q, axis=-1), 0, -1)
    error = log_earnings(outcomes, floor)[..., None] - forecast
    return np.asarray(np.maximum(q * error, (q - 1) * error).mean(axis=-1), dtype=np.float64)


def brier_zero(samples: Numbers, outcomes: Numbers) -> Floats:
    """Brier score of the probability of exactly zero earnings."""
    missing = np.isnan(outcomes) | np.isnan(samples).any(axis=-1)
    return np.where(missing, np.nan, ((samples == 0).mean(axis=-1) - (outcomes == 0)) ** 2)


def logscore(samples: Numbers, outcomes: Numbers, floor: float | None = FLOOR) -> Floats:
    """Log score: minus the log of the forecast probability (or density), in nats.

    The forecast is a point mass at zero plus a density of log earnings. The mass is
    (zeros + 1/2) / (M + 1), so it is never 0 or 1. The density is a mixture. Its main part is a
    Gaussian kernel estimate from the m positive samples (Silverman 1986, bandwidth
    0.9 min(sd, IQR / 1.34) m^(-1/5)). The other part, of weight 1 / (m + 1), is a Cauchy density at
    the median with scale IQR / 2, so that an outcome outside all samples has a finite score. With
    fewer than two positive samples the density is a Cauchy at log(floor) with scale 2. Amounts are
    not clipped at the floor. The score is an estimate: compare only forecasts with the same M.
    """
    x = np.asarray(samples, dtype=np.float64)
    y = np.asarray(outcomes, dtype=np.float64)
    scores = np.full(y.shape, np.nan)
    valid = ~(np.isnan(y) | np.isnan(x).any(axis=-1))
    x, y = x[valid], y[valid]
    m = x.shape[-1]
    mass = ((x == 0).sum(axis=-1) + 0.5) / (m + 1)
    result = -np.log(mass)
    positive = y > 0
    if positive.any():
        density = _density_of_log(
            x[positive], np.log(y[positive]), np.log(1.0 if floor is None else floor)
        )
        result[positive] = -np.log1p(-mass[positive]) - np.log(density)
    scores[valid] = result
    return scores


def _density_of_log(x: Floats, t: Floats, fallback_centre: float) -> Floats:
    """Density at `t` (n,) of the logs of the positive samples in `x` (n, M).

    A Gaussian kernel estimate with one Cauchy kernel more, so that the density is nowhere zero.
    """
    ordered = np.sort(x, axis=-1)  # zeros first
    is_positive = ordered > 0
    logs = np.log(np.where(is_positive, ordered, 1.0))
    count = is_positive.sum(axis=-1)
    enough = count >= 2
    count_or_one = np.maximum(count, 1)

    def quantile(q: float) -> Floats:
        position = x.shape[-1] - count_or_one + q * (count_or_one - 1)
        low, rows = position.astype(np.int64), np.arange(len(x))
        above = logs[rows, np.minimum(low + 1, x.shape[-1] - 1)]
        return np.asarray(logs[rows, low] + (position - low) * (above - logs[rows, low]))

    iqr = np.maximum(quantile(0.75) - quantile(0.25), 1e-3)
    # In `logs` zero earnings have log 0, so they add nothing to the sum.
    mean = logs.sum(axis=-1) / count_or_one
    centred = np.where(is_positive, logs - mean[:, None], 0.0)
    sd = np.maximum(np.sqrt((centred**2).sum(axis=-1) / count_or_one), 1e-3)
    bandwidth = 0.9 * np.minimum(sd, iqr / 1.34) * count_or_one**-0.2
    z = (t[:, None] - logs) / bandwidth[:, None]
    kernels = np.where(is_positive, np.exp(-0.5 * z * z), 0.0).sum(axis=-1) / (
        bandwidth * np.sqrt(2 * np.pi)
    )
    centre, scale = np.where(enough, quantile(0.5), fallback_centre), np.where(enough, iqr / 2, 2.0)
    cauchy = 1 / (np.pi * scale * (1 + ((t - centre) / scale) ** 2))
    return np.asarray(np.where(enough, (kernels + cauchy) / (count + 1), cauchy))


def pit(samples: Numbers, outcomes: Numbers, v: Floats) -> Floats:
    """Randomised probability integral transform (#{x < y} + v (1 + #{x = y})) / (M + 1).

    v is uniform on (0, 1). Exactly uniform if outcome and samples are exchangeable, atoms included
    (Brockwell 2007; Czado, Gneiting and Held 2009).
    """
    y = np.asarray(outcomes)[..., None]
    below = (samples < y).sum(axis=-1)
    equal = (samples == y).sum(axis=-1)
    missing = np.isnan(outcomes) | np.isnan(samples).any(axis=-1)
    return np.where(missing, np.nan, (below + v * (1 + equal)) / (samples.shape[-1] + 1))


def sample_scores(
    samples: Numbers, outcomes: Numbers, floor: float | None = FLOOR
) -> dict[str, Floats]:
    """All scores that need only samples, by their names in the metrics table.

    `rmse_log` contains squared errors.
    """
    return {
        "crps_log": crps_log(samples, outcomes, floor),
        "crps_sek": crps(samples, outcomes),
        "mae_log": absolute_error_log(samples, outcomes, floor),
        "rmse_log": squared_error_log(samples, outcomes, floor),
        "pinball_log": pinball_log(samples, outcomes, floor),
        "brier_zero": brier_zero(samples, outcomes),
        "logscore": logscore(samples, outcomes, floor),
    }
