"""Present values of simulated lives, and what they say about a population."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.errors import Problem, UsageError
from saga.panel import Panel
from saga.paths import Paths
from saga.schema import MAX_AGE

Array = NDArray[np.float64]
RATE = 0.02


def counted_years(paths: Paths, *, to_age: int = MAX_AGE, from_age: int | None = None, years: int | None = None) -> NDArray[np.bool_]:
    """Which horizons enter the present value, shape (n, H): age up to `to_age`, from `from_age` on, at most `years` after the origin.

    Raises UsageError when the paths end before a person reaches `to_age` (or has lived `years` more).
    """
    if to_age > MAX_AGE:
        raise UsageError("to_age is too high", [Problem("to-age", f"forecasts stop at age {MAX_AGE}", f"Use to_age of at most {MAX_AGE}.")])
    age = paths.years - paths.birth_year[:, None]
    needed = to_age - (paths.origin_year - paths.birth_year)
    if years is not None:
        needed = np.minimum(needed, years)
    if len(paths) and needed.max() > paths.horizons:
        worst = int(needed.argmax())
        place = Problem(
            "paths-too-short",
            f"paths reach {paths.horizons} years, the present value needs {int(needed.max())}",
            "Simulate further, or lower to_age.",
            person_id=str(paths.person_id[worst]),
            count=int((needed > paths.horizons).sum()),
        )
        raise UsageError("the paths end before to_age", [place])
    counted = np.arange(1, paths.horizons + 1) <= needed[:, None]
    return counted if from_age is None else counted & (age >= from_age)


def present_value(
    paths: Paths,
    *,
    rate: float = RATE,
    to_age: int = MAX_AGE,
    from_age: int | None = None,
    history: Panel | None = None,
    years: int | None = None,
) -> Array:
    """Present value of every path, shape (n, M), real SEK.

    Without `from_age`: the sum over the years t after the origin, up to `to_age`, of y / (1 + rate)^(t - origin). With it: observed past
    earnings from that age on (`history`, required then) are added and all is discounted to the year the person had that age. `years` cuts
    the sum to the first K years after the origin. Nobody left to count gives 0. Raises UsageError when paths are too short or a rate is
    <= -1.
    """
    if rate <= -1:
        raise UsageError("the rate is out of range", [Problem("rate", "a discount rate must be above -1", "Use 0.02 for 2 %.")])
    counted = counted_years(paths, to_age=to_age, from_age=from_age, years=years)
    discount = (1 + rate) ** -np.arange(1.0, paths.horizons + 1)
    total = np.zeros((len(paths), paths.count))
    for h in range(paths.horizons):  # in order, so that a person's sum does not depend on the batch
        total += np.where(counted[:, h, None], paths.earnings[:, h].astype(np.float64) * discount[h], 0.0)
    if from_age is None:
        return total
    if history is None:
        raise UsageError("from_age needs the past", [Problem("from-age", "no history was given", "Pass the panel the paths start from.")])
    to_start = (1 + rate) ** -(paths.origin_year - paths.birth_year - from_age).astype(np.float64)
    return total * to_start[:, None] + observed_past(history, paths, rate=rate, from_age=from_age)[:, None]


def observed_past(history: Panel, paths: Paths, *, rate: float = RATE, from_age: int) -> Array:
    """Known earnings up to the origin and from `from_age` on, discounted to the year of that age, shape (n,), real SEK.

    Years without a record, or with unknown earnings, add nothing.
    """
    order = pl.DataFrame(
        {"person_id": [str(p) for p in paths.person_id], "origin": paths.origin_year},
        schema={"person_id": pl.String, "origin": pl.Int64},
    )
    since = pl.col("year") - pl.col("birth_year") - from_age
    past = (
        history.frame.join(order, on="person_id")
        .filter(since >= 0, pl.col("year") <= pl.col("origin"))
        .group_by("person_id")
        .agg(past=(pl.col("earnings") / (1 + rate) ** since.cast(pl.Float64)).sort_by("year").sum())
    )
    return order.join(past, on="person_id", how="left", maintain_order="left")["past"].fill_null(0.0).to_numpy()


def realised_value(outcomes: Array, *, rate: float = RATE, years: int | None = None) -> Array:
    """Present value of `outcomes` (n, H) over the first `years` (all): shape (n,); NaN where any of those years is unknown."""
    kept = outcomes[:, :years]
    return np.asarray(kept @ (1 + rate) ** -np.arange(1.0, kept.shape[1] + 1), dtype=np.float64)


def gini(values: Array) -> Array:
    """Gini coefficient over the first axis: mean absolute difference over twice the mean; 0 when all values are 0.

    Population form, no small-sample factor: n equal values give 0, one owner of everything gives 1 - 1/n.
    """
    ordered = np.sort(values, axis=0)
    n = len(ordered)
    weights = (2.0 * np.arange(1, n + 1) - n - 1).reshape(-1, *[1] * (values.ndim - 1))
    total = ordered.sum(axis=0)
    return np.asarray(np.divide((weights * ordered).sum(axis=0), n * total, out=np.zeros_like(total), where=total > 0))


def top_share(values: Array, top: float = 0.01) -> Array:
    """Share of the total held by the `top` fraction over the first axis (1 - Lorenz(1 - top), interpolated); 0 when all values are 0."""
    ordered = np.sort(values, axis=0)[::-1]
    held = top * len(ordered)
    whole = int(np.floor(held + 1e-12))
    rest = ordered[whole] * max(held - whole, 0.0) if whole < len(ordered) else 0.0
    total = ordered.sum(axis=0)
    return np.asarray(np.divide(ordered[:whole].sum(axis=0) + rest, total, out=np.zeros_like(total), where=total > 0))


def _quantile(level: float) -> Callable[[Array], Array]:
    return lambda values: np.asarray(np.quantile(values, level, axis=0))


STATISTICS: dict[str, Callable[[Array], Array]] = {
    "mean": lambda values: np.asarray(values.mean(axis=0)),
    "p10": _quantile(0.10),
    "p50": _quantile(0.50),
    "p90": _quantile(0.90),
    "p99": _quantile(0.99),
    "gini": gini,
    "top_1_share": top_share,
}


def population(values: Array, *, blocks: int = 20) -> pl.DataFrame:
    """Statistics of present values `values` (n, M) over a population of n persons.

    Path k of every person lives in one macro future, so a statistic is computed across persons path by path: `value` is its
    mean over paths, `sd` its spread over futures and `mc_error` = sd / sqrt(M) the Monte-Carlo error of `value`. `pooled` is the statistic
    of all n x M lives taken together (individual luck and macro future mixed), with the jackknife error over `blocks` of paths (Quenouille
    1956). Errors are null with one path. Columns: statistic, value, sd, mc_error, pooled, pooled_mc_error.
    """
    n, m = values.shape
    if n == 0:
        raise UsageError("no persons", [Problem("empty-population", "population statistics need persons", "Give at least one person.")])
    groups = np.array_split(np.arange(m), min(blocks, m))
    rows = []
    for name, statistic in STATISTICS.items():
        each = statistic(values)
        sd = float(each.std(ddof=1)) if m > 1 else None
        pooled_error = None
        if m > 1:
            left_out = np.array([float(statistic(np.delete(values, group, axis=1).reshape(-1))) for group in groups])
            pooled_error = float(np.sqrt((len(groups) - 1) * left_out.var()))
        rows.append(
            {
                "statistic": name,
                "value": float(each.mean()),
                "sd": sd,
                "mc_error": None if sd is None else sd / m**0.5,
                "pooled": float(statistic(values.reshape(-1))),
                "pooled_mc_error": pooled_error,
            }
        )
    schema = dict.fromkeys(("value", "sd", "mc_error", "pooled", "pooled_mc_error"), pl.Float64)
    return pl.DataFrame(rows, schema={"statistic": pl.String, **schema})
