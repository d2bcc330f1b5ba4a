"""Reading of files into one frame with the source's columns and codes."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePath, PurePosixPath
from typing import Any
from urllib.parse import unquote

import polars as pl

from saga.data.casting import in_type, with_decimal_point
from saga.data.csv_text import (
    ENCODING_FIX,
    UTF_8,
    LineFault,
    find_separator,
    needed_cells,
    not_text,
    require_whole_rows,
    rows_of,
)
from saga.data.statistics_files import UnknownTextError, scan_statistics
from saga.errors import InputError, UsageError
from saga.files.data_frames import POLARS_ERRORS
from saga.files.folders import File, Folder, LocalFolder, find_file, open_file, open_folder
from saga.files.object_store import ObjectFolder

SUFFIXES = (".parquet", ".csv", ".arrow", ".feather", ".dta", ".sas7bdat", ".sav")
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


def _open(file: File, labelled: Collection[str], encoding: str) -> tuple[pl.LazyFrame, list[str]]:
    """A file, not yet read, and the names of its columns."""
    try:
        if encoding == UTF_8 and _is_utf16(file):
            raise _refuse(file, "the text is UTF-16", ENCODING_FIX)
        lazy = _scan(file, labelled, encoding)
        schema = lazy.collect_schema()
    except pl.exceptions.NoDataError:
        raise InputError.of(
            f"{file} is empty", "no-rows", "the file has no content", "Export the data again."
        ) from None
    except LineFault as fault:
        raise _refuse(file, str(fault), fault.fix) from None
    except UnknownTextError:
        raise _refuse(file, "its text is not in the expected encoding", ENCODING_FIX) from None
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
    of_csv = [_CsvFile(file, encoding) for file in files if file.suffix == ".csv"]
    try:
        yield
        doubtful = [csv_file for csv_file in of_csv if csv_file.may_have_short_row()]
    except _DAMAGES:
        _refuse_faulty_line(of_csv)
        raise _refuse(place, _DAMAGED, ENCODING_FIX) from None
    _refuse_faulty_line(doubtful)


def _refuse_faulty_line(files: Sequence[_CsvFile]) -> None:
    """Raise InputError for the first of the files that cannot be read, if there is one."""
    for csv_file in files:
        try:
            require_whole_rows(csv_file.rows())
        except LineFault as fault:
            raise _refuse(csv_file.file, str(fault), fault.fix) from None
        except _DAMAGES:
            raise _refuse(csv_file.file, _DAMAGED, ENCODING_FIX) from None


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
            raise _refuse(
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


def read_small(path: str | Path, numbers: Collection[str] | None = None) -> pl.DataFrame:
    """A small table beside the persons' records: weights, targets, scenarios, price indices.

    Cells of CSV files are texts. Where the separator is not a comma, numbers may have a decimal
    comma, which becomes a point.

    Args:
        path: The path or URL of a file of a type that a panel may have.
        numbers: Columns whose cells are numbers or empty, if the table has them. None: all.

    Raises:
        UsageError: If there is no such file.
        InputError: If the file cannot be read, or a cell is not a number; the error names the line
            and the column.
    """
    file = open_file(path)
    if file.suffix not in SUFFIXES:
        raise _unknown_type(file)
    lazy, names = _open(file, (), UTF_8)
    named = [name for name in names if not _is_unnamed(name)]
    is_csv = file.suffix == ".csv"
    lazy = _rows_of_csv(lazy, named) if is_csv else lazy.select(named)
    (frame,) = read_scans(Location(file.folder, (file,), {}), [lazy])
    frame = frame.rename(str.strip)
    chosen = [
        name
        for name, dtype in frame.schema.items()
        if dtype == pl.String and (numbers is None or name in numbers)
    ]
    frame = frame.with_columns(pl.col(chosen).str.strip_chars().replace("", None))
    has_commas = any(frame[name].str.contains(",", literal=True).any() for name in chosen)
    if is_csv and has_commas and _CsvFile(file).dialect[0] != ",":
        frame = frame.with_columns(with_decimal_point(name) for name in chosen)
    for name in chosen:
        is_number = frame[name].cast(pl.Float64, strict=False).is_not_null()
        faulty = (frame[name].is_not_null() & ~is_number).arg_true()
        if len(faulty):
            raise InputError.of(
                f"{path} cannot be used",
                "not-a-number",
                f"{place_of_row(path, faulty[0])} has something that is not a number",
                _SMALL_FIX,
                column=name,
                count=len(faulty),
            )
    return frame


def place_of_row(path: str | Path, row: int) -> str:
    """The line in which a row of a CSV file begins; of another file, the number of the row."""
    file = open_file(path)
    if file.suffix != ".csv":
        return f"row {row + 1}"
    lines = (line for line, cells in _CsvFile(file).rows() if any(cells))
    try:
        return f"line {next(islice(lines, row + 1, None))}"
    except LineFault as fault:  # which polars reads otherwise
        raise _refuse(file, str(fault), fault.fix) from None
