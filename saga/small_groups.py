"""No figure that is stored or shown rests on fewer than ten persons.

So no quantile is one person's value: it is the mean of ten neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars as pl

MIN_PERSONS = 10  # persons behind a figure


def neighbour_mean(ordered: NDArray[np.float64], first: int, count: int = MIN_PERSONS) -> float:
    """The mean of `count` neighbours of ascending values (n,) from `first` on.

    +inf if fewer remain.
    """
    window = ordered[first : first + count]
    return float(window.mean()) if len(window) == count else float("inf")


def person_quantiles(
    values: NDArray[np.float64], persons: NDArray[Any], levels: Sequence[float] | NDArray[Any]
) -> NDArray[np.float64]:
    """Quantiles (k,) of values (n,), each the mean of the neighbours that ten persons have.

    `persons` (n,) says whose values they are. With fewer than ten persons all are the mean.
    """
    order = np.argsort(values, kind="stable")
    ordered, whose = values[order], persons[order]
    quantiles = []
    for level in levels:
        size = MIN_PERSONS
        while True:
            first = int(np.clip(round(level * len(ordered) - size / 2), 0, len(ordered)))
            first = max(min(first, len(ordered) - size), 0)
            window = slice(first, first + size)
            if size >= len(ordered) or len(np.unique(whose[window])) >= MIN_PERSONS:
                break
            size *= 2
        quantiles.append(ordered[window].mean())
    return np.maximum.accumulate(quantiles)


def pooled_values(values: NDArray[Any], persons: NDArray[Any]) -> NDArray[Any]:
    """Values (n,) of persons (n,) in groups of ten persons or more, each as its group's mean.

    Neighbours are joined in ascending order until a group has ten persons; equal values stay
    together, NaN stays NaN. A value that ten persons have does not change.
    """
    known = np.flatnonzero(~np.isnan(values))
    level, at = np.unique(values[known], return_inverse=True)
    pairs = np.unique(np.stack([at, np.unique(persons[known], return_inverse=True)[1]]), axis=1)
    starts = np.searchsorted(pairs[0], np.arange(len(level) + 1))
    group, members = np.zeros(len(level), dtype=np.int64), set[int]()
    for i in range(len(level)):
        if len(members) >= MIN_PERSONS:
            members = set()
            group[i] = 1
        members.update(pairs[1, starts[i] : starts[i + 1]].tolist())
    group = np.cumsum(group)
    if 0 < len(members) < MIN_PERSONS:  # the last group joins the one before
        group[group == group[-1]] = max(group[-1] - 1, 0)
    of_rows = group[at]
    count = np.maximum(np.bincount(of_rows), 1)
    pooled = values.astype(np.float64)
    pooled[known] = (np.bincount(of_rows, pooled[known]) / count)[of_rows]
    return pooled.astype(values.dtype)


def frequent_codes(frame: pl.DataFrame, name: str) -> tuple[str, ...]:
    """The sorted codes of a column that at least 10 persons have.

    A bundle must not tell about single persons, and the weights of a rarer code would be noise.
    """
    import polars as pl  # not when the command line starts

    persons = frame.drop_nulls(name).group_by(name).agg(pl.col("person_id").n_unique())
    frequent = persons.filter(pl.col("person_id") >= MIN_PERSONS)
    return tuple(sorted(frequent[name].to_list()))
