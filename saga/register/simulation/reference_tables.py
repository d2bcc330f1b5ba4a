"""Tables of the register: counties, industries, occupations, fields, immigrants.

Each row of a CSV file in `tables/` names its source and its mark. M: from the literature by memory.
"""

from __future__ import annotations

import csv
from importlib import resources

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def read_columns(name: str) -> dict[str, list[str]]:
    """The columns of `tables/NAME.csv` as text."""
    folder = resources.files("saga.register.simulation").joinpath("tables")
    header, *rows = csv.reader(folder.joinpath(f"{name}.csv").read_text("utf-8").splitlines())
    return {column: [row[k] for row in rows] for k, column in enumerate(header)}


def to_numbers(cells: list[str]) -> Floats:
    """A column as numbers."""
    return np.array([float(cell) for cell in cells])
