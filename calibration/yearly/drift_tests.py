"""Tests for drift, with their false-alarm rates, and what to do after them.

Is the bundle's own calibration still right? A test compares the share of outcomes outside the
bundle's 90 % interval with 10 %. Under the null hypothesis the year is like those of the
calibration: the share deviates by sampling and by the usual variation of years, whose standard
deviation the calibration has estimated from past origin years (`fit.drift`). With n persons the
variance is drift^2 + 0.09 / n, and the degrees of freedom are the number of those past years.

The tests of one family and year together have the false-alarm rate ALPHA (Holm 1979). The
sequential test looks at all years so far: a test martingale, a mixture of likelihood ratios for a
lasting shift, alarms if it reaches 1 / ALPHA. The probability that it ever does so by chance is at
most ALPHA (Ville 1939), so it may be looked at each year. Thresholds are taken as exact: from few
calibration persons they have a lasting error, which the tests find, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from scipy.stats import norm, t

from saga.conformal.calibration_table import ALL

ALPHA = 0.05
NOMINAL = 0.1  # share outside the interval
MIN_PERSONS = 100  # a group with fewer is not tested
Action = Literal["keep", "recalibrate", "fine-tune", "retrain"]
YEARS_TO_RETRAIN = 3
COMMANDS: dict[Action, str] = {
    "keep": "Nothing to do. Deliver the next year in the same way.",
    "recalibrate": "saga calibrate BUNDLE --panel PANEL --out NEW",
    "fine-tune": "saga train --from BUNDLE --panel PANEL --out NEW, then saga calibrate NEW",
    "retrain": "saga train --panel PANEL --out NEW, then saga calibrate NEW",
}
_MEDIAN_VARIANCE = math.pi / 2  # variance of a median, divided by that of a mean
# Variance of the lasting shifts in the martingale's mixture, in squared standard errors of a year.
_SHIFT_VARIANCE = 4.0
_LARGEST_LOG = 700.0  # beyond it a number is no float


@dataclass(frozen=True)
class DriftScale:
    """Usual variation of coverage between years, and the number of years that it is from.

    Without an estimate (0, 0) only sampling counts, and a common shock of a year counts as drift.
    """

    deviation: float
    years: int


@dataclass(frozen=True)
class DriftTest:
    """One test of a year.

    Attributes:
        kind: Family of the test, "level" or "difference".
        group: The group that is tested.
        persons: Their number.
        excess: Share outside less the nominal share; for "difference", less the median share of the
            other groups.
        p_value: The p-value, adjusted for the other tests of the family.
        alarm: Whether the p-value is below ALPHA.
    """

    kind: str
    group: str
    persons: int
    excess: float
    p_value: float
    alarm: bool


def compare_levels(
    outside: Mapping[str, tuple[float, int]], scale: DriftScale
) -> tuple[DriftTest, ...]:
    """Whether the share outside is 10 % in each group; `outside` has shares and persons."""
    groups = [group for group, (_, n) in sorted(outside.items()) if n >= MIN_PERSONS]
    excess = {group: outside[group][0] - NOMINAL for group in groups}
    p_values = [
        _p_value(excess[group], _standard_error(outside[group][1], scale), scale)
        for group in groups
    ]
    return _tests("level", groups, excess, outside, p_values)


def compare_groups(
    outside: Mapping[str, tuple[float, int]], scale: DriftScale
) -> tuple[DriftTest, ...]:
    """Whether the share outside is in each group equal to the median share of the other groups.

    With the mean in place of the median, one group that drifts would make all others differ.
    """
    groups = [group for group, (_, n) in sorted(outside.items()) if n >= MIN_PERSONS]
    groups = [group for group in groups if group != ALL]
    excess: dict[str, float] = {}
    p_values = []
    for group in groups:
        share, n = outside[group]
        rest = [outside[other] for other in groups if other != group]
        n_rest = sum(m for _, m in rest)
        if not n_rest:
            return ()
        excess[group] = share - median(other for other, _ in rest)
        sampling = 1 / n + _MEDIAN_VARIANCE / n_rest
        variance = NOMINAL * (1 - NOMINAL) * sampling + scale.deviation**2
        p_values.append(_p_value(excess[group], math.sqrt(variance), scale))
    return _tests("difference", groups, excess, outside, p_values)


def sequential_test(shares: Sequence[tuple[float, int]], scale: DriftScale) -> list[float]:
    """The test martingale after each year; `shares` are those outside with persons, by year."""
    values, total = [], 0.0
    for year, (share, n) in enumerate(shares, start=1):
        statistic = (share - NOMINAL) / _standard_error(n, scale)
        total += _normal_score(statistic, scale)
        spread = 1 + year * _SHIFT_VARIANCE
        log_mixture = min(_SHIFT_VARIANCE * total**2 / (2 * spread), _LARGEST_LOG)
        values.append(math.exp(log_mixture) / math.sqrt(spread))
    return values


def _standard_error(persons: int, scale: DriftScale) -> float:
    return math.sqrt(scale.deviation**2 + NOMINAL * (1 - NOMINAL) / persons)


def _p_value(excess: float, standard_error: float, scale: DriftScale) -> float:
    tail = t.sf(abs(excess) / standard_error, scale.years) if scale.years else None
    return float(2 * (norm.sf(abs(excess) / standard_error) if tail is None else tail))


def _normal_score(statistic: float, scale: DriftScale) -> float:
    """The statistic as a standard normal variable under the null hypothesis."""
    if not scale.years:
        return statistic
    tail = float(t.logsf(abs(statistic), scale.years))
    return math.copysign(float(norm.isf(math.exp(max(tail, -_LARGEST_LOG)))), statistic)


def _tests(
    kind: str,
    groups: Sequence[str],
    excess: Mapping[str, float],
    outside: Mapping[str, tuple[float, int]],
    p_values: Sequence[float],
) -> tuple[DriftTest, ...]:
    """The tests of one family with p-values adjusted by Holm's method."""
    ordered = sorted(range(len(groups)), key=lambda i: p_values[i])
    adjusted, highest = dict.fromkeys(range(len(groups)), 1.0), 0.0
    for place, i in enumerate(ordered):
        highest = max(highest, min(1.0, (len(groups) - place) * p_values[i]))
        adjusted[i] = highest
    return tuple(
        DriftTest(kind, g, outside[g][1], excess[g], adjusted[i], adjusted[i] < ALPHA)
        for i, g in enumerate(groups)
    )


