"""States of persons at origins, and the paths of baselines."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.evaluation.baselines.person_states import States, known_states

from saga.arrays import Array
from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.paths import Paths
from saga.trees.earnings_ranks import no_history_error


def identities(origins: Origins) -> list[tuple[str, int]]:
    """(person, origin year) of each origin: the key of the person's random numbers."""
    return list(zip(origins.person_id.tolist(), origins.year.tolist(), strict=True))


def paths_of(origins: Origins, born: Array, earnings: NDArray[np.float32]) -> Paths:
    """Paths of `earnings` (n, H, M) and birth years (n,); earnings beyond age 64 become NaN."""
    paths = Paths(np.asarray(origins.person_id), born, np.asarray(origins.year), earnings)
    earnings[~paths.within_age] = np.nan
    return paths


def states_at(history: Panel, origins: Origins) -> tuple[States, Array]:
    """The last known state at or before each origin, and the birth years.

    Both are in the order of `origins`. A person without known earnings has NaN earnings at the
    origin year. Rows after the origin are not used. Raises InputError for a person without a row.
    """
    origin_rows = origins.frame().with_row_index("row")
    before = history.with_frame(
        history.frame.join(origin_rows, on="person_id", how="inner")
        .filter(pl.col("year") <= pl.col("origin"))
        .select(history.frame.columns)
    )
    last = known_states(before).group_by("person_id", maintain_order=True).last()
    births = before.frame.group_by("person_id").agg(pl.col("birth_year").last().alias("born"))
    rows = (
        origin_rows.join(last, on="person_id", how="left")
        .join(births, on="person_id", how="left")
        .sort("row")
    )
    if rows["born"].null_count():
        person, year = rows.filter(pl.col("born").is_null()).select("person_id", "origin").row(0)
        raise no_history_error(person, year, rows["born"].null_count())
    born = rows["born"].to_numpy()
    year = rows["year"].fill_null(rows["origin"]).to_numpy()
    states = States(
        year=year,
        age=year - born,
        earnings=rows["earnings"].cast(pl.Float64).fill_null(np.nan).to_numpy(),
        idle=rows["idle"].fill_null(False).to_numpy(),
        sex=rows["sex"].fill_null(0).to_numpy(),
        education_level=rows["education_level"].fill_null(0).to_numpy(),
    )
    return states, born
