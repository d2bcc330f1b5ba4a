"""Disclosure control of result tables: no figure of fewer than ten persons, nor one that shows it.

A group that is too small is left out. If the persons left out of a grouping are still fewer than
ten, the smallest group that is shown is left out too, because its figures and those of everybody
would give those of the small group (`saga.calibration.diagnostics.verdicts.publishable`).
"""

from __future__ import annotations

import polars as pl
from saga.calibration.diagnostics.verdicts import publishable

from saga.small_groups import MIN_PERSONS

EVERYBODY = "all"
_KEYS = ("model", "setting", "test", "metric", "statistic", "rate", "size", "horizon", "years")


def hide_small_cells(table: pl.DataFrame) -> pl.DataFrame:
    """A result table with columns `group` and `n`, without cells of 1 to 9 persons.

    Rows of groups are left out. So are those of everybody, except in the metrics table, where they
    have `n` = 0 and no figure, like rows without an outcome.
    """
    keys = [name for name in _KEYS if name in table.columns]
    indexed = table.with_row_index("row").with_columns(
        grouping=pl.col("group").str.split("=").list.first()
    )
    everybody = indexed.filter(pl.col("group") == EVERYBODY).select(*keys, total="n")
    groups = indexed.filter(pl.col("group") != EVERYBODY).join(
        everybody, on=keys, how="left", nulls_equal=True, maintain_order="left"
    )
    by = [*keys, "grouping"]
    rest = (pl.col("total") - pl.col("n").sum().over(by)).fill_null(0).clip(lower_bound=0)
    groups = groups.with_columns(rest=rest)
    is_small = (pl.col("n") < MIN_PERSONS).any().over(by) | pl.col("rest").is_between(
        1, MIN_PERSONS - 1
    )
    hidden: list[int] = []
    suspects = groups.filter(is_small)
    for part in suspects.partition_by(by) if suspects.height else []:
        counts = dict(part.select("group", "n").iter_rows())
        shown_groups = publishable({**counts, "": int(part["rest"][0])}, MIN_PERSONS)
        hidden += part.filter(~pl.col("group").is_in(list(shown_groups)))["row"].to_list()
    is_hidden = pl.Series(range(table.height)).is_in(hidden)
    shown = table.filter(~is_hidden)
    too_few = pl.col("n").is_between(1, MIN_PERSONS - 1)
    if "value" not in table.columns or "metric" not in table.columns:
        return shown.filter(~too_few)
    figures = [name for name in table.columns if name not in (*keys, "group", "n")]
    return shown.with_columns(
        *(pl.when(~too_few).then(pl.col(name)).alias(name) for name in figures),
        n=pl.when(too_few).then(0).otherwise("n"),
    )
