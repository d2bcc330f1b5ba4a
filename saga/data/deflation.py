"""Deflation: amounts in the prices of one year, by the facts or by a price index of a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from saga.data.facts import Facts
from saga.data.files import read_small
from saga.data.mapping import SourceMapping
from saga.errors import FileProblem, InputError
from saga.schema import MONEY

_LEAST_RATIO = 0.8  # of a price index to that of the year before


def read_index(path: Path) -> dict[int, float]:
    """The price index of a file: a column `year` and one column of positive values.

    Raises `InputError` if the file has another form.
    """

    def refuse(why: str) -> InputError:
        return InputError.of(
            f"the price index {path} cannot be used",
            "price-index",
            why,
            "Give a CSV file with a header, a column `year` and one column of index values, "
            "one row per year.",
        )

    try:
        table = read_small(path)
    except InputError as error:
        raise InputError(f"the price index {path} cannot be used", error.problems) from None
    columns = [name for name in table.columns if name != "year"]
    if len(columns) != 1 or table.width != 2:
        raise refuse("the columns are not `year` and one index")
    index = table[columns[0]]
    if table.null_count().sum_horizontal().item():
        raise refuse("a year or an index value is missing")
    if table["year"].is_duplicated().any() or not (index.is_finite() & (index > 0)).all():
        raise refuse("a year occurs twice, or an index value is not positive")
    by_year = table.sort("year")
    ratio = by_year[columns[0]] / by_year[columns[0]].shift(1)
    if ((by_year["year"].diff() == 1) & (ratio < _LEAST_RATIO)).any():
        raise refuse("it falls by more than a fifth within a year, as rates of inflation do")
    return dict(zip(table["year"].to_list(), index.to_list(), strict=True))


def real_factors(
    years: Iterable[int], index: Mapping[int, float], base_year: int
) -> dict[int, float]:
    """Factors from prices of each year to prices of `base_year`.

    They are index[base_year] / index[year]. Raises `InputError` if the index lacks a year.
    """
    years = sorted(set(years))
    missing = sorted({year for year in (base_year, *years) if year not in index})
    if missing:
        why = (
            f"the price index covers {min(index)} to {max(index)} and lacks "
            f"{', '.join(map(str, missing[:10]))}"
        )
        fix = (
            f"Convert the amounts to prices of {base_year} and state it, or leave these years out."
        )
        file_fix = "If a file is read, a mapping may give an index with these years as `deflator`."
        problem = FileProblem(
            "no-price-index", why, fix, "year", None, missing[0], len(missing), file_fix
        )
        raise InputError("some years cannot be deflated", [problem])
    return {year: index[base_year] / index[year] for year in years}


def deflated(
    frame: pl.DataFrame,
    present: Sequence[str],
    mapped: SourceMapping,
    prices: int | None,
    folders: Sequence[Path],
    facts: Facts,
) -> tuple[pl.DataFrame, int, dict[int, str]]:
    """Money in whole currency units of the panel's price year, and that year.

    A foreign currency without a deflator stays in the prices that the caller states. Also the years
    whose prices of the facts are no published ones, with their marks.
    """
    base, factor = mapped.price_year, pl.Series([mapped.scale])
    unpublished: dict[int, str] = {}
    if mapped.currency != "SEK" and mapped.deflator is None:
        if prices is None:
            raise InputError.of(
                "the amounts cannot be deflated",
                "no-price-index",
                f"{mapped.currency} has no deflator",
                "Add `deflator` to the mapping, or state in which year's prices all amounts are "
                "(`prices`).",
            )
        base = prices
    elif prices != base:
        deflator = mapped.deflator
        year = frame["year"].to_numpy()
        first = int(year.min())
        # By counting, because sorting millions of years takes long.
        with_row = (np.flatnonzero(np.bincount(year - first)) + first).tolist()
        years = with_row if prices is None else [prices]
        if deflator:
            title = "the amounts cannot be deflated"
            file = file_beside(deflator.file, folders, "price-index", title)
            index: Mapping[int, float] = read_index(file)
        else:
            index, unpublished = facts.price_index, facts.unpublished_prices([base, *years])
        factors = real_factors(years, index, base)
        if prices is not None:
            factor = pl.Series([mapped.scale * factors[prices]])
        else:
            by_year = np.zeros(int(year.max()) - first + 1)
            by_year[np.array(years) - first] = list(map(factors.__getitem__, years))
            factor = pl.Series(mapped.scale * by_year[year - first])
    money = {name for name in MONEY if name in present}
    columns = [column * factor if column.name in money else column for column in frame]
    return pl.DataFrame(columns), base, unpublished


def find_beside(name: str, folders: Sequence[Path]) -> Path | None:
    """A file by absolute path, or in one of the folders."""
    paths = [Path(name)] if Path(name).is_absolute() else [folder / name for folder in folders]
    return next((path.resolve() for path in paths if path.is_file()), None)


def file_beside(name: str, folders: Sequence[Path], rule: str, title: str) -> Path:
    """The file of `find_beside`. Raises InputError if there is none."""
    if (path := find_beside(name, folders)) is not None:
        return path
    looked = ", ".join(map(str, folders)) or "no folder: the data are not a file"
    raise InputError.of(
        title,
        rule,
        f"the {rule.replace('-', ' ')} {name} was not found (looked in {looked})",
        "Put it in the folder of the data or of the mapping.",
    )
