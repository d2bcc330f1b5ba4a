"""Prediction sets by cross-fitting over persons: cross-conformal p-values, also called CV+.

Member k of an ensemble has not seen the persons of fold k. Their scores under its distribution are
compared with the score s_k(y) of a candidate amount y under the same distribution:

    p(y) = (1 + sum over k of the number of scores of fold k at or above s_k(y)) / (n + 1).

The set of coverage c is {y: p(y) > 1 - c}, published as its hull. Statement and proof:
docs/method/cross-fitting.md (Vovk 2015; Barber, Candes, Ramdas and Tibshirani 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.conformal.families.set_family import SMALLEST_AMOUNT, Ends, SetFamily
from saga.conformal.families.year import YEAR
from saga.conformal.intervals import Intervals, latest
from saga.distributions import Marginals
from saga.training_records import Guarantee

# Scores (n, H, P) of amounts (n, H, P) under the distributions of a member.
Scorer = Callable[[Marginals, Floats], Floats]
CROSS_FITTED = "cross-fitted"  # the cell of sets that use the scores of all folds
_SUBDIVISIONS = 16  # of the grid interval in which an end lies
_BLOCK_PERSONS = 256  # persons whose grids are in memory at the same time


@dataclass(frozen=True, eq=False)
class FoldCounts:
    """How many scores of each fold are at or above a score, smoothed.

    Fold k has `n[k]` persons, and its count at a score is a decreasing line through the points
    (`knots[k]`, `counts[k]`), which are averages over at least ten persons. Both are empty if a
    fold has too few persons.
    """

    knots: tuple[Floats, ...]
    counts: tuple[Floats, ...]
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

    def p_values(self, scores: Floats) -> Floats:
        """p(y) from the scores (K, ...) of amounts under each member; NaN stays NaN."""
        above = np.zeros(scores.shape[1:])
        for s, knots, counts, n in zip(scores, self.knots, self.counts, self.n, strict=True):
            above += np.where(s <= 0, n, np.interp(s, knots, counts))
        return (1 + above) / (self.n_persons + 1)


@dataclass(frozen=True, eq=False)
class CrossFittedCounts:
    """Counts of scores by fold, and the sets that follow from them.

    The arguments are those of `saga.conformal.calibrator.Calibrator`.
    """

    fold_counts: Mapping[tuple[str, int, float], FoldCounts]
    origin_years: Mapping[tuple[int, str], int]
    extrapolated: bool = False

    @cached_property
    def coverage(self) -> tuple[float, ...]:
        """The coverages for which scores were counted, ascending."""
        return tuple(sorted({share for kind, _, share in self.fold_counts if kind == YEAR.kind}))

    @cached_property
    def horizons(self) -> list[int]:
        """The horizons with counts for the sets of a year, ascending."""
        return sorted({h for kind, h, _ in self.fold_counts if kind == YEAR.kind})

    def guarantee_at(self, horizon: int, coverage: float) -> Guarantee:
        """The guarantee of the sets of a year."""
        return self.counts_at(YEAR, horizon, coverage)[1]

    def counts_at(
        self, family: SetFamily, horizon: int, coverage: float
    ) -> tuple[FoldCounts | None, Guarantee]:
        """The fold counts for a set at a horizon (or number of years), and its guarantee.

        Beyond the horizons with outcomes, the counts of the last one are used. None if there are
        too few at this horizon or a shorter one.
        """
        key = family.kind, coverage if family.by_coverage else 0.0
        fitted = [
            (
                h,
                counts if counts.has_sets(coverage) else None,
                self.origin_years.get((h, CROSS_FITTED), 0),
            )
            for (kind, h, share), counts in sorted(self.fold_counts.items())
            if (kind, share) == key
        ]
        nearest, guarantee = latest(fitted, horizon, self.extrapolated)
        return None if nearest is None else nearest[1], guarantee

    def sets(
        self, family: SetFamily, marginals: Marginals, horizons: NDArray[np.int64]
    ) -> Intervals:
        """Hulls of the sets for all coverages, of recalibrated marginals with members; nested.

        `horizons` (n, H) are those whose counts each person and column has; 0: no set. In a path
        band, a year has the amounts that some path with p > 1 - coverage takes in it.
        """
        shape = (*horizons.shape, len(self.coverage))
        lower, upper = np.full((2, *shape), np.nan)
        zero, guarantee = np.zeros(shape, dtype=np.bool_), np.full(shape, "none", dtype="<U13")
        for columns in np.unique(horizons, axis=0):
            rows, used = np.flatnonzero((horizons == columns).all(axis=1)), np.flatnonzero(columns)
            fitted = [
                [self.counts_at(family, h, share) for h in columns[used].tolist()]
                for share in self.coverage
            ]
            counts = [[known for known, _ in by_horizon] for by_horizon in fitted]
            guarantees = [[word for _, word in by_horizon] for by_horizon in fitted]
            at = np.ix_(rows, used)
            for start in range(0, len(rows), _BLOCK_PERSONS):
                part = np.ix_(rows[start : start + _BLOCK_PERSONS], used)
                block = marginals.take(part[0][:, 0]).at_horizons((used + 1).tolist())
                lower[part], upper[part], zero[part] = _sets_of_block(
                    block, family, counts, self.coverage
                )
            guarantee[at] = np.array(guarantees, dtype="<U13").T
        guarantee[np.isnan(lower)] = "none"
        cell = np.where((guarantee != "none").any(axis=2), CROSS_FITTED, "").astype(np.str_)
        return Intervals(self.coverage, lower, upper, zero, guarantee, cell)


def _sets_of_block(
    marginals: Marginals,
    family: SetFamily,
    fold_counts: Sequence[Sequence[FoldCounts | None]],
    coverage: Sequence[float],
) -> Ends:
    """Lower and upper ends of the sets (n, H, coverage), and whether zero is inside.

    `fold_counts` are those of each coverage and horizon. Ends are NaN without a set. Sets of higher
    coverage contain those of lower coverage.
    """
    shape = (*marginals.p_zero.shape, len(coverage))
    lower, upper = np.full(shape, np.inf), np.full(shape, -np.inf)
    zero, missing = np.zeros(shape, dtype=np.bool_), np.ones(shape, dtype=np.bool_)
    for j, (by_horizon, share) in enumerate(zip(fold_counts, coverage, strict=True)):
        fitted = {h: counts for h, counts in enumerate(by_horizon) if counts is not None}
        if not fitted:
            continue
        horizons = list(fitted)
        at_horizons = marginals.at_horizons([h + 1 for h in horizons])
        scorer = partial(family.scores, coverage=share)
        ends = _hulls(at_horizons, scorer, list(fitted.values()), 1 - share)
        has_set = at_horizons.exists & (np.isfinite(ends[1]) | (not family.bounded))
        lower[:, horizons, j] = np.where(has_set, ends[0], np.inf)
        upper[:, horizons, j] = np.where(has_set, ends[1], -np.inf)
        zero[:, horizons, j] = has_set & ends[2]
        missing[:, horizons, j] = ~has_set
    lower = np.where(missing, np.nan, np.minimum.accumulate(lower, axis=-1))
    upper = np.where(missing, np.nan, np.maximum.accumulate(upper, axis=-1))
    return lower, upper, np.logical_or.accumulate(zero, axis=-1) & ~missing


def _hulls(
    marginals: Marginals, scorer: Scorer, fold_counts: Sequence[FoldCounts], alpha: float
) -> Ends:
    """Ends (n, H) of {y: p(y) > alpha} and whether zero is inside; infinite if it is unbounded.

    p is computed on the grid of the marginals, and again on a finer grid around both ends. If no
    amount has p(y) > alpha, the set is the amount with the largest p-value.
    """

    def p_values(amounts: Floats) -> Floats:
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


def _crossing(logs: Floats, p: Floats, alpha: float) -> Floats:
    """Where p (n, H, P) rises above alpha for the first time, between the points `logs`."""
    after = np.where((p > alpha).any(-1), (p > alpha).argmax(-1), p.shape[-1] - 1)[..., None]
    before = np.maximum(after - 1, 0)
    p0, p1 = (np.take_along_axis(p, i, -1) for i in (before, after))
    x0, x1 = (np.take_along_axis(logs, i, -1) for i in (before, after))
    share = np.clip((alpha - p0) / np.where(p1 > p0, p1 - p0, 1.0), 0.0, 1.0)
    return np.asarray((x0 + share * (x1 - x0))[..., 0])
