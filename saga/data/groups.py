"""Groups of persons by properties known at the origin.

Forecasts can be calibrated within such groups, but not within groups by outcomes. Cut-offs are
fitted on training persons, so the group of another person depends on that person's past alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.data.origins import Origins, eligible_origins
from saga.data.panel import Panel
from saga.keyed_random import uniform_each
from saga.small_groups import MIN_PERSONS

GROUPINGS = (
    "quintile",
    "sex",
    "education_level",
    "age",
    "birth_region",
    "county_type",
    "origin",
    "profile",
)
# Pairs of groupings whose intersections are groups, too.
PAIRS = (("quintile", "sex"), ("quintile", "education_level"), ("sex", "education_level"))
UNKNOWN = "unknown"  # group of persons for whom the property is not known
_RECENT_YEARS = 5  # calendar years up to the origin; quintiles are of mean earnings in them
_AGE_GROUP = 10  # ages in a group of the grouping "age"
_BAND, _PERIOD = 5, 5  # ages and calendar years for which one set of cut-offs is fitted
_CUTS = {"cut0": 0.2, "cut1": 0.4, "cut2": 0.6, "cut3": 0.8}  # share of persons below each
_MIN_CUT_PERSONS = 5 * MIN_PERSONS  # persons that the cut-offs of an age band and period need

EUROPE = ("nordic", "eu", "europe_other")
METROPOLITAN = ("01", "12", "14")  # Stockholm, Skane, Vastra Gotaland
NORTH = ("17", "20", "21", "22", "23", "24", "25")  # NUTS 1 region SE3
# A record with one of these columns is from a register's tax and employer files. Else, a record
# with one of SURVEY_COLUMNS may be from a survey.
REGISTER_COLUMNS = (
    "transfers",
    "sickness_benefit",
    "parental_benefit",
    "employer_mean_earnings",
    "employer_size",
    "spouse_earnings",
)
SURVEY_COLUMNS = (
    "education_level",
    "occupation",
    "industry",
    "county",
    "marital_status",
    "children",
    "employment_rate",
    "full_time",
)
_REGION_KINDS = {"sweden": "sweden", **dict.fromkeys(EUROPE, "europe")}
_COUNTY_KINDS = dict.fromkeys(METROPOLITAN, "metropolitan") | dict.fromkeys(NORTH, "north")
_NEVER = -1  # the origin of a person without one: no year is before it
Labels = Mapping[str, NDArray[np.str_]]


@dataclass(frozen=True, eq=False)
class Grouping:
    """Quintile cut-offs of mean recent earnings.

    `cuts` has the columns `band` (first age), `period` (first year), `cut0` .. `cut3` (real money)
    and `n` (persons).
    """

    cuts: pl.DataFrame

    @classmethod
    def fit(cls, panel: Panel) -> Self:
        """Fit cut-offs within 5-year age bands and 5-year periods on training persons.

        A person enters a band and period with one random year. A cut-off is the mean of 10
        neighbouring persons. A band without any period of 50 persons has one cut-off for all
        periods; a band with fewer than 50 persons has no quintiles.
        """
        years = eligible_origins(panel).with_columns(_band(), _period())
        by_period = years.group_by("person_id", "band", "period", maintain_order=True).agg(
            pl.col("year")
        )
        ids = by_period.select("person_id", "band", "period").rows()
        u = pl.Series(uniform_each(ids, "quintile-year", panel.meta.panel_id))
        index = (pl.lit(u) * pl.col("year").list.len()).floor().cast(pl.UInt32)
        chosen = by_period.with_columns(at=pl.col("year").list.get(index)).drop("year")
        recent = (
            chosen.join(panel.frame.select("person_id", "year", "earnings"), on="person_id")
            .filter(pl.col("year").is_between(pl.col("at") - _RECENT_YEARS + 1, pl.col("at")))
            .group_by("person_id", "band", "period")
            .agg(pl.col("earnings").mean().alias("recent"))
            .drop_nulls("recent")
        )
        ordered = pl.col("recent").sort()
        columns = [
            *(_around(ordered, share).alias(name) for name, share in _CUTS.items()),
            pl.len().cast(pl.Int64).alias("n"),
        ]
        cuts = (
            recent.group_by("band", "period").agg(columns).filter(pl.col("n") >= _MIN_CUT_PERSONS)
        )
        last_period = (
            recent.sort("person_id", "period")
            .group_by("person_id", "band", maintain_order=True)
            .last()
        )
        pooled = (
            last_period.group_by("band")
            .agg(pl.col("period").median().cast(pl.Int32), *columns)
            .filter(pl.col("n") >= _MIN_CUT_PERSONS)
        )
        pooled = pooled.join(cuts, on="band", how="anti")
        return cls(pl.concat([cuts, pooled]).sort("band", "period"))

    def rows(self) -> list[tuple[str, None, str, float, float, float, int, str]]:
        """The cut-offs as rows of the calibration table, of kind "cut".

        `group` is the age band, `level` the share of persons below, `knot` the period.
        """
        return [
            ("cut", None, f"band={band}", share, float(period), value, n, "train")
            for band, period, *values, n in self.cuts.select("band", "period", *_CUTS, "n").rows()
            for share, value in zip(_CUTS.values(), values, strict=True)
        ]

    @classmethod
    def from_rows(cls, rows: pl.DataFrame) -> Self | None:
        """The grouping of rows that `rows` made; None without rows."""
        if rows.is_empty():
            return None
        band = pl.col("group").str.strip_prefix("band=").cast(pl.Int32).alias("band")
        cuts = rows.group_by(
            band, pl.col("knot").cast(pl.Int32).alias("period"), maintain_order=True
        ).agg(
            *(
                pl.col("value").filter(pl.col("level") == share).first().alias(name)
                for name, share in _CUTS.items()
            ),
            pl.col("n").first(),
        )
        return cls(cuts.sort("band", "period"))

    def assign(self, panel: Panel, origins: Origins) -> pl.DataFrame:
        """Groups of each person: `person_id` and a text column for each of `groupings(panel)`.

        Rows are sorted by person; unknown groups are null. The groupings:

        - `quintile`: "1" (lowest) to "5" by mean earnings of the last 5 calendar years, relative to
          training persons of the same age band and of the nearest period;
        - `age`: 10-year band at the origin;
        - `origin`: whether the last known earnings are "zero" or "positive";
        - `birth_region`: "sweden", "europe" or "elsewhere";
        - `county_type`: "metropolitan", "north" or "other";
        - `profile`: kind of record, "register", "survey" or "earnings";
        - `sex`, `education_level`, the panel's own categories: last known code.
        """
        persons, labels = self._known_labels(panel, origins)
        texts = {name: pl.Series(of, dtype=pl.String) for name, of in labels.items()}
        return pl.DataFrame({"person_id": pl.Series(persons, dtype=pl.String), **texts})

    def labels(self, panel: Panel, origins: Origins) -> dict[str, NDArray[np.str_]]:
        """Grouping -> label of each person (n,), in the order of `origins`, or "unknown"."""
        persons, labels = self._known_labels(panel, origins)
        if (order := origins.person_id.tolist()) != persons:
            place = {person: i for i, person in enumerate(persons)}
            rows = [place.get(person) for person in order]
            labels = {
                name: [None if i is None else of[i] for i in rows] for name, of in labels.items()
            }
        return {
            name: np.array([UNKNOWN if label is None else label for label in of], dtype=np.str_)
            for name, of in labels.items()
        }

    def _known_labels(
        self, panel: Panel, origins: Origins
    ) -> tuple[list[str], dict[str, list[str | None]]]:
        """The persons with a record up to their origin, and their labels by grouping."""
        records = _RecordsAtOrigin.of(panel, origins)
        (recent, last_earnings), last = records.earnings(), records.last_code
        labels: dict[str, list[str | None]] = {
            "quintile": self._quintiles(records, recent),
            "sex": last("sex"),
            "education_level": last("education_level"),
            "age": [
                f"{first}-{first + _AGE_GROUP - 1}" for first in _floor(records.age, _AGE_GROUP)
            ],
            "birth_region": [
                _kind(_REGION_KINDS, code, "elsewhere") for code in last("birth_region")
            ],
            "county_type": [_kind(_COUNTY_KINDS, code, "other") for code in last("county")],
            "origin": [_origin_label(amount) for amount in last_earnings.tolist()],
            "profile": records.profiles(),
        }
        labels |= {name: last(name) for name in panel.meta.extra_names("category")}
        return records.persons, {name: labels[name] for name in groupings(panel)}

    def _quintiles(self, records: _RecordsAtOrigin, recent: Floats) -> list[str | None]:
        bands, periods = _floor(records.age, _BAND), _floor(records.origin, _PERIOD)
        return [
            None
            if (cuts := self._cuts_near(band, period)) is None or amount != amount
            else str(1 + sum(amount > cut for cut in cuts))
            for band, period, amount in zip(bands, periods, recent.tolist(), strict=True)
        ]

    def _cuts_near(self, band: int, period: int) -> tuple[float, ...] | None:
        """The cut-offs of an age band in the nearest period, of two the later one."""
        if (band, period) not in self._known_cuts:
            fitted = self.cuts.filter(pl.col("band") == band).sort("period", descending=True)
            rows = fitted.select("period", *_CUTS).rows()
            nearest = min(rows, key=lambda row: abs(row[0] - period), default=None)
            self._known_cuts[band, period] = None if nearest is None else tuple(nearest[1:])
        return self._known_cuts[band, period]

    @cached_property
    def _known_cuts(self) -> dict[tuple[int, int], tuple[float, ...] | None]:
        return {}


def groupings(panel: Panel) -> tuple[str, ...]:
    """GROUPINGS and the panel's own categories."""
    return (*GROUPINGS, *panel.meta.extra_names("category"))


