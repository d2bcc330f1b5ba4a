"""The files of a panel: which they are, and their rows in the columns and types of all."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import Any
from urllib.parse import unquote

import polars as pl

from saga.data.casting import HIVE_UNKNOWN, in_type
from saga.data.csv_text import UTF_8
from saga.data.deflation import find_beside
from saga.data.files import (
    SUFFIXES,
    is_unnamed,
    named_damage,
    open_table,
    refuse,
    rows_of_csv,
    unknown_type,
)
from saga.data.mapping import SourceMapping
from saga.data.spellings import first_spellings, folded, require_one_name
from saga.errors import UsageError
from saga.files.atomic import digest_file
from saga.files.folders import File, Folder, LocalFolder, find_file, open_folder
from saga.files.object_store import ObjectFolder

_YEAR_IN_NAME = re.compile(r"(?<!\d)(?:19|20)\d{2}(?!\d)")
_ROWS_A_BLOCK = 1_000_000
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


def locate_files(
    source: Path | str, *, beside: Sequence[str] = (), near: Path | None = None
) -> Location:
    """The files of a path or URL: one file, a folder, or `panel/` of a generated register.

    Subfolders are included. Names that begin with "." or "_" and the files `beside` the data or in
    the folder `near` (price index, macro series) are skipped. Raises `InputError` if there is no
    readable file, or if the folder mixes file types.
    """
    folder = open_folder(source)
    register = _register_of(source)
    if folder.is_file(REGISTER) and folder.names("panel"):
        folder = open_folder(folder.location("panel"))
    elif (file := find_file(source)) is not None:
        if file.suffix not in SUFFIXES:
            raise unknown_type(file)
        return Location(file.folder, (file,), register)
    names = folder.files()
    if not names and not (isinstance(source, Path) and source.is_dir()):
        raise refuse(source, "there is no such file or folder", "Check the path or the URL.")
    folders = [place for place in (near, folder.location("")) if isinstance(place, Path)]
    skipped = {path for name in beside for path in _copies(name, folders)}
    files, unread = _panel_files(folder, names, skipped)
    return Location(folder, files, register, unread)


def _panel_files(
    folder: Folder, names: Sequence[str], skipped: Collection[Path]
) -> tuple[tuple[File, ...], tuple[str, ...]]:
    """The files of a folder that contain the panel, and the names of tables of other types."""
    shown = [
        path
        for path in map(PurePosixPath, names)
        if not any(part.startswith((".", "_")) for part in path.parts)
        and not (skipped and _resolved(folder, path) in skipped)
    ]
    files = [file for path in shown if (file := File(folder, str(path))).suffix in SUFFIXES]
    for path in shown:
        file = File(folder, str(path))
        if isinstance(folder, LocalFolder) and not file.folder.is_file(file.name):
            why = (
                "it is a link to a folder or to nothing, or may not be read, and would be left out"
            )
            fix = "Put the files themselves into the folder, or give permission to read them."
            raise refuse(file, why, fix)
        packed, unpacked = path.suffix.lower() in _PACKED, _resolved(folder, path.with_suffix(""))
        if packed and file not in files and unpacked not in skipped:
            raise refuse(
                file, "it is packed, and would be left out", "Unpack it, or take it elsewhere."
            )
    suffixes = sorted({file.suffix for file in files})
    if not files:
        raise refuse(
            str(folder), "the folder contains no panel file", f"Files may be {' '.join(SUFFIXES)}."
        )
    if len(suffixes) > 1:
        raise refuse(
            str(folder),
            f"the folder mixes file types: {' '.join(suffixes)}",
            "Name one file, or keep one type in the folder.",
        )
    others = [path for path in shown if File(folder, str(path)).suffix not in SUFFIXES]
    return tuple(files), tuple(map(str, filter(_may_be_table, others)))


def _may_be_table(path: PurePosixPath) -> bool:
    """Whether a name is that of a table: by a suffix, also one within (.csv.1), or without any."""
    suffixes = {suffix.lower() for suffix in path.suffixes}
    return not suffixes or not suffixes.isdisjoint((*SUFFIXES, *_OTHER_TABLES))


def _copies(name: str, folders: Sequence[Path]) -> list[Path]:
    """The file beside the mapping or the data, and its copy: another file of its name is data."""
    same = [path for folder in folders if (path := find_beside(name, [folder])) is not None]
    return [path for path in same if digest_file(path) == digest_file(same[0])]


def _resolved(folder: Folder, path: PurePosixPath) -> Path | str:
    location = folder.location(str(path))
    return location.resolve() if isinstance(location, Path) else location


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
            raise refuse(
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
    mapping: SourceMapping,
    choose: Callable[[Sequence[str]], Sequence[str]],
    labelled: Collection[str] = (),
) -> tuple[list[pl.LazyFrame], tuple[str, ...], list[list[str]]]:
    """Each file's chosen columns; the columns that the mapping does not use; each file's names.

    All files get the columns and types of all: names that differ in case or surrounding blanks
    alone get the first spelling, a column that a file lacks is unknown in it, and a column that is
    text in one file is text in all. A folder name `key=value` is a column of the
    files in the folder, as in partitions by Hive. CSV cells stay text, so leading zeros remain;
    empty lines are skipped. Raises `InputError` if a file is damaged; the message repeats none of
    its contents.

    Args:
        location: The files.
        mapping: How they are read. If files have the ids of persons in several types, numbers that
            are not whole and exact become texts that no id may be.
        choose: The columns to read, given a file's columns.
        labelled: Columns, in lower case, of which the value labels of Stata and SPSS are read
            instead of their numbers.
    """
    scans: list[pl.LazyFrame] = []
    unread: dict[str, None] = {}
    spellings: dict[str, list[str]] = {}
    by_file: list[list[str]] = []
    for file in location.files:
        lazy, in_file = open_table(file, labelled, mapping.encoding)
        mapping.check_types(lazy.collect_schema())
        of_folders = _values_of_folders(file)
        _require_same(file, lazy, mapping, of_folders)
        extra = _values_of_path(file, in_file, of_folders, by_name=mapping.year_in_filename)
        names = [*in_file, *extra]
        if mapping.is_own("year_in_filename") and "year" in map(folded, in_file):
            why = "it has a column year, and the mapping says that its name has the year"
            raise refuse(file, why, "Remove `year_in_filename`, or the column.")
        renamed = first_spellings(names, spellings)
        names = [renamed.get(name, name) for name in names]
        by_file.append(names)
        chosen = choose(names)
        read = [name for name in in_file if renamed.get(name, name) in chosen]
        if file.suffix == ".csv" and read:
            lazy = rows_of_csv(lazy, read)
        constants = (pl.lit(value, dtype=pl.String).alias(key) for key, value in extra.items())
        scans.append(lazy.with_columns(constants).rename(renamed, strict=False).select(chosen))
        used = mapping.used_columns(names)
        unread |= dict.fromkeys(
            name for name in names[: len(in_file)] if name not in used and not is_unnamed(name)
        )
    require_one_name([name for scan in scans for name in scan.collect_schema().names()])
    exact = {name for names in by_file for name in mapping.columns_of("person_id", names)}
    return _in_common_types(scans, exact), tuple(unread), by_file


def _values_of_folders(file: File) -> dict[str, str | None]:
    """Column -> value of all rows, from names of folders."""
    parts = [part.split("=") for part in file.pure.parts[:-1] if re.fullmatch(r"\w+=[^=]+", part)]
    return {key: None if value == HIVE_UNKNOWN else unquote(value) for key, value in parts}


def _values_of_path(
    file: File, names: Sequence[str], of_folders: Mapping[str, str | None], *, by_name: bool
) -> dict[str, str | None]:
    """The values of folders, and the year of the file's name, unless the file has the column."""
    values, in_file = dict(of_folders), set(map(folded, names))
    if by_name and len(years := set(_YEAR_IN_NAME.findall(file.pure.stem))) == 1:
        values["year"] = years.pop()
    return {key: value for key, value in values.items() if folded(key) not in in_file}


