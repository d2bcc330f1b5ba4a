"""Verdicts on figures by stated rules, and which figures may be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saga.diagnostics_tables import QUESTIONS, STATUSES
from saga.small_groups import MIN_PERSONS, neighbour_mean

# Questions for which covering too much is better than too little.
COVERING = ("coverage", "groups", "together", "drift", "zero_bins")
# A figure inside its band "holds" only within these limits; otherwise it is "unclear".
MIN_VERDICT_PERSONS = 100
MAX_REACH = 5  # half the width of the band, in tolerances
MAX_SIZE = 2  # deviation, in tolerances


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
    """

    question: str
    horizon: int
    status: str
    n: int | None = None
    size: float | None = None
    coverage: float | None = None
    group: str | None = None
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "tolerance", self.tolerance or QUESTIONS[self.question])

    def row(self) -> dict[str, Any]:
        """A row of the report's table "verdicts", where the coverage is in the column `level`."""
        return {"level" if name == "coverage" else name: x for name, x in vars(self).items()}


def status(
    figure: float,
    lower: float,
    upper: float,
    n: int,
    *,
    target: float,
    tolerance: float,
    mild_above: bool = False,
) -> str:
    """Status "holds" or "unclear" inside the sampling band, "watch" or "fails" outside.

    Outside the band a figure fails if it is further from `target` than `tolerance`. Inside, it is
    unclear with fewer than 100 persons, a band wider than 5 tolerances on each side, or a deviation
    of more than 2 tolerances.

    Args:
        figure: The figure that is judged.
        lower: Lower end of its sampling band.
        upper: Upper end of its sampling band.
        n: Persons judged.
        target: What the figure should be.
        tolerance: The deviation that is small in practice.
        mild_above: Above the band "watch" is the worst status, because intervals that cover too
            much are only wider than necessary.
    """
    if not lower <= figure <= upper:
        mild = (mild_above and figure > upper) or abs(figure - target) <= tolerance
        return "watch" if mild else "fails"
    return _status_inside((upper - lower) / 2, n, abs(figure - target), tolerance)


def curve_status(outside: bool, reach: float, n: int, *, size: float, tolerance: float) -> str:
    """The status of a curve, by the same rules.

    Args:
        outside: Whether any part of the curve is outside its band.
        reach: Half the width of the band.
        n: Persons judged.
        size: Typical or largest deviation.
        tolerance: The deviation that is small in practice.
    """
    if outside:
        return "fails" if size > tolerance else "watch"
    return _status_inside(reach, n, size, tolerance)


def _status_inside(reach: float, n: int, size: float, tolerance: float) -> str:
    is_clear = reach <= MAX_REACH * tolerance and size <= MAX_SIZE * tolerance
    return "holds" if is_clear and n >= MIN_VERDICT_PERSONS else "unclear"


def worst_verdict(verdicts: Sequence[Verdict]) -> Verdict:
    """The worst by `severity`; an unclear one only if all are unclear."""
    return max([v for v in verdicts if v.status != "unclear"] or verdicts, key=severity)


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
