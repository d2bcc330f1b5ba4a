"""Reading of files into one frame with the source's columns and codes."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath, PurePosixPath
from typing import Any
from urllib.parse import unquote

import polars as pl

from saga.data.casting import in_type
from saga.data.statistics_files import UTF_8, UnknownTextError, scan_statistics
from saga.errors import InputError, UsageError
from saga.files.data_frames import POLARS_ERRORS
from saga.files.folders import File, Folder, LocalFolder, find_file, open_folder
from saga.files.object_store import ObjectFolder

SUFFIXES = (".parquet", ".csv", ".arrow", ".feather", ".dta", ".sas7bdat", ".sav")
_ENCODING_FIX = (
    "Export the data again, CSV files as UTF-8; or, for persons' records, name their encoding in a "
    "mapping: `encoding: latin-1`, below `extends: lisa` if you use a shipped mapping."
)
_LINE_FIX = (
    "A line may be cut off, or be no row of the table, such as a total or a source: write all "
    "cells of a row, or remove the line."
)
CELLS_FIX = (
    "Give each line as many cells as the header; a text with a separator in it stands in quotation "
    "marks."
)
_QUOTES_FIX = "Close the quotation mark, or double it if it is part of the text."
_LINE_END_FIX = "Give all lines the same end, and put texts with line ends into quotation marks."
_YEAR_IN_NAME = re.compile(r"(?<!\d)(?:19|20)\d{2}(?!\d)")


_DAMAGES = (
    OSError,
    *POLARS_ERRORS,
    RuntimeError,
    ValueError,
    EOFError,
    zlib.error,
)
_ROWS_A_BLOCK = 1_000_000
_DECIMAL_FIX = "Write it as floating-point numbers, or leave it out."
_DIGITS = 38  # of the longest decimals that polars reads
_PACKED = (".gz", ".tgz", ".zip", ".bz2", ".xz", ".zst", ".7z", ".rar", ".tar")
_OTHER_TABLES = (
    ".txt",
    ".tsv",
    ".tab",
    ".dat",
    ".xlsx",
    ".xls",
    ".ods",
    ".pq",
    ".orc",
    ".rds",
    ".xpt",
    ".arrows",
    ".ipc",
    ".json",
    ".jsonl",
    ".parq",
    ".por",
    ".rdata",
    ".xlsb",
    ".zsav",
)
_DAMAGED = "the file is damaged"
_NO_NAME = r"(_duplicated_\d+)?"  # of columns after a comma that ends the header
_HIVE_UNKNOWN = "__HIVE_DEFAULT_PARTITION__"
_GZIP = b"\x1f\x8b"
_SAMPLE = 2**20  # bytes of a CSV file that show its separator
REGISTER = "register.json"  # of a generated register, beside the folders of its persons
_OF_REGISTER = ("panel", "future")


@dataclass(frozen=True)
class Location:
    """The files of a panel, all in one folder, in which a price index may be, and register.json.

    `register` is the content of register.json, empty if the panel is from another source. `unread`
    are names of files beside the data that seem to be tables.
    """

    folder: Folder
    files: tuple[File, ...]
    register: dict[str, Any]
    unread: tuple[str, ...] = ()


def _refuse(path: File | Path | str, why: str, fix: str) -> InputError:
    return InputError.of(f"{path} cannot be read", "unreadable-file", why, fix)


def _unknown_type(file: File) -> InputError:
    why = f"files of type {file.suffix or 'without suffix'} are not known"
    return _refuse(file, why, f"Use one of {' '.join(SUFFIXES)}.")


def locate_files(source: Path | str, *, beside: Sequence[str] = ()) -> Location:
    """The files of a path or URL: one file, a folder, or `panel/` of a generated register.

    Subfolders are included. Names that begin with "." or "_" and the files `beside` the data (price
    index, macro series) are skipped. Raises `InputError` if there is no readable file, or if the
    folder mixes file types.
    """
    folder = open_folder(source)
    register = _register_of(source)
    if folder.is_file(REGISTER) and folder.names("panel"):
        folder = open_folder(folder.location("panel"))
    elif (file := find_file(source)) is not None:
        if file.suffix not in SUFFIXES:
            raise _unknown_type(file)
        return Location(file.folder, (file,), register)
    names = folder.files()
    if not names and not (isinstance(source, Path) and source.is_dir()):
        raise _refuse(source, "there is no such file or folder", "Check the path or the URL.")
    files, unread = _panel_files(folder, names, beside)
    return Location(folder, files, register, unread)


def _panel_files(
    folder: Folder, names: Sequence[str], beside: Sequence[str]
) -> tuple[tuple[File, ...], tuple[str, ...]]:
    """The files of a folder that contain the panel, and the names of tables of other types."""
    skipped = {PurePosixPath(name).name for name in beside}
    shown = [
        path
        for path in map(PurePosixPath, names)
        if path.name not in skipped and not any(part.startswith((".", "_")) for part in path.parts)
    ]
    files = [file for path in shown if (file := File(folder, str(path))).suffix in SUFFIXES]
    for path in shown:
        file = File(folder, str(path))
        if isinstance(folder, LocalFolder) and not file.folder.is_file(file.name):
            why = (
                "it is a link to a folder or to nothing, or may not be read, and would be left out"
            )
            fix = "Put the files themselves into the folder, or give permission to read them."
            raise _refuse(file, why, fix)
        packed = path.suffix.lower() in _PACKED
        if packed and file not in files and path.stem not in skipped:
            raise _refuse(
                file, "it is packed, and would be left out", "Unpack it, or take it elsewhere."
            )
    suffixes = sorted({file.suffix for file in files})
    if not files:
        raise _refuse(
            str(folder), "the folder contains no panel file", f"Files may be {' '.join(SUFFIXES)}."
        )
    if len(suffixes) > 1:
        raise _refuse(
            str(folder),
            f"the folder mixes file types: {' '.join(suffixes)}",
            "Name one file, or keep one type in the folder.",
        )
    return tuple(files), tuple(map(str, (p for p in shown if p.suffix.lower() in _OTHER_TABLES)))


def _register_of(source: Path | str) -> dict[str, Any]:
    """The register.json of the generated register that is or contains `source`, else nothing."""
    if isinstance(source, Path):
        scheme, place = None, PurePath(source.absolute())
    else:
        scheme, _, rest = source.partition("://")
        place = PurePath(rest)
    parts = (place, *place.parents)
    for path in (place, *(part.parent for part in parts if part.name in _OF_REGISTER)):
        folder = ObjectFolder(f"{scheme}://{path}") if scheme else LocalFolder(Path(path))
        if (content := folder.read(REGISTER)) is None:
            continue
        try:
            register = json.loads(content)
        except ValueError:
            raise _refuse(
                File(folder, REGISTER), "it is not JSON", "Generate the register again."
            ) from None
        return register if isinstance(register, dict) else {}
    return {}


def require_output_outside_input(source: Path | str, out: Path | str, option: str) -> None:
    """Raise `UsageError` if the output `out` is `source` or lies in that folder.

    The output would replace the input, or be read as input next time. Texts are URLs.
    """
    if isinstance(source, str) or isinstance(out, str):
        inside = f"{out}/".startswith(f"{source}/")
    else:
        inside = source.resolve() in (out.resolve(), *out.resolve().parents)
    if inside:
        raise UsageError(
            f"{option} {out} is the input or lies in its folder, so it would be read as input next "
            "time. Choose another folder."
        )


def scan_files(
    location: Location,
    choose: Callable[[Sequence[str]], Sequence[str]],
    lacking: Callable[[Sequence[str]], Sequence[str]],
    ids: Callable[[Sequence[str]], Sequence[str]],
    check_types: Callable[[pl.Schema], None],
    *,
    labelled: Collection[str] = (),
    year_in_filename: bool = False,
    encoding: str = UTF_8,
) -> tuple[list[pl.LazyFrame], tuple[str, ...], list[list[str]]]:
    """Each file's chosen columns, not yet read; the unread columns of all files; each file's names.

    All files get the columns and types of all: names that differ in case or surrounding blanks
    alone get the first spelling, a column that a file lacks is unknown in it, and a column that is
    text in one file is text in all. A folder name `key=value` is a column of the
    files in the folder, as in partitions by Hive. CSV cells stay text, so leading zeros remain;
    empty lines are skipped. Raises `InputError` if a file is damaged; the message repeats none of
    its contents.

    Args:
        location: The files.
        choose: The columns to read, given a file's columns.
        lacking: The required columns that cannot be made from a file's columns. If there are
            several files, each must have all required columns.
        ids: The columns that name persons, given a file's columns. If files have them in several
            types, numbers that are not whole and exact become texts that no id may be.
        check_types: Raises InputError if a file's columns do not have the types they need.
        labelled: Columns, in lower case, of which the value labels of Stata and SPSS are read
            instead of their numbers.
        year_in_filename: Whether to take `year` from names such as LISA2015_Individ.
        encoding: Encoding of CSV files that are not UTF-8, and of files of Stata and SPSS that do
            not name theirs.
    """
    scans: list[pl.LazyFrame] = []
    unread: dict[str, None] = {}
    spellings: dict[str, list[str]] = {}
    by_file: list[list[str]] = []
    for file in location.files:
        lazy, in_file = _open(file, labelled, encoding)
        check_types(lazy.collect_schema())
        extra = _values_of_path(file, in_file, year_in_filename=year_in_filename)
        names = [*in_file, *extra]
        renamed = _first_spellings(names, spellings)
        names = [renamed.get(name, name) for name in names]
        by_file.append(names)
        chosen, lacks = choose(names), lacking(names)
        if lacks and len(location.files) > 1:
            raise InputError.of(
                f"a file in {location.folder} lacks a column",
                "missing-column",
                f"{file.name} lacks the required column {lacks[0]}",
                "Each file needs it, or the year in which it is missing would look unknown. If all "
                "files have it under another name, a mapping names it (--mapping lisa for LISA).",
                column=lacks[0],
            )
        read = [name for name in in_file if renamed.get(name, name) in chosen]
        if file.suffix == ".csv" and read:
            lazy = _rows_of_csv(lazy, read)
        constants = (pl.lit(value, dtype=pl.String).alias(key) for key, value in extra.items())
        scans.append(lazy.with_columns(constants).rename(renamed, strict=False).select(chosen))
        unread |= dict.fromkeys(
            name for name in names[: len(in_file)] if name not in chosen and not _is_unnamed(name)
        )
    _require_one_spelling([name for scan in scans for name in scan.collect_schema().names()])
    exact = {name for names in by_file for name in ids(names)}
    return _in_common_types(scans, exact), tuple(unread), by_file


def scan_file(file: File) -> pl.LazyFrame:
    """The named columns of one file, not yet read; else as `scan_files`."""
    if file.suffix not in SUFFIXES:
        raise _unknown_type(file)
    lazy, names = _open(file, (), UTF_8)
    named = [name for name in names if not _is_unnamed(name)]
    return _rows_of_csv(lazy, named) if file.suffix == ".csv" else lazy.select(named)


def _open(file: File, labelled: Collection[str], encoding: str) -> tuple[pl.LazyFrame, list[str]]:
    """A file, not yet read, and the names of its columns."""
    try:
        if encoding == UTF_8 and _is_utf16(file):
            raise _refuse(file, "the text is UTF-16", _ENCODING_FIX)
        lazy = _scan(file, labelled, encoding)
        schema = lazy.collect_schema()
    except pl.exceptions.NoDataError:
        raise InputError.of(
            f"{file} is empty", "no-rows", "the file has no content", "Export the data again."
        ) from None
    except UnknownTextError:
        raise _refuse(file, "its text is not in the expected encoding", _ENCODING_FIX) from None
    except _DAMAGES:
        why, fix = "the file is damaged or not what its suffix says", "Export the data again."
        if isinstance(file.folder, ObjectFolder):
            why += ", or the store does not give parts of files correctly"
            fix += " If a copy of the file can be read, the fault is in the store."
        raise _refuse(file, why, fix) from None
    for name, dtype in schema.items():
        if file.suffix == ".csv" and re.search(r"._duplicated_\d+$", name):
            raise _refuse(file, "the header names a column twice", "Give each column its own name.")
        if isinstance(dtype, pl.Decimal) and dtype.precision > _DIGITS:
            why = f"the column '{name}' has decimals of more than {_DIGITS} digits"
            raise _refuse(file, why, _DECIMAL_FIX)
    return lazy, schema.names()


def _is_unnamed(name: str) -> bool:
    """Whether a column has no name, as after a comma that ends the header."""
    return re.fullmatch(_NO_NAME, name) is not None


def _rows_of_csv(lazy: pl.LazyFrame, read: list[str]) -> pl.LazyFrame:
    """The columns to read of a CSV file, all of whose columns are parsed; blank lines are no rows.

    Polars only notices a row with too many cells, whose amounts would be those of other columns,
    or a quotation mark within a cell, which would join rows, if it parses all columns.
    """
    return lazy.filter(~pl.all_horizontal(pl.col(name).is_null() for name in read)).map_batches(
        lambda block: block.select(read),
        predicate_pushdown=False,
        projection_pushdown=False,
        streamable=True,
        schema=dict.fromkeys(read, pl.String()),
    )


def _folded(name: str) -> str:
    """A name without what may differ between files."""
    return name.strip().lower()


def _first_spellings(names: Sequence[str], spellings: dict[str, list[str]]) -> dict[str, str]:
    """Names of a file -> how earlier files spell them; adds to the known spellings.

    A name that may be one of two keeps its spelling.
    """
    renamed, times = {}, Counter(map(_folded, names))
    for name in names:
        known = spellings.setdefault(_folded(name), [])
        if len(known) == 1 and times[_folded(name)] == 1:
            renamed[name] = known[0]
        elif name not in known:
            known.append(name)
    return renamed


def _require_one_spelling(columns: Sequence[str]) -> None:
    """Raise InputError for columns that were chosen, in several files, with two spellings."""
    first: dict[str, str] = {}
    for name in columns:
        if (other := first.setdefault(_folded(name), name)) != name:
            raise InputError.of(
                "a column has two spellings",
                "ambiguous-column",
                f"{name} of one file may be {other} of another",
                "Write the names of columns the same way in all files.",
                column=name,
            )


def _values_of_path(
    file: File, names: Sequence[str], *, year_in_filename: bool
) -> dict[str, str | None]:
    """Column -> value of all rows, from names of folders and files, unless the file has it."""
    parts = [part for part in file.pure.parts[:-1] if re.fullmatch(r"\w+=[^=]+", part)]
    values: dict[str, str | None] = {}
    for part in parts:
        key, value = part.split("=", 1)
        values[key] = None if value == _HIVE_UNKNOWN else unquote(value)
    if year_in_filename and len(years := set(_YEAR_IN_NAME.findall(file.pure.stem))) == 1:
        values["year"] = years.pop()
    in_file = set(map(_folded, names))
    return {key: value for key, value in values.items() if _folded(key) not in in_file}


def _in_common_types(scans: Sequence[pl.LazyFrame], exact: Collection[str]) -> list[pl.LazyFrame]:
    """The files with the columns and types of all; texts and numbers together become text.

    So do floats and other numbers of columns that have to be `exact`.
    """
    if len(scans) == 1:
        return list(scans)
    schemas = [scan.collect_schema() for scan in scans]
    types: dict[str, set[pl.DataType]] = {}
    for schema in schemas:
        for name, dtype in schema.items():
            types.setdefault(name, set()).add(dtype)
    as_text = {
        name: pl.String()
        for name, of in types.items()
        if len(of) > 1
        and not all(
            dtype == pl.Null or (dtype.is_numeric() and not (name in exact and dtype.is_float()))
            for dtype in of
        )
    }
    empty = [
        pl.DataFrame(schema={name: as_text.get(name, dtype) for name, dtype in schema.items()})
        for schema in schemas
    ]
    common = pl.concat(empty, how="diagonal_relaxed").schema
    return [
        scan.select(
            in_type(name, dtype, schema, exact=name in exact) for name, dtype in common.items()
        )
        for scan, schema in zip(scans, schemas, strict=True)
    ]


def read_scans(
    location: Location, scans: Sequence[pl.LazyFrame], encoding: str = UTF_8
) -> list[pl.DataFrame]:
    """The rows of each file of `scan_files`."""
    place = location.files[0] if len(scans) == 1 else str(location.folder)
    with _named_damage(place, location.files, encoding):
        return pl.collect_all(scans)


def read_blocks(
    location: Location, scans: Sequence[pl.LazyFrame], encoding: str = UTF_8
) -> Iterator[tuple[File, pl.DataFrame]]:
    """The rows of the files of `scan_files` in blocks of bounded size, in order."""
    for file, scan in zip(location.files, scans, strict=True):
        with _named_damage(file, [file], encoding):
            for block in scan.collect_batches(chunk_size=_ROWS_A_BLOCK, maintain_order=True):
                yield file, block


@contextmanager
def _named_damage(place: File | str, files: Sequence[File], encoding: str) -> Iterator[None]:
    """Replace errors of libraries, which may quote cells, by the place of the damage.

    Also refuse CSV files with rows of too few cells, which libraries take for unknown.
    """
    try:
        yield
        doubtful = [f for f in files if f.suffix == ".csv" and _may_have_short_row(f, encoding)]
    except _DAMAGES:
        raise _refuse(
            *(_broken_line(files, encoding) or (place, _DAMAGED, _ENCODING_FIX))
        ) from None
    if (short := _broken_line(doubtful, encoding)) is not None:
        raise _refuse(*short)


def _scan(file: File, labelled: Collection[str], encoding: str) -> pl.LazyFrame:
    place, options = file.location, file.folder.polars_options
    match file.suffix:
        case ".parquet":
            return pl.scan_parquet(
                place, glob=False, hive_partitioning=False, storage_options=options
            )
        case ".csv":
            separator, skipped = csv_dialect(file, encoding)
            return pl.scan_csv(
                _content(file, encoding),
                glob=False,
                infer_schema=False,
                separator=separator,
                skip_lines=skipped,
                storage_options=options,
            )
        case ".arrow" | ".feather":
            if file.start(6) == b"ARROW1":
                if isinstance(place, Path):
                    _check_decimals(file, place)
                return pl.scan_ipc(place, glob=False, storage_options=options)
            return _read_stream(file).lazy()
        case _ if not isinstance(place, Path):
            raise _refuse(
                file,
                "this type is read from file systems only",
                "Export the data as Parquet, or copy the file.",
            )
        case _:
            return scan_statistics(place, labelled, encoding)


def _content(file: File, encoding: str) -> Path | str | bytes:
    """Where a CSV file is; or its text in UTF-8, if polars knows not its encoding or line ends."""
    head = _head(file, encoding)
    only_cr = "\r" in head and "\n" not in head  # as old programs for the Mac end lines
    if encoding == UTF_8 and not only_cr:
        return file.location
    content = file.read()
    content = gzip.decompress(content) if content.startswith(_GZIP) else content
    text = content.decode(UTF_8 if _is_utf8(content) else encoding)
    return (text.replace("\r", "\n") if only_cr else text).encode(UTF_8)


def _read_stream(file: File) -> pl.DataFrame:
    import pyarrow as pa  # takes long to import

    from saga.files.arrow_streams import is_whole_stream

    content = file.read()
    _check_decimals(file, content)
    if not is_whole_stream(pa.BufferReader(content)):
        why = "the Arrow stream does not end as it should, so rows may be missing"
        raise _refuse(file, why, "Export the data again, to the end.")
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
            raise _refuse(file, f"the column '{field.name}' has {which}", _DECIMAL_FIX)


def _is_utf16(file: File) -> bool:
    """Whether a CSV file is UTF-16, as Excel's "Unicode text": by byte order mark or zero bytes."""
    start = file.start(4) if file.suffix == ".csv" else b""
    has_mark = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return has_mark or (b"\0" in start and not start.startswith(_GZIP))


