"""Forecast origins, the records known at them, and realised earnings.

Calibration and test persons are exchangeable only if their origins are drawn by the same rule: one
origin a person, from a key of the person, the register and the seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.data.panel import Panel
from saga.errors import InputError, UsageError
from saga.keyed_random import uniform_each
from saga.schema import MAX_AGE, MAX_LOG

MIN_HISTORY = 3  # years with known earnings up to an origin
ORIGIN_AGES = (20, 60)  # at an origin


@dataclass(frozen=True, eq=False)
class Origins:
    """Persons and the last year that a forecast of each may use; `person_id` and `year`, (n,)."""

    person_id: NDArray[np.str_]
    year: NDArray[np.int64]

    @classmethod
    def from_rows(cls, rows: pl.DataFrame) -> Origins:
        """The persons and years of a frame with the columns `person_id` and `year`."""
        persons = np.array(rows["person_id"].to_list(), dtype=np.str_)
        return cls(persons, rows["year"].to_numpy().astype(np.int64))

    def __len__(self) -> int:
        return len(self.person_id)

    def take(self, rows: Any) -> Origins:
        """The origins of `rows`: an index, mask or slice."""
        return Origins(self.person_id[rows], self.year[rows])

    def frame(self) -> pl.DataFrame:
        """Columns `person_id` and `origin`."""
        return pl.DataFrame(
            {"person_id": self.person_id.astype(object), "origin": self.year},
            schema={"person_id": pl.String, "origin": pl.Int32},
        )


def last_year(panel: Panel) -> int:
    """The last year with a record in the panel."""
    if len(panel) == 0:
        raise UsageError.of(
            "a panel without rows has no origins",
            "empty-panel",
            "no rows",
            "Give persons with records.",
        )
    return int(panel.frame["year"].max())  # type: ignore[arg-type]


def eligible_origins(panel: Panel, *, ages: tuple[int, int] = ORIGIN_AGES) -> pl.DataFrame:
    """Person-years that may be origins: `person_id`, `birth_year`, `year`, sorted.

    The person has a row in that year, 3 rows with known earnings up to it, and an age in `ages`.
    """
    rows = panel.frame.select(
        "person_id",
        "birth_year",
        "year",
        known=pl.col("earnings").is_not_null().cast(pl.Int32).cum_sum().over("person_id"),
    ).filter(
        pl.col("known") >= MIN_HISTORY, (pl.col("year") - pl.col("birth_year")).is_between(*ages)
    )
    return rows.drop("known")


def _before_outcomes(panel: Panel, end: int) -> pl.DataFrame:
    """Eligible years before the last one with an outcome, `reach`: up to `end` and age 64."""
    reach = pl.min_horizontal(pl.lit(end, dtype=pl.Int32), pl.col("birth_year") + MAX_AGE)
    rows = eligible_origins(panel).with_columns(reach=reach)
    return rows.filter(pl.col("year") < pl.col("reach"))


def require_trainable(panel: Panel) -> None:
    """Raise InputError if no year can be an origin, or all earnings seem to be logarithms."""
    if _before_outcomes(panel, last_year(panel)).is_empty():
        first, last = ORIGIN_AGES
        raise InputError.of(
            "The panel is too short to train or calibrate on.",
            "no-origin",
            f"nobody has known earnings in {MIN_HISTORY} years, an age from {first} to {last} in "
            "the last of them, and a year after it",
            f"Give a panel with {MIN_HISTORY + 1} years of the same persons, or more.",
            column="year",
        )
    if (panel.frame["earnings"] < MAX_LOG).all():
        raise InputError.of(
            "The panel has no amounts to train or calibrate on.",
            "no-amounts",
            f"all earnings are below {MAX_LOG:g}, as logarithms are",
            "Give amounts: of logarithms their exponentials, of large units whole ones (`scale` in "
            "a mapping).",
            column="earnings",
        )


def draw_origins(
    panel: Panel,
    *,
    max_horizon: int,
    seed: int,
    end: int | None = None,
    among: pl.DataFrame | None = None,
) -> Origins:
    """One random origin for each person with an eligible year (`eligible_origins`).

    First a horizon h is drawn uniformly from those of 1..`max_horizon` for which the person has an
    eligible year with an outcome: year + h is at most `end`, and the age in it at most 64. Then an
    origin is drawn uniformly from these years. Because the horizon is drawn first, long horizons
    are as frequent as short ones.

    Args:
        panel: The persons.
        max_horizon: Longest horizon.
        seed: Part of the key of each draw.
        end: Last year of outcomes; by default the panel's last year. It is needed if the panel is
            a part of a register and may lack the register's last year.
        among: Person-years (`person_id`, `year`) that may be origins; by default all.
    """
    if max_horizon < 1:
        raise UsageError.of(
            "no horizon to draw", "horizon-range", "max_horizon is below 1", "Use at least 1."
        )
    rows = _before_outcomes(panel, last_year(panel) if end is None else end)
    if among is not None:
        rows = rows.join(among, on=["person_id", "year"], how="semi", maintain_order="left")
    persons = rows.group_by("person_id", maintain_order=True).agg(
        longest=pl.min_horizontal(
            pl.lit(max_horizon, dtype=pl.Int32), pl.col("reach").first() - pl.col("year").min()
        )
    )
    ids = persons["person_id"].to_list()
    key = ("origin", panel.meta.panel_id, seed)
    persons = persons.with_columns(
        horizon=1
        + (pl.Series(uniform_each(ids, *key, "horizon")) * pl.col("longest"))
        .floor()
        .cast(pl.Int32),
        position=pl.Series(uniform_each(ids, *key, "year")),
    )
    reaching = rows.join(persons, on="person_id", maintain_order="left").filter(
        pl.col("year") + pl.col("horizon") <= pl.col("reach")
    )
    chosen = reaching.group_by("person_id", maintain_order=True).agg(
        pl.col("year").get((pl.col("position").first() * pl.len()).floor().cast(pl.UInt32))
    )
    return Origins.from_rows(chosen)


def origins_at(panel: Panel, year: int | None = None) -> Origins:
    """The origin `year`, by default the panel's last, for all persons eligible in it."""
    origin = last_year(panel) if year is None else year
    return Origins.from_rows(eligible_origins(panel).filter(pl.col("year") == origin))


