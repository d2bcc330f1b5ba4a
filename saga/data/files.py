"""Reading of files into one frame with the source's columns and codes."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import polars as pl

from saga.errors import InputError, Problem, UsageError
from saga.files.object_store import ObjectFile, ObjectFolder, polars_options

UTF_8 = "utf-8"
SUFFIXES = (".parquet", ".csv", ".arrow", ".feather", ".dta", ".sas7bdat", ".sav")
_ENCODING_FIX = (
    "Export the data again, CSV files as UTF-8; or name their encoding in a mapping: "
    "`encoding: latin-1`, below `extends: lisa` if you use a shipped mapping."
)
_YEAR_IN_NAME = re.compile(r"(?<!\d)(?:19|20)\d{2}(?!\d)")


_DAMAGES = (OSError, pl.exceptions.PolarsError, RuntimeError, ValueError)
_ROWS_A_BLOCK = 1_000_000
InputFile = Path | ObjectFile


@dataclass(frozen=True)
class Location:
    """The files of a panel, the folder in which a price index may be, and register.json.

    Where the files are in an object store the folder is a URL.
    `register` is the content of register.json, empty if the panel is from another source.
    `several` says whether the whole panel has more than one file.
    """

    files: tuple[InputFile, ...]
    folder: Path | str
    register: dict[str, Any]
    several: bool = False

    def name(self, file: InputFile) -> str:
        """The path of a file inside the folder."""
        if isinstance(file, Path):
            return str(file.relative_to(self.folder))
        return file.url.removeprefix(f"{self.folder}/")


def _refuse(path: InputFile | str, why: str, fix: str) -> InputError:
    return InputError(f"{path} cannot be read", [Problem("unreadable-file", why, fix)])


def locate_files(source: Path | str, *, beside: Sequence[str] = ()) -> Location:
    """The files of a path: one file, a folder, or `panel/` of a generated register.

    Subfolders are included. Names that begin with "." or "_" and the files `beside` the data (price
    index, macro series) are skipped. Raises `InputError` if there is no readable file, or if the
    folder mixes file types.
    """
    if isinstance(source, str):
        return _locate_objects(source, beside)
    register, root = _register_of(source)
    if root is not None and source.absolute() == root and (source / "panel").is_dir():
        source = source / "panel"
    if source.is_file():
        _require_known(source)
        return Location((source,), source.parent, register)
    if not source.is_dir():
        raise _refuse(source, "there is no such file or folder", "Check the path.")
    entries = {f: f.relative_to(source).parts for f in sorted(source.rglob("*")) if f.is_file()}
    files = _panel_files(source, entries, beside)
    return Location(files, source, register, len(files) > 1)


def _locate_objects(url: str, beside: Sequence[str]) -> Location:
    """The files of a URL: one object, or all below it."""
    parent, _, name = url.rpartition("/")
    if PurePosixPath(name).suffix.lower() in SUFFIXES:
        file = ObjectFile(parent, name)
        if file.is_file():
            return Location((file,), parent, _register_at(parent))
    folder = ObjectFolder.open(url)
    entries = {file: PurePosixPath(file.path).parts for file in folder.files()}
    if not entries:
        raise _refuse(url, "there is no such object or folder", "Check the URL.")
    register = _register_at(url)
    if register and any(parts[0] == "panel" for parts in entries.values()):
        return replace(_locate_objects(f"{url}/panel", beside), register=register)
    files = _panel_files(url, entries, beside)
    return Location(files, url, register or _register_at(parent), len(files) > 1)


def _register_at(folder: str) -> dict[str, Any]:
    """The register.json of a folder of an object store."""
    file = ObjectFile(folder, "register.json")
    if folder.count("/") < 3 and not folder.partition("://")[2]:
        return {}
    return _parse_register(file) if file.is_file() else {}


File = TypeVar("File", Path, ObjectFile)


def _panel_files(
    source: Path | str, entries: Mapping[File, tuple[str, ...]], beside: Sequence[str]
) -> tuple[File, ...]:
    """The files of a folder that contain the panel.

    `entries`: the parts of each file's name relative to the folder.
    """
    skipped = {PurePosixPath(name).name for name in beside}
    files = [
        file
        for file, parts in entries.items()
        if file.suffix.lower() in SUFFIXES
        and file.name not in skipped
        and not any(part.startswith((".", "_")) for part in parts)
    ]
    suffixes = sorted({file.suffix.lower() for file in files})
    if not files:
        fix = f"Files may be {' '.join(SUFFIXES)}."
        raise _refuse(source, "the folder contains no panel file", fix)
    if len(suffixes) > 1:
        fix = "Name one file, or keep one type in the folder."
        raise _refuse(source, f"the folder mixes file types: {' '.join(suffixes)}", fix)
    return tuple(files)


def _require_known(file: Path) -> None:
    if file.suffix.lower() not in SUFFIXES:
        why = f"files of type {file.suffix or 'without suffix'} are not known"
        raise _refuse(file, why, f"Use one of {' '.join(SUFFIXES)}.")


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


def _register_of(source: Path) -> tuple[dict[str, Any], Path | None]:
    """The `register.json` of the generated register that contains `source`, and its folder."""
    path = source.absolute()
    for folder in (path, *path.parents):
        file = folder / "register.json"
        if file.is_file() and (
            path == folder or path.relative_to(folder).parts[0] in ("panel", "future")
        ):
            return _parse_register(file), folder
    return {}, None


def _parse_register(file: InputFile) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise _refuse(file, "it is not JSON", "Generate the register again.") from None
    return content if isinstance(content, dict) else {}


def read_files(
    location: Location,
    choose: Callable[[Sequence[str]], Sequence[str]],
    lacking: Callable[[Sequence[str]], Sequence[str]],
    *,
    labels: bool = True,
    year_in_filename: bool = False,
    encoding: str = UTF_8,
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The person-years of all files in one frame, and the names of unread columns.

    A folder name `key=value` is a column of the files in the folder, as in partitions by Hive. CSV
    cells stay text, so leading zeros remain; empty lines are skipped. Raises `InputError` if a file
    is damaged; the message repeats none of its contents.

    Args:
        location: The files.
        choose: The columns to read, given a file's columns.
        lacking: The required columns that cannot be made from a file's columns. If there are
            several files, each must have all required columns.
        labels: Whether to read value labels of Stata and SPSS instead of their numbers.
        year_in_filename: Whether to take `year` from names such as LISA2015_Individ.
        encoding: Encoding of CSV files.
    """
    frames: list[pl.LazyFrame] = []
    unread: dict[str, None] = {}
    for file in location.files:
        lazy, names = scan_file(
            location,
            file,
            choose,
            lacking,
            labels=labels,
            year_in_filename=year_in_filename,
            encoding=encoding,
        )
        frames.append(lazy)
        unread |= dict.fromkeys(names)
    try:
        parts = pl.collect_all(frames)
    except _DAMAGES:
        path = location.files[0] if len(frames) == 1 else location.folder
        raise _refuse_damaged(path, location.files, encoding) from None
    return _stack(parts), tuple(unread)


