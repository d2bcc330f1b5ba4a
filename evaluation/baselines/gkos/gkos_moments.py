"""The moments of earnings over the life that the GKOS process is estimated from, the paper's and a robust set.

Records are arrays (n, A) of detrended real earnings at ages FIRST..64, NaN where nothing is known. Every moment is a function of sums
over persons, so that moments of resampled persons cost a matrix product.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saga.schema import MAX_AGE

Floats = NDArray[np.float64]
Array = NDArray[Any]
FIRST = 20  # the age of the first innovation: forecasts start at 20, and earlier records are of schoolchildren
AGES = np.arange(FIRST, MAX_AGE + 1)
FEWEST = 200  # person-years behind a moment of the robust set


class Moments(ABC):
    """A vector of moments, as a function of sums over persons."""

    @abstractmethod
    def sums(self, earnings: Floats, block: Array | None = None, blocks: int = 1) -> Floats:
        """Sums over the persons of each block, (blocks, S); `block` (n,) numbers them, None: all in one."""

    @abstractmethod
    def values(self, sums: Floats) -> Floats:
        """Moments (..., J) from sums (..., S)."""

    def of(self, earnings: Floats) -> Floats:
        """Moments (J,) of records (n, A)."""
        return self.values(self.sums(earnings)[0])


class PaperMoments(Moments):
    """87 moments of log earnings above `minimum`.

    Mean, variance, skewness, kurtosis and fifth central moment of 1-, 3- and 5-year changes by age at their start, in five bins; and 12
    covariances of levels at different ages. Nothing in them sees people below the minimum, or how high levels are.
    """

    LAGS = (1, 3, 5)
    EDGES = (28, 36, 44, 52)  # five bins of age: 20-27, 28-35, 36-43, 44-51, 52 and over
    BASES, APART = (
        (25, 35, 45),
        (2, 5, 10, 15),
    )  # covariances between ages within 2 years of a base, and so many years later
    POWERS = 6

    def __init__(self, minimum: float) -> None:
        self.minimum = minimum

    @property
    def names(self) -> list[str]:
        """What each moment is, (87,)."""
        kinds = ("mean", "variance", "skewness", "kurtosis", "fifth central moment")
        changes = [
            f"{kind} of {lag}-year change, age bin {b + 1}"
            for lag in self.LAGS
            for b in range(len(self.EDGES) + 1)
            for kind in kinds
        ]
        return changes + [
            f"covariance of ages {a} and {a + k}" for a in self.BASES for k in self.APART
        ]

    def sums(self, earnings: Floats, block: Array | None = None, blocks: int = 1) -> Floats:
        """Power sums of changes by lag and bin, then sums for the covariances; (blocks, 3 * 5 * 6 + 12 * 4)."""
        logs = np.log(np.where(earnings >= self.minimum, earnings, np.nan) / self.minimum)
        owner = np.zeros(len(logs), dtype=np.int64) if block is None else block
        parts = []
        bins = np.searchsorted(self.EDGES, AGES, side="right")
        cells = len(self.EDGES) + 1
        for lag in self.LAGS:
            change = logs[:, lag:] - logs[:, :-lag]
            row, column = np.nonzero(np.isfinite(change))
            d, code = change[row, column], owner[row] * cells + bins[column]
            powers = [np.bincount(code, d**k, minlength=blocks * cells) for k in range(self.POWERS)]
            parts.append(np.stack(powers, axis=-1).reshape(blocks, -1))
        for base in self.BASES:
            at = np.flatnonzero(np.abs(AGES - base) <= 2)
            for apart in self.APART:
                x, y = logs[:, at], logs[:, at + apart]
                row, column = np.nonzero(np.isfinite(x + y))
                x, y = x[row, column], y[row, column]
                parts.append(
                    np.stack(
                        [
                            np.bincount(owner[row], v, minlength=blocks)
                            for v in (np.ones_like(x), x, y, x * y)
                        ],
                        axis=-1,
                    )
                )
        return np.concatenate(parts, axis=1)

    def values(self, sums: Floats) -> Floats:
        """The 87 moments (..., 87); NaN where there is nobody."""
        split = len(self.LAGS) * (len(self.EDGES) + 1) * self.POWERS
        raw = sums[..., :split].reshape(*sums.shape[:-1], -1, self.POWERS)
        pairs = sums[..., split:].reshape(*sums.shape[:-1], -1, 4)
        with np.errstate(invalid="ignore", divide="ignore"):
            e = raw[..., 1:] / raw[..., :1]
            m, e2, e3, e4, e5 = (e[..., k] for k in range(5))
            v = e2 - m**2
            third = e3 - 3 * m * e2 + 2 * m**3
            fourth = e4 - 4 * m * e3 + 6 * m**2 * e2 - 3 * m**4
            fifth = e5 - 5 * m * e4 + 10 * m**2 * e3 - 10 * m**3 * e2 + 4 * m**5
            changes = np.stack([m, v, third / v**1.5, fourth / v**2, fifth], axis=-1)
            n, x, y, xy = (pairs[..., k] for k in range(4))
            covariance = xy / n - x * y / n**2
        return np.concatenate([changes.reshape(*sums.shape[:-1], -1), covariance], axis=-1)


class RobustMoments(Moments):
    """Shares of person-years: who is out of work, and who is below the data's own quantiles, by age, past standing and horizon.

    Standing in a year: below `minimum` for the second year, below it newly, or the fifth of those above it among people of like age.
    For each standing, decade of age and horizon 1, 5, 10, 20: the share below the minimum `h` years later, and the shares below it or
    below the data's P10, P25, P50, P75, P90 of log changes (of log levels, for people out of work). And by five years of age: the same
    shares of levels, the mean and the variance of logs. `decades` of 0 (20-29) to 3 (50 and over) limit them to people of those ages.
    A share has bounded influence, and `E 1{d <= q} = level` is the moment condition of a quantile.
    """

    HORIZONS = (1, 5, 10, 20)
    LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
    STANDINGS = 7
    DECADE = np.clip((AGES - FIRST) // 10, 0, 3)
    FIVE = np.clip((AGES - FIRST) // 5, 0, 8)

    def __init__(
        self, earnings: Floats, minimum: float, decades: Sequence[int] = (0, 1, 2, 3)
    ) -> None:
        self.minimum = minimum
        low, logs = self._logs(earnings)
        working = ~low & np.isfinite(logs)
        self.cuts = np.array(
            [
                _quantiles(logs[:, band][working[:, band]], (0.2, 0.4, 0.6, 0.8))
                for band in self._bands()
            ]
        )
        self.level_points = np.array(
            [_quantiles(logs[:, band][working[:, band]], self.LEVELS) for band in self._bands()]
        )
        standing = self._standing(low, logs)
        self.points = []
        for h in self.HORIZONS:
            cell, value, out, _ = self._later(low, logs, standing, h)
            cells = [value[(cell == c) & ~out] for c in range(4 * self.STANDINGS)]
            self.points.append(np.array([_quantiles(v, self.LEVELS) for v in cells]))
        counts = self._counts(self.sums(earnings)[0])
        wanted = np.concatenate(
            [
                np.tile(np.repeat(np.isin(range(4), decades), self.STANDINGS), 4),
                np.isin(np.minimum(np.arange(9) // 2, 3), decades),
            ]
        )
        enough = wanted & (counts.sum(axis=-1) >= FEWEST)
        positive = wanted & (counts[..., 1:].sum(axis=-1) >= FEWEST)
        shares = np.concatenate(
            [enough[:, None], np.repeat((enough & positive)[:, None], len(self.LEVELS), axis=1)],
            axis=1,
        )
        self.kept = np.concatenate([shares.ravel(), np.repeat(positive[-9:], 2)])

    def sums(self, earnings: Floats, block: Array | None = None, blocks: int = 1) -> Floats:
        """Counts by cell and class of outcome, then the sums of logs by five years of age."""
        low, logs = self._logs(earnings)
        owner = np.zeros(len(logs), dtype=np.int64) if block is None else block
        standing = self._standing(low, logs)
        parts = []
        for points, h in zip(self.points, self.HORIZONS, strict=True):
            cell, value, out, row = self._later(low, logs, standing, h)
            parts.append(_tally(cell, value, out, points, owner[row], blocks))
        row, column = np.nonzero(np.isfinite(logs))
        band, value, out = self.FIVE[column], logs[row, column], low[row, column]
        parts.append(_tally(band, value, out, self.level_points, owner[row], blocks))
        code, value = (owner[row] * 9 + band)[~out], value[~out]
        powers = [np.bincount(code, value**k, minlength=blocks * 9) for k in range(3)]
        return np.concatenate([*parts, np.stack(powers, axis=-1).reshape(blocks, -1)], axis=1)

    def values(self, sums: Floats) -> Floats:
        """The moments with enough people behind them, (..., J)."""
        counts = self._counts(sums)
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = counts.cumsum(axis=-1)[..., :-1] / counts.sum(axis=-1)[..., None]
            n, x, xx = np.moveaxis(sums[..., -27:].reshape(*sums.shape[:-1], 9, 3), -1, 0)
            mean = x / n
            moments = np.stack([mean, xx / n - mean**2], axis=-1)
        flat = (*sums.shape[:-1], -1)
        return np.concatenate([shares.reshape(flat), moments.reshape(flat)], axis=-1)[
            ..., self.kept
        ]

    def _counts(self, sums: Floats) -> Floats:
        return sums[..., :-27].reshape(*sums.shape[:-1], -1, len(self.LEVELS) + 2)

    def _bands(self) -> list[Array]:
        return [self.FIVE == band for band in range(9)]

    def _logs(self, earnings: Floats) -> tuple[Array, Floats]:
        """Who is below the minimum, and log earnings over the minimum (0 below it, NaN unknown)."""
        return earnings < self.minimum, np.log(np.maximum(earnings, self.minimum) / self.minimum)

    def _standing(self, low: Array, logs: Floats) -> Array:
        """0 out again, 1 newly out, 2..6 fifths, -1 unknown; (n, A)."""
        rank = 2 + sum((logs > self.cuts[self.FIVE, k]).astype(np.int64) for k in range(4))
        before = np.full(logs.shape, np.nan)
        before[:, 1:] = np.where(np.isfinite(logs[:, :-1]), low[:, :-1], np.nan)
        out = np.where(np.isnan(before), -1, np.where(before == 1, 0, 1))
        return np.asarray(np.where(np.isfinite(logs), np.where(low, out, rank), -1))

    def _later(
        self, low: Array, logs: Floats, standing: Array, h: int
    ) -> tuple[Array, Floats, Array, Array]:
        """For pairs of years h apart: cell, log change (level of people out of work), below the minimum then, person."""
        row, column = np.nonzero((standing[:, :-h] >= 0) & np.isfinite(logs[:, h:]))
        now = standing[row, column]
        then = logs[row, column + h]
        return (
            self.DECADE[column] * self.STANDINGS + now,
            then - np.where(now < 2, 0.0, logs[row, column]),
            low[row, column + h],
            row,
        )


def _tally(
    cell: Array, value: Floats, out: Array, points: Floats, owner: Array, blocks: int
) -> Floats:
    """Counts (blocks, cells * (points + 2)): out, then between the points of the cell."""
    cells, classes = points.shape[0], points.shape[1] + 2
    above = sum((value > points[cell, q]).astype(np.int64) for q in range(points.shape[1]))
    code = (owner * cells + cell) * classes + np.where(out, 0, 1 + above)
    return (
        np.bincount(code, minlength=blocks * cells * classes).astype(np.float64).reshape(blocks, -1)
    )


def _quantiles(values: Floats, levels: tuple[float, ...]) -> Floats:
    return np.quantile(values, levels) if len(values) else np.zeros(len(levels))
