"""Curves given by a few points: steps from an age or year on, and straight lines."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

Steps = tuple[tuple[int, float], ...]  # (first x, value from there on), x ascending
Knots = tuple[tuple[float, float], ...]  # (x, value), straight lines between them, x ascending


def step_value(steps: Steps, x: int) -> float:
    """Value of `steps` at `x`; before the first step it is that of the first."""
    return float(next((value for start, value in reversed(steps) if start <= x), steps[0][1]))


def step_values(steps: Steps, x: NDArray[Any]) -> Floats:
    """Values of `steps` at each of `x`; before the first step they are that of the first."""
    starts, values = np.array(steps, dtype=np.float64).T
    index = np.searchsorted(starts, x, side="right") - 1
    return np.asarray(values[np.maximum(index, 0)])


def interpolate(knots: Knots, x: float) -> float:
    """Value at `x` on the straight lines between `knots`, constant beyond the first and last."""
    return float(np.interp(x, *np.array(knots, dtype=np.float64).T))


def by_sex(values: tuple[float, float], female: NDArray[np.bool_]) -> Floats:
    """The value of each person's sex; `values` are those of men and of women."""
    return np.where(female, values[1], values[0])
