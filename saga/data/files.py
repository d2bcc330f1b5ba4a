"""Reading of files into one frame with the source's columns and codes."""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TypeGuard

import polars as pl

from saga.data.casting import in_groups, read_column, with_decimal_point
from saga.data.csv_text import (
    ENCODING_FIX,
    NAMELESS,
    UTF_8,
    LineFault,
    find_separator,
    needed_cells,
    not_text,
    require_whole_rows,
    rows_of,
)
from saga.data.spellings import folded
from saga.data.statistics_files import UnknownTextError, scan_statistics
from saga.errors import InputError
from saga.files.data_frames import POLARS_ERRORS, Rows, to_polars
from saga.files.folders import File, open_file
from saga.files.object_store import ObjectFolder
from saga.schema import BY_NAME

SUFFIXES = (".parquet", ".csv", ".arrow", ".feather", ".dta", ".sas7bdat", ".sav")


_DAMAGES = (
    OSError,
    *POLARS_ERRORS,
    RuntimeError,
    ValueError,
    EOFError,
    zlib.error,
)
_DECIMAL_FIX = "Write it as floating-point numbers, or leave it out."
_DIGITS = 38  # of the longest decimals that polars reads
_HEADER_FIX = (
    "Name the columns in it. Divide cells by commas, semicolons, tabs or bars; a line before the "
    "header names another sign: sep=~"
)
_DAMAGED = "the file is damaged"
_NO_NAME = r"(_duplicated_\d+)?"  # of columns after a comma that ends the header
_GZIP = b"\x1f\x8b"
_SAMPLE = 2**20  # bytes of a CSV file that show its separator


def refuse(path: File | Path | str, why: str, fix: str) -> InputError:
    """The error for a file or folder that cannot be read."""
    return InputError.of(f"{path} cannot be read", "unreadable-file", why, fix)


def unknown_type(file: File) -> InputError:
    """The error for a file that is none of SUFFIXES."""
    why = f"files of type {file.suffix or 'without suffix'} are not known"
    return refuse(file, why, f"Use one of {' '.join(SUFFIXES)}.")


def open_table(
    file: File, labelled: Collection[str], encoding: str
) -> tuple[pl.LazyFrame, list[str]]:
    """A file, not yet read, and the names of its columns."""
    try:
        if file.suffix == ".csv" and encoding == UTF_8 and _CsvFile(file).is_utf16:
            raise refuse(file, "the text is UTF-16", ENCODING_FIX)
        lazy = _scan(file, labelled, encoding)
        schema = lazy.collect_schema()
    except pl.exceptions.NoDataError:
        raise InputError.of(
            f"{file} is empty", "no-rows", "the file has no content", "Export the data again."
        ) from None
    except LineFault as fault:
        raise refuse(file, str(fault), fault.fix) from None
    except UnknownTextError:
        raise refuse(file, "its text is not in the expected encoding", ENCODING_FIX) from None
    except _DAMAGES:
        why, fix = "the file is damaged or not what its suffix says", "Export the data again."
        if isinstance(file.folder, ObjectFolder):
            why += ", or the store does not give parts of files correctly"
            fix += " If a copy of the file can be read, the fault is in the store."
        raise refuse(file, why, fix) from None
    if file.suffix == ".csv" and len(schema) == 1:
        sign, n_before = _CsvFile(file, encoding).dialect
        why = f"the header in line {n_before + 1} is one cell, as cells are divided by '{sign}'"
        raise refuse(file, why, _HEADER_FIX)
    for name, dtype in schema.items():
        if file.suffix == ".csv" and re.search(r"._duplicated_\d+$", name):
            raise refuse(file, "the header names a column twice", "Give each column its own name.")
        if isinstance(dtype, pl.Decimal) and dtype.precision > _DIGITS:
            why = f"the column '{name}' has decimals of more than {_DIGITS} digits"
            raise refuse(file, why, _DECIMAL_FIX)
    return lazy, schema.names()


def is_unnamed(name: str) -> bool:
    """Whether a column has no name, as after a comma that ends the header."""
    return re.fullmatch(_NO_NAME, name.strip()) is not None


