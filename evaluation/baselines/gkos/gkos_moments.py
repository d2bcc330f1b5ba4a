"""Moments of earnings over the life course for GKOS.

Records are arrays (n, A) of detrended real earnings at ages FIRST..64, NaN if unknown. Every moment
is a function of sums over persons, so that moments of resampled persons cost one matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from saga.arrays import Array, Floats
from saga.schema import MAX_AGE

FIRST = 20  # age of the first innovation; earlier records are mostly those of pupils
AGES = np.arange(FIRST, MAX_AGE + 1)
MIN_PERSON_YEARS = 200  # person-years behind a moment


class RobustMoments:
    """Shares of person-years out of work or below the data's quantiles, by earlier standing.

    The standing of a person in a year is: below `minimum` for at least the second year, newly below
    it, or one of the fifths of persons of similar age above it. The moments are:

    - for each standing, decade of age and horizon h of 1, 5, 10, 20: the share of persons below the
      minimum h years later, and the shares below it or below a quantile of the data (P10, P25, P50,
      P75, P90 of log changes; of log earnings for persons out of work)
    - for each five years of age: the same shares of log earnings, and mean and variance of logs

    Only the ages of `decades` count, from 0
    (20-29) to 3 (50 and over). The influence of one person-year on a share is bounded, and
    E 1{d <= q} = p is the moment condition of a quantile.
    """

    HORIZONS = (1, 5, 10, 20)
    QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
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
                quantiles_of(logs[:, band][working[:, band]], (0.2, 0.4, 0.6, 0.8))
                for band in self._bands()
            ]
        )
        self.level_points = np.array(
            [
                quantiles_of(logs[:, band][working[:, band]], self.QUANTILES)
                for band in self._bands()
            ]
        )
        standing = self._standing(low, logs)
        self.points = []
        for h in self.HORIZONS:
            bin_, value, out, _ = self._later(low, logs, standing, h)
            n_bins = [value[(bin_ == c) & ~out] for c in range(4 * self.STANDINGS)]
            self.points.append(np.array([quantiles_of(v, self.QUANTILES) for v in n_bins]))
        counts = self._counts(self.sums(earnings)[0])
        selected = np.concatenate(
            [
                np.tile(np.repeat(np.isin(range(4), decades), self.STANDINGS), 4),
                np.isin(np.minimum(np.arange(9) // 2, 3), decades),
            ]
        )
        enough = selected & (counts.sum(axis=-1) >= MIN_PERSON_YEARS)
        positive = selected & (counts[..., 1:].sum(axis=-1) >= MIN_PERSON_YEARS)
        shares = np.concatenate(
            [enough[:, None], np.repeat((enough & positive)[:, None], len(self.QUANTILES), axis=1)],
            axis=1,
        )
        self.selected = np.concatenate([shares.ravel(), np.repeat(positive[-9:], 2)])

    def sums(self, earnings: Floats, block: Array | None = None, blocks: int = 1) -> Floats:
        """Sums over the persons of each block, (blocks, S); `block` (n,) numbers the blocks.

        Counts by bin and class of outcome, then sums of logs by five years of age.
        """
        low, logs = self._logs(earnings)
        owner = np.zeros(len(logs), dtype=np.int64) if block is None else block
        standing = self._standing(low, logs)
        parts = []
        for points, h in zip(self.points, self.HORIZONS, strict=True):
            bin_, value, out, row = self._later(low, logs, standing, h)
            parts.append(_tally(bin_, value, out, points, owner[row], blocks))
        row, column = np.nonzero(np.isfinite(logs))
        band, value, out = self.FIVE[column], logs[row, column], low[row, column]
        parts.append(_tally(band, value, out, self.level_points, owner[row], blocks))
        code, value = (owner[row] * 9 + band)[~out], value[~out]
        powers = [np.bincount(code, value**k, minlength=blocks * 9) for k in range(3)]
        return np.concatenate([*parts, np.stack(powers, axis=-1).reshape(blocks, -1)], axis=1)

    def of(self, earnings: Floats) -> Floats:
        """Moments (J,) of records (n, A)."""
        return self.values(self.sums(earnings)[0])

    def values(self, sums: Floats) -> Floats:
        """The moments with enough persons, (..., J), from sums (..., S)."""
        counts = self._counts(sums)
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = counts.cumsum(axis=-1)[..., :-1] / counts.sum(axis=-1)[..., None]
            n, x, xx = np.moveaxis(sums[..., -27:].reshape(*sums.shape[:-1], 9, 3), -1, 0)
            mean = x / n
            moments = np.stack([mean, xx / n - mean**2], axis=-1)
        flat = (*sums.shape[:-1], -1)
        return np.concatenate([shares.reshape(flat), moments.reshape(flat)], axis=-1)[
            ..., self.selected
        ]

    def _counts(self, sums: Floats) -> Floats:
        return sums[..., :-27].reshape(*sums.shape[:-1], -1, len(self.QUANTILES) + 2)

    def _bands(self) -> list[Array]:
        return [self.FIVE == band for band in range(9)]

    def _logs(self, earnings: Floats) -> tuple[Array, Floats]:
        """Flags (n, A) of years below the minimum; logs of earnings / minimum, at least 0."""
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
        """For pairs of years h apart: bin, log change, out of work later, row of the person.

        A bin is a decade of age times the standing in the first year. If the person was out of work
        then, the log change is the log of later earnings.
        """
        row, column = np.nonzero((standing[:, :-h] >= 0) & np.isfinite(logs[:, h:]))
        past_standing, later_log = standing[row, column], logs[row, column + h]
        return (
            self.DECADE[column] * self.STANDINGS + past_standing,
            later_log - np.where(past_standing < 2, 0.0, logs[row, column]),
            low[row, column + h],
            row,
        )


def _tally(
    bin_: Array, value: Floats, out: Array, points: Floats, owner: Array, blocks: int
) -> Floats:
    """Counts (blocks, bins * (points + 2)): out of work, then between the points of the bin."""
    n_bins, classes = points.shape[0], points.shape[1] + 2
    above = sum((value > points[bin_, q]).astype(np.int64) for q in range(points.shape[1]))
    code = (owner * n_bins + bin_) * classes + np.where(out, 0, 1 + above)
    return (
        np.bincount(code, minlength=blocks * n_bins * classes)
        .astype(np.float64)
        .reshape(blocks, -1)
    )


def quantiles_of(values: Floats, quantiles: Array | Sequence[float]) -> Floats:
    """Quantiles of `values` (n,), 0 without values."""
    return np.quantile(values, quantiles) if len(values) else np.zeros(len(quantiles))
