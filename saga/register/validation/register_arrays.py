"""A generated register as arrays of persons by years: what `saga register check` measures, read cohort by cohort.

Absence (abroad, before entry, after death, under 16, over 64) and unknown cells are NaN, False or -1. Money is nominal SEK.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.errors import InputError, Problem
from saga.register.simulation.economy import BASE_AMOUNT, CPI
from saga.register.validation.estimators import Sample
from saga.schema import EDUCATION_LEVELS

FLOOR = 24_150.0  # half a price base amount of 2022: changes and log earnings are those above it (SEK of 2022)
MOST = 1_000_000  # persons held in memory: of a larger register every second, third ... person is measured
WINDOW = 10  # years of the SAGA paper's conditioning window
FULL_YEAR = 0.98  # of the weeks
REPLACEMENT = 0.8  # sickness and parental pay relative to pay
CEILING = 10.0  # price base amounts a year: the pay that benefits replace at most
_LEAVE = ("sickness_benefit", "parental_benefit")
_TAXABLE = ("earnings", *_LEAVE, "unemployment_benefit", "disability_pension", "pension_income")
_CHILD = {"none": 0, "infant": 1, "preschool": 2, "school": 3, "teen": 4}
_COLUMNS = (
    "year", "birth_year", "entry_year", "sex", "birth_region", *_TAXABLE, "employment_rate", "full_time", "education_level",
    "youngest_child", "spouse_earnings", "employers", "employer_size", "occupation", "industry",
)  # fmt: skip
# Facts of a year that are there or not; in memory a bit each. Who runs a firm of his or her own is its only person and neither full nor
# part time, although the weeks at work are known.
FACTS: dict[str, pl.Expr] = {
    "sickness": pl.col("sickness_benefit") > 0,
    "parental": pl.col("parental_benefit") > 0,
    "unemployment": pl.col("unemployment_benefit") > 0,
    "disability": pl.col("disability_pension") > 0,
    "pension": pl.col("pension_income") > 0,
    "jobs": pl.col("employers") > 1,
    "workplace": pl.col("employer_size").is_not_null(),
    "own": (pl.col("employer_size") == 1)
    & pl.col("full_time").is_null()
    & (pl.col("employment_rate") > 0),
    "occupation": pl.col("occupation").is_not_null(),
    "manager": pl.col("occupation").str.starts_with("1"),
}

Bools = NDArray[np.bool_]
Singles = NDArray[np.float32]
T = TypeVar("T", bound=np.generic)


@dataclass
class People:
    """Persons (n,) and their years (n, T), `years[t]` the calendar year of column t; `about` is the register's `register.json`.

    `earnings` labour earnings; `taxable` with taxable transfers and pensions; `employed` the share of the year in employment, paid leave
    counted; `full` a full-time full-year job without paid leave; `level` education (-1 unknown); `child` age group of the youngest child at
    home (0 none, 1 born this year ... 4, -1 unknown); `present` on 31 December; `entry` the first year in the country or the panel;
    `partner` the partner's labour earnings; `industry` the division of SNI 2007 (-1 unknown); `facts` bits in the order of `FACTS` (see
    `has`).
    """

    about: dict[str, Any]
    years: range
    born: NDArray[np.int16]
    female: Bools
    foreign: Bools
    present: Bools
    earnings: Singles
    taxable: Singles
    employed: NDArray[np.float16]
    full: Bools
    level: NDArray[np.int8]
    child: NDArray[np.int8]
    entry: NDArray[np.int16]
    partner: Singles
    industry: NDArray[np.int8]
    facts: NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.born)

    def column(self, year: int) -> int:
        """The index of a calendar year."""
        return year - self.years.start

    def age(self, year: int) -> NDArray[np.int16]:
        """Age at the end of `year` (n,)."""
        return np.asarray(year - self.born, dtype=np.int16)

    def aged(self, year: int, first: int, last: int) -> Bools:
        """Present in `year` and of `first` to `last` years (n,)."""
        age = self.age(year)
        return np.asarray(self.present[:, self.column(year)] & (age >= first) & (age <= last))

    def real(self, year: int) -> NDArray[np.float64]:
        """Labour earnings of a year in SEK of 2022 (n,), NaN where absent or unknown."""
        return self.earnings[:, self.column(year)].astype(np.float64) / CPI[year]

    def has(self, fact: str, year: int) -> Bools:
        """Whose row of `year` shows the fact of that name in `FACTS` (n,)."""
        return np.asarray((self.facts[:, self.column(year)] >> list(FACTS).index(fact)) & 1 == 1)

    @cached_property
    def logs(self) -> Singles:
        """Log labour earnings in SEK of 2022 (n, T), NaN up to half a price base amount."""
        real = self.earnings / np.array([CPI[year] for year in self.years], np.float32)
        return np.asarray(np.log(np.where(real > FLOOR, real, np.float32(np.nan))))

    @cached_property
    def selected(self) -> Bools:
        """The SAGA paper's selection (n,): some ten years that end at 26-54 with rows (gaps up to two years) and five positive ones."""
        keep = np.zeros(len(self), bool)
        for year in self.years[WINDOW - 1 :]:
            last = self.column(year)
            there = self.present[:, last - WINDOW + 1 : last + 1]
            gap = (
                there[:, :-2] | there[:, 1:-1] | there[:, 2:]
            )  # of any three years in a row there is one
            positive = (self.earnings[:, last - WINDOW + 1 : last + 1] > 0).sum(axis=1)
            keep |= self.aged(year, 26, 54) & there[:, 0] & gap.all(axis=1) & (positive >= 5)
        return keep

    def group(self, name: str) -> Bools:
        """all, women or men (n,)."""
        return {"all": np.ones(len(self), bool), "women": self.female, "men": ~self.female}[name]

    def sample(self, values: NDArray[np.floating], mask: Bools) -> Sample:
        """The known `values` (n,) of the persons at `mask`."""
        who = np.flatnonzero(mask & np.isfinite(values))
        return Sample(values[who].astype(np.float64), who, len(self))


