"""Scenarios: fixed macro values of future years, by name, from a CSV file or from rows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saga.data.macro_rows import MacroRow, check_columns, parse_ratios, parse_rows
from saga.data.small_tables import read_small
from saga.errors import UsageError
from saga.macro.history import MacroHistory, sweden

SCENARIOS = ("baseline", "recession-1990s", "high-growth")


@dataclass(frozen=True)
class Scenario:
    """Fixed macro values: year -> (unemployment, real wage growth, inflation), fractions.

    A scenario `by_name` starts after the origin if that is later than the history. `ratios` are
    those of groups, year -> column -> ratio (`saga.macro.group_trends`).
    """

    name: str
    rows: Mapping[int, MacroRow]
    by_name: bool = False
    ratios: Mapping[int, Mapping[str, float]] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.digest)

    def covers(
        self, first: NDArray[np.integer[Any]], last: NDArray[np.integer[Any]]
    ) -> NDArray[np.bool_]:
        """Whether forecasts of the years `first` to `last` (n,) have a year of the scenario."""
        years = np.array(list(self.rows), dtype=np.int64)
        covered = ((years >= first[:, None]) & (years <= last[:, None])).any(axis=1)
        covered |= first <= max(self.ratios, default=0)  # draws lead to a ratio
        if self.by_name:  # it starts after a later origin
            covered |= first > years.min()
        return covered

    def begins_before(
        self, origin: NDArray[np.integer[Any]], history: MacroHistory | None
    ) -> NDArray[np.bool_]:
        """Whether the scenario has years that change nothing of forecasts from origins (n,).

        A year before the origin changes nothing; the year of the origin does not either, if it is
        one of the history, but ratios of groups start there.
        """
        never = np.iinfo(np.int64).max
        known = never if history is None else history.last_year
        macro, ratios = (min(years, default=never) for years in (self.rows, self.ratios))
        is_late = (macro < origin) | (macro <= np.minimum(origin, known)) | (ratios < origin)
        return np.asarray(is_late)

    @property
    def ratio_names(self) -> list[str]:
        """The columns of ratios, such as female/male, sorted."""
        return sorted({name for ratios in self.ratios.values() for name in ratios})

    @property
    def digest(self) -> str:
        """sha256 of the rows; it distinguishes two files of the same name."""
        rows = sorted(self.rows.items()), sorted(self.ratios.items())
        return hashlib.sha256(repr(rows).encode()).hexdigest()


ScenarioSource = str | Path | Sequence[Mapping[str, float]] | Scenario | None
"""What names a scenario: a name of SCENARIOS, a CSV file, rows, or the scenario itself."""


def scenario_from(source: ScenarioSource, history: MacroHistory | None) -> Scenario | None:
    """A scenario from a name of SCENARIOS, a CSV file, rows, or itself.

    None and "baseline" mean drawn futures. Files and rows have the columns
    `year,unemployment,real_wage_growth,inflation` (fractions), and ratios of groups such as
    `female/male`; other years and empty columns are drawn. A name needs the history. Raises
    UsageError if a name is unknown, InputError if the rows are not valid.
    """
    if source is None or source == "baseline":
        return None
    if isinstance(source, Scenario):
        return source
    if isinstance(source, (str, Path)):
        if source in SCENARIOS:
            assert history is not None
            last = history.last_year
            return named_scenario(str(source), last, float(history.values[-1, 0]))
        path = Path(source)
        if not path.is_file():
            raise UsageError(
                f"Scenario '{source}' is neither a file nor one of {', '.join(SCENARIOS)}."
            )
        return _given(path.stem, read_small(path).to_dicts())
    return _given("given", list(source))


def _given(name: str, rows: Sequence[Mapping[str, Any]]) -> Scenario:
    check_columns(rows, "Scenario")
    macro = parse_rows(rows, "Scenario")
    return Scenario(name, macro, ratios=parse_ratios(rows, "Scenario"))


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