def pair_groupings(labels: Labels) -> dict[str, NDArray[np.str_]]:
    """`labels` with the groupings of PAIRS, such as "quintile*sex" with labels "1*female"."""
    pairs = {
        f"{one}*{two}": np.strings.add(np.strings.add(labels[one], "*"), labels[two])
        for one, two in PAIRS
        if one in labels and two in labels
    }
    return {**labels, **pairs}


def last_record_origins(panel: Panel) -> Origins:
    """All persons, each with the year of the last record as origin."""
    return Origins.from_rows(panel.frame[["person_id", "year"]][panel.last_rows])


@dataclass(frozen=True, eq=False)
class _RecordsAtOrigin:
    """Rows of persons up to their origins, sorted by person and year.

    `person` (n_row,) is the number of a row's person; `starts`, `origin` and `age` (n,) are the
    first row, the origin and the age at it of each person. All steps are of arrays, because a query
    has a fixed cost, which one person notices.
    """

    frame: pl.DataFrame
    persons: list[str]
    person: NDArray[np.int64]
    starts: NDArray[np.int64]
    origin: NDArray[np.int64]
    age: NDArray[np.int64]

    @classmethod
    def of(cls, panel: Panel, origins: Origins) -> _RecordsAtOrigin:
        """The records of the persons of `origins` who have one."""
        frame, year_of = (
            panel.frame,
            dict(zip(origins.person_id.tolist(), origins.year.tolist(), strict=True)),
        )
        names = frame["person_id"].gather(panel.last_rows).to_list()
        origin = np.array([year_of.get(name, _NEVER) for name in names], dtype=np.int64)
        until = frame["year"].to_numpy() <= origin[panel.person_numbers]
        person = panel.person_numbers
        if not until.all():
            frame, person = frame.filter(until), person[until]
        starts = np.flatnonzero(np.diff(person, prepend=-1))
        numbers = person[starts]
        birth_year = frame["birth_year"].to_numpy()[starts].astype(np.int64)
        return cls(
            frame,
            [names[i] for i in numbers.tolist()],
            np.repeat(np.arange(len(numbers)), np.diff(starts, append=len(person))),
            starts,
            origin[numbers],
            origin[numbers] - birth_year,
        )

    def last_code(self, name: str) -> list[str | None]:
        """The last known code of a column."""
        cells = self.frame[name]
        if cells.null_count() == len(cells):
            return [None] * len(self.persons)
        at = self._last(cells.is_not_null().to_numpy())
        codes = cells.gather(np.maximum(at, 0)).to_list()
        return [code if i >= 0 else None for code, i in zip(codes, at.tolist(), strict=True)]

    def earnings(self) -> tuple[Floats, Floats]:
        """Mean of the last years and last known earnings, both (n,); NaN if unknown."""
        amounts = self.frame["earnings"].to_numpy().astype(np.float64)
        known = ~np.isnan(amounts)
        back = self.origin[self.person] - self.frame["year"].to_numpy()
        by_year = np.full((len(self.persons), _RECENT_YEARS), np.nan)  # the last one first
        is_recent = back < _RECENT_YEARS
        by_year[self.person[is_recent], back[is_recent]] = amounts[is_recent]
        at = self._last(known)
        last = np.where(at >= 0, amounts[np.maximum(at, 0)], np.nan)
        return _compensated_means(by_year[:, ::-1]), last

    def profiles(self) -> list[str | None]:
        """The kind of each record, from the columns with values."""
        is_register, is_survey = map(self._any_known, (REGISTER_COLUMNS, SURVEY_COLUMNS))
        kinds = np.where(is_register, "register", np.where(is_survey, "survey", "earnings"))
        profiles: list[str | None] = kinds.tolist()
        return profiles

    def _any_known(self, names: Sequence[str]) -> NDArray[np.bool_]:
        """Whether a person (n,) has a value in one of these columns."""
        known = np.zeros(len(self.person), dtype=np.bool_)
        for name in names:
            cells = self.frame[name]
            if cells.null_count() < len(cells):
                known |= cells.is_not_null().to_numpy()
        return np.logical_or.reduceat(known, self.starts) if len(known) else known

    def _last(self, known: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The last row (n,) of each person that is `known` (n_row,); -1 without one."""
        rows = np.where(known, np.arange(len(known)), -1)
        return np.maximum.reduceat(rows, self.starts) if len(rows) else rows


def _compensated_means(values: Floats) -> Floats:
    """Means (n,) of the known values of rows (n, k), NaN without one.

    Sums are Kahan's, as those of polars, from whose means the cut-offs are made.
    """
    total, lost = np.zeros(len(values)), np.zeros(len(values))
    known = ~np.isnan(values)
    for is_known, column in zip(known.T, values.T, strict=True):
        part = column - lost
        longer = total + part
        lost = np.where(is_known, (longer - total) - part, lost)
        total = np.where(is_known, longer, total)
    n_known = known.sum(axis=1)
    return np.where(n_known > 0, total / np.maximum(n_known, 1), np.nan)


def _floor(values: NDArray[np.int64], step: int) -> list[int]:
    """The values rounded down to multiples of `step`."""
    floors: list[int] = (values // step * step).tolist()
    return floors


def _origin_label(earnings: float) -> str | None:
    if earnings == 0:
        return "zero"
    return "positive" if earnings > 0 else None


def _kind(kinds: Mapping[str, str], code: str | None, otherwise: str) -> str | None:
    """The kind to which a code belongs, or `otherwise`; None if the code is unknown."""
    return None if code is None else kinds.get(code, otherwise)


def _band() -> pl.Expr:
    return ((pl.col("year") - pl.col("birth_year")) // _BAND * _BAND).cast(pl.Int32).alias("band")


def _period() -> pl.Expr:
    return (pl.col("year") // _PERIOD * _PERIOD).cast(pl.Int32).alias("period")


def _around(ordered: pl.Expr, share: float) -> pl.Expr:
    start = (pl.len() * share).cast(pl.Int64) - MIN_PERSONS // 2
    return ordered.slice(start, MIN_PERSONS).mean()
