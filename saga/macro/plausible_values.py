"""Which values of a scenario lie far beyond all that was observed, such as per cent as fractions.

The limits are the lowest and the highest value of the bundle's history, and half of its range
beyond them, because a history is short; those of real wage growth are at least as wide as the
growth of all shipped countries.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from saga.data.macro_rows import SERIES, UNEMPLOYMENT_RANGE
from saga.macro.history import MacroHistory
from saga.macro.scenarios import Scenario
from saga.macro.wage_trends import shipped_growth

_MARGIN = 0.5  # of the range of the history
_GROWTH = SERIES.index("real_wage_growth")


def plausible_ranges(history: MacroHistory) -> NDArray[np.float64]:
    """The lowest and highest plausible value of each series, (3, 2), fractions."""
    low, high = history.values.min(axis=0), history.values.max(axis=0)
    margin = _MARGIN * (high - low)
    ranges = np.stack([low - margin, high + margin], axis=1)
    least, most = _growth_of_countries()
    ranges[_GROWTH] = min(ranges[_GROWTH, 0], least), max(ranges[_GROWTH, 1], most)
    return ranges


@cache
def _growth_of_countries() -> tuple[float, float]:
    growth, _, _ = shipped_growth()
    return float(np.nanmin(growth)), float(np.nanmax(growth))


def implausible_values(scenario: Scenario, history: MacroHistory) -> Iterator[tuple[str, str]]:
    """Each series with implausible values of a scenario, and a sentence that names the first."""
    for k, (series, (low, high)) in enumerate(zip(SERIES, plausible_ranges(history), strict=True)):
        by_year = {year: row[k] for year, row in sorted(scenario.rows.items())}
        years = [year for year, value in by_year.items() if not low <= value <= high]
        if not years:
            continue
        value, is_rate = by_year[years[0]], series == "unemployment"
        later = " and later years" if len(years) > 1 else ""
        countries = "" if k != _GROWTH else " and the shipped countries"
        question = f"Is {value / 100:.4g} meant?"
        if is_rate and value / 100 < UNEMPLOYMENT_RANGE[0]:
            question = "Check the value."
        yield (
            series,
            f"The scenario's {series} in {years[0]}{later} is far beyond all that the bundle's "
            f"macro series{countries} show: {value:g} is {100 * value:.4g} %"
            f"{'' if is_rate else ' a year'}. {question}",
        )
