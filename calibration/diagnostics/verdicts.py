"""Verdicts on figures by stated rules, and which figures may be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.fit.split_conformal import NEIGHBOURS

# Question -> the deviation that is small in practice: shares in probability, "level" (mean bias)
# in log earnings (its slope: twice that).
QUESTIONS: dict[str, float] = {
    "coverage": 0.02,
    "groups": 0.02,
    "together": 0.02,
    "shape": 0.02,
    "level": 0.05,
    "zero": 0.02,
    "low_pay": 0.02,
    "drift": 0.02,
}
COVERING = ("coverage", "groups", "together")  # the questions about intervals: they may be too wide
STATUSES = ("holds", "unclear", "watch", "fails")  # from good to bad
FEWEST = 100  # persons below which no verdict is good
BLUNT = 5  # a band wider than this many tolerances on each side would hide a large fault
LARGE = 2  # tolerances beyond which a deviation is not called good, although chance explains it


@dataclass(frozen=True)
class Verdict:
    """The verdict on one question at one horizon.

    Attributes:
        question: A key of QUESTIONS.
        horizon: Years ahead.
        status: One of STATUSES.
        n: Persons judged, None if too few to be shown.
        size: The deviation.
        coverage: The coverage at which the deviation is largest.
        group: The group, period or figure at which it is largest.
        tolerance: What is small; 0: what is small for the question.
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
        """A row of the table "lights"."""
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
    """Status "holds" inside the band, "watch" or "fails" outside, "unclear" if it says little.

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
            much are only wide.
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
    unclear = n < FEWEST or reach > BLUNT * tolerance or size > LARGE * tolerance
    return "unclear" if unclear else "holds"


def worst_verdict(verdicts: Sequence[Verdict]) -> Verdict:
    """The worst by `severity`; an unclear one only if all are unclear."""
    return max([v for v in verdicts if v.status != "unclear"] or verdicts, key=severity)


def severity(verdict: Verdict) -> tuple[int, bool, float]:
    """Orders verdicts from good to bad.

    By status, then intervals that cover too little after those that cover too much, then by the
    deviation in tolerances.
    """
    size = verdict.size or 0.0
    return (
        STATUSES.index(verdict.status),
        not (verdict.question in COVERING and size > 0),
        abs(size) / verdict.tolerance,
    )


def publishable(counts: Mapping[str, int], least: int) -> set[str]:
    """The groups whose figures may be shown, from persons by group ("": no group).

    Groups below `least` persons are hidden. Then the smallest of the others are hidden until the
    hidden persons are none or at least `least`, so that no figure of a small group follows from the
    total less the groups shown.
    """
    shown = {group for group, n in counts.items() if group and n >= least}
    while 0 < sum(n for group, n in counts.items() if group not in shown) < least and shown:
        shown.remove(min(shown, key=lambda group: (counts[group], group)))
    return shown


def rounded(value: float, digits: int = 3) -> float:
    """The value to so many significant digits."""
    return float(f"{value:.{digits}g}")


def typical_value(values: NDArray[Any]) -> float:
    """The average of the ten values around the median, to three digits: nobody's own value."""
    ordered = np.sort(values)
    start = max(0, len(ordered) // 2 - NEIGHBOURS // 2)
    return rounded(float(ordered[start : start + NEIGHBOURS].mean()))
