"""Persons who join a population after the origin: the young, and immigrants.

There is no record of them. Who joins in a year at an age is taken to earn from then on what persons
of the panel earn, the donors: those who have that age (and sex) in the year or, if there are none,
had it last. Path k of an entrant is path k of the donor, moved in time by the years between them
and multiplied by the growth of real wages on path k over these years. So path k of persons and
entrants is one economy, apart from recessions, which move in time with the donor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.entrants import Entrants
from saga.errors import InputError, Problem, UsageError
from saga.keyed_random import uniform_each
from saga.population.scored_paths import BIRTH, PathRows, YearPaths
from saga.schema import MAX_AGE
from saga.small_groups import MIN_PERSONS

_WAGES = "wage_index"
_FIX = "Change or remove it, or use a panel with more persons of the age and sex"
_NEAR = 2  # most years of age between an entrant and a donor
_MANY = 30  # donors that a row can have in any case


@dataclass(frozen=True, eq=False)
class Inflow:
    """Careers of persons who join.

    Attributes:
        persons: A row for each donor of each row of the inflow, with the columns of the panel's
            persons: an own person_id, the weight of those whom the donor stands for, their
            birth_year and the groups of the donor; also the person_id of the `donor`, the year
            `entered`, and `shift`, the years by which the career of the donor is moved.
        donors: The paths of a year of all donors, with the codes of columns.
        wages: Real wages of each path (n_path,) by year.
    """

    persons: pl.DataFrame
    donors: Callable[[int, tuple[str, ...]], YearPaths]
    wages: Mapping[int, NDArray[np.float64]]

    def beside(self, paths: YearPaths, year: int, columns: Sequence[str]) -> YearPaths:
        """The paths of a year, followed by those of the entrants of this and earlier years."""
        blocks = [paths]
        here = self.persons.filter(
            pl.col("entered") <= year, pl.lit(year) - pl.col(BIRTH) <= MAX_AGE
        )
        for shift in here["shift"].unique().sort():
            then = self.donors(year - shift, tuple(columns))
            known = pl.DataFrame({"donor": then.person_ids}, schema={"donor": pl.String})
            moved = here.filter(shift=shift).join(known.with_row_index("row"), on="donor")
            rows = moved.sort("person_id")["row"].to_numpy()
            blocks.append(
                YearPaths(
                    moved["person_id"].sort().to_list(),
                    then.earnings[rows] * (self.wages[year] / self.wages[year - shift]),
                    {name: codes[rows] for name, codes in then.codes.items()},
                )
            )
        return YearPaths(
            [person for block in blocks for person in block.person_ids],
            np.concatenate([block.earnings for block in blocks]),
            {name: np.concatenate([b.codes[name] for b in blocks]) for name in paths.codes},
        )


def max_careers(n_persons: int, n_rows: int) -> int:
    """The most careers of entrants with so many persons in the panel and rows of the inflow."""
    return n_rows * max(_MANY, n_persons // max(n_rows, 1))


def find_inflow(paths: PathRows, panel: pl.DataFrame, rows: Sequence[Entrants]) -> Inflow:
    """The careers of entrants, from those of the persons of the panel.

    A row has as its donors persons of exactly the age, or the ten nearest in age. They are at most
    so many that all rows have about as many as the panel has persons.

    Args:
        paths: The paths of the persons.
        panel: What is known of them: birth_year, sex, weight and groups.
        rows: Who joins.

    Raises:
        UsageError: If the paths cannot be moved in time.
        InputError: If a row is about a year without forecasts, or has no donors.
    """
    if _WAGES not in paths.rows.collect_schema():
        raise UsageError(
            "The paths have no wages, with which earnings of later entrants grow. Give `saga "
            "score` again, with --wages."
        )
    if "aligned" in paths.provenance:
        raise UsageError(
            "The paths are adjusted to totals of each year, and entrants would take those of other "
            "years with them. Use the paths before alignment, or `saga align --method weights`."
        )
    first, last, full = pl.col("first"), pl.col("last"), paths.full_years[0]
    known = panel.join(paths.spans, on="person_id").sort("person_id")
    # Wages are those of the youngest person, whose paths last longest.
    youngest = known.sort(-last, (first - full).abs(), "person_id").row(0, named=True)
    order = pl.Series("order", uniform_each(known["person_id"].to_list(), "donor"))
    known = known.with_columns(order, first.clip(youngest["first"]))
    years = range(max(full, youngest["first"]), youngest["last"] + 1)
    most = max_careers(len(known), len(rows)) // len(rows)
    careers, problems = [], []
    for number, row in enumerate(rows, start=1):
        careers.append(_careers(known, row, most).with_columns(pl.col("person_id") + f"\n{number}"))
        fault = ""
        if len(careers[-1]) < MIN_PERSONS:
            fault = f"has fewer than ten donors near age {row.age}"
        if row.year not in years:
            fault = f"is about {row.year}; forecasts are from {years[0]} to {years[-1]}"
        if fault:
            what = f"Row {number} of the inflow {fault}"
            problems.append(Problem("inflow", what, _FIX, year=row.year))
    if problems:
        raise InputError("The inflow cannot be used", problems)
    joined = pl.concat(careers).filter(pl.col("weight") > 0).select(*panel.columns, "shift")
    is_donor = pl.col("person_id").is_in(joined["donor"].unique().implode())
    donors = PathRows(paths.rows.filter(is_donor), paths.provenance)
    of_youngest = paths.rows.filter(pl.col("person_id") == youngest["person_id"]).collect()
    wages = {
        year: rows.sort("path")[_WAGES].to_numpy().astype(float)
        for (year,), rows in of_youngest.partition_by("year", as_dict=True).items()
    }
    return Inflow(joined, lru_cache(maxsize=None)(donors.year), wages)


def _careers(known: pl.DataFrame, row: Entrants, most: int) -> pl.DataFrame:
    """The donors of a row, as persons who join: those nearest in age, then in time."""
    at, age = pl.col("at"), pl.col("at") - pl.col(BIRTH)
    near = (
        known.filter(
            pl.col("first") <= row.year,
            pl.lit(True) if row.sex is None else pl.col("sex") == row.sex,
        )
        .with_columns(at=(pl.col(BIRTH) + row.age).clip(pl.col("first"), row.year))
        .with_columns(far=(age - row.age).abs())
        .filter(pl.col("far") <= _NEAR, at <= pl.col("last"))
        .sort("far", -at, "order")
    )
    count = max(MIN_PERSONS, min(near.filter(far=0).height, most))
    return near.head(count).with_columns(
        pl.lit(row.year - row.age).cast(known[BIRTH].dtype).alias(BIRTH),
        weight=row.persons * pl.col("weight") / pl.col("weight").sum(),
        donor=pl.col("person_id"),
        entered=pl.lit(row.year, pl.Int32),
        shift=row.year - at,
    )
