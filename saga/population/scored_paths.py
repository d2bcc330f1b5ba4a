"""The paths of a finished scoring run, year by year, with the groups and weights of persons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.batch.run_folder import MANIFEST, REJECTED, differences
from saga.data.casting import read_column
from saga.data.files import name_of, place_of_row, read_small
from saga.data.groups import UNKNOWN
from saga.data.panel import Panel
from saga.errors import InputError, Problem, UsageError, with_nearest
from saga.files.data_frames import Rows
from saga.files.folders import open_folder, read_json_of
from saga.files.tables import read_provenance
from saga.request_warnings import NO_YEAR_FORECAST
from saga.schema import BY_NAME, CATEGORICAL

_BAND = 10  # ages, and years of birth, in a group
BIRTH = "birth_year"
BASE_AMOUNTS, CAREER_FIFTH = "base_amounts", "career_fifth"
CAREER_GROUPS = (BASE_AMOUNTS, CAREER_FIFTH)  # that paths themselves give
OF_SCENARIO = ("scenario", "scenario_digest", "scored")  # of a provenance: which, and its paths


@dataclass(frozen=True)
class YearPaths:
    """Earnings of a year, (n_person, n_path), NaN for absent persons, and codes of the same shape.

    `codes` has the numbers of levels in the columns of life courses.
    """

    person_ids: list[str]
    earnings: Floats
    codes: Mapping[str, NDArray[np.int_]]


class PathRows:
    """Paths of persons as rows of person, path and year, from which all tables are made.

    Attributes:
        rows: All rows; a query reads only the columns and years that it needs.
        provenance: Where the paths come from.
    """

    def __init__(self, rows: pl.LazyFrame, provenance: Mapping[str, Any]) -> None:
        self.rows, self.provenance = rows, provenance

    @cached_property
    def years(self) -> list[int]:
        """The simulated years."""
        return self.rows.select(pl.col("year").unique().sort()).collect()["year"].to_list()

    @cached_property
    def full_years(self) -> list[int]:
        """The simulated years from the first one with half as many persons as the fullest year.

        Before it are only persons whose records end early, often too few to be published.
        """
        rows = self.rows.filter(pl.col("path") == 0).group_by("year").len().collect().sort("year")
        full = rows.filter(pl.col("len") >= pl.col("len").max() / 2)["year"].to_list()
        return [year for year in self.years if year >= full[0]]

    @cached_property
    def spans(self) -> pl.DataFrame:
        """The years in which each person's paths begin and end: person_id, first, last."""
        of_person = self.rows.filter(pl.col("path") == 0).group_by("person_id")
        return of_person.agg(first=pl.col("year").min(), last=pl.col("year").max()).collect()

    @cached_property
    def person_ids(self) -> list[str]:
        """The persons, sorted."""
        return self.rows.select(pl.col("person_id").unique().sort()).collect().to_series().to_list()

    @cached_property
    def n_paths(self) -> int:
        """Number of paths of each person."""
        return int(self.rows.select(pl.col("path").max()).collect().item()) + 1

    def levels(self, column: str) -> list[str]:
        """The codes of a column of life courses, and "unknown"."""
        dtype = self.rows.collect_schema()[column]
        codes = dtype.categories.to_list() if isinstance(dtype, pl.Enum) else []
        return [*codes, UNKNOWN]

    @property
    def columns(self) -> list[str]:
        """The columns of life courses."""
        schema = self.rows.collect_schema()
        return [name for name, dtype in schema.items() if isinstance(dtype, pl.Enum)]

    def year(self, year: int, columns: Sequence[str] = ()) -> YearPaths:
        """The paths of a year, with the codes of these columns of life courses."""
        rows = self.rows.filter(pl.col("year") == year).collect()
        ids = rows["person_id"].unique().sort()
        person = rows["person_id"].cast(pl.Enum(ids)).to_physical().to_numpy()
        at = person, rows["path"].to_numpy()
        earnings = np.full((len(ids), self.n_paths), np.nan)
        earnings[at] = rows["earnings"].to_numpy()
        codes = {}
        for name in columns:
            unknown = len(self.levels(name)) - 1
            codes[name] = np.full(earnings.shape, unknown)
            codes[name][at] = rows[name].to_physical().fill_null(unknown).to_numpy()
        return YearPaths(ids.to_list(), earnings, codes)


