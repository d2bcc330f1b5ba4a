"""What a figure means: a light by stated rules, and what of it may be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.fit.split_conformal import NEIGHBOURS

# Question -> the deviation that is small in practice: shares in probability, "level" in log earnings (its slope: twice that).
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
COVERING = ("coverage", "groups", "together")  # the questions about ranges, which may be too wide
STATUSES = ("holds", "unclear", "watch", "fails")  # from good to bad
FEWEST = 100  # persons below which nothing is called good
BLUNT = 5  # a band wider than so many tolerances on each side would let a large fault pass
LARGE = 2  # a deviation of more tolerances than these is not called good, though chance explains it: a fault would as well


@dataclass(frozen=True)
class Light:
    """The verdict on one question at one horizon: `size` is the deviation found, `level` and `group` where it was worst, `tolerance`
    what is small there (0: what is small for the question)."""

    question: str
    horizon: int
    status: str
    n: int | None = None
    size: float | None = None
    level: float | None = None
    group: str | None = None
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "tolerance", self.tolerance or QUESTIONS[self.question])

    def row(self) -> dict[str, Any]:
        """As a row of the table of lights."""
        return dict(vars(self))


def status(
    found: float, lower: float, upper: float, n: int, *, target: float, tolerance: float, too_much_is_mild: bool = False
) -> str:  # fmt: skip
    """ "holds" inside the band, "fails" outside it and further from `target` than `tolerance`, "watch" outside it but near.

    `too_much_is_mild`: above the band is "watch" at most (ranges that hold more than they promise mislead nobody, they are only wide).
    "unclear" inside the band where that says little: fewer than 100 persons, a band wider than 5 tolerances on each side, or a deviation
    of more than 2.
    """
    if not lower <= found <= upper:
        mild = (too_much_is_mild and found > upper) or abs(found - target) <= tolerance
        return "watch" if mild else "fails"
    return _inside((upper - lower) / 2, n, abs(found - target), tolerance)


def curve_status(outside: bool, reach: float, n: int, *, size: float, tolerance: float) -> str:
    """The same for a curve: whether any of it is `outside` its band, `size` its typical or largest deviation, `reach` half the band."""
    if outside:
        return "fails" if size > tolerance else "watch"
    return _inside(reach, n, size, tolerance)


def _inside(reach: float, n: int, size: float, tolerance: float) -> str:
    return (
        "unclear"
        if n < FEWEST or reach > BLUNT * tolerance or size > LARGE * tolerance
        else "holds"
    )


def worst(lights: Sequence[Light]) -> Light:
    """The light that decides: the worst by `severity`, one that is unclear only where nothing better is known."""
    return max([light for light in lights if light.status != "unclear"] or lights, key=severity)


def severity(light: Light) -> tuple[int, bool, float]:
    """Orders lights from good to bad: by status; ranges that hold too few after those that hold too many; by deviation in tolerances."""
    size = light.size or 0.0
    return (
        STATUSES.index(light.status),
        not (light.question in COVERING and size > 0),
        abs(size) / light.tolerance,
    )


def publishable(counts: Mapping[str, int], least: int) -> set[str]:
    """The groups whose figures may be shown, given persons by group ("" for those in none).

    Groups below `least` are hidden, and then the smallest others until those hidden are none or `least` persons together, so that no
    figure of a small group follows from the total less the groups shown.
    """
    shown = {group for group, n in counts.items() if group and n >= least}
    while 0 < sum(n for group, n in counts.items() if group not in shown) < least and shown:
        shown.remove(min(shown, key=lambda group: (counts[group], group)))
    return shown


def rounded(value: float, digits: int = 3) -> float:
    """To so many significant digits."""
    return float(f"{value:.{digits}g}")


def middle(values: NDArray[Any]) -> float:
    """The median as the average of the ten (or all) values around it, to three digits: no single person's value."""
    ordered = np.sort(values)
    start = max(0, len(ordered) // 2 - NEIGHBOURS // 2)
    return rounded(float(ordered[start : start + NEIGHBOURS].mean()))
