"""Small tables beside the persons' records: weights, targets, scenarios, price indices.

Their files are read as those of panels are, whatever separates the cells.
"""

from __future__ import annotations

import csv
from collections.abc import Collection
from itertools import islice
from pathlib import Path

import polars as pl

from saga.data.casting import with_decimal_point
from saga.data.files import Location, csv_dialect, read_scans, scan_file, text_lines
from saga.errors import InputError
from saga.files.data_frames import Rows, to_polars
from saga.files.folders import File, open_file

_FIX = (
    "Write numbers without separators of thousands, with a decimal point; where semicolons or tabs "
    "separate the cells, all with a decimal comma instead"
)


def read_small(
    source: Rows, numbers: Collection[str] | None = None, subject: str = "the table"
) -> pl.DataFrame:
    """The table of a file, whose path or URL is given, or of a data frame; cells of CSV are texts.

    Where the separator is not a comma, numbers may have a decimal comma, which becomes a point.

    Args:
        source: A file of a type that a panel may have, a data frame, or a dictionary of columns.
        numbers: Columns whose cells are numbers or empty, if the table has them. None: all.
        subject: Name of a data frame in errors.

    Raises:
        UsageError: If there is no such file, or it is not a table.
        InputError: If the file cannot be read, or a cell is not a number; the error names the line
            and the column.
    """
    file = open_file(source) if isinstance(source, str | Path) else None
    if file is None:
        frame = to_polars(source, subject)
    else:
        (frame,) = read_scans(Location(file.folder, (file,), {}), [scan_file(file)])
    frame = frame.rename(str.strip)
    chosen = [
        name
        for name, dtype in frame.schema.items()
        if dtype == pl.String and (numbers is None or name in numbers)
    ]
    frame = frame.with_columns(pl.col(chosen).str.strip_chars().replace("", None))
    if file is not None and _has_decimal_commas(file, frame.select(chosen)):
        frame = frame.with_columns(with_decimal_point(name) for name in chosen)
    for name in chosen:
        is_number = frame[name].cast(pl.Float64, strict=False).is_not_null()
        faulty = (frame[name].is_not_null() & ~is_number).arg_true()
        if len(faulty):
            raise InputError.of(
                f"{name_of(source, subject)} cannot be used",
                "not-a-number",
                f"{place_of_row(source, faulty[0])} has something that is not a number",
                _FIX,
                column=name,
                count=len(faulty),
            )
    return frame


def name_of(source: Rows, subject: str) -> str:
    """What errors call a table: the place of its file, or the `subject`."""
    return str(source) if isinstance(source, str | Path) else subject


def place_of_row(source: Rows, row: int) -> str:
    """The line of a row of a CSV file; lines may be empty, and cells may have several."""
    file = open_file(source) if isinstance(source, str | Path) else None
    if file is None or file.suffix != ".csv":
        return f"row {row + 1}"
    separator, skipped = csv_dialect(file)
    reader = csv.reader(text_lines(file), delimiter=separator)
    ends = (reader.line_num for cells in reader if any(cells))
    return f"line {next(islice(ends, skipped + 1 + row, None))}"


def _has_decimal_commas(file: File, texts: pl.DataFrame) -> bool:
    if file.suffix != ".csv" or csv_dialect(file)[0] == ",":
        return False
    return any(column.str.contains(",", literal=True).any() for column in texts)
