"""No figure that is stored or shown rests on fewer than ten persons.

So no quantile is one person's value: it is the mean of ten neighbours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MIN_PERSONS = 10  # persons behind a figure


def neighbour_mean(ordered: NDArray[np.float64], first: int, count: int = MIN_PERSONS) -> float:
    """The mean of `count` neighbours of ascending values (n,) from `first` on.

    +inf if fewer remain.
    """
    window = ordered[first : first + count]
    return float(window.mean()) if len(window) == count else float("inf")
