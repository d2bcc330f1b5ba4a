"""One target of a register and the rule of its band.

The bands follow one rule, fixed before any register was measured against this table: amounts and ratios of amounts 5 %, shares 2 points,
Gini .02, and in each case 3 standard errors of the simulated value on top. A sign holds when the value lies more than 3 standard errors
on its side of zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["amount", "ratio", "share", "gini", "range", "above", "below", "none"]
Mark = Literal["V", "D", "M", "P"]

RELATIVE = 0.05  # amounts, ratios of amounts
POINTS = 0.02  # shares, Gini
ERRORS = 3.0  # standard errors of the simulated value added on both sides


@dataclass(frozen=True)
class Target:
    """One line of the table. `target` is the figure aimed at (a `range` has `low` and `high` instead, a sign has neither)."""

    key: str
    topic: str
    concept: str
    population: str
    statistic: str
    kind: Kind
    source: str
    mark: Mark | None
    enforced: bool
    target: float | None = None
    low: float | None = None
    high: float | None = None

    def band(self, se: float) -> tuple[float | None, float | None]:
        """Lowest and highest simulated value that agrees, given its standard error; None is unbounded."""
        more = ERRORS * se
        if self.kind == "above":
            return more, None
        if self.kind == "below":
            return None, -more
        if self.kind == "range":
            return (None if self.low is None else self.low - more), (
                None if self.high is None else self.high + more
            )
        if self.target is None:
            return None, None
        half = more + (abs(self.target) * RELATIVE if self.kind in ("amount", "ratio") else POINTS)
        return self.target - half, self.target + half
