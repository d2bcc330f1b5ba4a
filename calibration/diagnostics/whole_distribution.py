"""Tables about whole distributions: ranks, reliability of probabilities, mean error.

Ranks and probabilities are curves with a sampling band for all their points at once. Probabilities
are recalibrated by isotonic regression, by pool adjacent violators (Dimitriadis, Gneiting and
Jordan 2021).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from saga.calibration.diagnostics.person_results import (
    EVENTS,
    QUESTION_ALPHA,
    Cases,
    Rows,
)
from saga.calibration.diagnostics.verdicts import (
    Verdict,
    map_noise,
    rounded,
    severity,
    simultaneous_band,
)
from scipy import stats
from scipy.optimize import isotonic_regression

from saga.arrays import Floats

PIT_BINS = (20, 10, 5)  # the first number with enough persons in each bin is taken
N_CLASSES = 12  # of a reliability curve
N_MAP_BINS = 200  # parts of the probability scale in which the noise of a map is simulated


def tabulate_pit(cases: Cases) -> tuple[Rows, list[Verdict]]:
    """Histogram of the ranks of outcomes in their forecasts (PIT), and its running sum."""
    rows: Rows = []
    verdicts: list[Verdict] = []
    for h, results in cases.results.items():
        values, n = results["pit"].to_numpy(), results.height
        probability = 1 - QUESTION_ALPHA / len(cases.results)
        counts = {bins: np.histogram(values, bins=bins, range=(0, 1))[0] for bins in PIT_BINS}
        bins = next((b for b in PIT_BINS if n and counts[b].min() >= cases.min_persons), None)
        if bins is None:
            verdicts.append(Verdict("shape", h))
            continue
        rng = cases.rng("pit", h)
        ranks = map_noise(bins, cases.mapped_on(h), _n_replicates(probability), rng)
        chance = rng.multinomial(n, np.diff(ranks, axis=1)) / n
        share, ecdf = counts[bins] / n, np.cumsum(counts[bins]) / n
        curves = np.cumsum(chance, axis=1)[:, :-1]
        lower, upper = simultaneous_band(curves, probability)
        share_lower, share_upper = simultaneous_band(chance, probability)
        rank = np.arange(1, bins + 1) / bins
        size = float(np.abs(ecdf - rank).max())
        lower, upper = np.append(lower, 1.0), np.append(upper, 1.0)  # all ranks lie below 1
        outside = (ecdf < lower) | (ecdf > upper)
        reach, sd = float((upper - lower)[:-1].max()) / 2, float(curves.std(axis=0).max())
        verdicts.append(Verdict("shape", h).of_curve(bool(outside.any()), n, size, reach, sd))
        rows += [
            {
                "horizon": h,
                "rank": rank[j],
                "n": n,
                "share": share[j],
                "share_lower": max(share_lower[j], 0.0),
                "share_upper": share_upper[j],
                "ecdf": ecdf[j],
                "band_lower": lower[j],
                "band_upper": upper[j],
                "outside": bool(outside[j]),
            }
            for j in range(bins)
        ]
    return rows, verdicts


def tabulate_reliability(cases: Cases) -> tuple[Rows, list[Verdict]]:
    """Stated probabilities of EVENTS, and how often the events happened."""
    rows: Rows = []
    verdicts: list[Verdict] = []
    for event in EVENTS:
        for h, frame in cases.results.items():
            probability = 1 - QUESTION_ALPHA / len(cases.results)
            happened, forecast = frame[event].to_numpy(), frame[f"p_{event}"].to_numpy()
            n = len(frame)
            if n < cases.min_persons:
                verdicts.append(Verdict(event, h))
                continue
            curve = reliability_curve(
                forecast,
                happened,
                min_persons=cases.min_persons,
                calibrated_on=cases.mapped_on(h),
                n_replicates=_n_replicates(probability),
                rng=cases.rng(event, h),
            )
            lower, upper = (
                np.clip(limit, 0, 1) for limit in simultaneous_band(curve.chance, probability)
            )
            outside = (curve.observed < lower) | (curve.observed > upper)
            reach = float(np.average(upper - lower, weights=curve.n)) / 2
            sd = float(np.average(curve.chance.std(axis=0), weights=curve.n))
            verdict = Verdict(event, h).of_curve(bool(outside.any()), n, curve.error, reach, sd)
            # An event that neither happened nor was forecast says nothing.
            says_something = happened.any() or forecast.any()
            verdicts.append(verdict if says_something else replace(verdict, status="unclear"))
            rows += [
                {
                    "event": event,
                    "horizon": h,
                    "forecast": curve.forecast[j],
                    "observed": curve.observed[j],
                    "n": int(curve.n[j]),
                    "band_lower": lower[j],
                    "band_upper": upper[j],
                    "outside": bool(outside[j]),
                }
                for j in range(len(curve.n))
            ]
    return rows, verdicts


def _n_replicates(probability: float) -> int:
    """Enough simulated curves for a band of this probability."""
    return max(1_999, math.ceil(4 / (1 - probability)))


def tabulate_mean_error(cases: Cases, unconditioned: Cases) -> tuple[Rows, list[Verdict]]:
    """Mean of outcome less forecast in logs, and the regression of outcomes on forecasts.

    Mincer and Zarnowitz (1969). The column `economy` says by how much, in logs, the forecasts of
    `cases` are above those of the same persons in `unconditioned`.
    """
    rows: Rows = []
    verdicts: list[Verdict] = []
    # Two figures a horizon: the mean error and the slope.
    z = float(stats.norm.ppf(1 - QUESTION_ALPHA / (2 * len(cases.results)) / 2))
    for h, frame in cases.results.items():
        n = frame.height
        forecast, outcome = frame["mean_log"].to_numpy(), frame["log_y"].to_numpy()
        enough = n >= cases.min_persons
        regression = mincer_zarnowitz(forecast, outcome, cases.mapped_on(h)) if enough else None
        if regression is None:
            verdicts.append(Verdict("mean_error", h))
            continue
        mean_error, slope = regression.mean_error, regression.slope
        error_reach, slope_reach = z * regression.mean_error_se, z * regression.slope_se
        # The worse of the two is the verdict; unclear is worse than holds, because both figures are
        # of the same persons.
        error = Verdict("mean_error", h)
        of_slope = replace(error, group="slope", tolerance=2 * error.tolerance)
        both = (
            error.of_mean(mean_error, n, regression.mean_error_se, z),
            of_slope.of_mean(slope - 1, n, regression.slope_se, z),
        )
        verdict = max(both, key=severity)
        verdicts.append(verdict)
        unconditioned_mean = unconditioned.results[h]["mean_log"]
        rows.append(
            {
                "horizon": h,
                "n": n,
                "mean_forecast": rounded(float(frame["mean"].mean())),  # type: ignore[arg-type]
                "mean_outcome": rounded(float(frame["y"].mean())),  # type: ignore[arg-type]
                "mean_error": mean_error,
                "error_lower": -error_reach,
                "error_upper": error_reach,
                "intercept": regression.intercept,
                "slope": slope,
                "slope_lower": 1 - slope_reach,
                "slope_upper": 1 + slope_reach,
                "economy": float((frame["mean_log"] - unconditioned_mean).mean()),  # type: ignore[arg-type]
                "status": verdict.status,
            }
        )
    return rows, verdicts


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
