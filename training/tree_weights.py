"""Weights of boosted trees beside a network, by horizon.

The CRPS of an average of two distributions is a quadratic function of the weight, so the best
weight has a closed form. Few validation persons estimate it badly, so it is shrunk towards a common
weight of all horizons, and the common weight towards one half. The more persons there are, the less
it is shrunk.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# The prior: the common weight has mean COMMON and standard deviation COMMON_SD, and the weight of
# each horizon deviates from it with standard deviation OWN_SD. If few outcomes estimate weights,
# equal ones are hard to beat (Stock and Watson 2004). The estimates are somewhat low: their trees
# have learnt from fewer persons than the final trees, and the outcomes of the same persons have
# decided when the training of the network stopped.
COMMON, COMMON_SD, OWN_SD = 0.5, 0.15, 0.1
SMALLEST = 0.05  # trees whose weights are all below this are left out


def shrunk_weights(losses: Floats, units: Sequence[str]) -> Floats:
    """Weights (K,) of the trees at K horizons, between 0 and 1.

    The best weights on the persons have a covariance matrix, clustered by unit. With it, and with
    the normal prior above, the result is the posterior mean (random effects: Lindley and Smith
    1972), restricted to [0, 1]. A horizon without outcomes has the weight that the others suggest.

    Args:
        losses: (3, n, K), the CRPS of n rows with weights 0, 1/2 and 1; NaN without an outcome.
        units: (n,), the person or family of each row.
    """
    none, half, whole = np.nan_to_num(losses)
    curve = 2 * (none + whole - 2 * half)  # loss(w) = none + slope w + curve w^2
    slope = whole - none - curve
    total = curve.sum(axis=0)
    judged = total > 0  # otherwise no outcome is known, or both forecasts are the same
    common = np.full(len(total), COMMON)
    prior = COMMON_SD**2 + OWN_SD**2 * np.eye(len(total))
    if not judged.any():
        return common
    best = -slope.sum(axis=0)[judged] / (2 * total[judged])
    influence = -(slope[:, judged] + 2 * best * curve[:, judged]) / (2 * total[judged])
    _, unit = np.unique(units, return_inverse=True)
    of_units = np.stack([np.bincount(unit, weights=column) for column in influence.T], axis=1)
    covariance = prior[np.ix_(judged, judged)] + of_units.T @ of_units
    shift = prior[:, judged] @ np.linalg.solve(covariance, best - COMMON)
    return np.asarray(np.clip(common + shift, 0, 1).round(2))
