"""Whether whole distributions are right: tables of ranks of outcomes and of probabilities of events, curves with a band for all points."""

from __future__ import annotations

import math

import numpy as np

from calibration.diagnostics.cases import SHARE, Cases, Rows
from calibration.diagnostics.person_results import EVENTS
from calibration.diagnostics.reliability import reliability_curve
from calibration.diagnostics.sampling_bands import map_noise, simultaneous_band
from calibration.diagnostics.verdicts import QUESTIONS, Light, curve_status

PIT_BINS = (20, 10, 5)


def pit(cases: Cases) -> tuple[Rows, list[Light]]:
    """Ranks of outcomes in their forecasts: their histogram and its running sum, each in a band that holds all of it."""
    rows: Rows = []
    lights: list[Light] = []
    for h, case in cases.judged.items():
        values, probability = case.frame["pit"].to_numpy(), 1 - SHARE / len(cases.judged)
        n = len(values)
        counts = {bins: np.histogram(values, bins=bins, range=(0, 1))[0] for bins in PIT_BINS}
        bins = next((b for b in PIT_BINS if n and counts[b].min() >= cases.min_cell), None)
        if bins is None:
            lights.append(Light("shape", h, "unclear"))
            continue
        rng = cases.rng("pit", h)
        ranks = map_noise(bins, cases.mapped_on(h), _replicates(probability), rng)
        chance = rng.multinomial(n, np.diff(ranks, axis=1)) / n
        share, ecdf = counts[bins] / n, np.cumsum(counts[bins]) / n
        lower, upper = simultaneous_band(np.cumsum(chance, axis=1)[:, :-1], probability)
        share_lower, share_upper = simultaneous_band(chance, probability)
        rank = np.arange(1, bins + 1) / bins
        size = float(np.abs(ecdf - rank).max())
        lower, upper = np.append(lower, 1.0), np.append(upper, 1.0)  # all ranks lie below 1
        outside = (ecdf < lower) | (ecdf > upper)
        reach = float((upper - lower)[:-1].max()) / 2
        found = curve_status(bool(outside.any()), reach, n, size=size, tolerance=QUESTIONS["shape"])
        lights.append(Light("shape", h, found, n, size))
        for j in range(bins):
            row = {
                "horizon": h,
                "rank": rank[j],
                "n": n,
                "share": share[j],
                "ecdf": ecdf[j],
                "outside": bool(outside[j]),
            }
            row |= {"share_lower": max(share_lower[j], 0.0), "share_upper": share_upper[j]}
            rows.append(row | {"band_lower": lower[j], "band_upper": upper[j]})
    return rows, lights


def reliability(cases: Cases) -> tuple[Rows, list[Light]]:
    """How often what was forecast with some probability happened, for EVENTS, in a band that holds the whole curve."""
    rows: Rows = []
    lights: list[Light] = []
    for event in EVENTS:
        for h, case in cases.judged.items():
            frame, probability = case.frame, 1 - SHARE / len(cases.judged)
            happened, drawn = frame[event].to_numpy(), frame[f"{event}_paths"].to_numpy()
            n = len(frame)
            if n < cases.min_cell:
                lights.append(Light(event, h, "unclear"))
                continue
            curve = reliability_curve(
                drawn,
                frame[f"{event}_first"].to_numpy(),
                case.paths,
                happened,
                least=cases.min_cell,
                calibrated_on=cases.mapped_on(h),
                replicates=_replicates(probability),
                rng=cases.rng(event, h),
            )
            lower, upper = (
                np.clip(limit, 0, 1) for limit in simultaneous_band(curve.chance, probability)
            )
            outside = (curve.observed < lower) | (curve.observed > upper)
            reach = float(np.average(upper - lower, weights=curve.n)) / 2
            size, tolerance = curve.error, QUESTIONS[event]
            found = curve_status(bool(outside.any()), reach, n, size=size, tolerance=tolerance)
            # What neither happened nor was forecast cannot have been forecast wrongly or rightly.
            found = found if happened.any() or drawn.any() else "unclear"
            lights.append(Light(event, h, found, n, size))
            for j in range(len(curve.n)):
                row = {
                    "event": event,
                    "horizon": h,
                    "forecast": curve.forecast[j],
                    "observed": curve.observed[j],
                    "n": int(curve.n[j]),
                }
                rows.append(
                    row
                    | {"band_lower": lower[j], "band_upper": upper[j], "outside": bool(outside[j])}
                )
    return rows, lights


def _replicates(probability: float) -> int:
    """Enough draws of chance for a band of this probability."""
    return max(1_999, math.ceil(4 / (1 - probability)))