def _number(text: pl.Series) -> pl.Series:
    return text.cast(pl.Float64, strict=False)


def _require_same(
    file: File, lazy: pl.LazyFrame, mapping: SourceMapping, of_folders: Mapping[str, str | None]
) -> None:
    """Raise InputError if a column that is read has another value than a folder's name says."""
    stated = {folded(key): (value or "").lower() for key, value in of_folders.items()}
    read = mapping.used_columns(lazy.collect_schema().names()) if stated else ()
    for name in (name for name in read if folded(name) in stated):
        with named_damage(file, [file], mapping.encoding):
            cells = lazy.select(name).collect()[name].drop_nulls().unique()
            if cells.dtype in (pl.Date, pl.Datetime):
                cells = cells.dt.year()
            text = cells.cast(pl.String).str.strip_chars().str.to_lowercase()
        value = stated[folded(name)]
        number, stated_number = _number(text), _number(pl.Series([value]))
        if not ((text == value) | (number == stated_number).fill_null(False) | (text == "")).all():
            why = f"its column {name} differs from the value of {name} in the name of its folder"
            raise refuse(file, why, "Correct one of them, or leave the column out.")


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
    with named_damage(place, location.files, encoding):
        return pl.collect_all(scans)


def read_blocks(
    location: Location, scans: Sequence[pl.LazyFrame], encoding: str = UTF_8
) -> Iterator[tuple[File, pl.DataFrame]]:
    """The rows of the files of `scan_files` in blocks of bounded size, in order."""
    for file, scan in zip(location.files, scans, strict=True):
        with named_damage(file, [file], encoding):
            for block in scan.collect_batches(chunk_size=_ROWS_A_BLOCK, maintain_order=True):
                yield file, block
