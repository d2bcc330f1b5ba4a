"""One panel, drawn with a seed, in the many ways in which programs write it: it is read the same.

What cannot be known to be the same is refused with the column, never read as something else.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyreadstat
import pytest

from saga.data.reading import read_panel
from saga.errors import InputError

Spelling = Callable[[pl.DataFrame], Any]
Writing = Callable[[pl.DataFrame, Path], Path]
SEEDS = (1, 2)
CATEGORIES = ("sex", "county", "education_level", "children", "occupation")
TEXTS = ("person_id", *CATEGORIES)


def draw_panel(seed: int) -> pl.DataFrame:
    """Rows in any order, with gaps, unknown cells, zeros, cents and codes with leading zeros."""
    rng = np.random.default_rng(seed)
    people = {str(rng.integers(1_000, 10_000)): i for i in range(9)}
    rows = [
        {
            "person_id": person_id,
            "year": year,
            "birth_year": 1960 + 3 * i,
            "earnings": None
            if rng.random() < 0.1
            else float(rng.choice([0.0, round(rng.lognormal(12.4, 0.5), 2)], p=[0.1, 0.9])),
            "sex": ("female", "male", None)[i % 3],
            "county": ("01", "03", "25", None)[i % 4],
            "education_level": ("compulsory", "upper_secondary", None)[i % 3],
            "children": str(rng.integers(0, 4)),
            "capital_income": None if rng.random() < 0.2 else round(rng.normal(0, 9_000), 2),
            "full_time": float(rng.integers(0, 2)),
            "occupation": ("021", "512", None)[i % 3],
        }
        for person_id, i in people.items()
        for year in range(2004, 2016)
        if rng.random() < 0.9
    ]
    return pl.DataFrame(rows).sample(fraction=1, shuffle=True, seed=seed)


def as_type(dtype: Any, *names: str) -> Spelling:
    """The frame with columns in another type of polars; codes become numbers on the way."""
    return lambda frame: frame.with_columns(
        pl.col(name).cast(pl.Float64).cast(pl.Int64).cast(dtype) for name in names
    )


def of_pandas(change: Callable[[pd.DataFrame], pd.DataFrame]) -> Spelling:
    return lambda frame: change(frame.to_pandas())


def in_text(unknown: str | None) -> Spelling:
    """Numbers as texts."""
    names = ("year", "birth_year", "earnings", "capital_income", "full_time")
    return lambda frame: frame.with_columns(
        pl.col(names).cast(pl.String).fill_null(pl.lit(unknown, dtype=pl.String))
    )


def first_day(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(year=pl.date("year", 1, 1))


WHOLE = (pl.Int16, pl.UInt16, pl.Int64, pl.UInt64, pl.Int128, pl.Float32, pl.Float64)
FRAMES: dict[str, Spelling] = {
    "columns in another order": lambda frame: frame.select(reversed(frame.columns)),
    "capital letters and blanks": lambda frame: frame.rename(lambda name: f" {name.upper()} "),
    "a further column": lambda frame: frame.with_columns(note=pl.lit("x"), number=pl.lit(1)),
    "a column that is unknown throughout": lambda frame: frame.with_columns(industry=None),
    **{f"years as {dtype}": as_type(dtype, "year", "birth_year") for dtype in WHOLE},
    **{f"ids as {dtype}": as_type(dtype, "person_id") for dtype in WHOLE},
    **{
        f"codes as {dtype}": as_type(dtype, "children", "county", "occupation")
        for dtype in (pl.Int16, pl.UInt64, pl.Float32, pl.Float64)
    },
    "decimals": lambda frame: frame.with_columns(
        pl.col("earnings", "capital_income").cast(pl.Decimal(12, 2)),
        pl.col("year", "person_id").cast(pl.Decimal(9, 0)),
    ),
    "categories": lambda frame: frame.with_columns(pl.col(TEXTS).cast(pl.Categorical)),
    "true and false": lambda frame: frame.with_columns(full_time=pl.col("full_time") == 1),
    "numbers as texts": in_text(None),
    "empty texts": in_text(""),
    "blanks for unknown": in_text(" "),
    "blanks around texts": lambda frame: frame.with_columns(
        pl.format(" {}\u00a0", pl.col(name)).alias(name) for name in TEXTS
    ),
    "first days of years": first_day,
    "last days of years": lambda frame: frame.with_columns(
        pl.datetime("year", 12, 31, time_unit="ns").alias("year")
    ),
    "days with a time zone": lambda frame: frame.with_columns(
        pl.datetime("year", 1, 1, time_zone="Europe/Stockholm").alias("year")
    ),
    "a dictionary of lists": lambda frame: frame.to_dict(as_series=False),
    "a dictionary of series": lambda frame: (
        {name: frame[name].to_pandas() for name in TEXTS}
        | {name: frame[name] for name in frame.columns if name not in TEXTS}
    ),
    "pandas": of_pandas(lambda frame: frame),
    "pandas by numpy, NaN for unknown": of_pandas(
        lambda frame: frame.astype(dict.fromkeys(TEXTS, object))
    ),
    "pandas objects": of_pandas(lambda frame: frame.astype(object)),
    "pandas of nullable types": of_pandas(lambda frame: frame.convert_dtypes()),
    "pandas by pyarrow": of_pandas(lambda frame: frame.convert_dtypes(dtype_backend="pyarrow")),
    "pandas categories": of_pandas(
        lambda frame: frame.astype(dict.fromkeys((*TEXTS, "year", "earnings"), "category"))
    ),
    "pandas with an index": of_pandas(lambda frame: frame.set_index(["person_id", "year"])),
    "pandas periods": of_pandas(
        lambda frame: frame.assign(year=pd.PeriodIndex(frame["year"].astype(str), freq="Y"))
    ),
    "pyarrow": lambda frame: frame.to_arrow(),
    "pyarrow in batches": lambda frame: pa.Table.from_batches(
        frame.to_arrow().to_batches(max_chunksize=7)
    ),
    "pyarrow dictionaries": lambda frame: pa.table(
        {name: frame[name].to_arrow().dictionary_encode() for name in frame.columns}
    ),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("spelling", FRAMES)
def test_a_frame_is_read_the_same_in_every_spelling(spelling: str, seed: int) -> None:
    frame = draw_panel(seed)
    assert read_panel(FRAMES[spelling](frame)).frame.equals(read_panel(frame).frame)


def written_csv(**how: Any) -> Writing:
    """A CSV file: `before` the header, after each line `end`, texts `quoted`, `decimal` sign."""

    def write(frame: pl.DataFrame, folder: Path) -> Path:
        options = {"separator": how.get("sign", ","), "quote_style": how.get("quoted", "necessary")}
        text = frame.write_csv(**options).replace("\n", how.get("end", "\n"))
        (folder / "panel.csv").write_bytes((how.get("before", "") + text).encode())
        return folder / "panel.csv"

    return write


def written_parts(frame: pl.DataFrame, folder: Path) -> Path:
    """Files of Parquet by year; programs chose other types in each, and another order."""
    types: tuple[Any, ...] = (pl.String, pl.Int32, pl.Float64, pl.UInt64)
    for (year,), rows in frame.partition_by("year", as_dict=True).items():
        dtype = types[year % 4]
        part = as_type(dtype, "year", "county", "children")(rows).drop(
            name for name in ("occupation", "sex") if rows[name].null_count() == len(rows)
        )
        names = part.columns[:: 1 if year % 2 else -1]
        part.select(names).write_parquet(folder / f"{year}.parquet")
    return folder


def written_stata(frame: pl.DataFrame, folder: Path) -> Path:
    frame.to_pandas().to_stata(folder / "panel.dta", write_index=False, version=118)
    return folder / "panel.dta"


def written_spss(frame: pl.DataFrame, folder: Path) -> Path:
    pyreadstat.write_sav(frame.to_pandas(), folder / "panel.sav")
    return folder / "panel.sav"


def written_arrow(frame: pl.DataFrame, folder: Path, *, stream: bool) -> Path:
    (frame.write_ipc_stream if stream else frame.write_ipc)(folder / "panel.arrow")
    return folder / "panel.arrow"


def written_parquet(frame: pl.DataFrame, folder: Path) -> Path:
    frame.write_parquet(folder / "panel.parquet", row_group_size=11)
    return folder / "panel.parquet"


FILES: dict[str, Writing] = {
    "commas": written_csv(),
    "semicolons": written_csv(sign=";"),
    "tabs": written_csv(sign="\t"),
    "bars": written_csv(sign="|"),
    "a mark at the beginning": written_csv(before="\ufeff"),
    "lines of Windows": written_csv(end="\r\n"),
    "lines of old programs": written_csv(end="\r"),
    "blank lines between": written_csv(end="\n\n"),
    "blank lines before": written_csv(before="\n \n"),
    "the sign in the first line": written_csv(before="sep=;\n", sign=";"),
    "all quoted": written_csv(quoted="always"),
    "texts quoted": written_csv(quoted="non_numeric"),
    "a comma after each line": written_csv(end=",\n"),
    "Parquet": written_parquet,
    "Parquet of unlike parts": written_parts,
    "Arrow file": lambda frame, folder: written_arrow(frame, folder, stream=False),
    "Arrow stream": lambda frame, folder: written_arrow(frame, folder, stream=True),
    "Stata": written_stata,
    "SPSS": written_spss,
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("writing", FILES)
def test_a_file_is_read_the_same_in_every_spelling(writing: str, seed: int, tmp_path: Path) -> None:
    frame = draw_panel(seed)
    assert read_panel(FILES[writing](frame, tmp_path)).frame.equals(read_panel(frame).frame)


def with_decimal_commas(frame: pl.DataFrame) -> str:
    """Semicolons and decimal commas, as Excel writes in most of Europe."""
    return frame.write_csv(separator=";", decimal_comma=True)


def with_sentinels(frame: pl.DataFrame) -> str:
    return frame.with_columns(pl.col("earnings").fill_null(-9)).write_csv()


STATED: dict[str, tuple[Callable[[pl.DataFrame], str], dict[str, Any]]] = {
    "decimal commas": (with_decimal_commas, {"decimal": ","}),
    "a number for unknown": (with_sentinels, {"keep": {"earnings": [0, 1e9]}}),
    "amounts in hundreds": (
        lambda frame: frame.with_columns(pl.col("earnings", "capital_income") / 100).write_csv(),
        {"scale": 100},
    ),
}


@pytest.mark.parametrize("spelling", STATED)
def test_what_may_be_read_in_two_ways_is_refused_until_it_is_stated(
    spelling: str, tmp_path: Path
) -> None:
    frame, (write, mapping) = draw_panel(3), STATED[spelling]
    (tmp_path / "panel.csv").write_text(write(frame))
    read = read_panel(tmp_path / "panel.csv", mapping=mapping).frame
    expected = read_panel(frame).frame
    amounts = ["earnings", "capital_income"]
    assert read.drop(amounts).equals(expected.drop(amounts))
    assert np.allclose(read.select(amounts), expected.select(amounts), rtol=1e-12, equal_nan=True)
    if "scale" not in mapping:
        with pytest.raises(InputError, match="earnings"):
            read_panel(tmp_path / "panel.csv")


def unknown_is(word: str) -> Spelling:
    """Earnings as text, with a word for unknown."""
    return lambda frame: frame.with_columns(pl.col("earnings").cast(pl.String).fill_null(word))


WORDS = ("NA", "NaN", ".", "NULL", "None", "-", "-9", "#N/A", "inf")
REFUSED: dict[str, tuple[str, Spelling]] = {
    **{f"{word!r} for unknown": ("earnings", unknown_is(word)) for word in WORDS},
    "NaN of numpy": (
        "earnings",
        lambda frame: {name: frame[name].to_numpy() for name in frame.columns},
    ),
    "days within years": (
        "year",
        lambda frame: frame.with_columns(year=pl.date("year", 6, 30)),
    ),
    "months": (
        "year",
        of_pandas(
            lambda frame: frame.assign(
                year=pd.PeriodIndex(frame["year"].astype(str) + "-01", freq="M")
            )
        ),
    ),
    "thousands": (
        "earnings",
        lambda frame: frame.with_columns(
            pl.col("earnings").map_elements("{:,.2f}".format, return_dtype=pl.String)
        ),
    ),
    "lists": ("person_id", lambda frame: frame.with_columns(pl.concat_list("person_id"))),
    "bytes": ("sex", lambda frame: frame.with_columns(pl.col("sex").cast(pl.Binary))),
    "ids beyond single precision": (
        "person_id",
        lambda frame: frame.with_columns(
            (pl.col("person_id").cast(pl.Float64) + 2**24).cast(pl.Float32)
        ),
    ),
    "other capitals in codes": (
        "sex",
        lambda frame: frame.with_columns(pl.col("sex").str.to_uppercase()),
    ),
}


@pytest.mark.parametrize("spelling", REFUSED)
def test_what_is_no_spelling_is_refused_with_its_column(spelling: str) -> None:
    column, spell = REFUSED[spelling]
    with pytest.raises(InputError) as refused:
        read_panel(spell(draw_panel(1)))
    assert {problem.column for problem in refused.value.problems} >= {column}
