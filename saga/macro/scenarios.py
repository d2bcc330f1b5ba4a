"""Scenarios: fixed macro values of future years, by name, from a CSV file or from rows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from saga.data.macro_rows import MacroRow, parse_rows, read_rows
from saga.errors import UsageError
from saga.macro.history import MacroHistory, sweden

SCENARIOS = ("baseline", "recession-1990s", "high-growth")


@dataclass(frozen=True)
class Scenario:
    """Fixed macro values: year -> (unemployment, real wage growth, inflation), fractions.

    A scenario `by_name` starts after the origin if that is later than the history.
    """

    name: str
    rows: Mapping[int, MacroRow]
    by_name: bool = False

    def __hash__(self) -> int:
        return hash(self.digest)

    def covers(self, first: int, last: int) -> bool:
        """Whether a forecast of the years `first` to `last` has a year of the scenario."""
        if self.by_name and first > min(self.rows):
            return True
        return any(first <= year <= last for year in self.rows)

    @property
    def digest(self) -> str:
        """sha256 of the rows; it distinguishes two files of the same name."""
        return hashlib.sha256(repr(sorted(self.rows.items())).encode()).hexdigest()


ScenarioSource = str | Path | Sequence[Mapping[str, float]] | Scenario | None
"""What names a scenario: a name of SCENARIOS, a CSV file, rows, or the scenario itself."""


def scenario_from(source: ScenarioSource, history: MacroHistory) -> Scenario | None:
    """A scenario from a name of SCENARIOS, a CSV file, rows, or itself.

    None and "baseline" mean drawn futures. Files and rows have the columns
    `year,unemployment,real_wage_growth,inflation` (fractions); other years are drawn. Raises
    UsageError if a name is unknown, InputError if the rows are not valid.
    """
    if source is None or source == "baseline":
        return None
    if isinstance(source, Scenario):
        return source
    if isinstance(source, (str, Path)):
        if source in SCENARIOS:
            last = history.last_year
            return named_scenario(str(source), last, float(history.values[-1, 0]))
        path = Path(source)
        if not path.is_file():
            raise UsageError(
                f"Scenario '{source}' is neither a file nor one of {', '.join(SCENARIOS)}."
            )
        return Scenario(path.stem, parse_rows(read_rows(path, "Scenario"), "Scenario"))
    return Scenario("given", parse_rows(list(source), "Scenario"))


def named_scenario(name: str, start: int, last: float) -> Scenario:
    """A scenario by name after the year `start`, in which unemployment is `last`."""
    if name == "recession-1990s":
        # Sweden 1991-97 again: the rise of unemployment since 1990 is added to its last value.
        past = sweden().values.tolist()
        rows = {
            start + i: (last + past[i][0] - past[0][0], past[i][1], past[i][2]) for i in range(1, 8)
        }
    else:
        rows = {
            start + i: (last + (0.05 - last) * min(1.0, i / 5), 0.03, 0.02) for i in range(1, 11)
        }
    return Scenario(name, rows, by_name=True)