def about(directory: Path) -> dict[str, Any]:
    """The content of the `register.json` of a full register; InputError where there is none."""
    try:
        described: dict[str, Any] = json.loads((directory / "register.json").read_text())
    except (OSError, ValueError):
        described = {}
    if described.get("process") != "full":
        fix = "Give a directory that `saga register generate` wrote, with the process full."
        raise InputError(
            f"{directory} cannot be checked",
            [Problem("no-register", "there is no register.json of a full register", fix)],
        )
    return described


def read_people(directory: Path) -> People:
    """The register at `directory` (21 bytes a person and year in memory), every k-th person where there are more than `MOST`.

    Raises InputError where there is no register of the process `full`.
    """
    described = about(directory)
    every = -(-described["persons"] // MOST)
    files = sorted((directory / "panel").glob("birth_year=*/*.parquet"))
    parts = [
        people_of(pl.scan_parquet(file, hive_partitioning=False), described, every)
        for file in files
    ]
    if not parts:
        raise InputError(
            f"{directory} holds no panel",
            [Problem("no-register", "panel/ has no Parquet file", "Generate the register anew.")],
        )
    joined = {
        f.name: np.concatenate([getattr(part, f.name) for part in parts])
        for f in fields(People)[2:]
    }
    return People(described, parts[0].years, **joined)


def people_of(panel: pl.LazyFrame, about: dict[str, Any], every: int = 1) -> People:
    """Every `every`-th person of a panel in nominal SEK, sorted by person; `about` names at least the first and last of the `years`."""
    years = range(about["years"][0], about["years"][1] + 1)
    rows = panel.select(*_COLUMNS, who=pl.col("person_id").rle_id())
    frame = (
        rows.filter(pl.col("who") % every == 0)
        .select(
            pl.col("who") // every,
            (pl.col("year") - years.start).alias("t"),
            pl.col("birth_year").cast(pl.Int16).alias("born"),
            (pl.col("sex") == "female").alias("female"),
            (pl.col("birth_region") != "sweden").alias("foreign"),
            pl.col("earnings").cast(pl.Float32),
            pl.col("earnings")
            .add(pl.sum_horizontal(pl.col(*_TAXABLE[1:])))
            .cast(pl.Float32)
            .alias("taxable"),
            pl.sum_horizontal(pl.col(*_LEAVE)).cast(pl.Float32).alias("leave"),
            pl.col("employment_rate").cast(pl.Float32).alias("weeks"),
            (pl.col("full_time") == 1).fill_null(False).alias("full"),
            pl.col("education_level")
            .replace_strict(
                EDUCATION_LEVELS, range(len(EDUCATION_LEVELS)), default=-1, return_dtype=pl.Int8
            )
            .alias("level"),
            pl.col("youngest_child")
            .replace_strict(list(_CHILD), list(_CHILD.values()), default=-1, return_dtype=pl.Int8)
            .alias("child"),
            pl.col("entry_year").fill_null(years.start).cast(pl.Int16).alias("entry"),
            pl.col("spouse_earnings").cast(pl.Float32).alias("partner"),
            pl.col("industry").cast(pl.Int8).fill_null(-1).alias("division"),
            pl.sum_horizontal(
                seen.fill_null(False).cast(pl.UInt16) * 2**k
                for k, seen in enumerate(FACTS.values())
            )
            .cast(pl.UInt16)
            .alias("facts"),
        )
        .collect()
    )
    who, t = frame["who"].to_numpy(), frame["t"].to_numpy()
    heads = np.flatnonzero(np.diff(who, prepend=-1))
    shape = (len(heads), len(years))

    def spread(name: str, empty: T) -> NDArray[T]:
        cells = np.full(shape, empty)
        cells[who, t] = frame[name].to_numpy()  # a null becomes NaN
        return cells

    present = np.zeros(shape, bool)
    present[who, t] = True
    earnings, leave, weeks = (
        spread(name, np.float32(np.nan)) for name in ("earnings", "leave", "weeks")
    )
    full = spread("full", np.bool_(False)) & (weeks >= FULL_YEAR) & (leave == 0)
    return People(
        about=about,
        years=years,
        born=frame["born"].to_numpy()[heads],
        female=frame["female"].to_numpy()[heads],
        foreign=frame["foreign"].to_numpy()[heads],
        present=present,
        earnings=earnings,
        taxable=spread("taxable", np.float32(np.nan)),
        employed=_employed(earnings, leave, weeks, years),
        full=full,
        level=spread("level", np.int8(-1)),
        child=spread("child", np.int8(-1)),
        entry=frame["entry"].to_numpy()[heads],
        partner=spread("partner", np.float32(np.nan)),
        industry=spread("division", np.int8(-1)),
        facts=spread("facts", np.uint16(0)),
    )


def _employed(
    earnings: Singles, leave: Singles, weeks: Singles, years: range
) -> NDArray[np.float16]:
    """Share of the year (n, T) at work or on paid leave from a job.

    The panel has the weeks at work and the pay of the leave, not its weeks: these are the pay over 80 % of what a week of work
    brings, up to the ceiling; who did no work all year is on leave from the job of the year before, if there was one.
    """
    base = np.array([BASE_AMOUNT[year] for year in years])
    with np.errstate(divide="ignore", invalid="ignore"):
        yearly = np.where(weeks > 0, earnings / weeks, np.nan)
    before = np.concatenate([np.full((len(yearly), 1), np.nan), yearly[:, :-1]], axis=1)
    usual = np.where(np.isnan(yearly), before, yearly)
    away = np.nan_to_num(leave / (REPLACEMENT * np.clip(usual, 0.5 * base, CEILING * base)))
    return np.minimum(weeks + away, 1.0).astype(np.float16)
