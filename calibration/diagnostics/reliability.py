"""Reliability: isotonic recalibration of probabilities, and regression on the forecast.

Recalibration is isotonic, by pool adjacent violators (Dimitriadis, Gneiting and Jordan 2021).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from saga.calibration.diagnostics.verdicts import map_noise
from scipy.optimize import isotonic_regression

from saga.arrays import Floats

N_CLASSES = 12  # of a reliability curve
N_MAP_BINS = 200  # parts of the probability scale in which the noise of a map is simulated


@dataclass(frozen=True, eq=False)
class Curve:
    """Reliability in K classes of persons with similar forecasts.

    `forecast` (K,): mean forecast. `observed` (K,): isotonic share with the event. `n` (K,):
    persons. `chance` (B, K): simulated curves of a forecaster without fault, for the band.
    """

    forecast: Floats
    observed: Floats
    n: NDArray[np.int64]
    chance: Floats

    @property
    def error(self) -> float:
        """Mean distance between forecast and observed share over persons."""
        return float(np.average(np.abs(self.observed - self.forecast), weights=self.n))


def reliability_curve(
    forecast: Floats,
    events: NDArray[np.bool_],
    *,
    min_persons: int,
    calibrated_on: int | None = None,
    n_replicates: int = 1_999,
    rng: np.random.Generator,
) -> Curve:
    """Reliability of the stated probability of an event.

    Persons are sorted into classes by the probability. The simulated curves draw the events of each
    class with the stated probability (Broecker and Smith 2007), after the noise of the calibration
    map.

    Args:
        forecast: Stated probability (n,).
        events: Whether the event happened (n,).
        min_persons: Fewest persons of a class; each has about 1 / N_CLASSES of all.
        calibrated_on: Persons behind the calibration map; None: no map.
        n_replicates: Simulated curves B.
        rng: Random numbers of the simulated curves.
    """
    index = np.unique(forecast, return_inverse=True)[1]
    starts = class_starts(np.bincount(index), max(min_persons, -(-len(events) // N_CLASSES)))
    position = np.searchsorted(starts, index, side="right") - 1
    n = np.bincount(position, minlength=len(starts))
    stated = np.bincount(position, weights=forecast, minlength=len(starts)) / n
    share = np.bincount(position, weights=events, minlength=len(starts)) / n
    grid = np.linspace(0, 1, N_MAP_BINS + 1)
    truth = np.array(
        [
            np.interp(stated, grid, noise)
            for noise in map_noise(N_MAP_BINS, calibrated_on, n_replicates, rng)
        ]
    )
    chance = np.array([isotonic_regression(row, weights=n).x for row in rng.binomial(n, truth) / n])
    return Curve(stated, np.asarray(isotonic_regression(share, weights=n).x), n, chance)


def class_starts(persons: NDArray[np.integer], min_persons: int) -> NDArray[np.int64]:
    """Index of the first value of each class: a class ends once it has `min_persons` persons.

    `persons` is the number of persons at each distinct value, in ascending order. Persons that
    remain at the end join the last class.
    """
    starts, n_persons = [0], 0
    for i, n in enumerate(persons):
        if n_persons >= min_persons:
            starts.append(i)
            n_persons = 0
        n_persons += int(n)
    if n_persons < min_persons and len(starts) > 1:
        starts.pop()
    return np.array(starts)


@dataclass(frozen=True)
class Regression:
    """Outcome = intercept + slope x forecast (Mincer and Zarnowitz 1969)."""

    mean_error: float
    mean_error_se: float
    intercept: float
    slope: float
    slope_se: float


def mincer_zarnowitz(
    forecast: Floats, outcomes: Floats, calibrated_on: int | None = None
) -> Regression | None:
    """Regression of outcomes on forecast means.

    A forecaster without fault has mean error 0, intercept 0 and slope 1. None if the forecasts do
    not differ.

    Args:
        forecast: Forecast means (n,).
        outcomes: Outcomes (n,).
        calibrated_on: Calibration persons, whose chance the standard error of the mean error
            counts. Standard errors are robust to unequal variances (White 1980, HC1).
    """
    n = len(outcomes)
    error = outcomes - forecast
    centred = forecast - forecast.mean()
    spread = float(np.mean(centred**2))
    if n < 3 or spread <= 1e-12:
        return None
    slope = float(np.mean(centred * outcomes)) / spread
    residual = outcomes - outcomes.mean() - slope * centred
    slope_se = float(np.sqrt(n / (n - 2) * np.mean((centred * residual) ** 2) / n)) / spread
    persons = 1 / n + (1 / calibrated_on if calibrated_on else 0.0)
    return Regression(
        float(error.mean()),
        float(error.std(ddof=1) * np.sqrt(persons)),
        float(outcomes.mean() - slope * forecast.mean()),
        slope,
        slope_se,
    )
