"""No cell of fewer than ten persons is shown, nor can it be computed from those that are."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from saga.evaluation.scoring.small_cells import hide_small_cells

from saga.small_groups import MIN_PERSONS


def metrics(*rows: tuple[str, int], metric: str = "crps_log") -> pl.DataFrame:
    """Rows of a metrics table: group and number of persons."""
    return pl.DataFrame(
        {
            "model": ["saga"] * len(rows),
            "setting": ["in-time"] * len(rows),
            "metric": [metric] * len(rows),
            "horizon": [20] * len(rows),
            "group": [group for group, _ in rows],
            "value": [0.1] * len(rows),
            "se": [0.01] * len(rows),
            "n": [n for _, n in rows],
        }
    )


def shown(table: pl.DataFrame) -> dict[str, int]:
    return dict(hide_small_cells(table).select("group", "n").iter_rows())


def test_large_cells_and_other_groupings_and_metrics_stay() -> None:
    small = metrics(("all", 60), ("age=16-24", 3), ("age=25-34", 57), ("sex=male", 60))
    other = metrics(("all", 60), ("age=16-24", 15), ("age=25-34", 45), metric="crps_sek")
    result = hide_small_cells(pl.concat([small, other]))
    assert result.filter(metric="crps_sek").equals(other)
    assert result.filter(metric="crps_log")["group"].to_list() == ["all", "sex=male"]


def test_everybody_has_no_figure_if_they_are_few() -> None:
    row = hide_small_cells(metrics(("all", 9), ("sex=male", 9))).row(0, named=True)
    assert (row["n"], row["value"], row["se"]) == (0, None, None)
    comparison = metrics(("all", 9)).rename({"value": "difference"})
    assert hide_small_cells(comparison).is_empty()


@pytest.mark.parametrize("seed", range(20))
def test_what_is_hidden_in_a_grouping_is_nobody_or_at_least_ten_persons(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 40, 6)
    unknown = int(rng.integers(0, 15))
    groups = [(f"county={i}", int(n)) for i, n in enumerate(sizes)]
    left = shown(metrics(("all", int(sizes.sum()) + unknown), *groups))
    everybody = left.pop("all")
    assert all(n >= MIN_PERSONS for n in left.values())
    rest = everybody - sum(left.values())
    assert rest == 0 or rest >= MIN_PERSONS
