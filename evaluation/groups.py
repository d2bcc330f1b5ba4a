"""Groups that scores are averaged over: only what is known at the origin, cut-offs fixed on training persons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import polars as pl

from saga.outcomes import Origins, history
from saga.panel import Panel

GROUPINGS = ("sex", "education_level", "quintile", "age", "origin")
RECENT = 5  # years whose known earnings make the mean that quintiles rank
AGE_BAND = 10


@dataclass(frozen=True)
class Grouping:
    """Quintile cut-offs of mean recent earnings by age band: columns `age`, `cut` (list of 4, real SEK)."""

    cuts: pl.DataFrame

    @classmethod
    def fit(cls, panel: Panel, origins: Origins) -> Self:
        """Cut-offs within 10-year age bands from (training) persons at their origins."""
        known = _at_origin(panel, origins).filter(pl.col("recent").is_not_null())
        levels = [pl.col("recent").quantile(q, "linear").alias(f"cut{i}") for i, q in enumerate((0.2, 0.4, 0.6, 0.8))]
        cuts = known.group_by("age").agg(levels).sort("age")
        return cls(cuts.select("age", pl.concat_list("cut0", "cut1", "cut2", "cut3").alias("cut")))

    def of(self, panel: Panel, origins: Origins) -> pl.DataFrame:
        """The groups of each person: `person_id` and a text column for each name of GROUPINGS, null where unknown.

        `sex`, `education_level`: last known code; `quintile`: 1 (lowest) to 5 by mean earnings of the last 5 calendar years; `age`: 10-year
        band at the origin; `origin`: "zero" or "positive" last known earnings.
        """
        rows = _at_origin(panel, origins).join(self.cuts, on="age", how="left")
        above = pl.col("recent") > pl.col("cut").list.get(0)
        for i in range(1, 4):
            above = above.cast(pl.Int32) + (pl.col("recent") > pl.col("cut").list.get(i)).cast(pl.Int32)
        return rows.with_columns((1 + above).cast(pl.String).alias("quintile")).select("person_id", *GROUPINGS).sort("person_id")


def _at_origin(panel: Panel, origins: Origins) -> pl.DataFrame:
    """Person, mean recent earnings, age band, codes and standing at the origin."""
    age = (pl.col("origin") - pl.col("birth_year")) // AGE_BAND * AGE_BAND
    rows = history(panel, origins).frame.join(origins.frame(), on="person_id").sort("person_id", "year")
    earnings = pl.col("earnings")
    return (
        rows.group_by("person_id", maintain_order=True)
        .agg(
            age.last().alias("from_age"),
            earnings.filter(pl.col("year") > pl.col("origin") - RECENT).mean().alias("recent"),
            earnings.drop_nulls().last().alias("last"),
            pl.col("sex").drop_nulls().last(),
            pl.col("education_level").drop_nulls().last(),
        )
        .with_columns(
            pl.format("{}-{}", "from_age", pl.col("from_age") + AGE_BAND - 1).alias("age"),
            pl.when(pl.col("last") == 0).then(pl.lit("zero")).when(pl.col("last") > 0).then(pl.lit("positive")).alias("origin"),
        )
    )
