"""Overlapping groups: what being in a group adds to a threshold, so that every group is covered alike.

BatchGCP (Jung, Noarov, Ramalingam and Roth 2023): the threshold is a sum of group effects that minimises the pinball loss of the scores;
at the minimum each group's share of scores below its threshold is the level, whatever the overlaps (Gibbs, Cherian and Candes 2025). Here
the loss is smoothed (He, Pan, Tan and Zhou 2023), so that no effect hangs on one person, and effects are shrunk towards 0, so that small
groups borrow from the others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from saga.conformal.calibrator import ALL, Calibrator
from saga.data.groups import Labels, pair_groupings

Array = NDArray[np.float64]
BANDWIDTH = 0.02  # of the Gaussian that smooths the loss; scores are probabilities
SHRINKAGE = 100.0  # persons at which an effect is about half of what the group alone says: effects of ~.03 against noise of ~.3 / sqrt(n)
FEWEST = 100  # persons a group needs for an effect of its own
_STEPS, _TOLERANCE = 100, 1e-8


def design(labels: Labels, fewest: int = FEWEST) -> tuple[list[str], Array]:
    """Names and indicators (n, d) of the groups with at least `fewest` persons, without those that are everybody."""
    names, columns = [], []
    for name, values in labels.items():
        for label in np.unique(values).tolist():
            member = values == label
            if fewest <= member.sum() < len(values):
                names.append(f"{name}={label}")
                columns.append(member)
    n = len(next(iter(labels.values()))) if labels else 0
    return names, np.array(columns, dtype=np.float64).T.reshape(n, len(names))


def group_quantile(
    scores: Array,
    indicators: Array,
    level: float,
    *,
    bandwidth: float = BANDWIDTH,
    shrinkage: float = SHRINKAGE,
) -> tuple[float, Array]:
    """Intercept and effects (d,) whose sum is the `level` quantile of `scores` (n,) in every group of `indicators` (n, d).

    Newton's method with halved steps on the smoothed pinball loss plus shrinkage / 2 x the sum of squared effects. At the minimum, for each
    group g, sum over its persons of (Phi((threshold - score) / bandwidth) - level) = -shrinkage x effect.
    """
    features = np.column_stack([np.ones(len(scores)), indicators])
    penalty = np.full(features.shape[1], shrinkage)
    penalty[0] = 0.0
    theta = np.zeros(features.shape[1])
    theta[0] = np.quantile(scores, level)

    def loss(theta: Array) -> float:
        u = scores - features @ theta
        z = u / bandwidth
        return float(
            (u * (level - ndtr(-z)) + bandwidth * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)).sum()
            + (penalty * theta**2).sum() / 2
        )

    now = loss(theta)
    for _ in range(_STEPS):
        z = (features @ theta - scores) / bandwidth
        gradient = features.T @ (ndtr(z) - level) + penalty * theta
        if np.abs(gradient).max() < _TOLERANCE * len(scores):
            break
        weight = np.exp(-z * z / 2) / (np.sqrt(2 * np.pi) * bandwidth)
        hessian = (features * weight[:, None]).T @ features + np.diag(penalty + 1e-6)
        step = np.linalg.solve(hessian, gradient)
        size = min(
            1.0, 0.2 / max(np.abs(step).max(), 1e-300)
        )  # where no score is near, curvature says nothing
        while (then := loss(theta - size * step)) > now and size > 1e-12:
            size /= 2
        theta, now = theta - size * step, then
    return float(theta[0]), theta[1:]


def with_profile(calibrator: Calibrator, poorer: Calibrator, profile: str) -> Calibrator:
    """The calibrator that serves records of a poorer `profile` from the cells of `poorer`, fitted on records shown that way."""
    cells = {
        (horizon, f"profile={profile}"): cell
        for (horizon, group), cell in poorer.cells.items()
        if group == ALL
    }
    return replace(calibrator, cells={**calibrator.cells, **cells})


def fit_shifts(scores: Array, labels: Labels, level: float) -> dict[str, float]:
    """Group -> what it adds to the threshold of `scores` (n,) at `level`; over the persons of each grouping the effects average to 0.

    Pairs of groups are groups too: what two groups have in common need not be the sum of what each has.
    """
    names, indicators = design(pair_groupings(labels))
    if not names:
        return {}
    _, effects = group_quantile(scores, indicators, level)
    share = indicators.mean(axis=0)
    groupings = np.array([name.split("=", 1)[0] for name in names])
    for grouping in np.unique(groupings):
        own = groupings == grouping
        effects[own] -= share[own] @ effects[own] / share[own].sum()
    return dict(zip(names, effects.tolist(), strict=True))
