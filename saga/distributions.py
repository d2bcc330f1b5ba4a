"""Marginal distributions of earnings: one object per person and horizon, read by everything else.

A distribution is an atom at zero and a CDF on a grid of log earnings, linear between grid points.
It comes from the network's direct forecast (`saga.simulation.marginals`) or from samples. Means,
probabilities of zero, quantiles, prediction sets, limits and scores are computed from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from saga.errors import UsageError

Array = NDArray[np.float64]
Rows = NDArray[np.generic] | slice
_BLOCK_ROWS = 20_000  # rows that are interpolated at once


@dataclass(frozen=True, eq=False)
class Marginals:
    """Distributions of earnings of n persons over horizons 1..H.

    Args:
        person_id: Text, shape (n,).
        birth_year: Shape (n,).
        origin_year: Last observed year, shape (n,).
        grid: Log earnings (n, H, G), ascending; earnings are in real SEK a year.
        cdf: Probability (n, H, G) of earnings up to the grid point, zero included. It starts at
            `p_zero` and ends at 1. NaN beyond age 64.
        p_zero: Probability (n, H) of zero earnings, death included.
        groups: Name of a grouping -> labels (n,) at the origin, as in `saga.data.groups`.
        conditioned: Whether the macro series follow a scenario instead of the bundle's process.
        recalibrated: Whether a calibrator's maps have been applied.
        members: The distributions of each member, if these are averages over an ensemble.
    """

    person_id: NDArray[np.str_]
    birth_year: NDArray[np.int64]
    origin_year: NDArray[np.int64]
    grid: NDArray[np.floating]
    cdf: NDArray[np.floating]
    p_zero: NDArray[np.floating]
    groups: Mapping[str, NDArray[np.str_]] = field(default_factory=dict)
    conditioned: bool = False
    recalibrated: bool = False
    members: tuple[Marginals, ...] = ()

    def __post_init__(self) -> None:
        shape = (len(self.person_id), *self.cdf.shape[1:])
        if self.cdf.ndim != 3 or self.cdf.shape != shape or self.grid.shape != shape:
            raise ValueError(
                f"marginals of {len(self.person_id)} persons need a grid and a CDF of shape "
                f"(persons, horizons, points); got {self.grid.shape} and {self.cdf.shape}"
            )

    def __len__(self) -> int:
        return len(self.person_id)

    @property
    def n_horizons(self) -> int:
        """H, the last horizon."""
        return int(self.cdf.shape[1])

    @property
    def exists(self) -> NDArray[np.bool_]:
        """Whether there is a distribution (n, H): not beyond age 64."""
        return np.asarray(~np.isnan(self.p_zero))

    def take(self, rows: Rows) -> Marginals:
        """The distributions of a subset of persons: an index, mask or slice."""
        return replace(
            self,
            person_id=self.person_id[rows],
            birth_year=self.birth_year[rows],
            origin_year=self.origin_year[rows],
            grid=self.grid[rows],
            cdf=self.cdf[rows],
            p_zero=self.p_zero[rows],
            groups={name: labels[rows] for name, labels in self.groups.items()},
            members=tuple(member.take(rows) for member in self.members),
        )

    @classmethod
    def joined(cls, parts: Sequence[Marginals]) -> Marginals:
        """Consecutive blocks of persons as one; all with the same horizons and groupings."""
        return replace(
            parts[0],
            person_id=np.concatenate([part.person_id for part in parts]),
            birth_year=np.concatenate([part.birth_year for part in parts]),
            origin_year=np.concatenate([part.origin_year for part in parts]),
            grid=np.concatenate([part.grid for part in parts]),
            cdf=np.concatenate([part.cdf for part in parts]),
            p_zero=np.concatenate([part.p_zero for part in parts]),
            groups={
                name: np.concatenate([part.groups[name] for part in parts])
                for name in parts[0].groups
            },
            members=tuple(
                cls.joined(members) for members in zip(*(p.members for p in parts), strict=True)
            ),
        )

    @classmethod
    def from_samples(
        cls, samples: NDArray[np.floating], *, recalibrated: bool = False
    ) -> Marginals:
        """The distributions of samples (n, H, M) of unnamed persons; see `grid_of_samples`."""
        grid, cdf, p_zero = grid_of_samples(samples)
        unknown = np.zeros(len(samples), dtype=np.int64)
        person_id = np.array([""] * len(samples), dtype=np.str_)
        return cls(person_id, unknown, unknown, grid, cdf, p_zero, recalibrated=recalibrated)

    def first(self, n_horizons: int) -> Marginals:
        """The distributions at horizons 1..`n_horizons`."""
        return self.at_horizons(range(1, n_horizons + 1))

    def year(self, horizon: int) -> Marginals:
        """The distributions at one horizon, as marginals with H = 1."""
        return self.at_horizons([horizon])

    def at_horizons(self, horizons: Sequence[int]) -> Marginals:
        """The distributions at some horizons, which become the columns."""
        h = np.asarray(horizons) - 1
        return replace(
            self,
            grid=self.grid[:, h],
            cdf=self.cdf[:, h],
            p_zero=self.p_zero[:, h],
            members=tuple(member.at_horizons(horizons) for member in self.members),
        )

    @cached_property
    def _cumulative_mean(self) -> Array:
        """Integral (n, H, G) of earnings up to each grid point, over their distribution."""
        grid, cdf = self.grid.astype(np.float64), self.cdf.astype(np.float64)
        # Between grid points the density is constant in logs.
        width, earnings = np.diff(grid, axis=-1), np.exp(grid)
        mean = np.diff(earnings, axis=-1) / np.where(width > 0, width, 1.0)
        mean = np.where(width > 0, mean, earnings[..., 1:])
        parts = np.diff(cdf, axis=-1) * mean
        first = (cdf[..., 0] - self.p_zero) * earnings[..., 0]
        return np.cumsum(np.concatenate([first[..., None], parts], axis=-1), axis=-1)

    @property
    def mean(self) -> Array:
        """Mean earnings (n, H)."""
        return self._cumulative_mean[..., -1]

    def slice_means(self, count: int) -> Array:
        """Means (n, H, M) of M slices of equal probability, ascending; their mean is `mean`.

        A slice is zero if more than half of it lies in the atom at zero.
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

    def quantiles(self, p: Array | Sequence[float]) -> Array:
        """Quantiles (n, H, L) for probabilities `p`, shape (L,) or (n, H, L); 0 up to `p_zero`."""
        p = np.asarray(p, dtype=np.float64)
        p = np.broadcast_to(p, (*self.p_zero.shape, p.shape[-1]))
        logs = interpolate_rows(p, self.cdf, self.grid)
        quantiles: Array = np.where(p <= self.p_zero[..., None], 0.0, np.exp(logs))
        return np.where(self.exists[..., None], quantiles, np.nan)

    def probability(self, earnings: NDArray[np.floating]) -> Array:
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

    def zero_beside(self, amounts: NDArray[np.floating]) -> NDArray[np.floating]:
        """`p_zero` with the axes of amounts (n, H) or (n, H, K)."""
        return self.p_zero.reshape(*self.p_zero.shape, *[1] * (amounts.ndim - 2))

    def require_recalibrated(self) -> None:
        """Raise UsageError for raw marginals, to which a calibrator's thresholds do not apply."""
        if not self.recalibrated:
            raise UsageError(
                "These marginals are raw, but recalibrated ones are needed here. Apply "
                "`Calibrator.recalibrate` first."
            )

    def require_raw(self) -> None:
        """Raise UsageError for recalibrated marginals, which must not be fitted on again."""
        if self.recalibrated:
            raise UsageError("These marginals are already recalibrated, but raw ones are needed.")


