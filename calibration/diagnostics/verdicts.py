"""How a figure is judged: its sampling band, the verdict, and whether it may be shown.

A sampling band is where the figure of a forecaster without fault falls by chance. It is for one
figure, or for a whole curve at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from saga.calibration.fit.person_scores import rank_needed
from scipy import stats

from saga.arrays import Floats
from saga.diagnostics_tables import QUESTIONS, STATUSES
from saga.small_groups import MIN_PERSONS, neighbour_mean

# Questions for which covering too much is better than too little.
COVERING = ("coverage", "groups", "together", "periods", "zero_bins")
# A figure inside its band "holds" within its tolerance, and only if a miss of so many tolerances
# would have left the band with this probability; otherwise it is "unclear".
MISS = 2
POWER = 0.8
MIN_VERDICT_PERSONS = 100


@dataclass(frozen=True)
class Verdict:
    """The verdict on one question at one horizon.

    Attributes:
        question: A key of QUESTIONS.
        horizon: Years ahead; for "together" the number of years.
        status: One of STATUSES.
        n: Persons judged, None if too few to be shown.
        size: The deviation, figure less target; of a curve its size without a sign.
        coverage: The coverage at which the deviation is largest.
        group: The group, period or figure at which it is largest.
        tolerance: Largest deviation that is small in practice; 0: that of QUESTIONS.
        figures: Figures of which this is the worst; None: the question has one.
        judged: Those of them that can tell.
    """

    question: str
    horizon: int
    status: str = "unclear"
    n: int | None = None
    size: float | None = None
    coverage: float | None = None
    group: str | None = None
    tolerance: float = 0.0
    figures: int | None = None
    judged: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tolerance", self.tolerance or QUESTIONS[self.question])

    def of_curve(self, outside: bool, n: int, size: float, reach: float, sd: float) -> Verdict:
        """The verdict on a curve with a band of width 2 `reach` and standard deviation `sd`."""
        can_see = sees_miss(reach, sd, self.tolerance)
        status_of_curve = curve_status(
            outside, n, size=size, tolerance=self.tolerance, sees_miss=can_see
        )
        return replace(self, status=status_of_curve, n=n, size=size)

    def of_mean(self, deviation: float, n: int, se: float, z: float) -> Verdict:
        """The verdict on the deviation of a normal figure; its band is z standard errors wide."""
        outside = abs(deviation) > z * se
        of_size = self.of_curve(outside, n, abs(deviation), z * se, se)
        return replace(of_size, size=deviation)


def coverage_band(
    coverage: float, n: int, calibrated_on: int | None = None, *, probability: float = 0.95
) -> tuple[float, float]:
    """Central range of the share of n test persons inside intervals of this coverage.

    With m calibration persons n x share follows BetaBinomial(n, k, m + 1 - k),
    k = ceil((m + 1) coverage), which counts the chance of the calibration sample too (Vovk 2012).
    The upper end uses the outermost of the order statistics that a threshold averages. With too few
    calibration persons for a threshold (k > m) everybody is covered.

    Args:
        coverage: Stated coverage.
        n: Test persons.
        calibrated_on: Calibration persons m; None: the threshold is exact (binomial).
        probability: Probability that the range contains the figure.
    """
    tails = np.array([(1 - probability) / 2, (1 + probability) / 2])
    if calibrated_on is None:
        ends = stats.binom.ppf(tails, n, coverage)
    else:
        k = rank_needed(calibrated_on, coverage)
        if k > calibrated_on:
            return 1.0, 1.0
        outer = np.minimum(np.array([k, k + MIN_PERSONS - 1]), calibrated_on)
        # The quantiles of scipy's betabinom, which sums the distribution in each step of a search.
        cdfs = (
            stats.betabinom.pmf(np.arange(n + 1), n, k, calibrated_on + 1 - k).cumsum()
            for k in outer
        )
        ends = np.array(
            [min(int(np.searchsorted(cdf, tail)), n) for cdf, tail in zip(cdfs, tails, strict=True)]
        )
    return float(ends[0] / n), float(ends[1] / n)


def coverage_sees_miss(
    lower: float, coverage: float, n: int, calibrated_on: int | None, tolerance: float
) -> bool:
    """Whether intervals that cover MISS tolerances too few would be seen with probability POWER.

    Seen means a share below `lower`, the lower end of the `coverage_band` of n test persons.
    """
    missed = coverage - MISS * tolerance
    if missed <= 0:
        return False
    return coverage_band(missed, n, calibrated_on, probability=2 * POWER - 1)[1] < lower


def sees_miss(reach: float, sd: float, tolerance: float) -> bool:
    """The same of a normal figure with standard deviation `sd` and a band of width 2 `reach`."""
    return reach + float(stats.norm.ppf(POWER)) * sd <= MISS * tolerance


def map_noise(
    bins: int, calibrated_on: int | None, n_replicates: int, rng: np.random.Generator
) -> Floats:
    """True ranks at the calibrated ranks 0, 1 / bins, ..., 1, shape (n_replicates, bins + 1).

    A map is the empirical distribution of its persons, so each 1 / bins of its probability truly
    has a Dirichlet share.

    Args:
        bins: Number of equal parts of the calibrated probability.
        calibrated_on: Persons behind the map; None: the ranks are exact.
        n_replicates: Number of simulated maps.
        rng: Random numbers.
    """
    if calibrated_on is None:
        return np.tile(np.linspace(0, 1, bins + 1), (n_replicates, 1))
    shares = rng.dirichlet(np.full(bins, (calibrated_on + 1) / bins), n_replicates)
    ranks = np.concatenate([np.zeros((n_replicates, 1)), np.cumsum(shares, axis=1)], axis=1)
    return np.asarray(np.minimum(ranks, 1.0), dtype=np.float64)


def simultaneous_band(replicates: Floats, probability: float) -> tuple[Floats, Floats]:
    """Limits (K,) that contain a curve like the `replicates` (B, K) at all K points at once.

    Max-type: mean plus and minus c standard deviations, c the ceil((B + 1) probability)-th smallest
    of the replicates' largest standardised distances. A further draw leaves the band with
    probability at most 1 - `probability` (Dwass 1957), up to the noise in mean and standard
    deviation. Raises ValueError unless B exceeds probability / (1 - probability).
    """
    b = len(replicates)
    k = math.ceil((b + 1) * probability - 1e-9)
    if k > b:
        raise ValueError(f"{b} replicates are too few for a band of probability {probability:g}")
    mean, sd = replicates.mean(axis=0), replicates.std(axis=0, ddof=1)
    scale = np.maximum(sd, 1e-12)
    largest = np.sort((np.abs(replicates - mean) / scale).max(axis=1))
    reach = largest[k - 1] * sd + 1e-12
    return mean - reach, mean + reach


def status(
    figure: float,
    lower: float,
    upper: float,
    n: int,
    *,
    target: float,
    tolerance: float,
    sees_miss: bool,
) -> str:
    """Status "holds" or "unclear" inside the sampling band, "watch" or "fails" outside.

    Outside the band a share fails if it is further from `target` than `tolerance`. Inside, it holds
    if it is no further, and 100 persons and more would have shown a miss. Above the band "watch" is
    the worst status, because intervals that cover too much are only wider than necessary.

    Args:
        figure: The share of persons inside their intervals.
        lower: Lower end of its sampling band.
        upper: Upper end of its sampling band.
        n: Persons judged.
        target: What the figure should be.
        tolerance: The deviation that is small in practice.
        sees_miss: Whether a miss would probably have left the band.
    """
    size = abs(figure - target)
    if figure > upper:
        return "watch"
    outside = not lower <= figure <= upper
    return curve_status(outside, n, size=size, tolerance=tolerance, sees_miss=sees_miss)


def curve_status(outside: bool, n: int, *, size: float, tolerance: float, sees_miss: bool) -> str:
    """The status of a curve, by the same rules.

    Args:
        outside: Whether any part of the curve is outside its band.
        n: Persons judged.
        size: Typical or largest deviation.
        tolerance: The deviation that is small in practice.
        sees_miss: Whether a miss would probably have left the band.
    """
    if outside:
        return "fails" if size > tolerance else "watch"
    return "holds" if size <= tolerance and sees_miss and n >= MIN_VERDICT_PERSONS else "unclear"


def worst_verdict(verdicts: Sequence[Verdict]) -> Verdict:
    """The worst by `severity`, with its counts; an unclear one only if all are unclear."""
    clear = [v for v in verdicts if v.status != "unclear"]
    worst = max(clear or verdicts, key=severity)
    return replace(worst, figures=len(verdicts), judged=len(clear))


def severity(verdict: Verdict) -> tuple[int, bool, float]:
    """Orders verdicts from good to bad.

    By status; of equal status, those that only cover too much come first; then by the deviation in
    tolerances.
    """
    size = verdict.size or 0.0
    return (
        STATUSES.index(verdict.status),
        not (verdict.question in COVERING and size > 0),
        abs(size) / verdict.tolerance,
    )


def publishable(counts: Mapping[str, int], min_persons: int) -> set[str]:
    """The groups whose figures may be shown, from persons by group ("": no group).

    Groups below `min_persons` are hidden. Then the smallest of the others are hidden until the
    hidden persons are none or at least `min_persons`. So no figure of a small group follows from
    the total and the groups shown.
    """
    shown = {group for group, n in counts.items() if group and n >= min_persons}
    while 0 < sum(n for group, n in counts.items() if group not in shown) < min_persons and shown:
        shown.remove(min(shown, key=lambda group: (counts[group], group)))
    return shown


def rounded(value: float, digits: int = 3) -> float:
    """The value to so many significant digits."""
    return float(f"{value:.{digits}g}")


def typical_value(values: NDArray[Any], quantile: float = 0.5) -> float:
    """The average of the ten values around a quantile, to three digits: not one person's value.

    Fewer than ten values are averaged as a whole.
    """
    ordered = np.sort(values)
    count = min(MIN_PERSONS, len(ordered))
    start = int(len(ordered) * quantile) - MIN_PERSONS // 2
    start = max(0, min(start, len(ordered) - count))
    return rounded(neighbour_mean(ordered, start, count))
