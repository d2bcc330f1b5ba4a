"""What records of training persons look like, as quantiles, to recognise records unlike them.

Only quantiles and medians are stored, each the mean over at least ten persons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.data.panel import Panel
from saga.files.stored_values import Log, Number, length
from saga.schema import MONEY
from saga.small_groups import MIN_PERSONS, neighbour_mean

Integers = NDArray[np.int64]
PROPERTIES = ("amount", "zero_share", "volatility", "n_years")
# Quantiles of the distributions that a bundle stores.
LEVELS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.25, 0.5, 0.75, 0.95, 0.98, 0.99, 0.995, 0.999)
_AGE_BANDS = np.array([20, 25, 30, 40, 50, 60])  # first ages of the bands after the first one
_MIN_CHANGES = 3  # changes of earnings that a volatility needs
_Typical = Annotated[tuple[Log | None, ...], length(len(_AGE_BANDS) + 1)]
_Quantiles = Annotated[tuple[Number | None, ...], length(len(LEVELS))]


@dataclass(frozen=True)
class TrainingReference:
    """Quantiles of properties of training persons; amounts are logs of real money.

    Attributes:
        typical: Median log earnings by age band (16-19, 20-24, 25-29, then ten years each); None
            if there are too few persons.
        columns: Median log amount of each column of money; columns with few persons are left out.
        quantiles: Property -> quantiles at LEVELS, None if there are too few persons. See
            `ComparedRecords`.
    """

    typical: _Typical
    columns: Mapping[str, Log]
    quantiles: Mapping[str, _Quantiles]

    @classmethod
    def fit(cls, panel: Panel) -> Self:
        """The reference of a panel of training persons."""
        person, logs = panel.person_numbers, _log_amounts(panel, "earnings")
        bands = _age_bands(panel)
        typical = []
        for band in range(len(_AGE_BANDS) + 1):
            typical.append(_typical(person, np.where(bands == band, logs, np.nan)))
        columns = {name: _typical(person, _log_amounts(panel, name)) for name in MONEY}
        reference = cls(
            tuple(typical),
            {name: value for name, value in columns.items() if value is not None},
            {},
        )
        properties = reference.compare(panel).properties
        quantiles = {name: _quantiles(properties[name]) for name in PROPERTIES}
        return cls(reference.typical, reference.columns, quantiles)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for transforms.json."""
        return {
            "typical": list(self.typical),
            "columns": dict(self.columns),
            "levels": list(LEVELS),
            "quantiles": {name: list(values) for name, values in self.quantiles.items()},
        }

    def compare(self, panel: Panel) -> ComparedRecords:
        """The records of a panel beside those of training."""
        logs = _log_amounts(panel, "earnings")
        typical = np.array(self.typical, dtype=np.float64)  # None becomes NaN
        relative_logs = logs - typical[_age_bands(panel)]
        return ComparedRecords(relative_logs, _record_properties(panel, logs, relative_logs))


@dataclass(frozen=True, eq=False)
class ComparedRecords:
    """The records of a panel beside those of training.

    Attributes:
        relative_logs: Log earnings of each row minus the typical value at the age (n_row,); NaN if
            not positive.
        properties: Properties of each person's record (n,), in the order of `Panel.persons`; NaN
            if a record does not have the property.

            - amount: median of log earnings relative to the typical value at the age.
            - zero_share: share of the known years that are without earnings.
            - volatility: standard deviation of changes of log earnings between records.
            - n_years: number of years with known earnings.
    """

    relative_logs: Floats
    properties: Mapping[str, Floats]

    def part(self, rows: slice, persons: slice) -> ComparedRecords:
        """The compared records of consecutive persons, whose rows are `rows`."""
        properties = {name: values[persons] for name, values in self.properties.items()}
        return ComparedRecords(self.relative_logs[rows], properties)


def _record_properties(panel: Panel, logs: Floats, relative_logs: Floats) -> dict[str, Floats]:
    person, earnings = panel.person_numbers, panel.frame["earnings"].to_numpy()
    n = int(person[-1]) + 1 if len(person) else 0
    known = ~np.isnan(earnings.astype(np.float64))
    n_years = np.bincount(person[known], minlength=n).astype(np.float64)
    zeros = np.bincount(person[known & (earnings == 0)], minlength=n)
    positive = np.isfinite(logs)
    of, values = person[positive], logs[positive]
    same = of[1:] == of[:-1]
    changer, changes = of[1:][same], np.diff(values)[same]
    count = np.bincount(changer, minlength=n).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        zero_share = zeros / n_years
        mean = np.bincount(changer, changes, n) / count
        variance = np.bincount(changer, (changes - mean[changer]) ** 2, n) / (count - 1)
    return {
        "amount": _medians(person, relative_logs, n),
        "zero_share": zero_share,
        "volatility": np.where(count >= _MIN_CHANGES, np.sqrt(variance), np.nan),
        "n_years": n_years,
    }


def _log_amounts(panel: Panel, column: str) -> Floats:
    """Logs (n_row,) of positive amounts, else NaN."""
    amounts = panel.frame[column].to_numpy().astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.log(np.where(amounts > 0, amounts, np.nan)))


def _age_bands(panel: Panel) -> Integers:
    frame = panel.frame
    age = frame["year"].to_numpy() - frame["birth_year"].to_numpy()
    bands: Integers = np.searchsorted(_AGE_BANDS, age, side="right").astype(np.int64)
    return bands


def _medians(person: Integers, values: Floats, n: int) -> Floats:
    """Median (n,) of the values of each of n persons that are not NaN; NaN without a value."""
    finite = np.isfinite(values)
    person, values = person[finite], values[finite]
    ordered = values[np.lexsort((values, person))]
    count = np.bincount(person, minlength=n)
    start = np.cumsum(count) - count
    low, high = start + (count - 1) // 2, start + count // 2
    medians = np.full(n, np.nan)
    has_value = count > 0
    medians[has_value] = (ordered[low[has_value]] + ordered[high[has_value]]) / 2
    return medians


def _typical(person: Integers, logs: Floats) -> float | None:
    """Median over persons of each person's median."""
    n = int(person[-1]) + 1 if len(person) else 0
    return _quantiles(_medians(person, logs, n))[LEVELS.index(0.5)]


def _quantiles(values: Floats) -> tuple[float | None, ...]:
    """Quantiles at LEVELS, each the mean of the ten nearest values; None near the ends."""
    ordered = np.sort(values[np.isfinite(values)])
    quantiles: list[float | None] = []
    for level in LEVELS:
        first = round(level * len(ordered) - MIN_PERSONS / 2)
        inside = 0 <= first <= len(ordered) - MIN_PERSONS
        quantiles.append(neighbour_mean(ordered, first) if inside else None)
    return tuple(quantiles)