def grid_of_samples(samples: NDArray[np.floating], points: int = 129) -> tuple[Array, Array, Array]:
    """Grid (..., G), CDF (..., G) and `p_zero` (...,) of samples (..., M).

    The CDF is that of the samples with half a step of mass in both tails; between positive samples
    it is linear in logs.
    """
    m = samples.shape[-1]
    ordered = np.sort(samples, axis=-1).astype(np.float64)
    zeros = (ordered == 0).sum(axis=-1)
    positive = m - zeros
    points = min(points, max(2, m))
    share = np.linspace(0.0, 1.0, points)
    position = np.minimum(zeros, m - 1)[..., None] + share * np.maximum(positive - 1, 0)[..., None]
    low = position.astype(np.int64)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(ordered)
        below = np.take_along_axis(logs, low, -1)
        above = np.take_along_axis(logs, np.minimum(low + 1, m - 1), -1)
        weight = position - low
        grid = np.where(weight > 0, below + weight * (above - below), below)
    grid = np.where(positive[..., None] > 0, grid, share)
    steps = np.maximum(positive, 1)[..., None]
    inner = (0.5 + share * (steps - 1)) / steps
    p_zero = np.where(np.isnan(ordered[..., -1]), np.nan, zeros / m)
    cdf = p_zero[..., None] + (1 - p_zero[..., None]) * inner
    # Half a step on each side: down and up by the distance to the next point, at least 1 %.
    reach_low = np.maximum(grid[..., 1] - grid[..., 0], 0.01)
    reach_high = np.maximum(grid[..., -1] - grid[..., -2], 0.01)
    grid = np.concatenate(
        [(grid[..., 0] - reach_low)[..., None], grid, (grid[..., -1] + reach_high)[..., None]], -1
    )
    ones = np.where(np.isnan(p_zero), np.nan, 1.0)
    cdf = np.concatenate([p_zero[..., None], cdf, ones[..., None]], axis=-1)
    return grid, np.where(positive[..., None] > 0, cdf, ones[..., None]), p_zero


def interpolate_rows(
    x: Array, xp: NDArray[np.floating], fp: NDArray[np.floating | np.integer]
) -> Array:
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
    at: Array, points: NDArray[np.floating], values: NDArray[np.floating | np.integer]
) -> Array:
    rows, g = points.astype(np.float64), points.shape[-1]
    # Each row is moved to an interval of its own, so that one search serves all rows.
    low, high = rows[:, :1], rows[:, -1:]
    span = np.where(high > low, high - low, 1.0)
    offset = 3.0 * np.arange(len(rows))[:, None]
    moved = np.nan_to_num((rows - low) / span) + offset
    at_moved = np.clip(np.nan_to_num((at - low) / span), -0.5, 1.5) + offset
    index = np.searchsorted(moved.ravel(), at_moved.ravel(), side="right").reshape(at.shape)
    index = np.clip(index - g * np.arange(len(rows))[:, None], 1, g - 1)
    x0, x1 = (np.take_along_axis(rows, i, 1) for i in (index - 1, index))
    y0, y1 = (np.take_along_axis(values, i, 1).astype(np.float64) for i in (index - 1, index))
    share = np.clip((at - x0) / np.where(x1 > x0, x1 - x0, 1.0), 0.0, 1.0)
    share = np.where((x1 == x0) & (at >= x1), 1.0, share)
    return np.asarray(y0 + share * (y1 - y0))
