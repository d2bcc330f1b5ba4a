"""Forecasts of single years of one block of persons: distributions, prediction sets and scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from saga.evaluation.scoring.ensemble_scores import sample_scores

from saga.arrays import Array
from saga.conformal.families import YEAR
from saga.distributions import Marginals
from saga.requests import COVERAGE
from saga.scores import marginal_scores


@dataclass(frozen=True, eq=False)
class YearForecasts:
    """Forecasts of n persons at H horizons.

    Args:
        person_id: Text (n,).
        marginals: The distributions, shape (n, H).
        lower: Lower ends (n, H, L) of the sets at COVERAGE, real money, NaN without a set.
        upper: Upper ends of these sets.
        includes_zero: Whether zero belongs to these sets.
        samples: Real money (n, H, M) if the contestant only has samples. Their CRPS is the fair
            one, whose expectation does not depend on M; that of other scores does.
    """

    person_id: NDArray[np.str_]
    marginals: Marginals
    lower: Array
    upper: Array
    includes_zero: Array
    samples: Array | None = None

    @classmethod
    def of_samples(cls, person_id: NDArray[np.str_], samples: Array) -> Self:
        """Forecasts of a contestant without a calibration."""
        marginals = Marginals.from_samples(samples)
        sets = nominal_sets(marginals, COVERAGE, samples.shape[-1])
        return cls(person_id, marginals, *sets, samples)

    @classmethod
    def of_marginals(cls, marginals: Marginals) -> Self:
        """Forecasts of a contestant without a calibration that gives distributions."""
        sets = nominal_sets(marginals, COVERAGE)
        return cls(marginals.person_id, marginals, *sets)

    def __len__(self) -> int:
        return len(self.person_id)

    def scores(
        self, outcomes: Array, at: tuple[NDArray[np.int64], NDArray[np.int64]], floor: float | None
    ) -> dict[str, Array]:
        """Scores (k,) of the outcomes (n, H) at k pairs of rows and columns."""
        if self.samples is not None:
            scores = sample_scores(self.samples[at][:, None], outcomes[at][:, None], floor)
            return {name: values[:, 0] for name, values in scores.items()}
        scores = marginal_scores(self.marginals, outcomes, floor)
        return {name: values[at] for name, values in scores.items()}


def nominal_sets(
    marginals: Marginals, coverage: Sequence[float], n_samples: int | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Sets of the published family without conformal thresholds.

    Returns their ends (n, H, L) and whether they include zero. The parameter q of the family is the
    coverage c. For marginals of M samples it is c (M + 1) / M, but at most 1 - 1 / M, with which
    the ends are the extreme samples. The ends are then order statistics that cover as stated if the
    outcome and the samples are exchangeable.
    """
    q = np.asarray(coverage)
    if n_samples is not None:
        q = np.minimum(q * (n_samples + 1) / n_samples, 1 - 1 / n_samples)
    q = np.where(marginals.exists[..., None], q, np.nan)
    return YEAR.ends(marginals, q, coverage)