def scan_file(
    location: Location,
    file: InputFile,
    choose: Callable[[Sequence[str]], Sequence[str]],
    lacking: Callable[[Sequence[str]], Sequence[str]],
    *,
    labels: bool = True,
    year_in_filename: bool = False,
    encoding: str = UTF_8,
) -> tuple[pl.LazyFrame, tuple[str, ...]]:
    """The chosen columns of one of the files, not yet read, and the names of the others.

    The arguments and errors are those of `read_files`.
    """
    try:
        if encoding == UTF_8 and _is_utf16(file):
            raise _refuse(file, "the text is UTF-16", _ENCODING_FIX)
        lazy = _scan(file, labels=labels, encoding=encoding)
        names = lazy.collect_schema().names()
    except pl.exceptions.NoDataError:
        raise InputError(
            f"{file} is empty",
            [Problem("no-rows", "the file has no content", "Export the data again.")],
        ) from None
    except _DAMAGES:
        why, fix = "the file is damaged or not what its suffix says", "Export the data again."
        if not isinstance(file, Path):
            why += ", or the store does not give parts of files correctly"
            fix += " If a copy of the file can be read, the fault is in the store."
        raise _refuse(file, why, fix) from None
    repeated = [name for name in names if re.search(r"_duplicated_\d+$", name)]
    if repeated:
        raise _refuse(file, "the header names a column twice", "Give each column its own name.")
    extra = {key: value for key, value in _partition(file).items() if key not in names}
    if year_in_filename and "year" not in names and (years := _YEAR_IN_NAME.findall(file.stem)):
        extra["year"] = years[-1]
    chosen = choose([*names, *extra])
    lacks = lacking([*names, *extra])
    if lacks and location.several:
        why = f"{file.name} lacks the required column {lacks[0]}"
        fix = (
            "Each file needs it, or the year in which it is missing would look unknown. If all "
            "files have it under another name, a mapping names it (--mapping lisa for LISA)."
        )
        problem = Problem("missing-column", why, fix, column=lacks[0])
        raise InputError(f"a file in {location.folder} lacks a column", [problem])
    read = [name for name in chosen if name in names]
    if file.suffix.lower() == ".csv" and read:  # a blank line is not a row
        lazy = lazy.filter(~pl.all_horizontal(pl.col(name).is_null() for name in read))
    constants = (pl.lit(value).alias(key) for key, value in extra.items())
    unread = tuple(name for name in names if name not in chosen)
    return lazy.with_columns(constants).select(chosen), unread


