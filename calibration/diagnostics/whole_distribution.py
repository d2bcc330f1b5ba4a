"""Tables about whole distributions: ranks of outcomes, and reliability of probabilities.

Both are curves with a sampling band for all their points at once.
"""

from __future__ import annotations

import math

import numpy as np
from saga.calibration.diagnostics.cases import QUESTION_ALPHA, Cases, Rows
from saga.calibration.diagnostics.person_results import EVENTS
from saga.calibration.diagnostics.reliability import reliability_curve
from saga.calibration.diagnostics.sampling_bands import map_noise, simultaneous_band
from saga.calibration.diagnostics.verdicts import Verdict, curve_status

from saga.diagnostics_tables import QUESTIONS

PIT_BINS = (20, 10, 5)  # the first number with enough persons in each bin is taken


def tabulate_pit(cases: Cases) -> tuple[Rows, list[Verdict]]:
    """Histogram of the ranks of outcomes in their forecasts (PIT), and its running sum."""
    rows: Rows = []
    verdicts: list[Verdict] = []
    for h, results in cases.results.items():
        values, n = results.frame["pit"].to_numpy(), results.frame.height
        probability = 1 - QUESTION_ALPHA / len(cases.results)
        counts = {bins: np.histogram(values, bins=bins, range=(0, 1))[0] for bins in PIT_BINS}
        bins = next((b for b in PIT_BINS if n and counts[b].min() >= cases.min_persons), None)
        if bins is None:
            verdicts.append(Verdict("shape", h, "unclear"))
            continue
        rng = cases.rng("pit", h)
        ranks = map_noise(bins, cases.mapped_on(h), _n_replicates(probability), rng)
        chance = rng.multinomial(n, np.diff(ranks, axis=1)) / n
        share, ecdf = counts[bins] / n, np.cumsum(counts[bins]) / n
        lower, upper = simultaneous_band(np.cumsum(chance, axis=1)[:, :-1], probability)
        share_lower, share_upper = simultaneous_band(chance, probability)
        rank = np.arange(1, bins + 1) / bins
        size = float(np.abs(ecdf - rank).max())
        lower, upper = np.append(lower, 1.0), np.append(upper, 1.0)  # all ranks lie below 1
        outside = (ecdf < lower) | (ecdf > upper)
        reach = float((upper - lower)[:-1].max()) / 2
        status = curve_status(
            bool(outside.any()), reach, n, size=size, tolerance=QUESTIONS["shape"]
        )
        verdicts.append(Verdict("shape", h, status, n, size))
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
        for h, results in cases.results.items():
            frame, probability = results.frame, 1 - QUESTION_ALPHA / len(cases.results)
            happened, forecast = frame[event].to_numpy(), frame[f"p_{event}"].to_numpy()
            n = len(frame)
            if n < cases.min_persons:
                verdicts.append(Verdict(event, h, "unclear"))
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
            status = curve_status(
                bool(outside.any()), reach, n, size=curve.error, tolerance=QUESTIONS[event]
            )
            # An event that neither happened nor was forecast says nothing.
            status = status if happened.any() or forecast.any() else "unclear"
            verdicts.append(Verdict(event, h, status, n, curve.error))
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
