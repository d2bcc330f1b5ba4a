"""Thresholds from scores of persons, who have one origin each or several.

The person is the exchangeable unit. With R origins per person, and N scores of n persons, the
threshold is the k-th smallest score, k = ceil((N + R) coverage): the new person has up to R scores,
each of which is as likely to be asked for as any other, and none of which is known. With R = 1 this
is split conformal prediction. The proof is in docs/method/calibration.md, "Several origins".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.distributions import Marginals
from saga.errors import Problem, UsageError
from saga.small_groups import MIN_PERSONS, neighbour_mean

Rows = NDArray[np.int64]


def rank_needed(n: int, coverage: float, n_origins: int = 1) -> int:
    """The rank ceil((n + n_origins) coverage) of split conformal prediction (Vovk 2012).

    Subtracting 1e-9 makes up for coverages that have no exact binary fraction.
    """
    return math.ceil((n + n_origins) * coverage - 1e-9)


def weighted_quantile(
    scores: Floats,
    weights: Floats,
    coverage: float,
    *,
    heaviest: float = 1.0,
    neighbours: int = MIN_PERSONS,
) -> float:
    """The k-th smallest of n weighted scores; +inf if persons are too few in effect.

    k is the first rank at which the weights up to it reach coverage x (sum of weights + `heaviest`)
    (Tibshirani et al. 2019, eq. 7).

    Args:
        scores: Conformity scores (n,) of persons with one score each.
        weights: Their weights (n,); scores of weight 0 are ignored.
        coverage: Share of new persons to cover.
        heaviest: Largest weight that a new person can have.
        neighbours: The result is the average of s_(k) .. s_(k + neighbours - 1). It is at least
            s_(k), so coverage is kept, and no single person's score is published.
    """
    scores, weights = scores[weights > 0], weights[weights > 0]
    order = np.argsort(scores, kind="stable")
    cumulated = np.cumsum(weights[order])
    needed = coverage * ((cumulated[-1] if len(cumulated) else 0.0) + heaviest) - 1e-9
    first = int(np.searchsorted(cumulated, needed))
    n = int(effective_persons(weights) + 1e-9)
    is_enough = n > 0 and rank_needed(n, coverage) + neighbours - 1 <= n
    return neighbour_mean(scores[order], first, neighbours) if is_enough else math.inf


def pooled_quantile(
    scores: Floats,
    persons: NDArray[np.int64],
    coverage: float,
    n_origins: int,
    *,
    neighbours: int = MIN_PERSONS,
) -> float:
    """The k-th smallest of N scores, k = ceil((N + n_origins) coverage); +inf if N is too small.

    Args:
        scores: Conformity scores (N,) of persons with up to `n_origins` scores each.
        persons: Whose scores they are (N,).
        coverage: Share to cover of the scores of new persons.
        n_origins: Largest number of scores of a person.
        neighbours: The result is the average of the scores from the k-th on, up to the first at
            which so many persons have contributed.
    """
    k = rank_needed(len(scores), coverage, n_origins)
    order = np.argsort(scores, kind="stable")
    at_or_above = persons[order][k - 1 :]
    first_rows = np.sort(np.unique(at_or_above, return_index=True)[1])
    if len(first_rows) < neighbours:
        return math.inf
    return float(scores[order][k - 1 : k + first_rows[neighbours - 1]].mean())


def effective_persons(weights: Floats) -> float:
    """Effective sample size (sum w)^2 / sum w^2 (Kish 1965); n if all weights are equal."""
    total = float(weights.sum())
    return total * total / float((weights**2).sum()) if total > 0 else 0.0


@dataclass(frozen=True, eq=False)
class PersonCounts:
    """How rows of scores count as persons.

    Args:
        persons: Number of each row's person (n,).
        n_origins: Rows of each person.
        weights: Weights (n, H) of persons with one origin each, or None.
    """

    persons: NDArray[np.int64]
    n_origins: int = 1
    weights: Floats | None = None

    @classmethod
    def of(cls, forecasts: Marginals, weights: Floats | None = None) -> PersonCounts:
        """The rows of `forecasts`.

        Raises UsageError if persons have different numbers of rows, or several and weights.
        """
        names, persons, rows = np.unique(
            forecasts.person_id, return_inverse=True, return_counts=True
        )
        n_origins = int(rows.max(initial=1))
        if (rows != n_origins).any():
            few = str(names[rows != n_origins][0])
            text = f"some have {n_origins} origins, others fewer"
            fix = "Draw as many for everybody, for example one."
            raise UsageError(
                "calibration needs the same number of origins for each person",
                [Problem("person-twice", text, fix, person_id=few)],
            )
        if weights is not None and n_origins > 1:
            raise UsageError("Weights need one origin per person.")
        return cls(persons, n_origins, weights)

    def take(self, rows: Rows) -> PersonCounts:
        """The counts of some rows."""
        weights = None if self.weights is None else self.weights[rows]
        return PersonCounts(self.persons[rows], self.n_origins, weights)

    def count(self, rows: Rows, h: int) -> int:
        """The number of persons in `rows` at horizon h + 1, with weights the effective number."""
        if self.weights is not None:
            return int(effective_persons(self.weights[rows, h]) + 1e-9)
        return len(rows) if self.n_origins == 1 else len(np.unique(self.persons[rows]))

    def thresholds(
        self, scores: Mapping[float, Floats], rows: Rows, h: int
    ) -> dict[float, float | None]:
        """Coverage -> the threshold that is stored: None if persons are too few.

        A set contains the sets of lower coverage, so an outcome inside one of these is inside it,
        too, whatever its threshold is. Such outcomes count as inside. Otherwise sets would cover
        more than stated (docs/method/calibration.md, "Nested sets").

        Args:
            scores: Coverage -> scores of `rows` (n,), without missing values.
            rows: Rows of these persons.
            h: Index of the horizon.
        """
        thresholds: dict[float, float | None] = {}
        is_inside = np.zeros(len(rows), dtype=bool)
        for level, coverage in enumerate(sorted(scores), start=1):
            of_rows = np.where(is_inside, -np.inf, scores[coverage])
            thresholds[coverage] = self._threshold(of_rows, rows, h, coverage)
            is_inside = self._surely_inside(of_rows, rows, h, coverage, level)
        return thresholds

    def _threshold(self, scores: Floats, rows: Rows, h: int, coverage: float) -> float | None:
        if self.weights is None:
            q = pooled_quantile(scores, self.persons[rows], coverage, self.n_origins)
        else:
            w = self.weights[:, h]
            q = weighted_quantile(scores, w[rows], coverage, heaviest=float(w.max()))
        return q if math.isfinite(q) else None

    def _surely_inside(
        self, scores: Floats, rows: Rows, h: int, coverage: float, level: int
    ) -> NDArray[np.bool_]:
        """Whether each outcome is inside its set, whatever the scores of the new person are.

        The rank of the threshold is lowered by `level` persons: by `n_origins` scores each or, with
        weights, by the largest weight each.
        """
        order = np.argsort(scores, kind="stable")
        if self.weights is None:
            ranks, spare = np.arange(1.0, len(scores) + 1), float(self.n_origins)
            needed = float(rank_needed(len(scores), coverage, self.n_origins))
        else:
            ranks = np.cumsum(self.weights[rows, h][order])
            spare = float(self.weights[:, h].max())
            needed = coverage * ((ranks[-1] if len(ranks) else 0.0) + spare) - 1e-9
        first = np.searchsorted(ranks, needed)  # the rank that reaches the coverage
        reached = ranks[first] if first < len(ranks) else -np.inf
        is_inside = np.zeros(len(scores), dtype=bool)
        is_inside[order] = ranks <= reached - level * spare + 1e-9
        return is_inside