class ScoredPaths(PathRows):
    """The complete output of `saga score --product paths`, in a folder or an object store.

    Attributes:
        folder: The folder of the run.
        run: The description of the run in its manifest.
        totals: The counts of the run in its manifest.
        parts: The names of the run's files, each checked against the manifest.
    """

    def __init__(self, place: str | Path) -> None:
        """Raises UsageError unless there are the paths of a complete run, InputError if changed."""
        self.folder = open_folder(place)
        manifest = read_json_of(self.folder, MANIFEST)
        if manifest is None:
            raise UsageError(
                f"{self.folder} has no complete scoring run. Give `saga score` again, or "
                "`saga score --merge` after shards."
            )
        if not manifest["parts"]:
            raise UsageError(
                f"{self.folder} has no paths: nobody of the input could be forecast. "
                f"{REJECTED} there says why."
            )
        self.run: dict[str, Any] = manifest["run"]
        self.totals: dict[str, Any] = manifest["totals"]
        product = self.run["recipe"].get("product")
        if product != "paths":
            raise UsageError(
                f"{self.folder} has {product} of single persons, and results for a population "
                "need joint paths. Use the output of `saga score --product paths`."
            )
        for entry in manifest["parts"]:
            if self.folder.digest(entry["file"]) != entry["sha256"]:
                raise InputError(
                    f"{self.folder.location(entry['file'])} is missing or was changed. Give the "
                    "command of `saga score` again: it computes the part anew."
                )
        self.parts: list[str] = [entry["file"] for entry in manifest["parts"]]
        provenance = read_provenance(self.folder.location(self.parts[0]))
        provenance.pop("warnings", None)
        digest = self.folder.digest(MANIFEST)
        super().__init__(self.scan(self.parts), {**provenance, "scored": digest})

    def check_reference(self, reference: ScoredPaths) -> None:
        """Check that path k of a person has the same random numbers in the reference.

        Raises UsageError if the runs differ in anything but the scenario, if one has a scenario of
        no year that is forecast, or one is aligned: totals that are the same by construction hide
        what a scenario changes.
        """
        sides = [
            {"input": side.run.get("input"), **side.provenance, **side.run["recipe"]}
            for side in (self, reference)
        ]
        here, there = sides
        if "aligned" in {*here, *there}:
            raise UsageError(
                "Aligned paths have official totals under every scenario. Give the paths that were "
                "aligned, with --weights of `saga align --method weights` if you like."
            )
        if differing := sorted({*differences(here, there)} - set(OF_SCENARIO)):
            raise UsageError(
                f"The paths and those of the reference differ in {', '.join(differing)}, so their "
                "difference is not that of the scenarios. Score the same persons with the same "
                "options."
            )
        for side in (self, reference):
            counts = {
                warning["message"]: warning.get("count")
                for warning in side.totals.get("warnings", ())
            }
            if counts.get(NO_YEAR_FORECAST) == side.totals["persons_out"]:
                raise UsageError(
                    f"{side.folder}: {NO_YEAR_FORECAST} An effect of 0 would say nothing. Score "
                    "with a scenario of later years."
                )
        if self.person_ids != reference.person_ids or self.years != reference.years:
            raise UsageError(
                "The paths and those of the reference have other persons or years. Score the same "
                "panel with both scenarios."
            )

    def is_of(self, files: Mapping[str, str]) -> bool:
        """Whether the run scored files of these contents; digests by name. True if not known."""
        source = self.run.get("input")
        scored = source.get("files") if isinstance(source, Mapping) else None
        return not scored or sorted(scored.values()) == sorted(files.values())

    def scan(self, parts: Sequence[str]) -> pl.LazyFrame:
        """The rows of some parts."""
        places = [str(self.folder.location(part)) for part in parts]
        return pl.scan_parquet(places, glob=False, storage_options=self.folder.polars_options)


def read_persons(
    scored: PathRows,
    panel: Panel | None,
    by: Sequence[str],
    weights: Rows | None,
) -> tuple[pl.DataFrame, int]:
    """What is known of the persons of a run beside their paths: a row each, groups and a weight.

    Also the number of other persons with a weight. Categories of the panel are those last known.
    Raises UsageError for an unknown group, InputError if persons are missing in the panel or the
    weights, or their records do not fit the paths.
    """
    frame = pl.DataFrame({"person_id": scored.person_ids}, schema={"person_id": pl.String})
    n_others = 0
    if panel is not None:
        check_panel(scored, panel)
    static = [name for name in by if name not in scored.columns]
    if static:
        frame = frame.join(last_known(panel, static, scored.columns), on="person_id", how="left")
    if weights is not None:
        name = name_of(weights, "the table of weights")
        known = _read_weights(weights, name)
        frame = frame.join(known, on="person_id", how="left")
        _require(frame, "weight", name)
        n_others = known.height - frame.height
    else:
        frame = frame.with_columns(weight=pl.lit(1.0))
    return frame, n_others


