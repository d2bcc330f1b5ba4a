"""Draws of the economy of groups act on marginals and paths, after network and trees.

In year o + h of path k a person's positive earnings are multiplied by exp(d), and the odds of
having any by exp(e): sums of the changes of the levels that the person has in that year
(`saga.macro.group_trends`) and, without macro series, of everybody's (`saga.macro.everybody`). A
marginal is the average over normal d and e with the moments of 4,096 such draws with a fixed seed,
equal for all seeds of a user.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.distributions import Marginals
from saga.features.sequences import Sequences
from saga.features.transforms import Transforms
from saga.macro.group_trends import AGE, STATISTICS, GroupTrends, age_shares
from saga.macro.scenarios import Scenario
from saga.requests import Draws
from saga.schema import N_AGES
from saga.special import expit, logit, ndtri

_N_DRAWS, _SEED = 4_096, 0
# Means of the parts of a standard normal that has been cut into eight of equal probability.
_NODES = -8 * np.diff(np.exp(-(ndtri(np.linspace(0, 1, 9)) ** 2) / 2) / np.sqrt(2 * np.pi))


class GroupLayer:
    """The groups of a bundle's persons, and what their draws do to forecasts."""

    def __init__(self, trends: GroupTrends, transforms: Transforms) -> None:
        self.trends = trends
        columns = [column for column, _ in trends.columns if column != AGE]
        self.at = [transforms.categories.index(column) for column in columns]
        # Index of a level by the code's number; the last one, which has no changes, if unknown.
        index = {level: i for i, level in enumerate(trends.levels)}
        self.index = [
            np.array([len(index), *(index.get((c, code), len(index)) for code in codes)])
            for c, codes in ((column, transforms.codes[column]) for column in columns)
        ]
        self.path_draws = lru_cache(maxsize=64)(self._draws)
        self.moments = lru_cache(maxsize=64)(self._moments)

    def levels(self, sequences: Sequences) -> NDArray[np.int64]:
        """The levels (n, n_column) of all persons, by the last known code of each column.

        The last column is the age at the origin.
        """
        codes, start = sequences.codes[:, self.at], sequences.offsets[:-1, None]
        rows = np.where(codes > 0, np.arange(len(codes))[:, None], -1)
        ends = sequences.offsets[1:] - 1
        last = np.maximum.accumulate(rows)[ends]
        known = np.where(last >= start, np.take_along_axis(codes, last, axis=0), 0)
        of_column = [index[code] for index, code in zip(self.index, known.T, strict=True)]
        return np.stack([*of_column, sequences.year[ends] - sequences.birth_year], axis=1)

    def _shares(self, levels: NDArray[np.int64], n_years: int) -> Floats:
        """How far persons belong to each level in the years after their origins (n, n_year, K).

        If the bundle has draws of everybody, they are the last level here and below.
        """
        *of_column, age = levels.T
        shares = np.zeros((len(levels), n_years, len(self.trends.levels) + 1))  # unknown: the last
        for index in of_column:
            shares[np.arange(len(levels)), :, index] = 1.0
        if self.trends.of_age.any():
            at = np.flatnonzero(self.trends.of_age)
            shares[..., at] = age_shares(age[:, None] + np.arange(1, n_years + 1))
        if self.trends.everybody is None:
            return shares[..., :-1]
        shares[..., -1] = 1.0
        return shares

    def _draws(
        self, seed: int, n_paths: int, origin: int, n_years: int, scenario: Scenario | None
    ) -> Floats:
        """Changes (2, n_year, n_path, K) of earnings and odds."""
        years = (seed, n_paths, origin, n_years)
        changes = np.stack([self.trends.changes(name, *years, scenario) for name in STATISTICS])
        if everybody := self.trends.everybody:
            of_all = np.stack([everybody.changes(name, *years) for name in STATISTICS])
            changes = np.concatenate([changes, of_all[..., None]], axis=-1)
        return np.ascontiguousarray(changes.swapaxes(1, 2))

    def _moments(
        self, origin: int, n_years: int, scenario: Scenario | None
    ) -> tuple[Floats, Floats]:
        """Means (2, H, K) and covariances (2, H, K, K) of the changes of earnings and odds."""
        draws = self._draws(_SEED, _N_DRAWS, origin, n_years, scenario)
        mean = draws.mean(axis=2)
        apart = draws - mean[:, :, None]
        return mean, apart.swapaxes(-1, -2) @ apart / _N_DRAWS

    def _of_persons(
        self, raw: Marginals, levels: NDArray[np.int64], scenario: Scenario | None
    ) -> tuple[Floats, Floats]:
        """Means and variances (2, n, H) of the changes of persons' earnings and odds."""
        shares = self._shares(levels, raw.n_horizons)
        mean, variance = np.empty((2, 2, *shares.shape[:2]))
        for origin in np.unique(raw.origin_year).tolist():
            rows = raw.origin_year == origin
            of_level, between = self.moments(origin, raw.n_horizons, scenario)
            of = shares[rows]
            mean[:, rows] = (of * of_level[:, None]).sum(-1)
            spread = (of[:, :, None] * between[:, None]).sum(-1)
            # Effects of the young and the old cancel at some age: rounding may leave less than 0.
            variance[:, rows] = np.maximum((of * spread).sum(-1), 0.0)
        return mean, variance

    def move_marginals(
        self, raw: Marginals, levels: NDArray[np.int64], scenario: Scenario | None
    ) -> Marginals:
        """The marginals averaged over the draws, for persons of these levels (n, n_column).

        Log earnings are stretched around their mean until they have the variance of the mixture,
        and shifted until mean earnings are those of the mixture, which differs little in shape.
        """
        mean, variance = self._of_persons(raw, levels, scenario)
        growth = mean[0] + variance[0] / 2  # the log of the mean of exp(d)
        odds = mean[1][..., None] + np.sqrt(variance[1])[..., None] * _NODES
        p_zero, cdf = raw.p_zero.astype(np.float64), raw.cdf.astype(np.float64)
        moved = expit(logit(p_zero)[..., None] - odds).mean(axis=-1)
        share = np.where(p_zero < 1, 1 - p_zero, 1.0)[..., None]
        positive = np.where(p_zero[..., None] < 1, (cdf - p_zero[..., None]) / share, 1.0)
        moved_cdf = moved[..., None] + (1 - moved)[..., None] * positive
        moved_cdf[..., -1] = np.where(raw.exists, 1.0, np.nan)
        return replace(
            raw,
            grid=_stretched(raw, positive, growth, variance[0]),
            cdf=moved_cdf.astype(raw.cdf.dtype),
            p_zero=moved.astype(raw.p_zero.dtype),
            members=tuple(self.move_marginals(m, levels, scenario) for m in raw.members),
        )

    def move_paths(
        self,
        earnings: NDArray[np.float32],
        origins: NDArray[np.int64],
        levels: NDArray[np.int64],
        draws: Draws,
        scenario: Scenario | None,
    ) -> NDArray[np.float32]:
        """Raw paths (n, H, M) of persons of these levels, each with the draws of its number.

        Among a person's paths of a year each has a rank. Its log odds move by e; who passes the
        boundary of zero begins or ends work, and begins with the lowest earnings.
        """
        n_paths, moved = earnings.shape[-1], np.empty_like(earnings)
        ranks = logit((np.arange(n_paths) + 0.5) / n_paths)
        for i, (paths, origin) in enumerate(zip(earnings, origins.tolist(), strict=True)):
            # As many years for all, so that the bits do not depend on other persons' years.
            changes = self.path_draws(draws.seed, n_paths, origin, N_AGES, scenario)
            shares = self._shares(levels[i : i + 1], N_AGES)[0]
            d, e = (changes @ shares[..., None])[..., 0]
            factor, e = np.exp(d)[: len(paths)], e[: len(paths)]
            # Zeros are ranked by the total of their path.
            total = np.nan_to_num(paths).sum(axis=0, dtype=np.float64)
            order = np.argsort(np.where(paths == 0, -1 / (1 + total), paths), axis=1, kind="stable")
            rank = np.empty(paths.shape)
            np.put_along_axis(rank, order, np.broadcast_to(ranks, paths.shape), axis=1)
            zeros = (paths == 0).sum(axis=1, keepdims=True)
            lowest = np.where(paths > 0, paths, np.inf).min(axis=1, keepdims=True)
            works = (rank + e > logit(zeros / n_paths)) & (zeros < n_paths)
            moved[i] = np.where(works, np.maximum(paths, lowest) * factor, paths * 0.0)
        return moved


def _stretched(
    raw: Marginals, positive: Floats, growth: Floats, variance: Floats
) -> NDArray[np.floating]:
    """The grid with `variance` (n, H) more and `growth` of the mean; `positive` is the CDF above 0.

    Where nobody has earnings it stays as it is.
    """
    grid, mass = raw.grid.astype(np.float64), np.diff(positive, axis=-1)
    low, high = grid[..., :-1], grid[..., 1:]
    centre = (mass * (low + high)).sum(-1, keepdims=True) / 2
    square = (mass * (low**2 + low * high + high**2)).sum(-1, keepdims=True) / 3
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        stretch = np.sqrt(1 + variance[..., None] / (square - centre**2))
        stretched = centre + stretch * (grid - centre)
        shift = growth + np.log(raw.mean / replace(raw, grid=stretched).mean)
        moved = np.where(np.isfinite(shift)[..., None], stretched + shift[..., None], grid)
    return moved.astype(raw.grid.dtype)
