"""Prediction sets by cross-fitting over persons: cross-conformal p-values, also called CV+.

Member k of an ensemble has not seen the persons of fold k. Their scores under its distribution are
compared with the score s_k(y) of a candidate amount y under the same distribution:

    p(y) = (1 + sum over k of the number of scores of fold k at or above s_k(y)) / (n + 1).

The set of coverage c is {y: p(y) > 1 - c}, published as its hull. Statement and proof:
docs/method/cross-fitting.md (Vovk 2015; Barber, Candes, Ramdas and Tibshirani 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saga.conformal.prediction_sets import SMALLEST_AMOUNT
from saga.distributions import Marginals

Array = NDArray[np.float64]
# Scores (n, H, P) of amounts (n, H, P) under the distributions of a member.
Scorer = Callable[[Marginals, Array], Array]
_SUBDIVISIONS = 16  # of the grid interval in which an end lies
_BLOCK_PERSONS = 256  # persons whose grids are in memory at the same time


@dataclass(frozen=True, eq=False)
class FoldCounts:
    """How many scores of each fold are at or above a score, smoothed.

    Fold k has `n[k]` persons, and its count at a score is a decreasing line through the points
    (`knots[k]`, `counts[k]`), which are averages over at least ten persons. Both are empty if a
    fold has too few persons.
    """

    knots: tuple[Array, ...]
    counts: tuple[Array, ...]
    n: tuple[int, ...]

    @property
    def n_persons(self) -> int:
        """Number of persons in all folds."""
        return sum(self.n)

    def has_sets(self, coverage: float) -> bool:
        """Whether sets of this coverage are finite: not if a score of 1 has a larger p-value."""
        if not self.knots:
            return False
        return (1 + sum(float(c[-1]) for c in self.counts)) / (self.n_persons + 1) <= 1 - coverage

    def p_values(self, scores: Array) -> Array:
        """p(y) from the scores (K, ...) of amounts under each member; NaN stays NaN."""
        above = np.zeros(scores.shape[1:])
        for s, knots, counts, n in zip(scores, self.knots, self.counts, self.n, strict=True):
            above += np.where(s <= 0, n, np.interp(s, knots, counts))
        return (1 + above) / (self.n_persons + 1)


def cross_fitted_sets(
    marginals: Marginals,
    scorers: Sequence[Scorer],
    fold_counts: Sequence[Sequence[FoldCounts | None]],
    coverage: Sequence[float],
    *,
    bounded: bool = True,
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Hulls (n, H, L) of the sets, in money, and whether zero belongs to them; nested.

    Args:
        marginals: Averaged marginals with those of the members.
        scorers: Scores for each coverage.
        fold_counts: Counts for each coverage and horizon; None: no set.
        coverage: Coverages, ascending.
        bounded: Whether a set without a finite upper end is no set.
    """
    starts = range(0, max(1, len(marginals)), _BLOCK_PERSONS)
    blocks = (marginals.take(slice(start, start + _BLOCK_PERSONS)) for start in starts)
    ends = [_sets_of_block(block, scorers, fold_counts, coverage, bounded) for block in blocks]
    lower, upper, zero = (np.concatenate(parts) for parts in zip(*ends, strict=True))
    return lower, upper, zero.astype(np.bool_)


