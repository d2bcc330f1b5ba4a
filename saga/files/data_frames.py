"""Tables of other libraries as polars frames."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import polars as pl

from saga.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

# The second, of a type that polars does not know, is no `Exception`.
POLARS_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)


class ArrowStream(Protocol):
    """A table that exports itself by the Arrow stream protocol: pandas, polars, pyarrow, DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The stream of the table."""
        ...


Columns = Mapping[str, Sequence[object]]
Rows = str | Path | ArrowStream | Columns
"""What a table is read from: a place, a data frame, or a dictionary of columns."""


def is_frame(table: object) -> TypeGuard[ArrowStream]:
    """Whether this is a data frame of polars, pandas, pyarrow or DuckDB; one column is none."""
    return hasattr(table, "__arrow_c_stream__") and not hasattr(type(table), "dtype")


def to_polars(table: ArrowStream | Columns, subject: str) -> pl.DataFrame:
    """The table as a polars frame; a named index of pandas becomes columns.

    Raises UsageError if it cannot be read; `subject` names it, such as "the panel".
    """
    if isinstance(table, pl.DataFrame):
        return table
    if not is_frame(table) and not isinstance(table, Mapping):
        raise UsageError.of(
            f"{subject} cannot be read",
            "source",
            f"a {type(table).__name__} is not a table",
            "Give a path, a data frame of polars (collected), pandas or pyarrow, or a dictionary "
            "of columns.",
        )
    if isinstance(table, Mapping) and not _share_order(table.values()):
        raise UsageError.of(
            f"{subject} cannot be read",
            "source",
            "columns of the dictionary have no common order: one is a set, a dictionary or a "
            "text, or Series of pandas have different indexes",
            "Give lists, or the columns of one data frame.",
        )
    import pyarrow as pa  # takes long to import, and a panel in files does not need it

    from saga.files.arrow_streams import to_arrow

    try:  # by pyarrow, because polars would leave out the index of pandas
        return pl.DataFrame(_with_years(to_arrow(table)))
    except (
        pa.ArrowException,
        *POLARS_ERRORS,
        ValueError,
        TypeError,
    ) as error:  # its message repeats cells
        named = re.search(r"column (\S+) with type", str(error.args[-1]))
    raise UsageError.of(
        f"{subject} cannot be read",
        "source",
        "a column mixes types, is of no known type or a single value, or two have one name",
        "Convert the columns first, for example by pandas.to_numeric; give each its own name, and "
        "a cell for each row.",
        column=named[1] if named else None,
    )


def _share_order(columns: Iterable[Any]) -> bool:
    """Whether the cells of columns belong together by their order, which pandas would not take."""
    columns = list(columns)
    indexes = [column.index for column in columns if hasattr(column, "reindex")]
    is_unordered = any(isinstance(column, Set | Mapping | str | bytes) for column in columns)
    return not is_unordered and all(index.equals(indexes[0]) for index in indexes)


def _with_years(table: pa.Table) -> pa.Table:
    """The table with yearly periods of pandas as years; they are stored as years since 1970."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for k, field_ in enumerate(table.schema):
        if str(getattr(field_.type, "freq", "")).startswith(("Y", "A")):
            stored = [chunk.storage for chunk in table.column(k).chunks]
            years = pc.add(pa.chunked_array(stored, pa.int64()), 1970)
            table = table.set_column(k, field_.name, years)
    return table
