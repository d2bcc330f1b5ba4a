"""What a family of nested sets is: the score of an outcome, and the ends of the set of a threshold.

The score is the smallest threshold q whose set contains the outcome. It depends on the outcome by
its rank alone: the forecast probability of less, and that of zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from saga.arrays import Bools, Floats, Reals
from saga.distributions import Marginals

# Lower and upper ends (n, H, L), and whether zero is inside.
Ends = tuple[Floats, Floats, Bools]
ROUNDING = 1e-9  # probability by which ends are rounded outward
SMALLEST_AMOUNT = 1.0  # unit of the currency; the lower end of a set without zero


@dataclass(frozen=True)
class KindThresholds:
    """Thresholds of one family at one horizon, fitted on `n` persons of the threshold fold.

    A threshold is None if the persons are too few. `n_paths` is the number of paths of present
    values, None for other families, which do not depend on paths.
    """

    thresholds: Mapping[float, float | None]
    n: int
    n_paths: int | None = None


class SetFamily(ABC):
    """A family of nested sets.

    Attributes:
        kind: Its name, in the calibration table and elsewhere.
        by_coverage: Whether the form of a set, and so the scores, depend on the coverage.
        bounded: Whether a set without a finite upper end is no set.
        randomised: Whether a zero in a set counts as a random part of its probability
            (`scores_by_coverage`).
            False if sets that contain zero have two ends that move with q: the random part would
            count as a miss at the lower end, and the sets would cover more than stated.
        of_paths: Whether outcomes are scored on paths; otherwise on marginals.
        always_given: Whether there are sets, "extrapolated" ones, where outcomes are too few.
        extrapolates: Whether horizons without outcomes have the threshold of a shorter one.
    """

    kind: ClassVar[str]
    by_coverage: ClassVar[bool] = False
    bounded: ClassVar[bool] = True
    randomised: ClassVar[bool] = True
    of_paths: ClassVar[bool] = False
    always_given: ClassVar[bool] = False
    extrapolates: ClassVar[bool] = True

    @abstractmethod
    def rank_scores(self, less: Floats, p_zero: Reals, coverage: float) -> Floats:
        """Scores from the probability of less (0 for zero) and that of zero; shapes broadcast.

        A score is between 0, in every set, and 1, in no finite set. An outcome must have a score of
        at most q exactly if it lies between the `ends` of q.
        """

    @abstractmethod
    def ends(self, marginals: Marginals, q: Floats, coverage: Sequence[float]) -> Ends:
        """Ends (n, H, L) in money of the sets of thresholds `q` (n, H, L), one L per coverage.

        The last array says whether zero belongs to the set. NaN if there is no set: if `q` is NaN,
        or 1 or above, which no finite set reaches.
        """

    def ranks(self, forecasts: Any, outcomes: Floats) -> tuple[Floats, Reals]:
        """Probability of less than each outcome, and that of zero, of recalibrated forecasts."""
        forecasts.require_recalibrated()
        return probability_of_less(forecasts, outcomes), forecasts.p_zero_like(outcomes)

    def scores(self, forecasts: Any, outcomes: Floats, coverage: float) -> Floats:
        """Score of each outcome (n, H) or amount (n, H, K) for sets of a coverage.

        NaN if it is unknown. `forecasts` are recalibrated marginals, or paths if the family is
        `of_paths`.
        """
        return self.rank_scores(*self.ranks(forecasts, outcomes), coverage)

    def scores_by_coverage(
        self,
        forecasts: Any,
        outcomes: Floats,
        coverage: Sequence[float],
        uniforms: Floats | None = None,
    ) -> dict[float, Floats]:
        """Coverage -> joined scores (n, H) of outcomes (n, H), on which thresholds are fitted.

        With `uniforms` (n, H), random numbers between 0 and 1, zero in a set that contains it is a
        random part of its probability if the family is `randomised`. Under the forecast the score
        of every person is then uniform. Otherwise persons who certainly lie in their set, because
        of the atom, would make the sets of all others too small. No score gets smaller, so coverage
        is kept.
        """
        less, p_zero = self.ranks(forecasts, outcomes)
        scores = {}
        for share in coverage:
            ranks = less
            if uniforms is not None and self.randomised:
                is_inside = (outcomes == 0) & self.contains_zero(p_zero, share)
                ranks = np.where(is_inside, uniforms * p_zero, less)
            scores[share] = self.joined(self.rank_scores(ranks, p_zero, share))
        return scores

    def joined(self, scores: Floats) -> Floats:
        """Scores (n, H) of what a set at horizon H contains; here the outcome of this year."""
        return scores

    def contains_zero(self, p_zero: Reals, coverage: float) -> Bools | bool:
        """Whether the set of this coverage can contain zero."""
        return True

    def nested(self, q: Floats) -> Floats:
        """The thresholds (..., L) that make sets of higher coverage contain those of lower one."""
        return np.maximum.accumulate(q, axis=-1)

    def is_unbounded(self, q: Floats | float) -> Any:
        """Whether only the set of all amounts has a threshold."""
        return np.asarray(q) >= 1

    def is_finite(self, q: float | None) -> bool:
        """Whether a fitted threshold has a finite set."""
        return q is not None and not self.is_unbounded(q)


def probability_of_less(marginals: Marginals, outcomes: Floats) -> Floats:
    """Forecast probability of less earnings than each outcome (n, H): 0 for zero; NaN if unknown.

    With `p_zero` it gives the score of the outcome in every family.
    """
    up_to = marginals.probability(outcomes)
    return np.where((outcomes == 0) & ~np.isnan(up_to), 0.0, up_to)


def quantiles_at(marginals: Marginals, p: Floats) -> Floats:
    """Quantiles (n, H, L) at probabilities that broadcast to this shape; NaN where they are."""
    p = np.broadcast_to(p, (*marginals.p_zero.shape, p.shape[-1]))
    return np.asarray(np.where(np.isnan(p), np.nan, marginals.quantiles(np.nan_to_num(p))))