def _sets_of_block(
    marginals: Marginals,
    scorers: Sequence[Scorer],
    fold_counts: Sequence[Sequence[FoldCounts | None]],
    coverage: Sequence[float],
    bounded: bool,
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Lower and upper ends of the sets (n, H, coverage), and whether zero is inside.

    Ends are NaN without a set. Sets of higher coverage contain those of lower coverage.
    """
    shape = (*marginals.p_zero.shape, len(coverage))
    lower, upper = np.full(shape, np.inf), np.full(shape, -np.inf)
    zero, missing = np.zeros(shape, dtype=np.bool_), np.ones(shape, dtype=np.bool_)
    for j, (scorer, by_horizon, share) in enumerate(
        zip(scorers, fold_counts, coverage, strict=True)
    ):
        fitted = {h: counts for h, counts in enumerate(by_horizon) if counts is not None}
        if not fitted:
            continue
        horizons = list(fitted)
        at_horizons = marginals.at_horizons([h + 1 for h in horizons])
        ends = _hulls(at_horizons, scorer, list(fitted.values()), 1 - share)
        has_set = at_horizons.exists & (np.isfinite(ends[1]) | (not bounded))
        lower[:, horizons, j] = np.where(has_set, ends[0], np.inf)
        upper[:, horizons, j] = np.where(has_set, ends[1], -np.inf)
        zero[:, horizons, j] = has_set & ends[2]
        missing[:, horizons, j] = ~has_set
    lower = np.where(missing, np.nan, np.minimum.accumulate(lower, axis=-1))
    upper = np.where(missing, np.nan, np.maximum.accumulate(upper, axis=-1))
    return lower, upper, np.logical_or.accumulate(zero, axis=-1) & ~missing


def _hulls(
    marginals: Marginals, scorer: Scorer, fold_counts: Sequence[FoldCounts], alpha: float
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Ends (n, H) of {y: p(y) > alpha} and whether zero is inside; infinite if it is unbounded.

    p is computed on the grid of the marginals, and again on a finer grid around both ends. If no
    amount has p(y) > alpha, the set is the amount with the largest p-value.
    """

    def p_values(amounts: Array) -> Array:
        scores = np.stack([scorer(member, amounts) for member in marginals.members])
        columns = [counts.p_values(scores[:, :, h]) for h, counts in enumerate(fold_counts)]
        return np.stack(columns, axis=1)

    grid = marginals.grid.astype(np.float64)
    p = np.nan_to_num(p_values(np.exp(grid)), nan=-1.0)
    zero: NDArray[np.bool_] = p_values(np.zeros((*grid.shape[:2], 1)))[..., 0] > alpha
    inside: NDArray[np.bool_] = np.asarray(p > alpha)
    last_point = grid.shape[-1] - 1
    nothing: NDArray[np.bool_] = np.asarray(~inside.any(axis=-1))
    inside = inside | nothing[..., None] & (np.arange(last_point + 1) == p.argmax(-1)[..., None])
    first, last = inside.argmax(-1), last_point - inside[..., ::-1].argmax(-1)
    # From the last point outside to the first one inside, at either end.
    ends = []
    for from_point, to_point in (
        (np.maximum(first - 1, 0), first),
        (np.minimum(last + 1, last_point), last),
    ):
        outer, inner = (np.take_along_axis(grid, i[..., None], -1) for i in (from_point, to_point))
        logs = outer + np.linspace(0, 1, _SUBDIVISIONS + 1) * (inner - outer)
        ends.append((logs, np.nan_to_num(p_values(np.exp(logs)), nan=-1.0)))
    lower, upper = (np.exp(_crossing(logs, values, alpha)) for logs, values in ends)
    lower = np.where(first == 0, SMALLEST_AMOUNT, np.maximum(lower, SMALLEST_AMOUNT))
    upper = np.where(last == last_point, np.inf, upper)
    lower = np.where(zero, 0.0, lower)
    return lower, np.where(nothing & zero, 0.0, upper), zero


def _crossing(logs: Array, p: Array, alpha: float) -> Array:
    """Where p (n, H, P) rises above alpha for the first time, between the points `logs`."""
    after = np.where((p > alpha).any(-1), (p > alpha).argmax(-1), p.shape[-1] - 1)[..., None]
    before = np.maximum(after - 1, 0)
    p0, p1 = (np.take_along_axis(p, i, -1) for i in (before, after))
    x0, x1 = (np.take_along_axis(logs, i, -1) for i in (before, after))
    share = np.clip((alpha - p0) / np.where(p1 > p0, p1 - p0, 1.0), 0.0, 1.0)
    return np.asarray((x0 + share * (x1 - x0))[..., 0])
