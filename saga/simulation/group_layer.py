"""Draws of the economy of groups act on marginals and paths, after network and trees.

In year o + h of path k a person's positive earnings are multiplied by exp(d), and the odds of
having any by exp(e): sums of the changes of the person's levels (`saga.macro.group_trends`). A
marginal is the average over 4,096 such draws with a fixed seed, equal for all seeds of a user.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from saga.distributions import Marginals
from saga.features.sequences import Sequences
from saga.features.transforms import Transforms
from saga.macro.group_trends import STATISTICS, GroupTrends
from saga.macro.scenarios import Scenario
from saga.requests import MAX_HORIZON, Draws

Floats = NDArray[np.float64]
_N_DRAWS, _SEED = 4_096, 0
_ODDS_NODES = 8  # draws of odds are averaged in so many parts of equal size


class GroupLayer:
    """The groups of a bundle's persons, and what their draws do to forecasts."""

    def __init__(self, trends: GroupTrends, transforms: Transforms) -> None:
        self.trends, columns = trends, [column for column, _ in trends.columns]
        self.at = [transforms.categories.index(column) for column in columns]
        # Index of a level by the code's number; the last one, which has no changes, if unknown.
        n_levels = len(trends.levels)
        self.index = [
            np.array(
                [n_levels]
                + [
                    trends.levels.index((column, code))
                    if (column, code) in trends.levels
                    else n_levels
                    for code in transforms.codes[column]
                ]
            )
            for column in columns
        ]
        self.draws = lru_cache(maxsize=2)(self._draws)
        self.path_draws = lru_cache(maxsize=64)(self._draws)
        self.summary = lru_cache(maxsize=4_096)(self._summary)

    def levels(self, sequences: Sequences, persons: NDArray[np.int64]) -> NDArray[np.int64]:
        """The levels (n, n_column) of persons, by the last known code of each column."""
        ends = sequences.offsets[1:][persons]
        out = np.empty((len(persons), len(self.at)), dtype=np.int64)
        for j, (column, index) in enumerate(zip(self.at, self.index, strict=True)):
            codes = sequences.codes[:, column]
            known = np.maximum.accumulate(np.where(codes > 0, np.arange(len(codes)), -1))[ends - 1]
            is_own = known >= sequences.offsets[persons]
            out[:, j] = index[np.where(is_own, codes[known], 0)]
        return out

    def _draws(
        self, seed: int, n_paths: int, origin: int, n_years: int, scenario: Scenario | None
    ) -> Floats:
        """Changes (2, n_path, n_year, K + 1) of earnings and odds; the last level has none."""
        changes = [
            self.trends.changes(name, seed, n_paths, origin, n_years, scenario)
            for name in STATISTICS
        ]
        return np.pad(np.stack(changes), ((0, 0), (0, 0), (0, 0), (0, 1)))

    def _summary(
        self, origin: int, levels: tuple[int, ...], scenario: Scenario | None
    ) -> tuple[Floats, Floats, Floats]:
        """Of these levels, by horizon: log E exp(d), the variance of d, and nodes of e (H, 8)."""
        draws = self.draws(_SEED, _N_DRAWS, origin, MAX_HORIZON, scenario)
        d, e = draws[..., list(levels)].sum(-1)
        nodes = np.sort(e, axis=0).reshape(_ODDS_NODES, -1, MAX_HORIZON).mean(axis=1)
        return np.log(np.exp(d).mean(axis=0)), d.var(axis=0), nodes.T

    def move_marginals(
        self, raw: Marginals, levels: NDArray[np.int64], scenario: Scenario | None
    ) -> Marginals:
        """The marginals averaged over the draws, for persons of these levels (n, n_column).

        Log earnings are stretched around their mean until they have the variance of the mixture,
        and shifted until mean earnings are those of the mixture, which differs little in shape.
        """
        keys, rows = np.unique(np.c_[raw.origin_year, levels], axis=0, return_inverse=True)
        summaries = [self.summary(key[0], tuple(key[1:]), scenario) for key in keys.tolist()]
        growth, variance, odds = (
            np.stack(part)[rows, : raw.n_horizons] for part in zip(*summaries, strict=True)
        )
        p_zero, cdf = raw.p_zero.astype(np.float64), raw.cdf.astype(np.float64)
        moved = expit(logit(p_zero)[..., None] - odds).mean(axis=-1)
        positive = (1 - p_zero)[..., None]
        positive_cdf = np.where(
            positive > 0, (cdf - p_zero[..., None]) / np.where(positive > 0, positive, 1.0), 1.0
        )
        moved_cdf = moved[..., None] + (1 - moved)[..., None] * positive_cdf
        moved_cdf[..., -1] = np.where(raw.exists, 1.0, np.nan)
        grid = _stretched(raw.grid.astype(np.float64), positive_cdf, growth, variance)
        return replace(
            raw,
            grid=grid.astype(raw.grid.dtype),
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
            changes = self.path_draws(draws.seed, n_paths, origin, len(paths), scenario)
            d, e = changes[..., levels[i]].sum(-1).transpose(0, 2, 1)
            # Zeros are ranked by the total of their path.
            total = np.nan_to_num(paths).sum(axis=0, dtype=np.float64)
            order = np.argsort(np.where(paths == 0, -1 / (1 + total), paths), axis=1, kind="stable")
            rank = np.empty(paths.shape)
            np.put_along_axis(rank, order, np.broadcast_to(ranks, paths.shape), axis=1)
            zeros = (paths == 0).sum(axis=1, keepdims=True)
            lowest = np.where(paths > 0, paths, np.inf).min(axis=1, keepdims=True)
            works = (rank + e > logit(zeros / n_paths)) & (zeros < n_paths)
            moved[i] = np.where(works, np.maximum(paths, lowest) * np.exp(d), paths * 0.0)
        return moved


def _stretched(grid: Floats, cdf: Floats, growth: Floats, variance: Floats) -> Floats:
    """A grid (n, H, G) of log earnings with `variance` (n, H) more and `growth` of the mean.

    Where nobody has earnings it stays as it is.
    """
    mass = np.diff(cdf, axis=-1)
    low, high = grid[..., :-1], grid[..., 1:]
    mean = (mass * (low + high)).sum(-1) / 2
    square = (mass * (low**2 + low * high + high**2)).sum(-1) / 3
    with np.errstate(divide="ignore", invalid="ignore"):
        stretch = np.sqrt(1 + variance / (square - mean**2))
        stretched = mean[..., None] + stretch[..., None] * (grid - mean[..., None])
        shift = growth + _log_mean(grid, mass) - _log_mean(stretched, mass)
        return np.where(np.isfinite(shift)[..., None], stretched + shift[..., None], grid)


def _log_mean(grid: Floats, mass: Floats) -> Floats:
    """Log of mean earnings (n, H), the density being constant in logs between grid points."""
    earnings = np.exp(grid - grid[..., -1:])
    width = np.diff(grid, axis=-1)
    part = np.where(width > 0, np.diff(earnings, axis=-1) / width, earnings[..., 1:])
    return np.asarray(np.log((mass * part).sum(-1)) + grid[..., -1])