def rows_of_csv(lazy: pl.LazyFrame, read: list[str]) -> pl.LazyFrame:
    """The columns to read of a CSV file, all of whose columns are parsed; blank lines are no rows.

    Polars only notices a row with too many cells, whose amounts would be those of other columns,
    or a quotation mark within a cell, which would join rows, if it parses all columns. Values
    without a name may be parts of amounts, too: 310,000 below `earnings,`.
    """
    nameless = [name for name in lazy.collect_schema().names()[1:] if is_unnamed(name)]

    def chosen(block: pl.DataFrame) -> pl.DataFrame:
        if any(block[name].str.contains(r"\S").any() for name in nameless):
            raise LineFault(0, *NAMELESS)  # whose line `named_damage` finds
        return block.select(read)

    return lazy.filter(~pl.all_horizontal(pl.col(name).is_null() for name in read)).map_batches(
        chosen,
        predicate_pushdown=False,
        projection_pushdown=False,
        streamable=True,
        schema=dict.fromkeys(read, pl.String()),
    )


@contextmanager
def named_damage(place: File | str, files: Sequence[File], encoding: str) -> Iterator[None]:
    """Replace errors of libraries, which may quote cells, by the place of the damage.

    Also refuse CSV files with rows of too few cells, which libraries take for unknown.
    """
    of_csv = [_CsvFile(file, encoding) for file in files if file.suffix == ".csv"]
    try:
        yield
        doubtful = [csv_file for csv_file in of_csv if csv_file.may_have_short_row()]
    except _DAMAGES:
        _refuse_faulty_line(of_csv)
        raise refuse(place, _DAMAGED, ENCODING_FIX) from None
    _refuse_faulty_line(doubtful)


def _refuse_faulty_line(files: Sequence[_CsvFile]) -> None:
    """Raise InputError for the first of the files that cannot be read, if there is one."""
    for csv_file in files:
        try:
            require_whole_rows(csv_file.rows())
        except LineFault as fault:
            raise refuse(csv_file.file, str(fault), fault.fix) from None
        except _DAMAGES:
            raise refuse(csv_file.file, _DAMAGED, ENCODING_FIX) from None


def _scan(file: File, labelled: Collection[str], encoding: str) -> pl.LazyFrame:
    place, options = file.location, file.folder.polars_options
    match file.suffix:
        case ".parquet":
            return pl.scan_parquet(
                place, glob=False, hive_partitioning=False, storage_options=options
            )
        case ".csv":
            return _CsvFile(file, encoding).scan()
        case ".arrow" | ".feather":
            if file.start(6) == b"ARROW1":
                if isinstance(place, Path):
                    _check_decimals(file, place)
                return pl.scan_ipc(place, glob=False, storage_options=options)
            return _read_stream(file).lazy()
        case _ if not isinstance(place, Path):
            raise refuse(
                file,
                "this type is read from file systems only",
                "Export the data as Parquet, or copy the file.",
            )
        case _:
            return scan_statistics(place, labelled, encoding)


def _read_stream(file: File) -> pl.DataFrame:
    import pyarrow as pa  # takes long to import

    from saga.files.arrow_streams import is_whole_stream

    content = file.read()
    _check_decimals(file, content)
    if not is_whole_stream(pa.BufferReader(content)):
        why = "the Arrow stream does not end as it should, so rows may be missing"
        raise refuse(file, why, "Export the data again, to the end.")
    return pl.read_ipc_stream(content)


def _check_decimals(file: File, content: Path | bytes) -> None:
    """Raise InputError for decimals that polars takes for damage, or that end it in panic.

    `content` is the path of an Arrow file, or the bytes of a stream.
    """
    import pyarrow as pa  # takes long to import, and most panels are of other types
    import pyarrow.ipc

    if isinstance(content, Path):
        with pa.memory_map(str(content)) as source:
            schema = pa.ipc.open_file(source).schema
    else:
        schema = pa.ipc.open_stream(content).schema
    for field in schema:
        kind = field.type
        if pa.types.is_decimal256(kind) or (pa.types.is_decimal(kind) and kind.scale < 0):
            is_long = kind.precision > _DIGITS
            which = f"decimals of more than {_DIGITS} digits" if is_long else f"numbers of {kind}"
            raise refuse(file, f"the column '{field.name}' has {which}", _DECIMAL_FIX)