def _is_utf8(content: bytes) -> bool:
    """Whether bytes beyond ASCII are UTF-8; a text in another encoding hardly ever looks so."""
    try:
        return not (content.decode(UTF_8).isascii() or b"\0" in content)
    except UnicodeDecodeError:
        return False


def _broken_line(files: Sequence[File], encoding: str) -> tuple[File, str, str] | None:
    """The first unreadable CSV file, which of its lines has which fault, and the fix."""
    for file in files:
        try:
            fault = _fault_of_line(file, encoding) if file.suffix == ".csv" else None
        except _DAMAGES:
            fault = _DAMAGED, _ENCODING_FIX
        if fault is not None:
            return file, *fault
    return None


def _may_have_short_row(file: File, encoding: str) -> bool:
    """Whether a row of a CSV file may have fewer cells than its header has names.

    Polars takes the missing cells for unknown. Cells with line ends are not looked into.
    """
    separator, skipped = find_separator(head := _head(file, encoding))
    header = re.split(r"\r\n|\r|\n", head, maxsplit=skipped + 1)[skipped]
    width = _width(next(csv.reader([header], delimiter=separator), []))
    text = pl.col("line").str.replace_all('"[^"]*"', "")
    n_cells = text.str.count_matches(separator, literal=True) + 1
    lines = pl.scan_lines(
        _content(file, encoding), glob=False, storage_options=file.folder.polars_options
    )
    is_short = (pl.col("line") != "") & (n_cells < width)
    in_doubt = lines.select((is_short | text.str.contains('"', literal=True)).any())
    return bool(in_doubt.collect(engine="streaming").item())


