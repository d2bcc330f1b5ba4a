"""Groups of persons by what is known at the origin.

Forecasts can be calibrated within such groups, but not within groups by outcomes. Cut-offs are
fitted on training persons, so the group of another person depends on that person's past alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.data.origins import Origins, eligible_origins, history
from saga.data.panel import Panel
from saga.keyed_random import uniform_each

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
UNKNOWN = "unknown"  # group of persons without the information
RECENT = 5  # calendar years of the mean earnings that quintiles rank
AGE_BAND = 10
BAND, PERIOD = 5, 5  # ages and years that have cut-offs of their own
SHARES = (0.2, 0.4, 0.6, 0.8)
CUTS = ("cut0", "cut1", "cut2", "cut3")
NEIGHBOURS = 10  # a cut-off is the mean of so many persons, never one person's value
FEWEST = 5 * NEIGHBOURS  # least persons for cut-offs of an age band and period

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
        ids = list(
            by_period.select(
                "person_id", pl.col("band").cast(pl.Int64), pl.col("period").cast(pl.Int64)
            ).iter_rows()
        )
        u = pl.Series(uniform_each(ids, "quintile-year", panel.meta.panel_id))
        index = (pl.lit(u) * pl.col("year").list.len()).floor().cast(pl.UInt32)
        chosen = by_period.with_columns(at=pl.col("year").list.get(index)).drop("year")
        recent = (
            chosen.join(panel.frame.select("person_id", "year", "earnings"), on="person_id")
            .filter(pl.col("year").is_between(pl.col("at") - RECENT + 1, pl.col("at")))
            .group_by("person_id", "band", "period")
            .agg(pl.col("earnings").mean().alias("recent"))
            .drop_nulls("recent")
        )
        ordered = pl.col("recent").sort()
        columns = [
            *(
                _around(ordered, share).alias(name)
                for share, name in zip(SHARES, CUTS, strict=True)
            ),
            pl.len().cast(pl.Int64).alias("n"),
        ]
        cuts = recent.group_by("band", "period").agg(columns).filter(pl.col("n") >= FEWEST)
        last_period = (
            recent.sort("person_id", "period")
            .group_by("person_id", "band", maintain_order=True)
            .last()
        )
        pooled = (
            last_period.group_by("band")
            .agg(pl.col("period").median().cast(pl.Int32), *columns)
            .filter(pl.col("n") >= FEWEST)
        )
        pooled = pooled.join(cuts, on="band", how="anti")
        return cls(pl.concat([cuts, pooled]).sort("band", "period"))

    def rows(self) -> list[tuple[str, None, str, float, float, float, int, str]]:
        """The cut-offs as rows of the calibration table, of kind "cut".

        `group` is the age band, `level` the share of persons below, `knot` the period.
        """
        return [
            ("cut", None, f"band={band}", share, float(period), value, n, "train")
            for band, period, *values, n in self.cuts.select(
                "band", "period", *CUTS, "n"
            ).iter_rows()
            for share, value in zip(SHARES, values, strict=True)
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
                for share, name in zip(SHARES, CUTS, strict=True)
            ),
            pl.col("n").first(),
        )
        return cls(cuts.sort("band", "period"))

    def assign(self, panel: Panel, origins: Origins) -> pl.DataFrame:
        """Groups of each person: `person_id` and a text column for each of GROUPINGS.

        Rows are sorted by person; unknown groups are null. The groupings:

        - `quintile`: "1" (lowest) to "5" by mean earnings of the last 5 calendar years, relative to
          training persons of the same age band and of the nearest period;
        - `age`: 10-year band at the origin;
        - `origin`: whether the last known earnings are "zero" or "positive";
        - `birth_region`: "sweden", "europe" or "elsewhere";
        - `county_type`: "metropolitan", "north" or "other";
        - `profile`: kind of record, "register", "survey" or "earnings";
        - `sex`, `education_level`: last known code.
        """
        rows = _at_origin(panel, origins)
        near = rows.sort("period").join_asof(
            self.cuts.drop("n").sort("period"),
            on="period",
            by="band",
            strategy="nearest",
            check_sortedness=False,
        )
        higher = [(pl.col("recent") > pl.col(name)).cast(pl.Int32) for name in CUTS]
        above = pl.sum_horizontal(higher, ignore_nulls=False)
        return (
            near.with_columns((1 + above).cast(pl.String).alias("quintile"))
            .select("person_id", *GROUPINGS)
            .sort("person_id")
        )

    def labels(self, panel: Panel, origins: Origins) -> dict[str, NDArray[np.str_]]:
        """Grouping -> label of each person (n,), in the order of `origins`, or "unknown"."""
        groups = (
            origins.frame()
            .drop("origin")
            .join(self.assign(panel, origins), on="person_id", how="left", maintain_order="left")
        )
        return {
            name: np.array(groups[name].fill_null(UNKNOWN).to_list(), dtype=np.str_)
            for name in GROUPINGS
        }


def pair_groupings(labels: Labels) -> dict[str, NDArray[np.str_]]:
    """`labels` with the groupings of PAIRS, such as "quintile*sex" with labels "1*female"."""
    pairs = {
        f"{one}*{two}": (labels[one], labels[two])
        for one, two in PAIRS
        if one in labels and two in labels
    }
    return {
        **labels,
        **{
            name: np.strings.add(np.strings.add(one, "*"), two)
            for name, (one, two) in pairs.items()
        },
    }


def last_record_origins(panel: Panel) -> Origins:
    """All persons, each with the year of the last record as origin."""
    last = panel.frame.group_by("person_id", maintain_order=True).agg(pl.col("year").max())
    return Origins(
        np.array(last["person_id"].to_list(), dtype=np.str_),
        last["year"].to_numpy().astype(np.int64),
    )


def reduce_to_profile(panel: Panel, profile: str) -> Panel:
    """The panel with the columns of a `profile`; other columns become unknown."""
    visible = {
        "person_id",
        "year",
        "birth_year",
        "earnings",
        "sex",
        "entry_year",
        "exit_year",
        "exit_reason",
    }
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


def _at_origin(panel: Panel, origins: Origins) -> pl.DataFrame:
    rows = (
        history(panel, origins)
        .frame.join(origins.frame(), on="person_id")
        .sort("person_id", "year")
    )
    earnings = pl.col("earnings")
    decade = (pl.col("year") - pl.col("birth_year")) // AGE_BAND * AGE_BAND
    return (
        rows.group_by("person_id", maintain_order=True)
        .agg(
            pl.col("birth_year").first(),
            pl.col("origin").first().alias("year"),
            earnings.filter(pl.col("year") > pl.col("origin") - RECENT).mean().alias("recent"),
            earnings.drop_nulls().last().alias("last"),
            pl.col("sex").drop_nulls().last(),
            pl.col("education_level").drop_nulls().last(),
            pl.col("birth_region").drop_nulls().last().alias("born"),
            pl.col("county").drop_nulls().last(),
            pl.when(_any_known(REGISTER_COLUMNS))
            .then(pl.lit("register"))
            .when(_any_known(SURVEY_COLUMNS))
            .then(pl.lit("survey"))
            .otherwise(pl.lit("earnings"))
            .alias("profile"),
        )
        .with_columns(
            _band(),
            _period(),
            pl.format("{}-{}", decade, decade + AGE_BAND - 1).alias("age"),
            pl.when(pl.col("last") == 0)
            .then(pl.lit("zero"))
            .when(pl.col("last") > 0)
            .then(pl.lit("positive"))
            .alias("origin"),
            _kinds(pl.col("born"), {"sweden": ("sweden",), "europe": EUROPE}, "elsewhere").alias(
                "birth_region"
            ),
            _kinds(pl.col("county"), {"metropolitan": METROPOLITAN, "north": NORTH}, "other").alias(
                "county_type"
            ),
        )
    )


def _band() -> pl.Expr:
    return ((pl.col("year") - pl.col("birth_year")) // BAND * BAND).cast(pl.Int32).alias("band")


def _period() -> pl.Expr:
    return (pl.col("year") // PERIOD * PERIOD).cast(pl.Int32).alias("period")


def _around(ordered: pl.Expr, share: float) -> pl.Expr:
    start = (pl.len() * share).cast(pl.Int64) - NEIGHBOURS // 2
    return ordered.slice(start, NEIGHBOURS).mean()


def _any_known(columns: Sequence[str]) -> pl.Expr:
    return pl.any_horizontal(pl.col(name).is_not_null().any() for name in columns)


def _kinds(code: pl.Expr, kinds: Mapping[str, Sequence[str]], otherwise: str) -> pl.Expr:
    expression: pl.Expr = (
        pl.when(code.is_null()).then(pl.lit(None, dtype=pl.String)).otherwise(pl.lit(otherwise))
    )
    for name, codes in kinds.items():
        expression = pl.when(code.is_in(list(codes))).then(pl.lit(name)).otherwise(expression)
    return expression