@dataclass(frozen=True)
class _CsvFile:
    """A CSV file in UTF-8 or, if it is not, in `encoding`; it may be packed by gzip."""

    file: File
    encoding: str = UTF_8

    @cached_property
    def _head(self) -> str:
        """The first part of the text."""
        content = self.file.start(_SAMPLE)
        if content.startswith(_GZIP):
            content = zlib.decompressobj(wbits=31).decompress(content, _SAMPLE)
        return content.decode(self.encoding, errors="replace").removeprefix("\ufeff")

    @property
    def is_utf16(self) -> bool:
        """Whether it is UTF-16, as Excel's "Unicode text": by zero bytes of the first letters."""
        return "\0" in self._head[:4]

    @property
    def dialect(self) -> tuple[str, int]:
        """The separator, and the number of lines before the header."""
        return find_separator(self._head)

    @cached_property
    def _content(self) -> Path | str | bytes:
        """Where the file is; or its text in UTF-8, if polars knows not its encoding or line ends.

        Raises LineFault if it is in another encoding.
        """
        only_cr = "\r" in self._head and "\n" not in self._head  # as old programs for the Mac
        if self.encoding == UTF_8 and not only_cr:
            return self.file.location
        content = self.file.read()
        content = gzip.decompress(content) if content.startswith(_GZIP) else content
        try:
            text = content.decode(UTF_8 if _is_utf8(content) else self.encoding)
        except UnicodeDecodeError as error:
            n_lines = len(content[: error.start + 1].splitlines())
            raise not_text(n_lines, self.encoding) from None
        return (text.replace("\r", "\n") if only_cr else text).encode(UTF_8)

    def scan(self) -> pl.LazyFrame:
        """The file, not yet read; all cells are texts."""
        separator, skipped = self.dialect
        return pl.scan_csv(
            self._content,
            glob=False,
            infer_schema=False,
            separator=separator,
            skip_lines=skipped,
            storage_options=self.file.folder.polars_options,
        )

    def _lines(self) -> Iterator[bytes]:
        """The lines as they are in the file, unpacked."""
        is_packed = self.file.start(len(_GZIP)) == _GZIP
        content = io.BytesIO(self.file.read()) if is_packed else None
        return iter(gzip.GzipFile(fileobj=content)) if content else self.file.lines()

    def is_text(self) -> bool:
        """Whether the whole file can be read in `encoding`, and has lines."""
        try:
            for _ in codecs.iterdecode(self._lines(), self.encoding):
                pass
        except UnicodeError:
            return False
        return "\0" not in self._head and re.search(r"[\r\n]", self._head) is not None

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """The rows as those of `rows_of`."""
        content = self._content
        lines = io.BytesIO(content) if isinstance(content, bytes) else self._lines()
        return rows_of(lines, *self.dialect, self.encoding)

    def may_have_short_row(self) -> bool:
        """Whether a row may have fewer cells than the header has names.

        Polars takes the missing cells for unknown. Cells with line ends are not looked into.
        """
        separator, _ = self.dialect
        _, header = next(self.rows(), (0, []))
        text = pl.col("line").str.replace_all('"[^"]*"', "")
        n_cells = text.str.count_matches(separator, literal=True) + 1
        lines = pl.scan_lines(
            self._content, glob=False, storage_options=self.file.folder.polars_options
        )
        is_short = (pl.col("line") != "") & (n_cells < needed_cells(header))
        in_doubt = lines.select((is_short | text.str.contains('"', literal=True)).any())
        return bool(in_doubt.collect(engine="streaming").item())


_ENCODINGS = (UTF_8, "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252", "latin-1")


def find_encoding(files: Sequence[File]) -> str:
    """The first encoding in which all CSV files can be read that are not UTF-8.

    It is likely if it has several bytes a letter, else one of several that are possible.
    """
    others = [f for f in files if f.suffix == ".csv" and not _CsvFile(f).is_text()]
    possible = (e for e in _ENCODINGS if all(_CsvFile(file, e).is_text() for file in others))
    return next(possible, UTF_8)


def _is_utf8(content: bytes) -> bool:
    """Whether bytes beyond ASCII are UTF-8; a text in another encoding hardly ever looks so."""
    try:
        return not (content.decode(UTF_8).isascii() or b"\0" in content)
    except UnicodeDecodeError:
        return False


