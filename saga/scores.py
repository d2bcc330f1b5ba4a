"""Un-averaged proper scores of marginals, one per person and horizon; lower is better.

They are computed from the distribution itself instead of samples, so they have no sampling error.
Outcomes and scores are (n, H); NaN if the outcome or the distribution is missing. `covered` and
`pit_uniforms` are no scores. Scores in logs use `log_earnings`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.data.panel import FLOOR
from saga.distributions import Marginals
from saga.keyed_random import uniform_rows
from saga.paths import Paths
from saga.requests import QUANTILES

Numbers = NDArray[np.floating[Any]]
_MIN_DENSITY = 1e-6  # smallest probability of zero, and density of log earnings, in the log score


def log_earnings(earnings: Numbers, floor: float | None = FLOOR) -> Floats:
    """Log of max(earnings, floor), same shape; with a floor of None, of max(earnings, 1)."""
    return np.log(
        np.maximum(np.asarray(earnings, dtype=np.float64), 1.0 if floor is None else floor)
    )


def marginal_scores(
    marginals: Marginals, outcomes: Floats, floor: float | None = FLOOR
) -> dict[str, Floats]:
    """All scores by their names in the metrics table; `rmse_log` contains squared errors."""
    y, level = log_earnings(outcomes, floor), np.asarray(QUANTILES)
    logs = _Cells.of_logs(marginals, float(np.log(1.0 if floor is None else floor)))
    error = y[..., None] - log_earnings(marginals.quantiles(QUANTILES), floor)
    median = log_earnings(marginals.quantiles([0.5])[..., 0], floor)
    scores = {
        "crps_log": logs.crps(np.nan_to_num(y), _square_integral_log),
        "crps_sek": crps_money(marginals, outcomes),
        "mae_log": np.abs(median - y),
        "rmse_log": (logs.mean - y) ** 2,
        "pinball_log": np.maximum(level * error, (level - 1) * error).mean(axis=-1),
        "brier_zero": (marginals.p_zero - (outcomes == 0)) ** 2,
        "logscore": log_score(marginals, outcomes),
    }
    missing = np.isnan(outcomes) | ~marginals.exists
    return {name: np.where(missing, np.nan, values) for name, values in scores.items()}


def mean_log(marginals: Marginals, floor: float | None = FLOOR) -> Floats:
    """Mean (n, H) of log(max(earnings, floor)); with a floor of None, of log(max(earnings, 1))."""
    mean = _Cells.of_logs(marginals, float(np.log(1.0 if floor is None else floor))).mean
    return np.where(marginals.exists, mean, np.nan)


def crps_money(marginals: Marginals, outcomes: Floats) -> Floats:
    """CRPS in money; each integral between two grid points is exact."""
    first = np.exp(marginals.grid[..., 0].astype(np.float64))
    cells = _Cells.of_grid(marginals)
    with np.errstate(divide="ignore"):
        above = cells.crps(np.log(np.nan_to_num(outcomes)), _square_integral_money)
    known = np.minimum(np.nan_to_num(outcomes), first)
    below = marginals.p_zero**2 * known + (1 - marginals.p_zero) ** 2 * (first - known)
    return np.where(np.isnan(outcomes) | ~marginals.exists, np.nan, above + below)


def log_score(marginals: Marginals, outcomes: Floats) -> Floats:
    """Minus the log of the probability of zero, or of the density of log earnings, in nats."""
    cells = _Cells.of_grid(marginals)
    with np.errstate(divide="ignore"):
        index = cells.cell_of(np.log(np.nan_to_num(outcomes)))
    density = np.where(outcomes == 0, marginals.p_zero, _pick(cells.slope, index))
    score = -np.log(np.maximum(density, _MIN_DENSITY))
    return np.where(np.isnan(outcomes) | ~marginals.exists, np.nan, score)


# Integral of a squared linear function (value, slope) over `width` logs from `start`.
_SquareIntegral = Callable[[Floats, Floats, Floats, Floats], Floats]


def _square_integral_log(value: Floats, slope: Floats, width: Floats, _start: Floats) -> Floats:
    end = value + slope * width
    return np.asarray(width * (value * value + value * end + end * end) / 3)


def _square_integral_money(value: Floats, slope: Floats, width: Floats, start: Floats) -> Floats:
    """The integral over money, e^t dt, by integrating by parts twice."""
    end = value + slope * width
    upper = np.exp(width) * (end * end - 2 * slope * end + 2 * slope * slope)
    lower = value * value - 2 * slope * value + 2 * slope * slope
    return np.asarray(np.exp(start) * (upper - lower))


@dataclass(frozen=True, eq=False)
class _Cells:
    """Cells between grid points, (n, H, G - 1): a CDF that is linear in logs within each."""

    start: Floats
    width: Floats
    value: Floats
    slope: Floats

    @classmethod
    def of_grid(cls, marginals: Marginals) -> Self:
        return cls._of(marginals.grid.astype(np.float64), marginals.cdf.astype(np.float64))

    @classmethod
    def of_logs(cls, marginals: Marginals, lowest: float) -> Self:
        """Of max(log earnings, lowest): all mass up to `lowest` lies on it."""
        grid = np.maximum(marginals.grid.astype(np.float64), lowest)
        amount = np.full(marginals.p_zero.shape, np.exp(lowest))
        at_lowest = marginals.probability(amount)[..., None]
        cdf = np.where(grid > lowest, marginals.cdf.astype(np.float64), at_lowest)
        start = np.full_like(at_lowest, lowest)
        return cls._of(
            np.concatenate([start, grid], axis=-1), np.concatenate([at_lowest, cdf], axis=-1)
        )

    @classmethod
    def _of(cls, grid: Floats, cdf: Floats) -> Self:
        width = np.diff(grid, axis=-1)
        slope = np.diff(cdf, axis=-1) / np.where(width > 0, width, 1.0)
        return cls(grid[..., :-1], width, cdf[..., :-1], slope)

    @property
    def mean(self) -> Floats:
        """Mean (n, H) of the logs."""
        middle = self.value + self.slope * self.width / 2
        return np.asarray(self.start[..., 0] + (self.width * (1 - middle)).sum(axis=-1))

    def cell_of(self, y: Floats) -> NDArray[np.int64]:
        """Cell (n, H, 1) of logs y (n, H); the first or last one if y lies outside."""
        below = (self.start <= y[..., None]).sum(axis=-1, keepdims=True)
        return np.asarray(np.maximum(below - 1, 0))

    def crps(self, y: Floats, integral: _SquareIntegral) -> Floats:
        """Integral (n, H) of (CDF - [x >= y])^2 from the first grid point on."""
        k = self.cell_of(y)
        start, value, slope, width = (
            _pick(part, k) for part in (self.start, self.value, self.slope, self.width)
        )
        inside = np.clip(y - start, 0.0, width)
        below = integral(self.value, self.slope, self.width, self.start)
        above = integral(1 - self.value, -self.slope, self.width, self.start)
        before = np.arange(below.shape[-1]) < k
        total = (below * before).sum(axis=-1) + (above * ~before).sum(axis=-1)
        total += integral(value, slope, inside, start)
        total -= integral(1 - value, -slope, inside, start)
        end = start + width
        beyond = np.maximum(y - end, 0.0)
        return np.asarray(total + integral(np.ones_like(y), np.zeros_like(y), beyond, end))


def _pick(values: Floats, index: NDArray[np.int64]) -> Floats:
    return np.asarray(np.take_along_axis(values, index, axis=-1)[..., 0])


def covered(
    outcomes: Numbers, lower: Numbers, upper: Numbers, includes_zero: NDArray[np.bool_]
) -> Floats:
    """1 if the outcome lies in the prediction set, else 0; NaN without outcome or interval.

    The set is [lower, upper] of positive amounts, and 0 if `includes_zero`. Arrays broadcast.
    """
    inside = np.where(
        outcomes == 0, includes_zero, (lower <= outcomes) & (outcomes <= upper) & (outcomes > 0)
    )
    return np.where(np.isnan(outcomes) | np.isnan(lower), np.nan, inside.astype(np.float64))


def interval_score(
    outcomes: Numbers,
    lower: Numbers,
    upper: Numbers,
    coverage: float,
    includes_zero: NDArray[np.bool_] | None = None,
) -> Floats:
    """Interval score (Winkler 1972; Gneiting and Raftery 2007, eq. 43), in the given unit.

    Width + 2 / (1 - coverage) x distance outside. With `includes_zero`, an outcome of zero is
    inside if the prediction set contains zero.
    """
    outside = np.maximum(lower - outcomes, 0) + np.maximum(outcomes - upper, 0)
    if includes_zero is not None:
        outside = np.where((outcomes == 0) & includes_zero, 0.0, outside)
    return np.asarray(upper - lower + 2 / (1 - coverage) * outside, dtype=np.float64)


def pit_uniforms(forecast: Paths | Marginals) -> Floats:
    """The keyed v of `pit`, shape (n, H): a function of person, origin year and horizon only."""
    ids = [
        (str(person), int(year))
        for person, year in zip(forecast.person_id, forecast.origin_year, strict=True)
    ]
    return uniform_rows(forecast.n_horizons, ids, "pit")