def check_panel(scored: PathRows, panel: Panel) -> None:
    """Raise InputError if the panel lacks persons of the paths, or some cannot be the same persons.

    Paths begin after a year of the record, and end at the last age of the run if it is known.
    """
    records = panel.frame.group_by("person_id").agg("year", pl.col(BIRTH).first())
    known = scored.spans.join(records, on="person_id", how="left").sort("person_id")
    _require(known, BIRTH, "The panel")
    to_age = scored.run["recipe"].get("to_age") if isinstance(scored, ScoredPaths) else None
    fits = {"year": pl.col("year").list.contains(pl.col("first") - 1)}
    if to_age is not None:
        fits[BIRTH] = pl.col(BIRTH) == pl.col("last") - to_age
    problems = [
        Problem(
            "other-persons",
            f"The {column} of persons is not that of the scored ones",
            "Give the file that was scored",
            column=column,
            person_id=others["person_id"][0],
            count=others.height,
        )
        for column, fit in fits.items()
        if (others := known.filter(~fit)).height
    ]
    if problems:
        raise InputError("The panel does not have the persons of the paths", problems)


def rows_of(persons: pl.DataFrame, person_ids: Sequence[str]) -> pl.DataFrame:
    """The rows of these persons, in this order."""
    requested = pl.DataFrame({"person_id": person_ids}, schema={"person_id": pl.String})
    return requested.join(persons, on="person_id", how="left", maintain_order="left")


def person_levels(group: str, year: int | pl.Expr) -> pl.Expr:
    """The level of each person in a group that does not depend on the path, as text."""
    if group in ("age", "cohort"):
        number = pl.col(BIRTH) if group == "cohort" else year - pl.col(BIRTH)
        first = number // _BAND * _BAND
        # pl.format panics if a filter left no row of one of several chunks.
        return pl.concat_str(first, first + _BAND - 1, separator="-")
    return pl.col(group).cast(pl.String).fill_null(UNKNOWN)


def last_known(
    panel: Panel | None, by: Sequence[str], of_paths: Sequence[str] = ()
) -> pl.DataFrame:
    """A row for each person: birth_year, and the last known codes of the groups in `by`.

    `of_paths` are the groups that paths have, which an error also names.
    """
    if of_careers := [name for name in by if name in CAREER_GROUPS]:
        raise UsageError(
            f"The group {of_careers[0]} is of `saga tables` only: it follows from the earnings "
            "that an alignment changes."
        )
    if panel is None:
        raise UsageError(
            f"The paths have no column {by[0]}. Give the panel of the persons with --panel, or "
            "score with --circumstances."
        )
    categories = {*CATEGORICAL, *panel.meta.extra_names("category")}
    if unknown := [name for name in by if name not in {*categories, "age", "cohort", BIRTH}]:
        names = ["age", "cohort", BIRTH, *CAREER_GROUPS, *sorted({*categories, *of_paths})]
        fix = with_nearest(f"Groups are {', '.join(names)}.", unknown[0], names)
        raise UsageError(f"There is no group {unknown[0]}. {fix}")
    columns = [name for name in by if name in categories]
    return panel.frame.group_by("person_id").agg(
        pl.col(BIRTH).first(),
        *(pl.col(name).sort_by("year").drop_nulls().last() for name in columns),
    )


def _read_weights(source: Rows, name: str) -> pl.DataFrame:
    frame = read_small(source, ["weight"], name)
    if missing := {"person_id", "weight"} - set(frame.columns):
        raise InputError(
            f"{name} lacks the column {min(missing)}. It has {', '.join(frame.columns)}."
        )
    frame = frame.select(read_column(frame["person_id"], BY_NAME["person_id"])[0], "weight")
    if frame["person_id"].is_duplicated().any():
        raise InputError(f"{name} has a person twice. Give one weight for each person.")
    bad = (~(frame["weight"].is_finite() & (frame["weight"] > 0)).fill_null(False)).arg_true()
    if len(bad):
        raise InputError(
            f"{name} has weights that are not positive numbers, first in "
            f"{place_of_row(source, bad[0])}. Give each person a weight above 0, or leave the "
            "person out of the paths."
        )
    return frame


def _require(frame: pl.DataFrame, column: str, where: str) -> None:
    """Raise InputError if persons of the run have no value."""
    absent = frame.filter(pl.col(column).is_null())
    if absent.height:
        problem = Problem(
            "person-missing",
            f"{where} does not have persons of the scored run",
            "Give the file that was scored",
            person_id=absent["person_id"][0],
            count=absent.height,
        )
        raise InputError("Persons have no groups or weights", [problem])
