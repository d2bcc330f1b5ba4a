"""Shifts of thresholds for overlapping groups, so that every group is covered alike.

BatchGCP (Jung, Noarov, Ramalingam and Roth 2023): the threshold is a sum of group effects that
minimises the pinball loss of the scores. At the minimum the share of each group's scores below its
threshold is the coverage, whatever the overlaps (Gibbs, Cherian and Candes 2025). The loss is
smoothed (He, Pan, Tan and Zhou 2023), so that no effect depends on one person. Effects are shrunk
towards 0, so that small groups borrow from the others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import Calibrator
from saga.data.groups import Labels, pair_groupings

Array = NDArray[np.float64]
BANDWIDTH = 0.02  # of the Gaussian that smooths the loss; scores are probabilities
# Persons at which an effect is about half of the group's own estimate: effects of about .03 against
# noise of about .3 / sqrt(n).
SHRINKAGE = 100.0
FEWEST = 100  # persons that an effect needs
_STEPS, _TOLERANCE = 100, 1e-8


def design(labels: Labels, fewest: int = FEWEST) -> tuple[list[str], Array]:
    """Names and indicators (n, d) of groups with at least `fewest` persons, but not everybody."""
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
    coverage: float,
    *,
    bandwidth: float = BANDWIDTH,
    shrinkage: float = SHRINKAGE,
) -> tuple[float, Array]:
    """Intercept and effects (d,) that give the `coverage` quantile in every group.

    Newton's method with halved steps on the smoothed pinball loss plus shrinkage / 2 x the sum of
    squared effects. At the minimum, for each group, the sum over its persons of
    Phi((threshold - score) / bandwidth) - coverage is -shrinkage x effect.

    Args:
        scores: Conformity scores (n,).
        indicators: Membership (n, d) of groups.
        coverage: Share to cover.
        bandwidth: Of the Gaussian that smooths the loss.
        shrinkage: Persons at which an effect is halved.
    """
    features = np.column_stack([np.ones(len(scores)), indicators])
    penalty = np.full(features.shape[1], shrinkage)
    penalty[0] = 0.0
    theta = np.zeros(features.shape[1])
    theta[0] = np.quantile(scores, coverage)

    def loss_at(theta: Array) -> float:
        u = scores - features @ theta
        z = u / bandwidth
        return float(
            (u * (coverage - ndtr(-z)) + bandwidth * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)).sum()
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
        # The curvature is uninformative if no score is near.
        size = min(1.0, 0.2 / max(np.abs(step).max(), 1e-300))
        while (next_loss := loss_at(theta - size * step)) > loss and size > 1e-12:
            size /= 2
        theta, loss = theta - size * step, next_loss
    return float(theta[0]), theta[1:]


def with_profile(calibrator: Calibrator, poorer: Calibrator, profile: str) -> Calibrator:
    """The calibrator with cells for records of a poorer `profile`, taken from `poorer`."""
    cells = {
        (horizon, f"profile={profile}"): cell
        for (horizon, group), cell in poorer.cells.items()
        if group == ALL
    }
    return replace(calibrator, cells={**calibrator.cells, **cells})


def fit_shifts(scores: Array, labels: Labels, coverage: float) -> dict[str, float]:
    """Group -> what it adds to the threshold of `scores` (n,) at `coverage`.

    Over the persons of each grouping the effects average to 0. Pairs of groups are groups too: two
    groups together may differ by more or less than the sum of both.
    """
    names, indicators = design(pair_groupings(labels))
    if not names:
        return {}
    _, effects = group_quantile(scores, indicators, coverage)
    share = indicators.mean(axis=0)
    groupings = np.array([name.split("=", 1)[0] for name in names])
    for grouping in np.unique(groupings):
        members = groupings == grouping
        effects[members] -= share[members] @ effects[members] / share[members].sum()
    return dict(zip(names, effects.tolist(), strict=True))
