"""Cross-fitted calibration of an ensemble: each person is scored by a member that has not seen it.

No map is fitted. A map would be fitted on the outcomes of all persons, so that the score of a
calibration person would depend on the person's own outcome, and that of a new person would not;
without exchangeable scores the proof fails (docs/method/cross-fitting.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from saga.calibration.fit.split_conformal import check_forecasts

from saga.arrays import Floats
from saga.conformal.calibrator import Calibrator
from saga.conformal.cross_fitted import CROSS_FITTED, FoldCounts
from saga.conformal.families import FAMILIES, YEAR
from saga.distributions import Marginals
from saga.errors import UsageError
from saga.requests import COVERAGE
from saga.scores import pit_uniforms
from saga.small_groups import MIN_PERSONS


def fit_cross_fitted(
    marginals: Marginals,
    outcomes: Floats,
    folds: NDArray[np.int64],
    coverage: Sequence[float] = COVERAGE,
) -> Calibrator:
    """A calibrator of method "cv+" from raw marginals of persons with one origin each.

    Args:
        marginals: Raw marginals (n, H) with those of the K members.
        outcomes: Realised earnings (n, H); NaN if unknown.
        folds: The fold (n,) of each person; member k was fitted without the persons of fold k.
        coverage: Stated coverages.

    Raises:
        UsageError: If shapes disagree, a person occurs twice, there are no members, or a coverage
            is outside (0, 1).
    """
    check_forecasts(marginals, outcomes, coverage, one_origin=True)
    n_folds = len(marginals.members)
    if not n_folds:
        raise UsageError("Cross-fitting needs an ensemble. Train with `saga train --folds 5`.")
    scores: dict[tuple[str, float], Floats] = {}
    for k, member in enumerate(marginals.members):
        rows = np.flatnonzero(folds == k)
        unseen = replace(member.take(rows), recalibrated=True)
        uniforms = pit_uniforms(unseen)
        for family in (YEAR, *FAMILIES.values()):
            if family.of_paths:
                continue
            shares = coverage if family.by_coverage else (0.0,)
            of_fold = family.scores_by_coverage(unseen, outcomes[rows], shares, uniforms)
            for share, values in of_fold.items():
                key = family.kind, share
                scores.setdefault(key, np.full(outcomes.shape, np.nan))[rows] = values
    has_outcome = ~np.isnan(outcomes) & marginals.exists
    return Calibrator(
        {},
        origin_years={
            (h + 1, CROSS_FITTED): len(np.unique(marginals.origin_year[has_outcome[:, h]]))
            for h in np.flatnonzero(has_outcome.any(axis=0)).tolist()
        },
        fold_counts={
            (kind, h + 1, share): smooth_counts(
                [values[(folds == k) & known[:, h], h] for k in range(n_folds)]
            )
            for (kind, share), values in scores.items()
            for known in (~np.isnan(values),)
            for h in np.flatnonzero(known.any(axis=0)).tolist()
        },
    )


def smooth_counts(scores: Sequence[Floats]) -> FoldCounts:
    """Counts of the scores of each fold at or above a score, without a single person's score.

    The scores of a fold between 0 and 1 are sorted and divided into blocks of 10 to 19 persons. At
    the mean of a block, half of it counts as above. All lines are then raised so far that their
    sum is nowhere below the number of scores of all folds.
    """
    n = tuple(len(of_fold) for of_fold in scores)
    inner = [np.sort(of_fold[(of_fold > 0) & (of_fold < 1)]) for of_fold in scores]
    if min(map(len, inner), default=0) < MIN_PERSONS:
        return FoldCounts((), (), n)
    knots, counts = [], []
    for of_fold, ordered in zip(scores, inner, strict=True):
        blocks = np.array_split(ordered, len(ordered) // MIN_PERSONS)
        sizes = np.array([len(block) for block in blocks])
        ones = int((of_fold >= 1).sum())
        above = ones + sizes[::-1].cumsum()[::-1] - sizes / 2
        knots.append(np.array([0.0, *(block.mean() for block in blocks), 1.0]))
        counts.append(np.array([ones + len(ordered), *above, ones], dtype=np.float64))
    pooled = np.sort(np.concatenate(inner))
    n_ones = sum(int((of_fold >= 1).sum()) for of_fold in scores)
    exact = n_ones + len(pooled) - np.searchsorted(pooled, pooled, side="left")
    lines = np.sum([np.interp(pooled, *line) for line in zip(knots, counts, strict=True)], axis=0)
    lift = max(0.0, float((exact - lines).max()))
    raised = [c + lift * size / sum(n) for c, size in zip(counts, n, strict=True)]
    return FoldCounts(tuple(knots), tuple(raised), n)
