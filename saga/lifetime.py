"""Present values of simulated paths, and statistics of them over a population."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.data.panel import Panel
from saga.errors import Problem, UsageError
from saga.paths import Paths
from saga.requests import RATE, UnknownYears
from saga.schema import MAX_AGE


def _counted_years(
    paths: Paths, to_age: int, from_age: int | None, years: int | None
) -> NDArray[np.bool_]:
    """Whether each horizon counts in the present value, shape (n, H)."""
    age = paths.years - paths.birth_year[:, None]
    n_years = to_age - (paths.origin_year - paths.birth_year)
    if years is not None:
        n_years = np.minimum(n_years, years)
    if len(paths) and n_years.max() > paths.n_horizons:
        worst = int(n_years.argmax())
        problem = Problem(
            "paths-too-short",
            f"paths reach {paths.n_horizons} years, the present value needs {int(n_years.max())}",
            "Simulate further, or lower to_age.",
            person_id=str(paths.person_id[worst]),
            count=int((n_years > paths.n_horizons).sum()),
        )
        raise UsageError("the paths end before to_age", [problem])
    counted = np.arange(1, paths.n_horizons + 1) <= n_years[:, None]
    return counted if from_age is None else counted & (age >= from_age)


def present_value(
    paths: Paths,
    *,
    rate: float = RATE,
    to_age: int = MAX_AGE,
    from_age: int | None = None,
    past: pl.DataFrame | None = None,
    years: int | None = None,
) -> Floats:
    """Present value of every path, shape (n, M), in real money of the panel; 0 if no year counts.

    It is the sum over the years t after the origin of y / (1 + rate)^(t - origin). With `from_age`
    the observed earnings from that age on are added, and the sum is discounted to the year of that
    age.

    Args:
        paths: Simulated paths.
        rate: Real discount rate a year, above -1.
        to_age: Last age that counts, at most 64.
        from_age: First age that counts, or None for the years after the origin.
        past: The observed past (`past_years`), required with `from_age`.
        years: Maximum number of years after the origin, or None for all.

    Raises:
        UsageError: If the paths are too short.
    """
    counted = _counted_years(paths, to_age, from_age, years)
    discount = (1 + rate) ** -np.arange(1.0, paths.n_horizons + 1)
    total = np.zeros((len(paths), paths.n_paths))
    # Summed in order of the years, so that a person's sum does not depend on the batch.
    for h in range(paths.n_horizons):
        total += np.where(
            counted[:, h, None], paths.earnings[:, h].astype(np.float64) * discount[h], 0.0
        )
    if from_age is None:
        return total
    assert past is not None
    to_start = (1 + rate) ** -(paths.origin_year - paths.birth_year - from_age).astype(np.float64)
    return total * to_start[:, None] + observed_past(past, paths, rate=rate)[:, None]


def past_years(panel: Panel, from_age: int, unknown: UnknownYears = "null") -> pl.DataFrame:
    """Every year from `from_age` to the last record: person_id, year, since, earnings, is_unknown.

    `since` are the years since that age. A year is unknown if it has no record or if its earnings
    are null; `unknown` says how these are filled (`saga.requests.LifetimeRequest`).
    """
    records = panel.frame.select("person_id", pl.col("year").cast(pl.Int64), "earnings")
    year, start = pl.col("year"), pl.col("birth_year").first().cast(pl.Int64) + from_age
    every = panel.frame.group_by("person_id", maintain_order=True).agg(
        start=start, year=pl.int_ranges(pl.min_horizontal(year.min(), start), year.max() + 1)
    )
    earnings = pl.col("earnings")
    filled = {
        "null": earnings,
        "interpolate": earnings.interpolate().forward_fill().backward_fill().over("person_id"),
        "zero": earnings.fill_null(0.0),
    }
    return (
        every.explode("year")
        .join(records, on=["person_id", "year"], how="left", maintain_order="left")
        .with_columns(earnings=filled[unknown], is_unknown=earnings.is_null())
        .select("person_id", "year", "earnings", "is_unknown", since=year - pl.col("start"))
        .filter(pl.col("since") >= 0)
    )


def observed_past(past: pl.DataFrame, paths: Paths, *, rate: float = RATE) -> Floats:
    """Earnings of `past_years`, discounted to the first of them, shape (n,).

    In real money of the panel; NaN if earnings of a year are unknown, 0 without a year.
    """
    amount = pl.col("earnings") / (1 + rate) ** pl.col("since").cast(pl.Float64)
    unknown = pl.col("earnings").null_count() > 0
    sums = past.group_by("person_id").agg(
        past=pl.when(unknown).then(float("nan")).otherwise(amount.sort_by("since").sum())
    )
    return of_persons(sums, paths)["past"].fill_null(0.0).to_numpy()


def of_persons(values: pl.DataFrame, paths: Paths) -> pl.DataFrame:
    """The rows of `values` for the persons of paths, in their order; null without a row."""
    ids = pl.Series("person_id", [str(person) for person in paths.person_id], dtype=pl.String)
    return ids.to_frame().join(values, on="person_id", how="left", maintain_order="left")


def realised_value(outcomes: Floats, *, rate: float = RATE, years: int | None = None) -> Floats:
    """Present value of outcomes (n, H) over the first `years` (None: all), shape (n,).

    NaN if an outcome of these years is unknown.
    """
    counted = outcomes[:, :years]
    discount = (1 + rate) ** -np.arange(1.0, counted.shape[1] + 1)
    return np.asarray(counted @ discount, dtype=np.float64)


def gini(ordered: Floats) -> Floats:
    """Gini coefficient: mean absolute difference of all pairs over twice the mean.

    `ordered` are values (n,), or columns (n, M) of them, that ascend over the first axis, as in all
    statistics. Population form without a small-sample factor: n equal values give 0, one positive
    value of n gives 1 - 1/n. 0 if all values are 0.
    """
    n, total = len(ordered), ordered.sum(axis=0)
    weights = (2.0 * np.arange(1, n + 1) - n - 1).reshape(-1, *[1] * (ordered.ndim - 1))
    return _ratio((weights * ordered).sum(axis=0), n * total)


def top_share(ordered: Floats, top: float = 0.01) -> Floats:
    """Share of the `top` fraction of persons in the total: 1 - Lorenz(1 - top).

    Interpolated between persons; 0 if all values are 0.
    """
    n = len(ordered)
    count = top * n
    whole = int(np.floor(count + 1e-12))
    rest = ordered[n - 1 - whole] * max(count - whole, 0.0) if whole < n else 0.0
    return _ratio(ordered[n - whole :].sum(axis=0) + rest, ordered.sum(axis=0))


def _ratio(part: Floats, total: Floats) -> Floats:
    return np.divide(part, total, out=np.zeros_like(total), where=total > 0)


def _quantile(quantile: float) -> Callable[[Floats], Floats]:
    def statistic(ordered: Floats) -> Floats:
        rank = quantile * (len(ordered) - 1)
        low, high = ordered[int(rank)], ordered[min(int(rank) + 1, len(ordered) - 1)]
        # NaN is sorted last; if there is one, the quantile is NaN.
        return np.where(np.isnan(ordered[-1]), np.nan, low + (high - low) * (rank - int(rank)))

    return statistic


STATISTICS: dict[str, Callable[[Floats], Floats]] = {
    "mean": lambda ordered: np.asarray(ordered.sum(axis=0) / len(ordered)),
    "p10": _quantile(0.10),
    "p50": _quantile(0.50),
    "p90": _quantile(0.90),
    "p99": _quantile(0.99),
    "gini": gini,
    "top_1_share": top_share,
}


def population(values: Floats, *, blocks: int = 20) -> pl.DataFrame:
    """Statistics of present values (n, M) over a population of n persons.

    Path k of all persons shares one macro future, so a statistic is computed over persons path by
    path. Columns:

    - statistic: a name of STATISTICS.
    - value: its mean over paths.
    - sd: its standard deviation over paths.
    - mc_error: sd / sqrt(M), the Monte-Carlo error of `value`.
    - pooled: the statistic of all n x M present values together.
    - pooled_mc_error: the Monte-Carlo error of `pooled`, by a jackknife that leaves out one of
      `blocks` blocks of paths at a time (Quenouille 1956).

    Errors are null with one path, and everything without persons.
    """
    n, m = values.shape
    columns = ("value", "sd", "mc_error", "pooled", "pooled_mc_error")
    schema = {"statistic": pl.String, **dict.fromkeys(columns, pl.Float64)}
    if n == 0:
        return pl.DataFrame([(name, *[None] * 5) for name in STATISTICS], schema, orient="row")
    by_path = _statistics(np.sort(values, axis=0))
    # All values are sorted once; without a block of paths they stay sorted.
    order = np.argsort(values, axis=None)
    ordered = values.reshape(-1)[order]
    pooled = _statistics(ordered)
    n_blocks = min(blocks, m) if m > 1 else 0
    parts = np.array_split(np.arange(m), max(n_blocks, 1))
    block = np.repeat(np.arange(len(parts)), [len(part) for part in parts])[order % m]
    replicates = [_statistics(ordered[block != k]) for k in range(n_blocks)]
    rows = []
    for name, path_values in by_path.items():
        sd = mc_error = pooled_mc_error = None
        if m > 1:
            sd = float(path_values.std(ddof=1))
            mc_error = sd / m**0.5
            variance = np.var([replicate[name] for replicate in replicates])
            pooled_mc_error = float(np.sqrt((len(replicates) - 1) * variance))
        value, pooled_value = float(path_values.mean()), float(pooled[name])
        rows.append((name, value, sd, mc_error, pooled_value, pooled_mc_error))
    return pl.DataFrame(rows, schema, orient="row")


def _statistics(ordered: Floats) -> dict[str, Floats]:
    return {name: statistic(ordered) for name, statistic in STATISTICS.items()}
