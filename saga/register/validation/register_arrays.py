"""A generated register as arrays of persons by years: the input of all statistics.

If a person has no row in a year (abroad, before entry, after death, under 16, over 64) or a cell is
unknown, the value is NaN, False or -1. Amounts are nominal SEK.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.arrays import Bools
from saga.data.panel import FLOOR
from saga.errors import InputError, Problem
from saga.register.simulation.economy import BASE_AMOUNT, CPI
from saga.register.validation.estimators import Sample
from saga.schema import EDUCATION_LEVELS

MAX_PERSONS = 1_000_000  # in memory; of a larger register every second, third ... person is read
FULL_PERIOD = range(1990, 2023)  # the years of the macro history, and of a register by default

# The selection of the SAGA paper
PAPER_WINDOW = 10  # years of its conditioning window
PAPER_LAST_AGES = (26, 54)  # at the end of the window
PAPER_POSITIVE_YEARS = 5  # years with earnings in the window

FULL_YEAR = 0.98  # of the weeks, in a full-year job
REPLACEMENT_RATE = 0.8  # sickness and parental benefit relative to pay
BENEFIT_FLOOR, BENEFIT_CEILING = 0.5, 10.0  # of the pay that benefits replace, price base amounts

LEAVE_BENEFITS = ("sickness_benefit", "parental_benefit")
TAXABLE_TRANSFERS = (
    *LEAVE_BENEFITS, "unemployment_benefit", "disability_pension", "pension_income",
)  # fmt: skip
CHILD_AGE_CODES = {"none": 0, "infant": 1, "preschool": 2, "school": 3, "teen": 4}
PANEL_COLUMNS = (
    "year", "birth_year", "entry_year", "sex", "birth_region", "earnings", *TAXABLE_TRANSFERS,
    "employment_rate", "full_time", "education_level", "youngest_child", "spouse_earnings",
    "employers", "employer_size", "occupation", "industry",
)  # fmt: skip
# Flags of a person-year; one bit each in memory. Owners of one-person firms are those with weeks at
# work but without a value of `full_time`.
FLAGS: dict[str, pl.Expr] = {
    "sickness": pl.col("sickness_benefit") > 0,
    "parental": pl.col("parental_benefit") > 0,
    "unemployment": pl.col("unemployment_benefit") > 0,
    "disability": pl.col("disability_pension") > 0,
    "pension": pl.col("pension_income") > 0,
    "several_employers": pl.col("employers") > 1,
    "workplace": pl.col("employer_size").is_not_null(),
    "one_person_firm": (pl.col("employer_size") == 1)
    & pl.col("full_time").is_null()
    & (pl.col("employment_rate") > 0),
    "occupation": pl.col("occupation").is_not_null(),
    "manager": pl.col("occupation").str.starts_with("1"),
}

Singles = NDArray[np.float32]
T = TypeVar("T", bound=np.generic)


@dataclass
class RegisterArrays:
    """Persons (n,) and their years (n, T); `years[t]` is the calendar year of column t.

    Attributes:
        metadata: Content of `register.json`.
        years: Calendar years of the columns.
        birth_year: (n,).
        female: (n,).
        foreign: Born abroad (n,).
        present: Resident on 31 December (n, T).
        earnings: Labour earnings (n, T).
        taxable: Labour earnings, taxable transfers and pensions (n, T).
        employed: Share of the year in employment, paid leave included (n, T).
        full_job: Full-time full-year job without paid leave (n, T).
        education: Index in `EDUCATION_LEVELS`, -1 unknown (n, T).
        youngest_child: Code of `CHILD_AGE_CODES`, -1 unknown (n, T).
        entry_year: First year in the country or in the panel (n,).
        partner_earnings: Labour earnings of the partner (n, T).
        industry: Division of SNI 2007, -1 unknown (n, T).
        flags: Bits in the order of `FLAGS` (n, T), see `has`.
    """

    metadata: dict[str, Any]
    years: range
    birth_year: NDArray[np.int16]
    female: Bools
    foreign: Bools
    present: Bools
    earnings: Singles
    taxable: Singles
    employed: NDArray[np.float16]
    full_job: Bools
    education: NDArray[np.int8]
    youngest_child: NDArray[np.int8]
    entry_year: NDArray[np.int16]
    partner_earnings: Singles
    industry: NDArray[np.int8]
    flags: NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.birth_year)

    def covers(self, years: Iterable[int]) -> bool:
        """Whether the panel has all of `years`."""
        return set(years) <= set(self.years)

    def column(self, year: int) -> int:
        """The index of a calendar year."""
        return year - self.years.start

    def age(self, year: int) -> NDArray[np.int16]:
        """Age at the end of `year` (n,)."""
        return np.asarray(year - self.birth_year, dtype=np.int16)

    def aged(self, year: int, first: int, last: int) -> Bools:
        """Present in `year` and `first` to `last` years old (n,)."""
        age = self.age(year)
        return np.asarray(self.present[:, self.column(year)] & (age >= first) & (age <= last))

    def earned(self, year: int) -> Singles:
        """Labour earnings of a year in nominal SEK (n,)."""
        return self.earnings[:, self.column(year)]

    def real(self, year: int) -> NDArray[np.float64]:
        """Labour earnings of a year in SEK of 2022 (n,), NaN if absent or unknown."""
        return self.earned(year).astype(np.float64) / CPI[year]

    def attached(self, year: int) -> Bools:
        """Labour earnings above half a price base amount (n,)."""
        return np.isfinite(self.logs[:, self.column(year)])

    def has(self, flag: str, year: int) -> Bools:
        """Whether the row of `year` has the flag of that name in `FLAGS`, (n,)."""
        return np.asarray((self.flags[:, self.column(year)] >> list(FLAGS).index(flag)) & 1 == 1)

    @cached_property
    def logs(self) -> Singles:
        """Log labour earnings in SEK of 2022 (n, T), NaN up to half a price base amount."""
        real = self.earnings / np.array([CPI[year] for year in self.years], np.float32)
        return np.asarray(np.log(np.where(real > FLOOR, real, np.float32(np.nan))))

    @cached_property
    def in_paper_sample(self) -> Bools:
        """The SAGA paper's selection (n,).

        A person is selected for any ten years that end at 26-54 and begin and end with a row, in
        which at most two consecutive years lack a row and five years have positive earnings.
        """
        selected = np.zeros(len(self), bool)
        for year in self.years[PAPER_WINDOW - 1 :]:
            last = self.column(year)
            window = slice(last - PAPER_WINDOW + 1, last + 1)
            present = self.present[:, window]
            no_long_gap = present[:, :-2] | present[:, 1:-1] | present[:, 2:]
            positive_years = (self.earnings[:, window] > 0).sum(axis=1)
            selected |= (
                self.aged(year, *PAPER_LAST_AGES)
                & present[:, 0]
                & no_long_gap.all(axis=1)
                & (positive_years >= PAPER_POSITIVE_YEARS)
            )
        return selected

    def group(self, name: str) -> Bools:
        """The group `all`, `women` or `men` (n,)."""
        return {"all": np.ones(len(self), bool), "women": self.female, "men": ~self.female}[name]

    def sample(self, values: NDArray[np.floating], mask: Bools) -> Sample:
        """The known `values` (n,) of the persons at `mask`."""
        person = np.flatnonzero(mask & np.isfinite(values))
        return Sample(values[person].astype(np.float64), person, len(self))

    def pool(self, parts: Iterable[tuple[NDArray[np.floating], Bools]]) -> Sample:
        """One sample of several pairs of values (n,) and masks (n,), usually one pair per year.

        A person may occur in it many times.
        """
        samples = [self.sample(values, mask) for values, mask in parts] or [
            self.sample(np.zeros(len(self)), np.zeros(len(self), bool))
        ]
        return Sample(
            np.concatenate([sample.values for sample in samples]),
            np.concatenate([sample.person for sample in samples]),
            len(self),
        )


def read_metadata(directory: Path) -> dict[str, Any]:
    """The content of the `register.json` of a full register; raises InputError without one."""
    try:
        metadata: dict[str, Any] = json.loads(
            (directory / "register.json").read_text(encoding="utf-8")
        )
    except (OSError, ValueError):
        metadata = {}
    if metadata.get("process") != "full":
        fix = "Give a directory that `saga register generate` wrote, with the process full."
        raise InputError(
            f"{directory} cannot be checked",
            [Problem("no-register", "there is no register.json of a full register", fix)],
        )
    return metadata


def read_register(directory: Path) -> RegisterArrays:
    """The register at `directory`: 21 bytes per person and year in memory.

    If it has more than `MAX_PERSONS` persons, every k-th person is read. Raises InputError if
    there is no register of the process `full`.
    """
    metadata = read_metadata(directory)
    every = -(-metadata["persons"] // MAX_PERSONS)
    files = sorted((directory / "panel").glob("birth_year=*/*.parquet"))
    parts = [
        arrays_of_panel(pl.scan_parquet(file, glob=False, hive_partitioning=False), metadata, every)
        for file in files
    ]
    if not parts:
        raise InputError(
            f"{directory} has no panel",
            [Problem("no-register", "panel/ has no Parquet file", "Generate the register again.")],
        )
    arrays = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])
        for field in fields(RegisterArrays)[2:]
    }
    return RegisterArrays(metadata, parts[0].years, **arrays)


def arrays_of_panel(
    panel: pl.LazyFrame, metadata: dict[str, Any], every: int = 1
) -> RegisterArrays:
    """Every `every`-th person of a panel in nominal SEK that is sorted by person.

    `metadata` is the content of `register.json`, of which only `years` is needed here.
    """
    years = range(metadata["years"][0], metadata["years"][1] + 1)
    frame = _select_columns(panel, years, every)
    person, column = frame["person"].to_numpy(), frame["column"].to_numpy()
    first_rows = np.flatnonzero(np.diff(person, prepend=-1))
    shape = (len(first_rows), len(years))

    def spread(name: str, empty: T) -> NDArray[T]:
        array = np.full(shape, empty)
        array[person, column] = frame[name].to_numpy()  # a null becomes NaN
        return array

    present = np.zeros(shape, bool)
    present[person, column] = True
    nan = np.float32(np.nan)
    earnings, leave, weeks = (spread(name, nan) for name in ("earnings", "leave", "weeks"))
    full_time = spread("full_time", np.bool_(False))
    return RegisterArrays(
        metadata=metadata,
        years=years,
        birth_year=frame["birth_year"].to_numpy()[first_rows],
        female=frame["female"].to_numpy()[first_rows],
        foreign=frame["foreign"].to_numpy()[first_rows],
        present=present,
        earnings=earnings,
        taxable=spread("taxable", nan),
        employed=_employed_share(earnings, leave, weeks, years),
        full_job=full_time & (weeks >= FULL_YEAR) & (leave == 0),
        education=spread("education", np.int8(-1)),
        youngest_child=spread("youngest_child", np.int8(-1)),
        entry_year=frame["entry_year"].to_numpy()[first_rows],
        partner_earnings=spread("partner_earnings", nan),
        industry=spread("industry", np.int8(-1)),
        flags=spread("flags", np.uint16(0)),
    )


def _select_columns(panel: pl.LazyFrame, years: range, every: int) -> pl.DataFrame:
    """A row per person-year, with the numbers of person and year, in the types of the arrays."""
    rows = panel.select(*PANEL_COLUMNS, person=pl.col("person_id").rle_id())
    return (
        rows.filter(pl.col("person") % every == 0)
        .select(
            pl.col("person") // every,
            column=pl.col("year") - years.start,
            birth_year=pl.col("birth_year").cast(pl.Int16),
            female=pl.col("sex") == "female",
            foreign=pl.col("birth_region") != "sweden",
            earnings=pl.col("earnings").cast(pl.Float32),
            taxable=pl.col("earnings").add(pl.sum_horizontal(*TAXABLE_TRANSFERS)).cast(pl.Float32),
            leave=pl.sum_horizontal(*LEAVE_BENEFITS).cast(pl.Float32),
            weeks=pl.col("employment_rate").cast(pl.Float32),
            full_time=(pl.col("full_time") == 1).fill_null(False),
            education=_codes(
                "education_level", {name: k for k, name in enumerate(EDUCATION_LEVELS)}
            ),
            youngest_child=_codes("youngest_child", CHILD_AGE_CODES),
            entry_year=pl.col("entry_year").fill_null(years.start).cast(pl.Int16),
            partner_earnings=pl.col("spouse_earnings").cast(pl.Float32),
            industry=pl.col("industry").cast(pl.Int8).fill_null(-1),
            flags=pl.sum_horizontal(
                flag.fill_null(False).cast(pl.UInt16) * 2**bit
                for bit, flag in enumerate(FLAGS.values())
            ).cast(pl.UInt16),
        )
        .collect()
    )


def _codes(column: str, codes: dict[str, int]) -> pl.Expr:
    return pl.col(column).replace_strict(
        list(codes), list(codes.values()), default=-1, return_dtype=pl.Int8
    )


def _employed_share(
    earnings: Singles, leave: Singles, weeks: Singles, years: range
) -> NDArray[np.float16]:
    """Share of the year (n, T) at work or on paid leave from a job.

    The panel has the weeks at work and the benefit paid during leave, not the weeks of leave.
    These are the benefit over 80 % of the pay of a week of work, between floor and ceiling. A
    person without work all year is on leave from the job of the year before, if there was one.
    """
    base = np.array([BASE_AMOUNT[year] for year in years])
    with np.errstate(divide="ignore", invalid="ignore"):
        yearly_pay = np.where(weeks > 0, earnings / weeks, np.nan)
    year_before = np.concatenate([np.full((len(weeks), 1), np.nan), yearly_pay[:, :-1]], axis=1)
    usual_pay = np.where(np.isnan(yearly_pay), year_before, yearly_pay)
    insured_pay = np.clip(usual_pay, BENEFIT_FLOOR * base, BENEFIT_CEILING * base)
    on_leave = np.nan_to_num(leave / (REPLACEMENT_RATE * insured_pay))
    return np.minimum(weeks + on_leave, 1.0).astype(np.float16)
