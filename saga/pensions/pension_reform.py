"""What a reform changes for groups of persons: differences with bands, winners and losers.

Both rules are applied to the same paths, so the band is that of the difference. Persons are ordered
by the mean earnings of their careers on each path, and divided into fifths.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from saga.arrays import Floats
from saga.small_groups import MIN_PERSONS

FIFTHS = 5
_BAND = (0.05, 0.95)
_SAME = 0.5  # of a unit of the currency: a smaller difference is none


def reform_table(values: Floats, minimum: int = MIN_PERSONS) -> pl.DataFrame:
    """Rows for each fifth of lifetime earnings and for all persons, of values (n, 3, n_path).

    The values are mean earnings, rights by the rule and rights by the reform. Persons whose rights
    are unknown are left out. Columns: group, persons, and mean, lower_90 and upper_90 over paths of
    `statistic`: rule, reform, difference (means over persons), winners and losers (shares of
    persons). Null where a group has fewer than `minimum` persons.
    """
    values = values[~np.isnan(values).any(axis=(1, 2))]
    n = len(values)
    earnings, before, after = values.transpose(1, 0, 2) if n else np.zeros((3, 0, 1))
    order = np.argsort(np.argsort(earnings, axis=0, kind="stable"), axis=0)
    fifth = order * FIFTHS // max(n, 1)
    difference = after - before
    statistics = {
        "rule": before,
        "reform": after,
        "difference": difference,
        "winners": (difference > _SAME).astype(float),
        "losers": (difference < -_SAME).astype(float),
    }
    rows: list[tuple[object, ...]] = []
    for k in range(FIFTHS + 1):
        inside = fifth == k if k < FIFTHS else np.ones(fifth.shape, dtype=bool)
        persons = int(inside[:, 0].sum())
        name = f"fifth {k + 1}" if k < FIFTHS else "total"
        is_shown = n // (FIFTHS if k < FIFTHS else 1) >= minimum
        for statistic, amounts in statistics.items():
            shown: tuple[float | None, ...] = (None, None, None)
            if is_shown:
                by_path = np.where(inside, amounts, 0.0).sum(0) / persons
                shown = (float(by_path.mean()), *map(float, np.quantile(by_path, _BAND)))
            rows.append((name, persons if is_shown else None, statistic, *shown))
    schema = {"group": pl.String, "persons": pl.Int64, "statistic": pl.String}
    amounts_of = dict.fromkeys(("mean", "lower_90", "upper_90"), pl.Float64)
    return pl.DataFrame(rows, schema={**schema, **amounts_of}, orient="row")
