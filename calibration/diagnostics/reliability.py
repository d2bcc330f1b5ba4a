"""Is a forecast right on average wherever it says the same? Isotonic recalibration, what it would gain, and regression on the forecast.

A score S splits exactly into S = MCB - DSC + UNC (Dimitriadis, Gneiting and Jordan 2021): UNC is the score of the best constant forecast,
DSC what recalibrated forecasts gain on it, MCB what recalibration would gain. Recalibration is isotonic: pool adjacent violators.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from calibration.diagnostics.sampling_bands import map_noise

Array = NDArray[np.float64]


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
    counts: NDArray[np.integer], paths: int, events: NDArray[np.bool_]
) -> tuple[float, float, float]:
    """Mean Brier scores of the forecast count / paths (n,), of its isotonic recalibration and of the constant, for `events` (n,)."""
    n = len(events)
    persons = np.bincount(counts, minlength=paths + 1).astype(np.float64)
    happened = np.bincount(counts, weights=events, minlength=paths + 1)
    forecast = np.arange(paths + 1) / paths
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
    counts: NDArray[np.integer], paths: int, events: NDArray[np.bool_]
) -> Decomposition:
    """The Brier score of the probability count / paths of an event; every part is at least 0."""
    return Decomposition.of(*brier_parts(counts, paths, events))


def decompose_crps(
    score: float, counts: NDArray[np.integer], paths: int, outcomes: Array, thresholds: Array
) -> Decomposition:
    """A mean CRPS, split by integrating the Brier decompositions of the events y <= t (Gneiting and Ranjan 2011, eq. 4).

    `counts` (n, T) are the paths at or below each of the `thresholds` (T,), equally spaced cell midpoints over the range of `outcomes`
    (n,): outside it neither the recalibrated nor the constant forecast loses anything. `score` is the fair CRPS, so the miscalibration is
    free of the noise of few paths and can fall slightly below 0.
    """
    step = float(thresholds[1] - thresholds[0])
    parts = np.array(
        [brier_parts(counts[:, j], paths, outcomes <= t)[1:] for j, t in enumerate(thresholds)]
    )
    recalibrated, constant = step * parts.sum(axis=0)
    return Decomposition.of(score, float(recalibrated), float(constant))


def decompose_pinball(forecast: Array, outcomes: Array, level: float) -> Decomposition:
    """Quantile loss of forecasts (n,) at `level`, split by isotonic quantile regression (Jordan, Muehlemann and Ziegel 2022)."""
    constant = np.quantile(outcomes, level, method="inverted_cdf")
    means = (
        float(pinball(f, outcomes, level).mean())
        for f in (forecast, isotonic_quantile(forecast, outcomes, level), constant)
    )
    return Decomposition.of(*means)


def pinball(forecast: Array | float, outcomes: Array, level: float) -> Array:
    """Quantile (pinball) loss, shape (n,)."""
    error = outcomes - forecast
    return np.asarray(np.maximum(level * error, (level - 1) * error), dtype=np.float64)


def isotonic_quantile(forecast: Array, outcomes: Array, level: float) -> Array:
    """The increasing function of the forecast with the least quantile loss, at each forecast (n,): adjacent violators pooled."""
    distinct, start = np.unique(np.sort(forecast), return_index=True)
    order = np.argsort(forecast, kind="stable")
    blocks: list[
        tuple[Array, float, int]
    ] = []  # sorted outcomes, their quantile, distinct forecasts pooled
    for group in np.split(outcomes[order], start[1:]):
        values, pooled = np.sort(group), 1
        quantile = _lower_quantile(values, level)
        while blocks and blocks[-1][1] >= quantile:
            before, _, more = blocks.pop()
            values = np.concatenate([before, values])
            values.sort(kind="stable")  # two sorted runs: merged, not sorted anew
            quantile, pooled = _lower_quantile(values, level), pooled + more
        blocks.append((values, quantile, pooled))
    fitted = np.repeat([q for _, q, _ in blocks], [pooled for _, _, pooled in blocks])
    return np.asarray(fitted[np.searchsorted(distinct, forecast)], dtype=np.float64)


def _lower_quantile(ordered: Array, level: float) -> float:
    return float(ordered[max(int(np.ceil(level * len(ordered) - 1e-9)) - 1, 0)])


@dataclass(frozen=True, eq=False)
class Curve:
    """Reliability in K bins of persons with like forecasts: mean forecast, isotonic observed share, persons, and what chance gives.

    `chance` (B, K): curves of a forecaster that is right, for the band.
    """

    forecast: Array
    observed: Array
    n: NDArray[np.int64]
    chance: Array

    @property
    def error(self) -> float:
        """Mean distance between forecast and observed share over persons: how wrong a stated probability typically is."""
        return float(np.average(np.abs(self.observed - self.forecast), weights=self.n))


def reliability_curve(
    counts: NDArray[np.integer],
    first: NDArray[np.integer],
    paths: int,
    events: NDArray[np.bool_],
    *,
    least: int,
    bins: int = 12,
    calibrated_on: int | None = None,
    replicates: int = 1_999,
    rng: np.random.Generator,
) -> Curve:
    """Reliability of the probability of an event, from paths: `counts` (n,) of those with it, `first` (n,) of these in every second path.

    Persons are sorted into bins by every second path, and the other paths say what to expect there. With one set of paths for both, those
    that few paths happen to make look extreme would gather in the extreme bins, and a forecaster that is right would look wrong.
    Chance curves draw each bin's events with the stated probability (Broecker and Smith 2007), after the noise of a calibration map learnt
    from `calibrated_on` persons, and the noise of the stating paths. Each bin holds at least `least` persons and about 1 / `bins` of all.
    """
    sorting = -(-paths // 2)
    starts = _bin_starts(
        np.bincount(first, minlength=sorting + 1), max(least, -(-len(events) // bins))
    )
    place = np.searchsorted(starts, first, side="right") - 1
    n = np.bincount(place, minlength=len(starts))
    forecast = (
        np.bincount(place, weights=(counts - first) / (paths - sorting), minlength=len(starts)) / n
    )
    share = np.bincount(place, weights=events, minlength=len(starts)) / n
    grid = np.linspace(0, 1, paths + 1)
    truth = np.array(
        [
            np.interp(forecast, grid, noise)
            for noise in map_noise(paths, calibrated_on, replicates, rng)
        ]
    )
    # A calibrated probability is rounded to whole paths, alike for all who have the same number of them.
    truth = np.clip(truth + rng.uniform(-0.5, 0.5, truth.shape) / paths, 0, 1)
    spoken = n * (paths - sorting)
    drawn = rng.binomial(n, truth) / n - (
        rng.binomial(spoken, forecast, truth.shape) / spoken - forecast
    )
    chance = np.array([isotonic_regression(row, weights=n).x for row in drawn])
    return Curve(forecast, np.asarray(isotonic_regression(share, weights=n).x), n, chance)


def _bin_starts(persons: NDArray[np.integer], least: int) -> NDArray[np.int64]:
    """First count of each bin: a bin is closed once it has `least` persons; too small a rest joins the last one."""
    starts, held = [0], 0
    for count, n in enumerate(persons):
        if held >= least:
            starts.append(count)
            held = 0
        held += int(n)
    if held < least and len(starts) > 1:
        starts.pop()
    return np.array(starts)


@dataclass(frozen=True)
class Regression:
    """Outcome = intercept + slope x forecast (Mincer and Zarnowitz 1969), with standard errors of mean error and slope."""

    mean_error: float
    mean_error_se: float
    intercept: float
    slope: float
    slope_se: float


def mincer_zarnowitz(
    forecast: Array, outcomes: Array, noise: Array, calibrated_on: int | None = None
) -> Regression | None:
    """Regression of outcomes (n,) on forecast means (n,): a forecaster that is right has mean error 0, intercept 0 and slope 1.

    `noise` (n,) is the variance of each forecast mean that comes from few paths; it is taken out of the variance of the forecasts, as in
    a regression with errors in variables (Fuller 1987, sec. 1.2), else the slope would fall short of 1. Standard errors are robust to
    unequal variances (White 1980, HC1); that of the mean error counts the calibration persons too. None where forecasts do not differ.
    """
    n = len(outcomes)
    error = outcomes - forecast
    centred = forecast - forecast.mean()
    spread = float(np.mean(centred**2)) - float(noise.mean())
    if n < 3 or spread <= 1e-12:
        return None
    slope = float(np.mean(centred * outcomes)) / spread
    residual = outcomes - outcomes.mean() - slope * centred
    # The score of the corrected moment equation: what each person adds to covariance less slope x true variance.
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