@dataclass(frozen=True)
class YearTests:
    """The tests of one outcome year, and the test martingale after it."""

    year: int
    levels: tuple[DriftTest, ...]
    differences: tuple[DriftTest, ...]
    martingale: float

    @property
    def has_drift(self) -> bool:
        """Whether a group's coverage, or the coverage of all years together, alarms."""
        return any(test.alarm for test in self.levels) or self.martingale >= 1 / ALPHA

    @property
    def groups_differ(self) -> bool:
        """Whether the coverage of a group differs from that of the others."""
        return any(test.alarm for test in self.differences)


def recommend(years: Sequence[YearTests]) -> tuple[Action, str]:
    """What to do after the tests of these outcome years, ascending, and the rule that says so.

    COMMANDS has the command of each action.
    """
    if not years:
        return "keep", "No outcome of the forecasts one year ahead is known yet."
    newest = years[-1]
    if not newest.levels:
        return "keep", f"Too few persons have an outcome in {newest.year} to judge the forecasts."
    last = years[-YEARS_TO_RETRAIN:]
    if len(last) == YEARS_TO_RETRAIN and all(year.groups_differ for year in last):
        return (
            "retrain",
            f"In {YEARS_TO_RETRAIN} outcome years in a row ({last[0].year} to {newest.year}) the "
            "coverage of groups differed: the network keeps ranking persons wrongly.",
        )
    if newest.groups_differ:
        groups = ", ".join(test.group for test in newest.differences if test.alarm)
        return (
            "fine-tune",
            f"In {newest.year} the coverage of some groups differs from that of the others "
            f"({groups}): one map for all persons cannot correct this.",
        )
    if newest.has_drift:
        return (
            "recalibrate",
            f"Coverage drifted up to {newest.year}, in all groups alike: new maps and thresholds "
            "are enough. Until then the ledger corrects it.",
        )
    return (
        "keep",
        f"No test of {newest.year} alarms; together they alarm by chance in "
        f"{100 * ALPHA:.0f} % of years.",
    )
