"""The paper's subgroups that are known at the origin: employers, places and cohorts.

A register of persons has the number of employers in a year but does not identify them. Each
employer beyond the first in a year counts as one change. Places are counties.
"""

from __future__ import annotations

import polars as pl

from saga.data.origins import Origins, history
from saga.data.panel import Panel

SUBGROUPS = ("employers", "place", "cohort")
WINDOW = 10  # years up to the origin in which employers are counted
MANY_CHANGES = 4  # changes of employer
MIN_EMPLOYER_YEARS = 3  # years with known employers that the group needs
PLACES = {"01": "stockholm", "12": "skane", "14": "vastra_gotaland"}
COHORT = (1965, 1979)  # birth years


def assign_subgroups(panel: Panel, origins: Origins) -> pl.DataFrame:
    """`person_id` and a text column for each of SUBGROUPS, null if unknown; sorted by person.

    `employers`, by changes in the last ten years: "stable" (none), "1-3" or "4+"; null with fewer
    than three known years. `place`: by the last known county. `cohort`: "1965-79" or "other".
    """
    rows = (
        history(panel, origins)
        .frame.join(origins.frame(), on="person_id")
        .sort("person_id", "year")
    )
    counted = pl.col("employers").filter(pl.col("year") > pl.col("origin") - WINDOW).drop_nulls()
    persons = rows.group_by("person_id", maintain_order=True).agg(
        changes=(counted.cast(pl.Int32) - 1).clip(lower_bound=0).sum(),
        years=counted.len(),
        county=pl.col("county").drop_nulls().last(),
        birth_year=pl.col("birth_year").first(),
    )
    changed = pl.when(pl.col("changes") > 0).then(pl.lit("1-3")).otherwise(pl.lit("stable"))
    kind = pl.when(pl.col("changes") >= MANY_CHANGES).then(pl.lit("4+")).otherwise(changed)
    born = pl.col("birth_year").is_between(*COHORT)
    return persons.select(
        "person_id",
        employers=pl.when(pl.col("years") >= MIN_EMPLOYER_YEARS).then(kind),
        place=pl.when(pl.col("county").is_not_null()).then(
            pl.col("county").replace_strict(PLACES, default="other", return_dtype=pl.String)
        ),
        cohort=pl.when(born).then(pl.lit("1965-79")).otherwise(pl.lit("other")),
    ).sort("person_id")
