"""Calendar years as network inputs: the values of macro series, not the number of the year."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.macro.history import MacroHistory, log_wage_index

MACRO_FEATURES = 4  # covariates of a year, see `macro_features`
PATH_FEATURES = MACRO_FEATURES + 3  # and their means since the origin, see `path_features`
CLIP = 5.0  # standardised features stay within this many standard deviations
_MACRO_CENTRE = np.array([0.07, 0.0, 0.015])
_MACRO_SCALE = np.array([0.02, 0.01, 0.02])


@dataclass(frozen=True)
class Calendar:
    """Macro covariates of years; those outside the history are masked and have no wage growth.

    `wage_index(years)` is the log real wage index. It is 0 in `reference_year`, by default the last
    year of the history, and grows by `later_growth` a year after the history.
    """

    history: MacroHistory | None
    reference_year: int | None = None
    later_growth: float = 0.0

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

    def covariates_since(
        self, origin: NDArray[np.integer[Any]], year: NDArray[np.integer[Any]]
    ) -> Floats:
        """Covariates (..., 7) of `year`, with their means over the years after `origin`.

        Years outside the history count as zeros, see `covariates`.
        """
        target = self.covariates(year)
        first = min(int(origin.min()), int(year.min()))
        all_years = np.arange(first, int(year.max()) + 1)
        total = np.cumsum(self.covariates(all_years)[:, :-1], axis=0)
        mean = total[year - first] - total[np.broadcast_to(origin, year.shape) - first]
        mean /= np.maximum(year - origin, 1)[..., None]
        return np.concatenate([target, mean], axis=-1)

    def wage_index(self, years: NDArray[np.integer[Any]]) -> Floats:
        """Log real wage index of each year, shape of `years`."""
        if self.history is None:
            return np.zeros(years.shape)
        log_wages = log_wage_index(self.history.values[:, 1])
        index = np.clip(years - self.history.first_year, 0, len(log_wages) - 1)
        reference = -1
        if self.reference_year is not None:
            reference = self.reference_year - self.history.first_year
        relative: Floats = log_wages[index] - log_wages[reference]
        if self.later_growth:
            relative = relative + self.later_growth * np.maximum(years - self.history.last_year, 0)
        return relative


def macro_features(values: Floats, before: float) -> Floats:
    """Macro inputs of the network for T consecutive years, shape (..., T, 4).

    They are unemployment, its change in the year and real wage growth, each standardised by its
    mean and spread in Sweden since 1990, and a flag for a known year. The change is an input,
    because jobs are lost when unemployment rises, not when it is high. Inflation is no input,
    because earnings are real; it influences later years in `MacroProcess`.

    Args:
        values: Series of the years, shape (..., T, 3), fractions.
        before: Unemployment in the year before.
    """
    unemployment = values[..., 0]
    first = np.broadcast_to(before, unemployment[..., :1].shape)
    change = np.diff(unemployment, prepend=first, axis=-1)
    features = np.stack([unemployment, change, values[..., 1]], axis=-1)
    z = (features - _MACRO_CENTRE) / _MACRO_SCALE
    return np.concatenate([np.clip(z, -CLIP, CLIP), np.ones((*unemployment.shape, 1))], axis=-1)


def path_features(features: Floats) -> Floats:
    """Covariates (..., T, 7) of T years after an origin: a year's four, then means since it.

    Earlier years matter too: a recession lowers earnings for years. The means are those of the
    first three of `features` (..., T, 4), from the first year on.
    """
    years = np.arange(1, features.shape[-2] + 1)[:, None]
    return np.concatenate([features, np.cumsum(features[..., :-1], axis=-2) / years], axis=-1)
