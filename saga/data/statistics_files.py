"""Files of Stata, SPSS and SAS: their texts, years and value labels."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import polars as pl

from saga.data.csv_text import UTF_8

STATISTICS = (".dta", ".sav", ".sas7bdat")
_BYTES = "iso8859-1"
_YEAR_0 = 3653  # days from Stata's day 0, in 1960, to that of polars, in 1970


class UnknownTextError(ValueError):
    """Texts are in an encoding that the file does not name."""


def scan_statistics(place: Path, labelled: Collection[str], encoding: str) -> pl.LazyFrame:
    """A file, not yet read.

    Stata's years (`%ty`) are whole numbers. Texts of Stata up to 13, and those of SPSS that are not
    UTF-8, are decoded at once: the reader for blocks shortens or loses texts that have letters
    beyond ASCII. So are columns of UTF-8 with empty cells, which may be texts in another encoding
    that it lost. Raises `UnknownTextError`.

    Args:
        place: The file.
        labelled: Columns, in lower case, that are read as value labels instead of their numbers.
        encoding: Encoding of texts, if the file does not name it.
    """
    from polars_readstat import ScanReadstat

    reader = ScanReadstat(str(place), preserve_order=True, missing_string_as_null=True)
    lazy = reader.df
    schema = lazy.collect_schema()
    changed = {
        name: (pl.col(name).cast(pl.Int32) + _YEAR_0).alias(name)
        for name, form in reader.metadata_df.select("name", "format").iter_rows()
        if schema[name] == pl.Date and str(form).startswith("%ty")
    }
    texts = lazy.select(name for name, dtype in schema.items() if dtype == pl.String)
    decoded = _decoded(place, texts, reader.metadata["encoding"], encoding)
    if decoded.columns:
        rest = lazy.drop(decoded.columns)
        lazy = pl.concat([rest, decoded.lazy()], how="horizontal").select(*schema)
    for name, labels in value_labels(place).items():
        if name.strip().lower() in labelled and name not in changed:
            code = pl.col(name).cast(pl.String).str.replace(r"^(-?\d+)\.0+$", "${1}")
            changed[name] = code.replace(labels)
    return lazy.with_columns(*changed.values())


def value_labels(place: Path) -> dict[str, dict[str, str]]:
    """Column -> its codes with their labels, of columns that have labels."""
    from polars_readstat import ScanReadstat

    parts = ("name", "value_label_codes", "value_label_labels")
    variables = ScanReadstat(str(place)).metadata_df.select(parts)
    return {
        name: dict(zip(codes, labels, strict=True))
        for name, codes, labels in variables.iter_rows()
        if codes
    }


def _decoded(place: Path, texts: pl.LazyFrame, of_file: str, encoding: str) -> pl.DataFrame:
    """The texts of a file that may not be UTF-8, in which Stata writes since version 14."""
    import pyreadstat

    is_stata, is_utf8 = place.suffix.lower() == ".dta", of_file.lower() == UTF_8
    names = texts.collect_schema().names()
    if names and is_utf8 and (encoding == UTF_8 or is_stata):
        n_empty = texts.null_count().collect(engine="streaming").row(0, named=True)
        names = [name for name in names if n_empty[name]]
    if not names:
        return pl.DataFrame()
    read = getattr(pyreadstat, f"read_{place.suffix.lower()[1:]}")
    # None: the encoding that the file names. In Latin-1 every byte is a letter, so none is lost.
    attempts: list[str | None] = [None] if is_utf8 or encoding == UTF_8 else []
    if is_stata:
        attempts = [_BYTES]
    elif encoding != UTF_8:
        attempts.append(encoding)
    for attempt in attempts:
        try:
            frame = read(place, usecols=names, encoding=attempt, output_format="polars")[0]
        except (pyreadstat.ReadstatError, UnicodeDecodeError):
            continue
        stated = [] if encoding == UTF_8 else [encoding]
        possible = [UTF_8, *stated] if is_utf8 else stated or [UTF_8, "cp1252"]
        return _from_bytes(frame.select(names), possible) if is_stata else frame.select(names)
    raise UnknownTextError


def _from_bytes(frame: pl.DataFrame, encodings: list[str]) -> pl.DataFrame:
    """Texts of bytes in place of letters, in the first of `encodings` in which all are texts."""
    distinct = {text for column in frame for text in column.unique() if text is not None}
    letters = [text for text in distinct if not text.isascii()]
    for attempt in encodings:
        try:
            texts = [text.encode(_BYTES).decode(attempt) for text in letters]
        except UnicodeError:
            continue
        return frame.with_columns(pl.all().replace(letters, texts))
    raise UnknownTextError
