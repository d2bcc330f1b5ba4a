"""Panels from rows, and from earnings by person and year."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

from saga.data.panel import Panel, PanelMeta

TOY = PanelMeta("toy")


def rows_of(rows: Iterable[tuple[object, ...]], *columns: str) -> pl.DataFrame:
    """Rows of person, year, birth year, earnings and the values of further columns."""
    names = ["person_id", "year", "birth_year", "earnings", *columns]
    return pl.DataFrame(list(rows), names, orient="row", infer_schema_length=None)


def panel_of(rows: Iterable[tuple[object, ...]], *columns: str, meta: PanelMeta = TOY) -> Panel:
    """The panel of `rows_of`."""
    return Panel.of(rows_of(rows, *columns), meta)


def yearly_panel(
    earnings: np.ndarray,
    years: Sequence[int] | np.ndarray,
    born: np.ndarray,
    meta: PanelMeta = TOY,
    **of_person: np.ndarray,
) -> Panel:
    """The panel of earnings (n_person, n_year), with columns that have a value for each person.

    Years with NaN, and those at ages outside 16 to 64, have no row.
    """
    n, n_years = earnings.shape
    columns = {
        "person_id": np.repeat([f"{i:05d}" for i in range(n)], n_years).tolist(),
        "year": np.tile(years, n),
        "birth_year": np.repeat(born, n_years),
        "earnings": earnings.ravel(),
        **{name: np.repeat(values, n_years).tolist() for name, values in of_person.items()},
    }
    age = pl.col("year") - pl.col("birth_year")
    is_row = pl.col("earnings").is_not_nan() & age.is_between(16, 64)
    return Panel.of(pl.DataFrame(columns).filter(is_row), meta)