_SMALL_FIX = (
    "Write numbers without separators of thousands, with a decimal point; where semicolons or tabs "
    "separate the cells, all with a decimal comma instead"
)


def read_small(
    source: Rows, numbers: Collection[str] | None = None, subject: str = "the table"
) -> pl.DataFrame:
    """A small table beside the persons' records: weights, targets, scenarios, price indices.

    Names of columns are in lower case, but for ratios of groups. Years and numbers are read as
    those of a panel, other cells of CSV files are texts. Where the separator is not a comma,
    numbers may have a decimal comma.

    Args:
        source: The path or URL of a file of a type that a panel may have, a data frame, or a
            dictionary of columns.
        numbers: Columns whose cells are numbers or empty, if the table has them. None: all.
        subject: Name of a data frame in errors.

    Raises:
        UsageError: If there is no such file, or it is not a table.
        InputError: If the file cannot be read or has no row, two columns have one name, or a cell
            is not a number or may be two; the error names the line and the column.
    """
    if isinstance(source, str | Path):
        frame = _read_file(open_file(source))
    else:
        frame = to_polars(source, subject)
    file, title = _file_of(source), f"{name_of(source, subject)} cannot be used"
    if frame.is_empty():
        why, fix = "there is no row", "Write one, or leave the table out."
        raise InputError.of(title, "no-rows", why, fix)
    names = {name: name.strip() if "/" in name else folded(name) for name in frame.columns}
    if len(set(names.values())) < len(names):
        why = f"two columns have one name; it has {', '.join(names)}"
        raise InputError.of(title, "ambiguous-column", why, "Give each column its own name.")
    frame = frame.rename(names)
    chosen = [name for name in frame.columns if numbers is None or name in numbers]
    texts = [name for name in chosen if frame.schema[name] == pl.String]
    frame = frame.with_columns(pl.col(texts).str.strip_chars())
    if _is_csv(file):
        may_be_decimal = _CsvFile(file).dialect[0] != ","
        # A count of persons has no decimals in any file.
        doubted = texts if may_be_decimal else [name for name in texts if name == "persons"]
        if may_be_decimal and any(frame[n].str.contains(",", literal=True).any() for n in texts):
            frame = frame.with_columns(with_decimal_point(name) for name in texts)
        elif doubtful := [name for name in doubted if in_groups(frame[name])]:
            why = "a dot has three digits behind it: 1.500 may be 1.5 or 1500"
            raise InputError.of(title, "doubtful-amount", why, _SMALL_FIX, column=doubtful[0])
    for name in chosen:
        typed, is_faulty = read_column(
            frame[name], BY_NAME["year" if name == "year" else "earnings"]
        )
        if len(faulty := is_faulty.arg_true()):
            what = "whole year" if name == "year" else "number"
            raise InputError.of(
                title,
                "not-a-number",
                f"{place_of_row(source, faulty[0])} has something that is not a {what}",
                _SMALL_FIX,
                column=name,
                count=len(faulty),
            )
        frame = frame.with_columns(typed.alias(name))
    return frame


def _file_of(source: Rows) -> File | None:
    return open_file(source) if isinstance(source, str | Path) else None


def _is_csv(file: File | None) -> TypeGuard[File]:
    return file is not None and file.suffix == ".csv"


def _read_file(file: File) -> pl.DataFrame:
    if file.suffix not in SUFFIXES:
        raise unknown_type(file)
    lazy, names = open_table(file, (), UTF_8)
    named = [name for name in names if not is_unnamed(name)]
    lazy = rows_of_csv(lazy, named) if _is_csv(file) else lazy.select(named)
    with named_damage(file, [file], UTF_8):
        return lazy.collect()


def name_of(source: Rows, subject: str) -> str:
    """What errors call a table: the place of its file, or the `subject`."""
    return str(source) if isinstance(source, str | Path) else subject


def place_of_row(source: Rows, row: int) -> str:
    """The line in which a row of a CSV file begins; of another table, the number of the row."""
    file = _file_of(source)
    if not _is_csv(file):
        return f"row {row + 1}"
    lines = (line for line, cells in _CsvFile(file).rows() if any(cells))
    try:
        return f"line {next(islice(lines, row + 1, None))}"
    except LineFault as fault:  # which polars reads otherwise
        raise refuse(file, str(fault), fault.fix) from None
