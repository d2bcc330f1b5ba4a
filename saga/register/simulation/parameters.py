"""The numbers of the simulation: parameters, the tables beside them, and curves.

All numbers are in CSV files of `tables/`, which are read once. `parameters.csv` has a row for each
parameter, `mechanisms.csv` the values with which a mechanism has no effect; the other tables are
about counties, industries, occupations, fields of education and regions of birth. Each row names
its mark:

- V: read in a public source
- M: from the literature by memory (a target band, not a quotation)
- C: set so that the simulated moments fall near V and M figures
- assumed: no source; the note says what the value does

A curve is a list of pairs: `Steps` from an age or year on, `Knots` joined by straight lines. No
value was chosen by looking at a forecasting model's score.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from math import hypot, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.errors import UsageError

Steps = tuple[tuple[int, float], ...]  # (first x, value from there on), x ascending
Knots = tuple[tuple[float, float], ...]  # (x, value), straight lines between them, x ascending


def read_columns(name: str) -> dict[str, list[str]]:
    """The columns of `tables/NAME.csv` as text."""
    folder = resources.files("saga.register.simulation").joinpath("tables")
    header, *rows = csv.reader(folder.joinpath(f"{name}.csv").read_text("utf-8").splitlines())
    return {column: [row[k] for row in rows] for k, column in enumerate(header)}


def to_numbers(cells: list[str]) -> Floats:
    """A column as numbers."""
    return np.array([float(cell) for cell in cells])


class Section:
    """The parameters of a section of `parameters.csv`, as attributes that cannot be changed.

    A value is a number, a tuple of numbers (by sex, level of education, region of birth ...), or a
    curve. A whole number remains an integer.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update({name: _as_tuples(value) for name, value in values.items()})

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"parameters.csv has no parameter {name!r} in this section")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("Parameters cannot be changed; see `Parameters.changed`")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Section) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).items()))


class Parameters(Section):
    """All parameters of the register, by section of `parameters.csv`.

    Attributes:
        economy: The process of the economy, and the flows that an unemployment rate implies.
        population: Migration, death, families and births.
        education: Shares of final attainment, and the timing of study.
        careers: Jobs, hours, absences and pay. Terms of pay are in logs; "rise" is the change of
            joblessness over the year before, and 1.0 of it are 100 percentage points; the factor of
            a person is `exp(a ability + b attachment - centre)`.
        self_employment: Firms of the self-employed.
        benefits: Benefits, pensions and capital; base amounts are the price base amounts of the
            year.
        records: What the register does not record.
        labour_market: Employers, and how education leads to occupations and industries.
    """

    economy: Section
    population: Section
    education: Section
    careers: Section
    self_employment: Section
    benefits: Section
    records: Section
    labour_market: Section

    def __init__(self, values: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """Section -> parameter -> value, as in `register.json`; by default those of the file.

        Raises ValueError if a parameter is missing or unknown.
        """
        standard = _standard_values()
        sections = standard if values is None else values
        if {name: set(part) for name, part in sections.items()} != {
            name: set(part) for name, part in standard.items()
        }:
            raise ValueError("These are not the parameters of parameters.csv")
        super().__init__({name: Section(sections[name]) for name in standard})

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """Section -> parameter -> value."""
        return {name: dict(vars(section)) for name, section in vars(self).items()}

    def changed(self, values: Mapping[str, Any]) -> Parameters:
        """These parameters with other values; keys are `section.parameter`.

        Raises ValueError for a key that is not in `parameters.csv`.
        """
        sections = self.as_dict()
        for key, value in values.items():
            section, _, name = key.partition(".")
            sections.setdefault(section, {})[name] = value
        return Parameters(sections)


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list | tuple) else value


@cache
def _standard_values() -> dict[str, dict[str, Any]]:
    table = read_columns("parameters")
    sections: dict[str, dict[str, Any]] = {}
    for section, name, cell in zip(
        table["section"], table["parameter"], table["value"], strict=True
    ):
        sections.setdefault(section, {})[name] = json.loads(cell)
    return sections


@cache
def _neutral_values() -> dict[str, dict[str, float]]:
    """Mechanism -> `section.parameter` -> the number (of all entries) without an effect."""
    table = read_columns("mechanisms")
    mechanisms: dict[str, dict[str, float]] = {}
    for name, section, parameter, number in zip(*table.values(), strict=True):
        mechanisms.setdefault(name, {})[f"{section}.{parameter}"] = float(number)
    return mechanisms


MECHANISMS: tuple[str, ...] = tuple(sorted([*_neutral_values(), "heavy_tails"]))


def switch_off(parameters: Parameters, mechanisms: Iterable[str]) -> Parameters:
    """The parameters without `mechanisms`; raises UsageError for an unknown name.

    A mechanism is switched off by neutral parameter values, not by a branch in the code, so
    `register.json` describes the simulated register completely.
    """
    for name in mechanisms:
        if name not in MECHANISMS:
            raise UsageError(
                f"There is no mechanism {name!r}; the mechanisms are {', '.join(MECHANISMS)}"
            )
        neutral = _neutral_values().get(name) or _normal_shocks(parameters.careers)
        present = parameters.as_dict()
        values: dict[str, Any] = {}
        for key, number in neutral.items():
            section, _, parameter = key.partition(".")
            value = present[section][parameter]
            values[key] = (number,) * len(value) if isinstance(value, tuple) else number
        parameters = parameters.changed(values)
    return parameters


def _normal_shocks(p: Section) -> dict[str, float]:
    """The values without heavy tails: all shocks are normal, with unchanged variances.

    Large shocks are absent, and with them skewness and any dependence of shocks on rank or cycle.
    """
    small = sqrt(
        (1 - p.large_shock_share) * p.small_shock_sd**2
        + p.large_shock_share * (p.large_shock_sd**2 + p.large_shock_mean**2)
    )
    quiet = hypot(sqrt(1 - p.loud_share) * p.quiet_sd, sqrt(p.loud_share) * p.loud_sd)
    return {
        "careers.large_shock_share": 0.0,
        "careers.loud_share": 0.0,
        "careers.small_shock_sd": small,
        "careers.quiet_sd": quiet,
    }


def step_value(steps: Steps, x: int) -> float:
    """Value of `steps` at `x`; before the first step it is that of the first."""
    return float(next((value for start, value in reversed(steps) if start <= x), steps[0][1]))


def step_values(steps: Steps, x: NDArray[Any]) -> Floats:
    """Values of `steps` at each of `x`; before the first step they are that of the first."""
    starts, values = np.array(steps, dtype=np.float64).T
    index = np.searchsorted(starts, x, side="right") - 1
    return np.asarray(values[np.maximum(index, 0)])


def interpolate(knots: Knots, x: float) -> float:
    """Value at `x` on the straight lines between `knots`, constant beyond the first and last."""
    return float(np.interp(x, *np.array(knots, dtype=np.float64).T))


def by_sex(values: tuple[float, float], female: NDArray[np.bool_]) -> Floats:
    """The value of each person's sex; `values` are those of men and of women."""
    return np.where(female, values[1], values[0])