def _width(header: Sequence[str]) -> int:
    """The number of cells that a row needs: up to the last one that the header names."""
    return max((k for k, name in enumerate(header, start=1) if name.strip()), default=0)


def _fault_of_line(file: File, encoding: str) -> tuple[str, str] | None:
    """Which line has which fault, and the fix. Cells, and so a row, may have several lines."""
    try:
        content = _content(file, encoding)
    except UnicodeDecodeError as error:
        number = error.object.count(b"\n", 0, error.start) + 1
        return f"line {number} is not {encoding.upper()} text", _ENCODING_FIX
    lines = io.BytesIO(content) if isinstance(content, bytes) else _lines(file)
    separator, skipped = csv_dialect(file, encoding)
    record: list[str] = []

    def texts() -> Iterator[str]:
        for line in islice(lines, skipped, None):
            record.append(line.decode(UTF_8))
            yield record[-1]

    number, width, needed = skipped + 1, 0, 0
    try:
        for cells in (reader := csv.reader(texts(), delimiter=separator)):
            if "".join(record).count('"') % 2:
                return f"line {number} has a quotation mark that is not closed", _QUOTES_FIX
            if number == skipped + 1:
                width, needed = len(cells), _width(cells)
            elif len(cells) > width:
                why = f"line {number} has more cells than the header"
                if len(cells) == width + 1 and number == skipped + 2:
                    why += ", as if rows had names (in R: write.csv, or row.names = FALSE)"
                return why, CELLS_FIX
            elif 0 < len(cells) < needed:
                return f"line {number} has fewer cells than the header", _LINE_FIX
            number = skipped + reader.line_num + 1
            record.clear()
    except UnicodeDecodeError:
        return f"line {number + len(record)} is not {encoding.upper()} text", _ENCODING_FIX
    except csv.Error:
        if "\r" in record[-1].rstrip("\r\n"):
            return f"line {number} has a line end of another kind within", _LINE_END_FIX
        return f"line {number} has a quotation mark that is not closed", _QUOTES_FIX
    return None


