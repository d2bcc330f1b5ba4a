"""The text of CSV files: their separator, rows and faulty lines. It needs no other library."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

UTF_8 = "utf-8"
ENCODING_FIX = (
    "Export the data again, CSV files as UTF-8; or, for persons' records, name their encoding in a "
    "mapping, which `saga init` proposes: `encoding: latin-1`, below `extends: lisa` if you use a "
    "shipped mapping."
)
_LINE_FIX = (
    "A line may be cut off, or be no row of the table, such as a total or a source: write all "
    "cells of a row, or remove the line."
)
CELLS_FIX = (
    "Give each line as many cells as the header; a text with a separator in it stands in quotation "
    "marks."
)
NAMELESS = (
    "has a value in a column that the header does not name",
    "Name the column, or remove its values. Numbers have no commas between thousands.",
)
OPEN_QUOTES = (
    "has a quotation mark that is not closed",
    "Close the quotation mark, or double it if it is part of the text.",
)
_SPLIT = (
    "has a line end of another kind within",
    "Give all lines the same end, and put texts with line ends into quotation marks.",
)


class LineFault(ValueError):  # noqa: N818 # a verdict about the file, not a failure
    """What is wrong with a line, and how to mend it."""

    def __init__(self, line: int, why: str, fix: str) -> None:
        super().__init__(f"line {line} {why}")
        self.line, self.fix = line, fix


def find_separator(head: str) -> tuple[str, int]:
    """The separator of a CSV file, and the number of lines before its header.

    Excel's first line `sep=;` names the separator, else it is the most frequent of comma,
    semicolon, tab and bar in the header. Blank lines may stand before.
    """
    blank = re.match(r"\s*", head)[0]  # type: ignore[index] # matches any text
    n_before = len(re.findall(r"\r\n?|\n", blank))
    header = re.split(r"[\r\n]", head[len(blank) :], maxsplit=1)[0]
    if named := re.fullmatch(r'"?sep=([\t -~])\1*"?', header, flags=re.IGNORECASE):
        return named[1], n_before + 1
    return max(",;\t|", key=re.sub('"[^"]*"', "", header).count), n_before


def rows_of(
    lines: Iterable[bytes], separator: str, skipped: int, encoding: str = UTF_8
) -> Iterator[tuple[int, list[str]]]:
    """The rows of UTF-8 lines: the line in which each begins, from 1, and its cells.

    Cells, and so a row, may have several lines; a blank line is a row without cells. Raises
    LineFault for text that is not UTF-8, and for quotation marks and line ends within; `encoding`
    is that of the file, which the message names.
    """
    number, row = skipped + 1, list[str]()

    def texts() -> Iterator[str]:
        for line in islice(lines, skipped, None):
            row.append(line.decode(UTF_8))
            yield row[-1]

    try:
        for cells in csv.reader(texts(), delimiter=separator):
            if "".join(row).count('"') % 2:
                raise csv.Error
            yield number, cells
            number += len(row)
            row.clear()
    except UnicodeDecodeError:
        raise not_text(number + len(row), encoding) from None
    except csv.Error:
        why, fix = _SPLIT if "\r" in row[-1].rstrip("\r\n") else OPEN_QUOTES
        raise LineFault(number, why, fix) from None


def not_text(line: int, encoding: str) -> LineFault:
    """The fault of a line that is not in its file's encoding."""
    return LineFault(line, f"is not {encoding.upper()} text", ENCODING_FIX)


def needed_cells(header: Sequence[str]) -> int:
    """The number of cells that a row needs: up to the last one that the header names."""
    return max((k for k, name in enumerate(header, start=1) if name.strip()), default=0)


def require_whole_rows(rows: Iterator[tuple[int, list[str]]]) -> None:
    """Raise LineFault if a row of `rows_of` has more cells than the header names, or too few.

    Cells without a name are empty, but for those of the first column, which may number the rows.
    """
    first, header = next(rows, (0, []))
    needed = needed_cells(header)
    nameless = [k for k, name in enumerate(header) if k and not name.strip()]
    for line, cells in rows:
        if len(cells) > len(header):
            why = "has more cells than the header"
            if len(cells) == len(header) + 1 and line == first + 1:
                why += ", as if rows had names (in R: write.csv, or row.names = FALSE)"
            raise LineFault(line, why, CELLS_FIX)
        if 0 < len(cells) < needed:
            raise LineFault(line, "has fewer cells than the header", _LINE_FIX)
        if any(cells[k].strip() for k in nameless if k < len(cells)):
            raise LineFault(line, *NAMELESS)
