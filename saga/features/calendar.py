"""The calendar as the network sees it: a year enters by its macro series, not by its number."""

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
    """Macro covariates of known years; a year outside the series is masked and adds no wage growth.

    `wage_index(years)` is the log real wage index, 0 in the last known year.
    """

    history: MacroHistory | None

    def covariates(self, years: NDArray[np.integer[Any]]) -> Floats:
        """(n, 4): see `macro_features`; zeros for a year that is not known."""
        out = np.zeros((*years.shape, 4))
        if self.history is None:
            return out
        index = years - self.history.first_year
        known = (index >= 0) & (index < len(self.history.values))
        values = self.history.values
        out[known] = macro_features(values, values[0, 0])[index[known]]
        return out

    def wage_index(self, years: NDArray[np.integer[Any]]) -> Floats:
        """Log real wage index of each year, shape of `years`."""
        if self.history is None:
            return np.zeros(years.shape)
        level = log_wage_index(self.history.values[:, 1])
        index = np.clip(years - self.history.first_year, 0, len(level) - 1)
        relative: Floats = level[index] - level[-1]
        return relative


def macro_features(values: Floats, before: float) -> Floats:
    """What the network is told of an economy: (..., T, 3) fractions of T consecutive years, after a year of unemployment `before` ->
    (..., T, 4): unemployment, its change in the year, real wage growth, standardised on Swedish scales of after 1990, and a known flag.

    Work is lost when unemployment rises, not when it is high: 1991 had the rates of a boom. Inflation acts on the economy's own later
    years (`MacroProcess`), not on people, whose earnings are real."""
    unemployment = values[..., 0]
    first = np.broadcast_to(before, unemployment[..., :1].shape)
    told = np.stack(
        [unemployment, np.diff(unemployment, prepend=first, axis=-1), values[..., 1]], axis=-1
    )
    z = (told - _MACRO_CENTRE) / _MACRO_SCALE
    return np.concatenate([np.clip(z, -CLIP, CLIP), np.ones((*unemployment.shape, 1))], axis=-1)
