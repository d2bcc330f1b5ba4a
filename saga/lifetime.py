"""Present values of simulated lives, and what they say about a population."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.data.panel import Panel
from saga.errors import Problem, UsageError
from saga.paths import Paths
from saga.requests import RATE
from saga.schema import MAX_AGE

Array = NDArray[np.float64]


def counted_years(
    paths: Paths, *, to_age: int = MAX_AGE, from_age: int | None = None, years: int | None = None
) -> NDArray[np.bool_]:
    """Which horizons enter the present value, shape (n, H): age up to `to_age`, from `from_age` on, at most `years` after the origin.

    Raises UsageError when the paths end before a person reaches `to_age` (or has lived `years` more).
    """
    if to_age > MAX_AGE:
        raise UsageError(
            "to_age is too high",
            [
                Problem(
                    "to-age",
                    f"forecasts stop at age {MAX_AGE}",
                    f"Use to_age of at most {MAX_AGE}.",
                )
            ],
        )
    age = paths.years - paths.birth_year[:, None]
    needed = to_age - (paths.origin_year - paths.birth_year)
    if years is not None:
        needed = np.minimum(needed, years)
    if len(paths) and needed.max() > paths.n_horizons:
        worst = int(needed.argmax())
        place = Problem(
            "paths-too-short",
            f"paths reach {paths.n_horizons} years, the present value needs {int(needed.max())}",
            "Simulate further, or lower to_age.",
            person_id=str(paths.person_id[worst]),
            count=int((needed > paths.n_horizons).sum()),
        )
        raise UsageError("the paths end before to_age", [place])
    counted = np.arange(1, paths.n_horizons + 1) <= needed[:, None]
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
        raise UsageError(
            "the rate is out of range",
            [Problem("rate", "a discount rate must be above -1", "Use 0.02 for 2 %.")],
        )
    counted = counted_years(paths, to_age=to_age, from_age=from_age, years=years)
    discount = (1 + rate) ** -np.arange(1.0, paths.n_horizons + 1)
    total = np.zeros((len(paths), paths.n_paths))
    for h in range(
        paths.n_horizons
    ):  # in order, so that a person's sum does not depend on the batch
        total += np.where(
            counted[:, h, None], paths.earnings[:, h].astype(np.float64) * discount[h], 0.0
        )
    if from_age is None:
        return total
    if history is None:
        raise UsageError(
            "from_age needs the past",
            [Problem("from-age", "no history was given", "Pass the panel the paths start from.")],
        )
    to_start = (1 + rate) ** -(paths.origin_year - paths.birth_year - from_age).astype(np.float64)
    return (
        total * to_start[:, None]
        + observed_past(history, paths, rate=rate, from_age=from_age)[:, None]
    )


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
    return (
        order.join(past, on="person_id", how="left", maintain_order="left")["past"]
        .fill_null(0.0)
        .to_numpy()
    )


def realised_value(outcomes: Array, *, rate: float = RATE, years: int | None = None) -> Array:
    """Present value of `outcomes` (n, H) over the first `years` (all): shape (n,); NaN where any of those years is unknown."""
    kept = outcomes[:, :years]
    return np.asarray(kept @ (1 + rate) ** -np.arange(1.0, kept.shape[1] + 1), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Ranked:
    """What statistics ask of n values, or of columns of n values, in ascending order.

    Their `total`; their `spread`, the sum of the absolute differences of all pairs; `at(k)`, the value at place k from 0 on; `top(k)`, the
    sum of the k highest.
    """

    n: int
    total: Array
    spread: Array
    at: Callable[[int], Array]
    top: Callable[[int], Array]

    @classmethod
    def of(cls, values: Array) -> Ranked:
        """Of values that are already sorted over the first axis."""
        n = len(values)
        weights = (2.0 * np.arange(1, n + 1) - n - 1).reshape(-1, *[1] * (values.ndim - 1))
        spread = (weights * values).sum(axis=0)
        return cls(
            n,
            values.sum(axis=0),
            spread,
            values.__getitem__,
            lambda count: np.asarray(values[n - count :].sum(axis=0)),
        )


def _gini(of: Ranked) -> Array:
    return np.asarray(
        np.divide(of.spread, of.n * of.total, out=np.zeros_like(of.total), where=of.total > 0)
    )


def _top_share(of: Ranked, top: float = 0.01) -> Array:
    held = top * of.n
    whole = int(np.floor(held + 1e-12))
    rest = of.at(of.n - 1 - whole) * max(held - whole, 0.0) if whole < of.n else 0.0
    return np.asarray(
        np.divide(of.top(whole) + rest, of.total, out=np.zeros_like(of.total), where=of.total > 0)
    )


def _quantile(level: float) -> Callable[[Ranked], Array]:
    def quantile(of: Ranked) -> Array:
        place = level * (of.n - 1)
        low, high = of.at(int(place)), of.at(min(int(place) + 1, of.n - 1))
        # What is not a number is sorted last, and makes the quantile unknown.
        return np.where(
            np.isnan(of.at(of.n - 1)), np.nan, low + (high - low) * (place - int(place))
        )

    return quantile


STATISTICS: dict[str, Callable[[Ranked], Array]] = {
    "mean": lambda of: np.asarray(of.total / of.n),
    "p10": _quantile(0.10),
    "p50": _quantile(0.50),
    "p90": _quantile(0.90),
    "p99": _quantile(0.99),
    "gini": _gini,
    "top_1_share": _top_share,
}


def gini(values: Array) -> Array:
    """Gini coefficient over the first axis: mean absolute difference over twice the mean; 0 when all values are 0.

    Population form, no small-sample factor: n equal values give 0, one owner of everything gives 1 - 1/n.
    """
    return _gini(Ranked.of(np.sort(values, axis=0)))


def top_share(values: Array, top: float = 0.01) -> Array:
    """Share of the total held by the `top` fraction over the first axis (1 - Lorenz(1 - top), interpolated); 0 when all values are 0."""
    return _top_share(Ranked.of(np.sort(values, axis=0)), top)


def population(values: Array, *, blocks: int = 20) -> pl.DataFrame:
    """Statistics of present values `values` (n, M) over a population of n persons.

    Path k of every person lives in one macro future, so a statistic is computed across persons path by path: `value` is its
    mean over paths, `sd` its spread over futures and `mc_error` = sd / sqrt(M) the Monte-Carlo error of `value`. `pooled` is the statistic
    of all n x M lives taken together (individual luck and macro future mixed), with the jackknife error over `blocks` of paths (Quenouille
    1956). Errors are null with one path. Columns: statistic, value, sd, mc_error, pooled, pooled_mc_error.
    """
    n, m = values.shape
    if n == 0:
        raise UsageError(
            "no persons",
            [
                Problem(
                    "empty-population",
                    "population statistics need persons",
                    "Give at least one person.",
                )
            ],
        )
    by_path = _statistics(Ranked.of(np.sort(values, axis=0)))
    pooled, rests = _pooled(values, np.array_split(np.arange(m), min(blocks, m)) if m > 1 else [])
    together, left_out = _statistics(pooled), [_statistics(rest) for rest in rests]
    rows = []
    for name, each in by_path.items():
        sd = float(each.std(ddof=1)) if m > 1 else None
        rows.append(
            {
                "statistic": name,
                "value": float(each.mean()),
                "sd": sd,
                "mc_error": None if sd is None else sd / m**0.5,
                "pooled": float(together[name]),
                "pooled_mc_error": float(
                    np.sqrt((len(rests) - 1) * np.var([one[name] for one in left_out]))
                )
                if m > 1
                else None,
            }
        )
    schema = dict.fromkeys(("value", "sd", "mc_error", "pooled", "pooled_mc_error"), pl.Float64)
    return pl.DataFrame(rows, schema={"statistic": pl.String, **schema})


def _statistics(of: Ranked) -> dict[str, Array]:
    return {name: statistic(of) for name, statistic in STATISTICS.items()}


def _pooled(values: Array, groups: Sequence[NDArray[np.int64]]) -> tuple[Ranked, list[Ranked]]:
    """All lives together, and what is left of them without each of the groups of paths.

    Sorted once: a group falls away at its places, which costs as much as the group has lives.
    """
    order = np.argsort(values, axis=None)
    lives = values.reshape(-1)[order]
    whole = Ranked.of(lives)
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    del order  # each of these is as large as the lives
    places = places.reshape(values.shape)
    above = np.zeros(len(lives) + 1)  # the sum from each place on
    np.cumsum(lives[::-1], out=above[-2::-1])
    totals = values.sum(axis=0)
    return whole, [
        _without(np.sort(places[:, g], axis=None), lives, whole, above, np.delete(totals, g).sum())
        for g in groups
    ]


def _without(
    gone: NDArray[np.int64], lives: Array, whole: Ranked, above: Array, total: Array
) -> Ranked:
    """What is left of sorted `lives` without those at the places `gone`; its `total` is given: as a difference, nothing might not be 0."""
    n, lost = whole.n - len(gone), lives[gone]
    kept_below = gone - np.arange(len(gone))

    def place(k: int) -> int:
        return k + int(np.searchsorted(kept_below, k, side="right"))

    def top(count: int) -> Array:
        first = place(n - count)
        return np.asarray(above[first] - lost[np.searchsorted(gone, first) :].sum())

    to_all = (
        lost * (2.0 * gone - whole.n) + 2.0 * above[gone] - whole.total
    ).sum()  # pairs within what is lost count twice
    return Ranked(
        n, total, whole.spread - to_all + Ranked.of(lost).spread, lambda k: lives[place(k)], top
    )