def text_lines(file: File) -> Iterator[str]:
    """The lines of a CSV file in UTF-8."""
    return (line.decode(UTF_8, errors="replace") for line in _lines(file))


def _lines(file: File) -> Iterator[bytes]:
    is_packed = file.start(len(_GZIP)) == _GZIP
    return iter(gzip.GzipFile(fileobj=io.BytesIO(file.read()))) if is_packed else file.lines()


def _head(file: File, encoding: str) -> str:
    """The first part of a CSV file."""
    content = file.start(_SAMPLE)
    if content.startswith(_GZIP):
        content = zlib.decompressobj(wbits=31).decompress(content, _SAMPLE)
    return content.decode(encoding, errors="replace").removeprefix("\ufeff")


def csv_dialect(file: File, encoding: str = UTF_8) -> tuple[str, int]:
    """The separator of a CSV file, and the number of lines before its header."""
    return find_separator(_head(file, encoding))


def find_separator(head: str) -> tuple[str, int]:
    """The separator of a CSV file, and the number of lines before its header.

    Excel's first line `sep=;` names the separator, else it is the most frequent of comma,
    semicolon, tab and bar in the header.
    """
    header = re.split(r"[\r\n]", head, maxsplit=1)[0]
    if named := re.fullmatch(r'"?sep=(.)"?', header, flags=re.IGNORECASE):
        return named[1], 1
    return max(",;\t|", key=re.sub('"[^"]*"', "", header).count), 0
