"""Groups of persons by properties known at the origin.

Forecasts can be calibrated within such groups, but not within groups by outcomes. Cut-offs are
fitted on training persons, so the group of another person depends on that person's past alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.data.origins import Origins, eligible_origins
from saga.data.panel import Panel
from saga.keyed_random import uniform_each
from saga.schema import EXIT, REQUIRED

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
_NEIGHBOURS = 10  # persons whose mean is a cut-off; one person's value is never shown
_MIN_PERSONS = 5 * _NEIGHBOURS  # persons that the cut-offs of an age band and period need

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
        cuts = recent.group_by("band", "period").agg(columns).filter(pl.col("n") >= _MIN_PERSONS)
        last_period = (
            recent.sort("person_id", "period")
            .group_by("person_id", "band", maintain_order=True)
            .last()
        )
        pooled = (
            last_period.group_by("band")
            .agg(pl.col("period").median().cast(pl.Int32), *columns)
            .filter(pl.col("n") >= _MIN_PERSONS)
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
        near = (
            _at_origin(panel, origins)
            .sort("period")
            .join_asof(
                self._cuts_by_period.lazy(),
                on="period",
                by="band",
                strategy="nearest",
                check_sortedness=False,
            )
        )
        return (
            near.with_columns(_quintile())
            .select("person_id", *groupings(panel))
            .sort("person_id")
            .collect(engine="in-memory")  # for one person twice as fast as streaming
        )

    @cached_property
    def _cuts_by_period(self) -> pl.DataFrame:
        return self.cuts.drop("n").sort("period")

    def labels(self, panel: Panel, origins: Origins) -> dict[str, NDArray[np.str_]]:
        """Grouping -> label of each person (n,), in the order of `origins`, or "unknown"."""
        groups, names = self.assign(panel, origins), groupings(panel)
        if groups["person_id"].to_list() != origins.person_id.tolist():
            persons = origins.frame().select("person_id")
            groups = persons.join(groups, on="person_id", how="left", maintain_order="left")
        labels = {name: groups[name].to_list() for name in names}
        return {
            name: np.array([UNKNOWN if g is None else g for g in column], dtype=np.str_)
            for name, column in labels.items()
        }


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


def reduce_to_profile(panel: Panel, profile: str) -> Panel:
    """The panel with the columns of a `profile`; other columns become unknown."""
    visible = {*REQUIRED, "sex", *EXIT}
    if profile == "register":
        return panel
    if profile == "survey":
        visible |= {*SURVEY_COLUMNS, "birth_region"}
    hidden = [
        pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in panel.frame.schema.items()
        if name not in visible
    ]
    return panel.with_frame(panel.frame.with_columns(hidden))


def _at_origin(panel: Panel, origins: Origins) -> pl.LazyFrame:
    # One lazy query without columns that have no value, because every step and every expression
    # costs a fixed time, which one person notices.
    frame = panel.frame
    known = frozenset(name for name in frame.columns if frame[name].null_count() < len(frame))
    return (
        frame.lazy()
        .join(origins.frame().lazy(), on="person_id")
        .filter(_UNTIL_ORIGIN)
        .sort("person_id", "year")
        .group_by("person_id", maintain_order=True)
        .agg(_last_known(known, panel.meta.extra_names("category")))
        .with_columns(_properties())
    )


# Expressions are built once, because this takes longer than to apply them to one person.
_UNTIL_ORIGIN = pl.col("year") <= pl.col("origin")


@lru_cache(maxsize=64)
def _last_known(known: frozenset[str], extra: tuple[str, ...]) -> list[pl.Expr]:
    """What is known of a person at the origin, from columns of which only `known` have values."""

    def last_code(name: str) -> pl.Expr:
        code = pl.col(name).drop_nulls().last()
        return code if name in known else pl.lit(None, pl.String).alias(name)

    earnings = pl.col("earnings")
    recent_year = pl.col("year") > pl.col("origin") - _RECENT_YEARS
    return [
        pl.col("birth_year").first(),
        pl.col("origin").first().alias("year"),
        earnings.filter(recent_year).mean().alias("recent"),
        earnings.drop_nulls().last().alias("last"),
        last_code("sex"),
        last_code("education_level"),
        *(last_code(name) for name in extra),
        last_code("birth_region").alias("born"),
        last_code("county"),
        pl.when(_any_known(known.intersection(REGISTER_COLUMNS)))
        .then(pl.lit("register"))
        .when(_any_known(known.intersection(SURVEY_COLUMNS)))
        .then(pl.lit("survey"))
        .otherwise(pl.lit("earnings"))
        .alias("profile"),
    ]


@cache
def _properties() -> list[pl.Expr]:
    first_age = (pl.col("year") - pl.col("birth_year")) // _AGE_GROUP * _AGE_GROUP
    counties = {"metropolitan": METROPOLITAN, "north": NORTH}
    return [
        _band(),
        _period(),
        pl.format("{}-{}", first_age, first_age + _AGE_GROUP - 1).alias("age"),
        pl.when(pl.col("last") == 0)
        .then(pl.lit("zero"))
        .when(pl.col("last") > 0)
        .then(pl.lit("positive"))
        .alias("origin"),
        _kind("born", {"sweden": ("sweden",), "europe": EUROPE}, "elsewhere", "birth_region"),
        _kind("county", counties, "other", "county_type"),
    ]


@cache
def _quintile() -> pl.Expr:
    higher = [(pl.col("recent") > pl.col(name)).cast(pl.Int32) for name in _CUTS]
    above = pl.sum_horizontal(higher, ignore_nulls=False)
    return (1 + above).cast(pl.String).alias("quintile")


def _band() -> pl.Expr:
    return ((pl.col("year") - pl.col("birth_year")) // _BAND * _BAND).cast(pl.Int32).alias("band")


def _period() -> pl.Expr:
    return (pl.col("year") // _PERIOD * _PERIOD).cast(pl.Int32).alias("period")


def _around(ordered: pl.Expr, share: float) -> pl.Expr:
    start = (pl.len() * share).cast(pl.Int64) - _NEIGHBOURS // 2
    return ordered.slice(start, _NEIGHBOURS).mean()


def _any_known(columns: Iterable[str]) -> pl.Expr:
    return pl.any_horizontal(
        pl.lit(False), *(pl.col(name).is_not_null().any() for name in sorted(columns))
    )


def _kind(
    column: str, codes_of_kind: Mapping[str, Sequence[str]], otherwise: str, name: str
) -> pl.Expr:
    """`name`: the kind to which the code belongs, or `otherwise`; null if the code is null."""
    kinds = {code: kind for kind, codes in codes_of_kind.items() for code in codes}
    code = pl.col(column)
    kind = code.replace_strict(kinds, default=otherwise, return_dtype=pl.String)
    return pl.when(code.is_not_null()).then(kind).alias(name)
