"""Marginal distributions of earnings: those of n persons at H horizons are one object.

A distribution is an atom at zero and a CDF on a grid of log earnings, linear between grid points.
It comes from the network's direct forecast (`saga.simulation.marginals`) or from samples. Means,
probabilities of zero, quantiles, prediction sets, limits and scores are computed from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.person_forecasts import PersonForecasts

_BLOCK_ROWS = 20_000  # rows that are interpolated at once


@dataclass(frozen=True, eq=False, repr=False)
class Marginals(PersonForecasts):
    """Distributions of earnings of n persons over horizons 1..H.

    Args:
        person_id: See `PersonForecasts`, like the arguments that are not listed.
        grid: Log earnings (n, H, G), ascending; earnings are real money of the panel a year.
        cdf: Probability (n, H, G) of earnings up to the grid point, zero included. It starts at
            `p_zero` and ends at 1. NaN beyond age 64.
        p_zero: Probability (n, H) of zero earnings, death included. NaN beyond age 64.
        members: The distributions of each member, if these are averages over an ensemble.
    """

    kind: ClassVar[str] = "marginals"
    needs_recalibrated: ClassVar[str] = "Apply `Calibrator.recalibrate` first."
    needs_raw: ClassVar[str] = "Forecast with `recalibrate=False`."

    grid: NDArray[np.floating]
    cdf: NDArray[np.floating]
    p_zero: NDArray[np.floating]
    members: tuple[Marginals, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        shapes = (self.cdf.shape, self.grid.shape, (*self.p_zero.shape, self.cdf.shape[-1]))
        if self.cdf.ndim != 3 or len(set(shapes)) > 1:
            raise ValueError(
                "a CDF and its grid have shape (persons, horizons, points), and p_zero the first "
                f"two; got {self.cdf.shape}, {self.grid.shape} and {self.p_zero.shape}"
            )

    @property
    def n_horizons(self) -> int:
        """H, the number of horizons."""
        return int(self.cdf.shape[1])

    @property
    def exists(self) -> NDArray[np.bool_]:
        """Whether there is a distribution (n, H): not beyond age 64, nor where it is left out."""
        return np.asarray(~np.isnan(self.p_zero))

    @classmethod
    def from_samples(
        cls, samples: NDArray[np.floating], *, recalibrated: bool = False
    ) -> Marginals:
        """The distributions of samples (n, H, M); see `grid_of_samples`.

        The persons have no names, and their birth and origin years are 0.
        """
        grid, cdf, p_zero = grid_of_samples(samples)
        unknown = np.zeros(len(samples), dtype=np.int64)
        person_id = np.array([""] * len(samples), dtype=np.str_)
        return cls(person_id, unknown, unknown, grid, cdf, p_zero, recalibrated=recalibrated)

    def only(self, chosen: NDArray[np.bool_]) -> Marginals:
        """The distributions where `chosen` (n, H); the others are left out."""
        cdf = np.where(chosen[..., None], self.cdf, np.nan)
        return replace(self, cdf=cdf, p_zero=np.where(chosen, self.p_zero, np.nan))

    def first(self, n_horizons: int) -> Marginals:
        """The distributions at horizons 1..`n_horizons`."""
        return self.at_horizons(range(1, n_horizons + 1))

    def at_horizon(self, horizon: int) -> Marginals:
        """The distributions at one horizon, as marginals with H = 1."""
        return self.at_horizons([horizon])

    def at_horizons(self, horizons: Sequence[int]) -> Marginals:
        """The distributions at some horizons; the columns are these, and no longer 1..H."""
        h = np.asarray(horizons) - 1
        return replace(
            self,
            grid=self.grid[:, h],
            cdf=self.cdf[:, h],
            p_zero=self.p_zero[:, h],
            members=tuple(member.at_horizons(horizons) for member in self.members),
        )

    @cached_property
    def _cumulative_mean(self) -> Floats:
        """Expected earnings (n, H, G) from amounts up to each grid point: E[y; log y <= point]."""
        grid, cdf = self.grid.astype(np.float64), self.cdf.astype(np.float64)
        # Between grid points the density is constant in logs.
        width, earnings = np.diff(grid, axis=-1), np.exp(grid)
        mean = np.diff(earnings, axis=-1) / np.where(width > 0, width, 1.0)
        mean = np.where(width > 0, mean, earnings[..., 1:])
        parts = np.diff(cdf, axis=-1) * mean
        parts = np.concatenate([np.zeros_like(parts[..., :1]), parts], axis=-1)
        return np.cumsum(parts, axis=-1)

    @property
    def mean(self) -> Floats:
        """Mean earnings (n, H)."""
        return self._cumulative_mean[..., -1]

    def slice_means(self, count: int) -> Floats:
        """Means (n, H, M) of M slices of equal probability, ascending; their mean is nearly `mean`.

        A slice is zero if at least half of it lies in the atom at zero. The earnings in the other
        half of this slice are lost, which matters less the larger M is.
        """
        edges = np.arange(1, count) / count
        p = np.broadcast_to(edges, (*self.p_zero.shape, count - 1))
        logs = interpolate_rows(p, self.cdf, self.grid)
        # The integral is linear in earnings between grid points.
        below = interpolate_rows(np.exp(logs), np.exp(self.grid), self._cumulative_mean)
        below = np.where(p <= self.p_zero[..., None], 0.0, below)
        total = self.mean[..., None]
        ends = np.concatenate([np.zeros_like(total), below, total], axis=-1)
        means = np.diff(ends, axis=-1) * count
        middle = (np.arange(count) + 0.5) / count
        means[middle <= self.p_zero[..., None]] = 0.0
        return np.asarray(np.where(self.exists[..., None], means, np.nan))

    def quantiles(self, p: Floats | Sequence[float]) -> Floats:
        """Quantiles (n, H, L) for probabilities `p`, shape (L,) or (n, H, L); 0 up to `p_zero`."""
        p = np.asarray(p, dtype=np.float64)
        p = np.broadcast_to(p, (*self.p_zero.shape, p.shape[-1]))
        logs = interpolate_rows(p, self.cdf, self.grid)
        quantiles: Floats = np.where(p <= self.p_zero[..., None], 0.0, np.exp(logs))
        return np.where(self.exists[..., None], quantiles, np.nan)

    def probability(self, earnings: NDArray[np.floating]) -> Floats:
        """Probability of earnings up to those given, shape (n, H) or (n, H, K) of `earnings`.

        It is `p_zero` at zero, and NaN at NaN.
        """
        amounts = np.asarray(earnings, dtype=np.float64)
        amounts = amounts.reshape(*self.p_zero.shape, *amounts.shape[2:] or (1,))
        with np.errstate(divide="ignore"):
            logs = np.log(amounts)
        p = interpolate_rows(logs, self.grid, self.cdf)
        p = np.where(amounts <= 0, self.p_zero[..., None], p)
        p[np.isnan(amounts) | ~self.exists[..., None]] = np.nan
        return p.reshape(np.shape(earnings))

    def p_zero_like(self, amounts: NDArray[np.floating]) -> NDArray[np.floating]:
        """`p_zero` with the axes of amounts (n, H) or (n, H, K)."""
        return self.p_zero.reshape(*self.p_zero.shape, *[1] * (amounts.ndim - 2))


def grid_of_samples(
    samples: NDArray[np.floating], points: int = 129
) -> tuple[Floats, Floats, Floats]:
    """Grid (..., G), CDF (..., G) and `p_zero` (...,) of samples (..., M).

    Of the M+ positive samples, at most `points` quantiles are grid points; G is two more, one in
    each tail. Between grid points the CDF is linear in logs. Each tail has half the probability of
    one positive sample.
    """
    m = samples.shape[-1]
    ordered = np.sort(samples, axis=-1).astype(np.float64)
    zeros = (ordered == 0).sum(axis=-1)
    positive = m - zeros
    points = min(points, max(2, m))
    fraction = np.linspace(0.0, 1.0, points)
    position = (
        np.minimum(zeros, m - 1)[..., None] + fraction * np.maximum(positive - 1, 0)[..., None]
    )
    low = position.astype(np.int64)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(ordered)
        below = np.take_along_axis(logs, low, -1)
        above = np.take_along_axis(logs, np.minimum(low + 1, m - 1), -1)
        weight = position - low
        grid = np.where(weight > 0, below + weight * (above - below), below)
    # Without positive samples the CDF is 1 at every point; the grid only has to ascend.
    grid = np.where(positive[..., None] > 0, grid, fraction)
    steps = np.maximum(positive, 1)[..., None]
    inner = (0.5 + fraction * (steps - 1)) / steps
    p_zero = np.where(np.isnan(ordered[..., -1]), np.nan, zeros / m)
    cdf = p_zero[..., None] + (1 - p_zero[..., None]) * inner
    # A tail is as wide as the distance to the next grid point, and at least 1 %.
    reach_low = np.maximum(grid[..., 1] - grid[..., 0], 0.01)
    reach_high = np.maximum(grid[..., -1] - grid[..., -2], 0.01)
    grid = np.concatenate(
        [(grid[..., 0] - reach_low)[..., None], grid, (grid[..., -1] + reach_high)[..., None]], -1
    )
    ones = np.where(np.isnan(p_zero), np.nan, 1.0)
    cdf = np.concatenate([p_zero[..., None], cdf, ones[..., None]], axis=-1)
    return grid, np.where(positive[..., None] > 0, cdf, ones[..., None]), p_zero


def interpolate_rows(
    x: Floats, xp: NDArray[np.floating], fp: NDArray[np.floating | np.integer]
) -> Floats:
    """Linear interpolation, row by row, at x (..., L) of points xp and fp (..., G).

    `xp` must not decrease along the last axis. Values are constant beyond the ends; at a jump, the
    value after it is taken. Rows of NaN give NaN.
    """
    g = xp.shape[-1]
    rows = xp.reshape(-1, g)
    values, at = np.asarray(fp).reshape(-1, g), x.reshape(len(rows), x.shape[-1])
    result = np.empty(at.shape)
    for start in range(0, len(rows), _BLOCK_ROWS):  # so that memory stays bounded
        block = slice(start, start + _BLOCK_ROWS)
        result[block] = _interpolate_block(at[block], rows[block], values[block])
    return result.reshape(x.shape)


def _interpolate_block(
    at: Floats, points: NDArray[np.floating], values: NDArray[np.floating | np.integer]
) -> Floats:
    rows, g = points.astype(np.float64), points.shape[-1]
    # Each row is moved to an interval of its own, so that one search serves all rows.
    low, high = rows[:, :1], rows[:, -1:]
    span = np.where(high > low, high - low, 1.0)
    offset = 3.0 * np.arange(len(rows))[:, None]
    moved = np.nan_to_num((rows - low) / span) + offset
    # Intervals are 3 apart and an amount at most 0.5 outside its own.
    at_moved = np.clip(np.nan_to_num((at - low) / span), -0.5, 1.5) + offset
    index = np.searchsorted(moved.ravel(), at_moved.ravel(), side="right").reshape(at.shape)
    index = np.clip(index - g * np.arange(len(rows))[:, None], 1, g - 1)
    x0, x1 = (np.take_along_axis(rows, i, 1) for i in (index - 1, index))
    y0, y1 = (np.take_along_axis(values, i, 1).astype(np.float64) for i in (index - 1, index))
    weight = np.clip((at - x0) / np.where(x1 > x0, x1 - x0, 1.0), 0.0, 1.0)
    weight = np.where((x1 == x0) & (at >= x1), 1.0, weight)
    return np.asarray(y0 + weight * (y1 - y0))
