"""Calendar years as network inputs: the values of macro series, not the number of the year."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saga.macro.history import MacroHistory, log_wage_index

Floats = NDArray[np.float64]
CLIP = 5.0  # standardised features stay within this many standard deviations
_MACRO_CENTRE = np.array([0.07, 0.0, 0.015])
_MACRO_SCALE = np.array([0.02, 0.01, 0.02])


@dataclass(frozen=True)
class Calendar:
    """Macro covariates of years; those outside the history are masked and have no wage growth.

    `wage_index(years)` is the log real wage index, 0 in the last year of the history.
    """

    history: MacroHistory | None

    def covariates(self, years: NDArray[np.integer[Any]]) -> Floats:
        """Features (n, 4), see `macro_features`; zeros for years outside the history."""
        out = np.zeros((*years.shape, 4))
        if self.history is None:
            return out
        index = years - self.history.first_year
        observed = (index >= 0) & (index < len(self.history.values))
        values = self.history.values
        out[observed] = macro_features(values, values[0, 0])[index[observed]]
        return out

    def wage_index(self, years: NDArray[np.integer[Any]]) -> Floats:
        """Log real wage index of each year, shape of `years`."""
        if self.history is None:
            return np.zeros(years.shape)
        log_wages = log_wage_index(self.history.values[:, 1])
        index = np.clip(years - self.history.first_year, 0, len(log_wages) - 1)
        relative: Floats = log_wages[index] - log_wages[-1]
        return relative


def macro_features(values: Floats, before: float) -> Floats:
    """Macro inputs of the network for T consecutive years, shape (..., T, 4).

    They are unemployment, its change in the year and real wage growth, each standardised by its
    mean and spread in Sweden since 1990, and a flag for a known year. The change is an input,
    because jobs are lost when unemployment rises, not when it is high. Inflation is no input,
    because earnings are real; it influences later years in `MacroProcess`.

    Args:
        values: series of the years, shape (..., T, 3), fractions.
        before: unemployment in the year before.
    """
    unemployment = values[..., 0]
    first = np.broadcast_to(before, unemployment[..., :1].shape)
    change = np.diff(unemployment, prepend=first, axis=-1)
    features = np.stack([unemployment, change, values[..., 1]], axis=-1)
    z = (features - _MACRO_CENTRE) / _MACRO_SCALE
    return np.concatenate([np.clip(z, -CLIP, CLIP), np.ones((*unemployment.shape, 1))], axis=-1)