def collect_blocks(lazy: pl.LazyFrame, file: InputFile, encoding: str) -> Iterator[pl.DataFrame]:
    """The rows of a file of `scan_file` in blocks of bounded size, in order."""
    try:
        yield from lazy.collect_batches(chunk_size=_ROWS_A_BLOCK, maintain_order=True)
    except _DAMAGES:
        raise _refuse_damaged(file, [file], encoding) from None


def _refuse_damaged(path: InputFile | str, files: Sequence[InputFile], encoding: str) -> InputError:
    damaged, why = _broken_line(files, encoding) or (path, "the file is damaged")
    return _refuse(damaged, why, _ENCODING_FIX)


def _partition(file: InputFile) -> dict[str, str]:
    return dict(part.split("=", 1) for part in file.parts[:-1] if re.fullmatch(r"\w+=[^=]+", part))


def _stack(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """One frame of all parts; a column of texts and numbers becomes text."""
    dtypes: dict[str, set[pl.DataType]] = {}
    for part in parts:
        for name, dtype in part.schema.items():
            dtypes.setdefault(name, set()).add(dtype)
    as_text = {
        name
        for name, kinds in dtypes.items()
        if len(kinds) > 1 and not all(k.is_numeric() or k == pl.Null for k in kinds)
    }
    texts = [
        part.with_columns(pl.col(name).cast(pl.String) for name in part.columns if name in as_text)
        for part in parts
    ]
    return pl.concat(texts, how="diagonal_relaxed")


def _scan(file: InputFile, *, labels: bool, encoding: str) -> pl.LazyFrame:
    place = file if isinstance(file, Path) else file.url
    options = None if isinstance(file, Path) else polars_options()
    match file.suffix.lower():
        case ".parquet":
            return pl.scan_parquet(place, hive_partitioning=False, storage_options=options)
        case ".csv":
            separator = _separator(file)
            if encoding != UTF_8:
                text = file.read_text(encoding).encode(UTF_8)
                return pl.read_csv(text, infer_schema=False, separator=separator).lazy()
            return pl.scan_csv(
                place, infer_schema=False, separator=separator, storage_options=options
            )
        case ".arrow" | ".feather":
            with file.open("rb") as stream:
                if stream.read(6) == b"ARROW1":
                    return pl.scan_ipc(place, storage_options=options)
                stream.seek(0)
                return pl.read_ipc_stream(stream.read()).lazy()
        case _:
            if isinstance(file, ObjectFile):
                fix = "Export the data as Parquet, or copy the file."
                raise _refuse(file, "this type is read from file systems only", fix)
            from polars_readstat import scan_readstat

            return scan_readstat(
                str(file),
                preserve_order=True,
                missing_string_as_null=True,
                value_labels_as_strings=labels,
            )


def _is_utf16(file: InputFile) -> bool:
    """Whether a CSV file begins with the byte order mark of UTF-16, as Excel's "Unicode text"."""
    if file.suffix.lower() != ".csv":
        return False
    with file.open("rb") as head:
        return head.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def _broken_line(files: Sequence[InputFile], encoding: str) -> tuple[InputFile, str] | None:
    """The first unreadable CSV file, and which of its lines has which fault."""
    for file in files:
        if file.suffix.lower() != ".csv":
            continue
        separator = _separator(file)
        with file.open("rb") as lines:
            width = lines.readline().count(separator.encode())
            for number, line in enumerate(lines, start=2):
                try:
                    text = line.decode(encoding)
                except UnicodeDecodeError:
                    return file, f"line {number} is not {encoding.upper()} text"
                if text.count('"') % 2:
                    return file, f"line {number} has a quotation mark that is not closed"
                if '"' not in text and text.count(separator) > width:
                    return file, f"line {number} has more cells than the header"
    return None


def _separator(file: InputFile) -> str:
    """The most frequent of comma, semicolon, tab and bar in the header of a CSV file."""
    with file.open("rb") as lines:
        header = lines.readline().decode(errors="replace")
    return max(",;\t|", key=header.count)
