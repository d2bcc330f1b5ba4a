"""Reliability: isotonic recalibration, its gain, and regression on the forecast.

A score S splits exactly into S = MCB - DSC + UNC (Dimitriadis, Gneiting and Jordan 2021): UNC is
the score of the best constant forecast, DSC the gain of recalibrated forecasts over it, MCB the
gain by recalibration. Recalibration is isotonic (pool adjacent violators).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from calibration.diagnostics.sampling_bands import map_noise

Array = NDArray[np.float64]
N_CLASSES = 12  # of a reliability curve, at most


@dataclass(frozen=True)
class Decomposition:
    """A mean score and its parts: score = miscalibration - discrimination + uncertainty."""

    score: float
    miscalibration: float
    discrimination: float
    uncertainty: float

    @classmethod
    def of(cls, score: float, recalibrated: float, constant: float) -> Decomposition:
        """From the mean scores of the forecast, of its recalibration and of the best constant."""
        return cls(score, score - recalibrated, constant - recalibrated, constant)


def brier_parts(
    counts: NDArray[np.integer], n_paths: int, events: NDArray[np.bool_]
) -> tuple[float, float, float]:
    """Mean Brier scores of a forecast, of its isotonic recalibration and of the constant.

    The forecast is counts / n_paths (n,); `events` (n,) says whether the event happened.
    """
    n = len(events)
    persons = np.bincount(counts, minlength=n_paths + 1).astype(np.float64)
    happened = np.bincount(counts, weights=events, minlength=n_paths + 1)
    forecast = np.arange(n_paths + 1) / n_paths
    used = persons > 0
    share = happened[used] / persons[used]
    fitted = isotonic_regression(share, weights=persons[used]).x
    # Events are 0 or 1, so the mean of (p - event)^2 at one forecast p is p^2 - 2 p share + share.
    score = float(
        (persons[used] * (forecast[used] ** 2 - 2 * forecast[used] * share + share)).sum() / n
    )
    recalibrated = float((persons[used] * (fitted**2 - 2 * fitted * share + share)).sum() / n)
    rate = float(events.mean())
    return score, recalibrated, rate * (1 - rate)


def decompose_brier(
    counts: NDArray[np.integer], n_paths: int, events: NDArray[np.bool_]
) -> Decomposition:
    """The Brier score of the probability counts / n_paths; all parts are at least 0."""
    return Decomposition.of(*brier_parts(counts, n_paths, events))


def decompose_crps(
    score: float, counts: NDArray[np.integer], n_paths: int, outcomes: Array, thresholds: Array
) -> Decomposition:
    """A mean CRPS, split by integrating the Brier decompositions of the events y <= t.

    Gneiting and Ranjan (2011), eq. 4.

    Args:
        score: The fair CRPS. The miscalibration is then free of the noise of few paths, and can be
            slightly below 0.
        counts: Paths at or below each threshold (n, T).
        n_paths: Number of paths.
        outcomes: Outcomes (n,).
        thresholds: Midpoints (T,) of equal parts of the range of the outcomes. Outside it neither
            the recalibrated nor the constant forecast loses anything.
    """
    step = float(thresholds[1] - thresholds[0])
    parts = np.array(
        [brier_parts(counts[:, j], n_paths, outcomes <= t)[1:] for j, t in enumerate(thresholds)]
    )
    recalibrated, constant = step * parts.sum(axis=0)
    return Decomposition.of(score, float(recalibrated), float(constant))


def decompose_pinball(forecast: Array, outcomes: Array, quantile: float) -> Decomposition:
    """Quantile loss of forecasts (n,), split by isotonic quantile regression.

    Jordan, Muehlemann and Ziegel (2022).
    """
    constant = np.quantile(outcomes, quantile, method="inverted_cdf")
    means = (
        float(pinball(f, outcomes, quantile).mean())
        for f in (forecast, isotonic_quantile(forecast, outcomes, quantile), constant)
    )
    return Decomposition.of(*means)


def pinball(forecast: Array | float, outcomes: Array, quantile: float) -> Array:
    """Quantile (pinball) loss, shape (n,)."""
    error = outcomes - forecast
    return np.asarray(np.maximum(quantile * error, (quantile - 1) * error), dtype=np.float64)


def isotonic_quantile(forecast: Array, outcomes: Array, quantile: float) -> Array:
    """The increasing function of the forecast (n,) with the least quantile loss.

    Its value at each forecast; adjacent violators are pooled.
    """
    distinct, start = np.unique(np.sort(forecast), return_index=True)
    order = np.argsort(forecast, kind="stable")
    # For each block: sorted outcomes, their quantile, number of distinct forecasts.
    blocks: list[tuple[Array, float, int]] = []
    for group in np.split(outcomes[order], start[1:]):
        values, pooled = np.sort(group), 1
        fit = _lower_quantile(values, quantile)
        while blocks and blocks[-1][1] >= fit:
            before, _, more = blocks.pop()
            values = np.concatenate([before, values])
            values.sort(kind="stable")  # merges two sorted runs
            fit, pooled = _lower_quantile(values, quantile), pooled + more
        blocks.append((values, fit, pooled))
    fitted = np.repeat([q for _, q, _ in blocks], [pooled for _, _, pooled in blocks])
    return np.asarray(fitted[np.searchsorted(distinct, forecast)], dtype=np.float64)


def _lower_quantile(ordered: Array, quantile: float) -> float:
    return float(ordered[max(int(np.ceil(quantile * len(ordered) - 1e-9)) - 1, 0)])


@dataclass(frozen=True, eq=False)
class Curve:
    """Reliability in K classes of persons with similar forecasts.

    `forecast` (K,): mean forecast. `observed` (K,): isotonic share with the event. `n` (K,):
    persons. `chance` (B, K): simulated curves of a forecaster without fault, for the band.
    """

    forecast: Array
    observed: Array
    n: NDArray[np.int64]
    chance: Array

    @property
    def error(self) -> float:
        """Mean distance between forecast and observed share over persons."""
        return float(np.average(np.abs(self.observed - self.forecast), weights=self.n))


def reliability_curve(
    counts: NDArray[np.integer],
    first: NDArray[np.integer],
    n_paths: int,
    events: NDArray[np.bool_],
    *,
    min_persons: int,
    calibrated_on: int | None = None,
    n_replicates: int = 1_999,
    rng: np.random.Generator,
) -> Curve:
    """Reliability of the probability of an event, stated as the share of paths with it.

    Every second path decides the class of a person; the share among the other paths is the stated
    probability. If the same paths decided both, persons whose paths are extreme by chance would be
    in the extreme classes, and a forecaster without fault would look wrong. The simulated curves
    draw the events of each class with the stated probability (Broecker and Smith 2007) under the
    noise of the calibration map, and the noise of the paths.

    Args:
        counts: Paths with the event (n,).
        first: Those among every second path (n,).
        n_paths: Number of paths.
        events: Whether the event happened (n,).
        min_persons: Fewest persons of a class; each has about 1 / N_CLASSES of all.
        calibrated_on: Persons behind the calibration map; None: no map.
        n_replicates: Simulated curves B.
        rng: Random numbers of the simulated curves.
    """
    n_sorting = -(-n_paths // 2)
    starts = _class_starts(
        np.bincount(first, minlength=n_sorting + 1), max(min_persons, -(-len(events) // N_CLASSES))
    )
    position = np.searchsorted(starts, first, side="right") - 1
    n = np.bincount(position, minlength=len(starts))
    stated = (counts - first) / (n_paths - n_sorting)
    forecast = np.bincount(position, weights=stated, minlength=len(starts)) / n
    share = np.bincount(position, weights=events, minlength=len(starts)) / n
    grid = np.linspace(0, 1, n_paths + 1)
    truth = np.array(
        [
            np.interp(forecast, grid, noise)
            for noise in map_noise(n_paths, calibrated_on, n_replicates, rng)
        ]
    )
    # A calibrated probability is rounded to whole paths, alike for all with the same count.
    truth = np.clip(truth + rng.uniform(-0.5, 0.5, truth.shape) / n_paths, 0, 1)
    n_stating = n * (n_paths - n_sorting)
    simulated = rng.binomial(n, truth) / n - (
        rng.binomial(n_stating, forecast, truth.shape) / n_stating - forecast
    )
    chance = np.array([isotonic_regression(row, weights=n).x for row in simulated])
    return Curve(forecast, np.asarray(isotonic_regression(share, weights=n).x), n, chance)


def _class_starts(persons: NDArray[np.integer], min_persons: int) -> NDArray[np.int64]:
    """First count of each class: a class ends once it has `min_persons` persons.

    Persons that remain at the end join the last class.
    """
    starts, n_persons = [0], 0
    for count, n in enumerate(persons):
        if n_persons >= min_persons:
            starts.append(count)
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
    forecast: Array, outcomes: Array, noise: Array, calibrated_on: int | None = None
) -> Regression | None:
    """Regression of outcomes on forecast means.

    A forecaster without fault has mean error 0, intercept 0 and slope 1. None if the forecasts do
    not differ.

    Args:
        forecast: Forecast means (n,).
        outcomes: Outcomes (n,).
        noise: Variance of each forecast mean that comes from few paths (n,). It is taken out of the
            variance of the forecasts, as in a regression with errors in variables (Fuller 1987,
            sec. 1.2); otherwise the slope would be too small.
        calibrated_on: Calibration persons, whose chance the standard error of the mean error
            counts. Standard errors are robust to unequal variances (White 1980, HC1).
    """
    n = len(outcomes)
    error = outcomes - forecast
    centred = forecast - forecast.mean()
    spread = float(np.mean(centred**2)) - float(noise.mean())
    if n < 3 or spread <= 1e-12:
        return None
    slope = float(np.mean(centred * outcomes)) / spread
    residual = outcomes - outcomes.mean() - slope * centred
    # The corrected moment equation: each person's part of covariance less slope x true variance.
    moment = centred * residual + slope * noise
    slope_se = float(np.sqrt(n / (n - 2) * np.mean(moment**2) / n)) / spread
    persons = 1 / n + (1 / calibrated_on if calibrated_on else 0.0)
    return Regression(
        float(error.mean()),
        float(error.std(ddof=1) * np.sqrt(persons)),
        float(outcomes.mean() - slope * forecast.mean()),
        slope,
        slope_se,
    )