def history(panel: Panel, origins: Origins) -> Panel:
    """Each person's rows up to the origin, without the labels of a later exit."""
    rows = panel.frame.join(
        origins.frame(), on="person_id", how="inner", maintain_order="left"
    ).filter(pl.col("year") <= pl.col("origin"))
    return panel.with_frame(without_later_exits(rows, pl.col("origin")).select(panel.frame.columns))


def cut(panel: Panel, year: int) -> Panel:
    """The panel without rows and exits after `year`. Raises UsageError if no row remains."""
    frame = panel.frame.filter(pl.col("year") <= year)
    if frame.is_empty():
        raise UsageError.of(
            f"No record of the panel lies in or before {year}.",
            "nothing-left",
            f"no record lies in or before {year}",
            "Choose a later --until.",
        )
    return panel.with_frame(without_later_exits(frame, pl.lit(year)))


def without_later_exits(rows: pl.DataFrame, year: pl.Expr) -> pl.DataFrame:
    """The rows; labels of exits after `year` are unknown."""
    if "exit_year" not in rows.columns:
        return rows
    later = pl.col("exit_year") > year
    return rows.with_columns(
        pl.when(later).then(None).otherwise(pl.col(name)).alias(name)
        for name in ("exit_year", "exit_reason")
        if name in rows.columns
    )


def realised_earnings(
    panel: Panel, origins: Origins, horizons: range | list[int], *, end: int | None = None
) -> NDArray[np.float64]:
    """Realised earnings, shape (n, H), in the panel's real money a year.

    They are 0 from `exit_year` on after a death. They are NaN if they were not observed, after
    emigration, after `end` (by default the panel's last year) and above age 64.
    """
    ahead = np.asarray(list(horizons), dtype=np.int64)
    final = last_year(panel) if end is None else end
    targets = pl.DataFrame(
        {
            "row": np.repeat(np.arange(len(origins)), len(ahead)),
            "year": (origins.year[:, None] + ahead).ravel(),
        },
        schema={"row": pl.Int64, "year": pl.Int32},
    ).join(
        origins.frame().with_row_index("row").cast({"row": pl.Int64}),
        on="row",
        maintain_order="left",
    )
    persons = panel.frame.group_by("person_id").agg(
        pl.col("birth_year", "exit_year", "exit_reason").first()
    )
    outcomes = targets.join(persons, on="person_id", how="left", maintain_order="left").join(
        panel.frame.select("person_id", "year", "earnings"),
        on=["person_id", "year"],
        how="left",
        maintain_order="left",
    )
    after_exit = pl.col("year") >= pl.col("exit_year")
    dead = (after_exit & (pl.col("exit_reason") == "dead")).fill_null(False)
    abroad = (after_exit & (pl.col("exit_reason") == "emigrated")).fill_null(False)
    outside = (pl.col("year") > final) | (pl.col("year") - pl.col("birth_year") > MAX_AGE)
    value = pl.when(outside | abroad).then(None).when(dead).then(0.0).otherwise(pl.col("earnings"))
    values = outcomes.select(value.cast(pl.Float64).fill_null(float("nan"))).to_series()
    return values.to_numpy().reshape(len(origins), len(ahead))
