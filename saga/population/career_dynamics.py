"""How simulated careers move, beside those of the panel: what modellers validate careers with.

Statistics of changes of log earnings over some years (GRID; Guvenen, Pistaferri and Violante 2022),
autocorrelations and mobility, of persons with earnings at both ends.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from saga.arrays import Floats
from saga.population.scored_paths import PathRows

LAGS = (1, 5, 10)  # years between both ends
_GAUSSIAN = 2.91  # ratio of the quantile ranges of a normal distribution
_DIGITS = 4
_BAND = (0.05, 0.95)
_FIFTHS = 5


def _range(low: float, high: float) -> pl.Expr:
    change = pl.col("change")
    return change.quantile(high, "linear") - change.quantile(low, "linear")


# Statistic -> how it is computed of the changes of a path, and the share of persons beyond the
# outermost quantile that it uses (1: it uses none), who must be enough to be published.
_STATISTICS = {
    "p90_p10_change": (_range(0.1, 0.9), 0.1),
    "kelley_change": ((_range(0.5, 0.9) - _range(0.1, 0.5)) / _range(0.1, 0.9), 0.1),
    "crow_siddiqui_change": (_range(0.025, 0.975) / _range(0.25, 0.75) - _GAUSSIAN, 0.025),
    "autocorrelation": (pl.corr("before", "after"), 1.0),
    "rank_correlation": (pl.corr("before", "after", method="spearman"), 1.0),
}


def dynamics_table(paths: PathRows, records: pl.DataFrame | None, minimum: int) -> pl.DataFrame:
    """Statistics of simulated careers and, with `records`, of the observed ones.

    All years are pooled, from the first full one of the paths on. Columns: source (paths, panel),
    lag in years, statistic, persons, value (mean over paths), lower_90 and upper_90 over paths
    (null of the panel). The change statistics are the range from P10 to P90, Kelley's skewness and
    the excess kurtosis of Crow and Siddiqui; `fifth_1_to_2` is the share of the first fifth of a
    year's earnings that is in the second one later. Null with fewer than `minimum` persons, also
    beyond the outermost quantile of a statistic, and in a fifth.
    """
    simulated = paths.rows.filter(pl.col("year") >= paths.full_years[0])
    sources = {"paths": simulated.select("person_id", "path", "year", "earnings")}
    if records is not None:
        observed = records.lazy().with_columns(path=pl.lit(0, pl.Int32))
        sources["panel"] = observed.select("person_id", "path", "year", "earnings")
    rows = [row for name, frame in sources.items() for row in _rows(name, frame, minimum)]
    numbers = dict.fromkeys(("value", "lower_90", "upper_90"), pl.Float64)
    schema = {"source": pl.String, "lag": pl.Int32, "statistic": pl.String, "persons": pl.Int64}
    return pl.DataFrame(rows, schema={**schema, **numbers}, orient="row")


def _rows(source: str, careers: pl.LazyFrame, minimum: int) -> Iterator[tuple[object, ...]]:
    """The rows of one source, lag after lag."""
    logs = careers.filter(pl.col("earnings") > 0).select(
        "person_id", "path", pl.col("year").cast(pl.Int64), log=pl.col("earnings").log()
    )
    for lag in LAGS:
        ends = logs.with_columns(pl.col("year") - lag).rename({"log": "after"})
        pairs = logs.rename({"log": "before"}).join(ends, on=["person_id", "path", "year"])
        pairs = pairs.with_columns(change=pl.col("after") - pl.col("before"))
        by_path = pairs.group_by("path").agg(
            pl.col("person_id").n_unique().alias("persons"),
            *(statistic.alias(name) for name, (statistic, _) in _STATISTICS.items()),
        )
        statistics = by_path.collect()
        numbers = statistics["persons"].to_list()
        persons = min(numbers, default=0)
        values = {
            name: statistics[name].to_numpy() if persons * beyond >= minimum else None
            for name, (_, beyond) in _STATISTICS.items()
        }
        values |= _mobility(pairs, minimum, simulated=source == "paths") if persons else {}
        for name, of_paths in values.items():
            shown: list[float | None] = [None, None, None]
            if of_paths is not None:
                limits = np.quantile(of_paths, _BAND if source == "paths" else ())
                known = [round(float(number), _DIGITS) for number in (of_paths.mean(), *limits)]
                shown[: len(known)] = known
            yield (source, lag, name, persons if persons >= minimum else None, *shown)


def _mobility(pairs: pl.LazyFrame, minimum: int, *, simulated: bool) -> dict[str, Floats | None]:
    """Shares of each fifth of a year's earnings that are in each fifth later, by path.

    None of a fifth that on a path has fewer than `minimum` persons; of the panel also if so few of
    them are in a later fifth.
    """
    fifth = (pl.col("before", "after").rank("min") - 1) * _FIFTHS // pl.len()
    fifths = pairs.with_columns(fifth.over("path", "year"))
    n_paths = fifths.select(pl.col("path").max() + 1).collect().item()
    moved, behind = (np.zeros((n_paths, _FIFTHS, _FIFTHS)) for _ in range(2))
    of_cell = pl.len().alias("n"), pl.col("person_id").n_unique().alias("persons")
    cells = fifths.group_by("path", "before", "after").agg(of_cell).collect()
    at = tuple(cells.select("path", "before", "after").to_numpy().T)
    moved[at], behind[at] = cells["n"], cells["persons"]
    if simulated:  # where persons go is no record of theirs
        origins = fifths.group_by("path", "before").agg(of_cell).collect()
        behind[:] = 0
        behind[tuple(origins.select("path", "before").to_numpy().T)] = origins[["persons"]]
    is_unsafe = (behind < minimum) & ((behind > 0) | simulated)
    is_small = np.any(is_unsafe, axis=(0, 2)).tolist()
    shares = moved / np.maximum(moved.sum(-1, keepdims=True), 1)
    return {
        f"fifth_{k + 1}_to_{j + 1}": None if is_small[k] else shares[:, k, j]
        for k, j in np.ndindex(_FIFTHS, _FIFTHS)
    }
