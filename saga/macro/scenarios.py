"""Scenarios: fixed macro values of future years, by name, from a CSV file or from rows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saga.data.files import read_small
from saga.data.macro_rows import (
    SERIES,
    UNEMPLOYMENT_RANGE,
    MacroRow,
    check_columns,
    parse_ratios,
    parse_rows,
)
from saga.errors import UsageError
from saga.files.data_frames import ArrowStream, is_frame, to_polars
from saga.macro.history import MacroHistory, sweden

SCENARIOS = ("baseline", "recession-1990s", "high-growth")
_SUBJECT = "Scenario"  # of messages about rows


@dataclass(frozen=True)
class Scenario:
    """Fixed macro values: year -> (unemployment, real wage growth, inflation), fractions.

    Such as `Scenario("own", {2030: (0.08, 0.01, 0.02)})`. A scenario `by_name` starts after the
    origin if that is later than the history. `ratios` are those of groups, year -> column -> ratio
    (`saga.macro.group_trends`).

    Raises:
        UsageError: If the values of a year are not three, or its ratios have no columns.
        InputError: If a year, value or ratio is not valid.
    """

    name: str
    rows: Mapping[int, MacroRow]
    by_name: bool = False
    ratios: Mapping[int, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the values as those of rows are; years become whole numbers."""
        try:
            rows = [
                {"year": year, **dict(zip(SERIES, values, strict=True))}
                for year, values in self.rows.items()
            ]
            ratios = [{"year": year, **columns} for year, columns in self.ratios.items()]
            if not all("/" in column for columns in self.ratios.values() for column in columns):
                raise ValueError
        except (AttributeError, TypeError, ValueError):
            raise UsageError(
                f"A scenario has three fractions for each year ({', '.join(SERIES)}), such as "
                "{2030: (0.08, 0.01, 0.02)}, and ratios such as {2040: {'female/male': 1.0}}."
            ) from None
        object.__setattr__(self, "rows", parse_rows(rows, _SUBJECT) if rows else {})
        object.__setattr__(self, "ratios", parse_ratios(ratios, _SUBJECT))

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


ScenarioSource = str | Path | Sequence[Mapping[str, float]] | ArrowStream | Scenario | None
"""What names a scenario: a name of SCENARIOS, a CSV file, rows, or the scenario itself.

Rows may be a data frame.
"""


def scenario_from(source: ScenarioSource, history: MacroHistory | None) -> Scenario | None:
    """A scenario from a name of SCENARIOS, a CSV file, rows, or itself.

    None and "baseline" mean drawn futures. Files and rows have the columns
    `year,unemployment,real_wage_growth,inflation` (fractions), and ratios of groups such as
    `female/male`; other years and empty columns are drawn. A name needs the history. Raises
    UsageError if a name is unknown or the source is none of these, InputError if the rows are not
    valid.
    """
    if source is None or isinstance(source, Scenario):
        return source
    if isinstance(source, (str, Path)):
        if source == "baseline":
            return None
        if source in SCENARIOS:
            assert history is not None
            last = history.last_year
            return named_scenario(str(source), last, float(history.values[-1, 0]))
        path = Path(source)
        if not path.is_file():
            raise UsageError(
                f"Scenario '{source}' is neither a file nor one of {', '.join(SCENARIOS)}."
            )
        return _of_rows(path.stem, read_small(path).to_dicts())
    rows = to_polars(source, "the scenario").to_dicts() if is_frame(source) else source
    if not isinstance(rows, Sequence) or not all(isinstance(row, Mapping) for row in rows):
        raise UsageError(
            f"A scenario is a name ({', '.join(SCENARIOS)}), a CSV file, rows such as "
            "[{'year': 2030, 'unemployment': 0.08, 'real_wage_growth': 0.01, 'inflation': 0.02}], "
            "or Scenario('own', {2030: (0.08, 0.01, 0.02)})."
        )
    return _of_rows("given", rows)


def _of_rows(name: str, rows: Sequence[Mapping[str, Any]]) -> Scenario:
    check_columns(rows, _SUBJECT)
    macro = parse_rows(rows, _SUBJECT)
    return Scenario(name, macro, ratios=parse_ratios(rows, _SUBJECT))


def named_scenario(name: str, start: int, last: float) -> Scenario:
    """A scenario by name after the year `start`, in which unemployment is `last`."""
    if name == "recession-1990s":
        # Sweden 1991-97 again: the rise of unemployment since 1990 is added to its last value.
        past, highest = sweden().values.tolist(), UNEMPLOYMENT_RANGE[1]
        rows = {
            start + i: (min(last + past[i][0] - past[0][0], highest), past[i][1], past[i][2])
            for i in range(1, 8)
        }
    else:
        rows = {
            start + i: (last + (0.05 - last) * min(1.0, i / 5), 0.03, 0.02) for i in range(1, 11)
        }
    return Scenario(name, rows, by_name=True)
