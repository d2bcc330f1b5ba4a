"""Shifts of thresholds for overlapping groups, so that coverage is the same in every group.

BatchGCP (Jung, Noarov, Ramalingam and Roth 2023): the threshold is a sum of group effects that
minimises the pinball loss of the scores. At the minimum, the share of each group's persons whose
score is below their own threshold is the coverage, even if groups overlap (Gibbs, Cherian and
Candes 2025). The loss is smoothed (He, Pan, Tan and Zhou 2023), so that no effect depends on a
single person's score. Effects of small groups are shrunk towards 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from saga.arrays import Floats
from saga.data.groups import Labels, pair_groupings

BANDWIDTH = 0.02  # of the Gaussian that smooths the loss; scores are probabilities
# Number of persons at which shrinkage halves an effect: true effects are about .03, and an
# estimate from n persons has a standard error of about .3 / sqrt(n).
SHRINKAGE = 100.0
MIN_GROUP_PERSONS = 100  # an effect needs so many persons
_STEPS, _TOLERANCE = 100, 1e-8


def design(
    labels: Labels,
    min_persons: int = MIN_GROUP_PERSONS,
    persons: NDArray[np.int64] | None = None,
) -> tuple[list[str], Floats]:
    """Names and indicators (n, d) of groups, without those that contain everybody.

    A group needs at least `min_persons` persons. `persons` (n,) says whose rows they are, if a
    person has several.
    """
    names, columns = [], []
    for name, values in labels.items():
        for label in np.unique(values).tolist():
            member = values == label
            size = member.sum() if persons is None else len(np.unique(persons[member]))
            if size >= min_persons and not member.all():
                names.append(f"{name}={label}")
                columns.append(member)
    n = len(next(iter(labels.values()))) if labels else 0
    return names, np.array(columns, dtype=np.float64).T.reshape(n, len(names))


def group_quantile(
    scores: Floats,
    indicators: Floats,
    coverage: float,
    *,
    bandwidth: float = BANDWIDTH,
    shrinkage: float = SHRINKAGE,
) -> tuple[float, Floats]:
    """Intercept and shrunk effects (d,) of groups on the `coverage` quantile of the scores.

    Newton's method (a step that raises the loss is halved) on the smoothed pinball loss plus
    shrinkage / 2 x the sum of squared effects. At the minimum, for each group, the sum over its
    persons of Phi((threshold - score) / bandwidth) - coverage is -shrinkage x effect.

    Args:
        scores: Conformity scores (n,).
        indicators: Membership (n, d) of groups.
        coverage: Share to cover.
        bandwidth: Of the Gaussian that smooths the loss.
        shrinkage: Number of persons at which an effect is halved.
    """
    features = np.column_stack([np.ones(len(scores)), indicators])
    penalty = np.full(features.shape[1], shrinkage)
    penalty[0] = 0.0
    theta = np.zeros(features.shape[1])
    theta[0] = np.quantile(scores, coverage)

    def loss_at(theta: Floats) -> float:
        u = scores - features @ theta
        z = -u / bandwidth
        return float(
            (u * (coverage - ndtr(z)) + bandwidth * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)).sum()
            + (penalty * theta**2).sum() / 2
        )

    loss = loss_at(theta)
    for _ in range(_STEPS):
        z = (features @ theta - scores) / bandwidth
        gradient = features.T @ (ndtr(z) - coverage) + penalty * theta
        if np.abs(gradient).max() < _TOLERANCE * len(scores):
            break
        weight = np.exp(-z * z / 2) / (np.sqrt(2 * np.pi) * bandwidth)
        hessian = (features * weight[:, None]).T @ features + np.diag(penalty + 1e-6)
        step = np.linalg.solve(hessian, gradient)
        # Limited, because the curvature is useless if no score is near the thresholds.
        size = min(1.0, 0.2 / max(np.abs(step).max(), 1e-300))
        while (next_loss := loss_at(theta - size * step)) > loss and size > 1e-12:
            size /= 2
        theta, loss = theta - size * step, next_loss
    return float(theta[0]), theta[1:]


def fit_shifts(
    scores: Floats, labels: Labels, coverage: float, persons: NDArray[np.int64] | None = None
) -> dict[str, float]:
    """Group -> its effect on the threshold of `scores` (n,) at `coverage`.

    The mean effect over the persons of a grouping is 0. Pairs of groups are groups too, because the
    effect of a pair may differ from the sum of both effects. With several rows of a person
    (`persons`, (n,)) the rows of one person count as one person, because they are alike.
    """
    names, indicators = design(pair_groupings(labels), persons=persons)
    if not names:
        return {}
    rows_each = 1.0 if persons is None else len(persons) / len(np.unique(persons))
    _, effects = group_quantile(scores, indicators, coverage, shrinkage=SHRINKAGE * rows_each)
    share = indicators.mean(axis=0)
    groupings = np.array([name.split("=", 1)[0] for name in names])
    for grouping in np.unique(groupings):
        members = groupings == grouping
        effects[members] -= share[members] @ effects[members] / share[members].sum()
    return dict(zip(names, effects.tolist(), strict=True))
