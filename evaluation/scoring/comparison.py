"""Is the model better than the others, and how sure is that: paired differences of scores on the same persons and outcomes.

Three tests, named in the column `test`, each two-sided:

- `person` (in-time, and forward on observed years): differences clustered by person, t with C - 1 degrees of freedom.
- `person and future` (forward on drawn futures): the same persons live in every drawn macro future, so differences are dependent along
  both; variances are added as Cameron, Gelbach and Miller (2011, eq. 2.8) do, and t has degrees of freedom of the smaller number of
  clusters less one, the futures as a rule.
- `year` (in-time): Diebold and Mariano (1995) over origin years. Sums of the differences by origin year, as in Driscoll and Kraay (1998),
  so that what persons of one year share is counted; Newey-West weights over h - 1 lags, since errors h years ahead overlap; the
  correction of Harvey, Leybourne and Newbold (1997) and t with T - 1 degrees of freedom. It is not given with fewer than 2 h years.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import stats

from evaluation.scoring.gap import BOUND

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
REFEREE = "saga"  # whom all others are compared with
VARIANT = (
    "saga:"  # how names of the model's own variants begin: they are rows of tables, not rivals
)
TOLD = f"{VARIANT}told"  # the bundle told the economy that came
OF_GROUPS = ("crps_log",)  # of groups the headline alone
COMPARED = ("crps_log", "crps_sek", "mae_log", "pinball_log", "brier_zero", "logscore")
PERSON, BOTH, YEAR = "person", "person and future", "year"
SURE = 0.01
SCHEMA = {
    "model": pl.String(),
    "setting": pl.String(),
    "metric": pl.String(),
    "horizon": pl.Int32(),
    "group": pl.String(),
    "test": pl.String(),
    "difference": pl.Float64(),
    "se": pl.Float64(),
    "t": pl.Float64(),
    "df": pl.Int64(),
    "p": pl.Float64(),
    "p_holm": pl.Float64(),
    "n": pl.Int64(),
    "clusters": pl.Int64(),
    "relative": pl.Float64(),
}


def comparisons(scores: pl.LazyFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Every model against the referee, rows of SCHEMA: one a (model, setting, metric, horizon, group, test).

    `scores` and `groups` as in `evaluation.scoring.metrics.metrics_table`, `groups` also with the origin `year`. `difference` is the model's mean
    score less that of the referee on the same persons and outcomes: above 0 the referee is better; `relative` is the share of the
    model's score that it is. `p_holm` is adjusted for the horizons of one model, setting, metric, group and test (Holm 1979). `n` counts
    persons, `clusters` what `df` is made of. Groups are compared in CRPS of log earnings
    alone. Empty without the referee. In `difference` a score missing on either side does not count.
    """
    models = scores.select("model").unique().collect()["model"].sort().to_list()
    names = [name for name in groups.columns if name not in ("setting", "person_id", "year")]
    rows: list[dict[str, Any]] = []
    if REFEREE in models:
        for model in (name for name in models if name != REFEREE):
            for setting in groups["setting"].unique().sort().to_list():
                rows += _against(scores, groups.filter(setting=setting), names, model, setting)
    table = pl.DataFrame(
        rows, schema={name: dtype for name, dtype in SCHEMA.items() if name != "p_holm"}
    )
    keys = ["model", "setting", "metric", "group", "test"]
    adjusted = (
        pl.col("p")
        .map_batches(lambda p: pl.Series(holm(p.to_numpy())), return_dtype=pl.Float64)
        .over(keys)
    )
    return (
        table.with_columns(p_holm=adjusted)
        .select(list(SCHEMA))
        .sort("setting", "test", pl.col("group") != "all", "group", "metric", "horizon", "model")
    )


def _against(
    scores: pl.LazyFrame, groups: pl.DataFrame, names: list[str], model: str, setting: str
) -> list[dict[str, Any]]:
    keys = ["draw", "person_id", "horizon"]
    own = scores.filter(pl.col("setting") == setting).select("model", *keys, *COMPARED)
    mine, theirs = (own.filter(pl.col("model") == name).drop("model") for name in (REFEREE, model))
    paired = (
        theirs.join(
            mine, on=keys, how="inner", suffix=":saga", nulls_equal=True, maintain_order="left"
        )
        .join(groups.lazy(), on="person_id", maintain_order="left")
        .collect()
    )
    rows = []
    for (horizon,), some in paired.group_by("horizon", maintain_order=True):
        forward = some["draw"].null_count() == 0
        person = some["person_id"].cast(pl.Categorical).to_physical().to_numpy().astype(np.int64)
        draw, year = (
            some[name].fill_null(0).to_numpy().astype(np.int64) for name in ("draw", "year")
        )
        masks = [("all", np.ones(some.height, dtype=bool))]
        for name in names:
            labels = some[name].unique().drop_nulls().sort().to_list()
            masks += [
                (f"{name}={label}", (some[name] == label).fill_null(False).to_numpy())
                for label in labels
            ]
        for metric in COMPARED:
            theirs_, mine_ = (
                some[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
                for name in (metric, f"{metric}:saga")
            )
            scored = np.isfinite(theirs_) & np.isfinite(mine_)
            for group, mask in masks if metric in OF_GROUPS else masks[:1]:
                at = scored & mask
                if at.sum() < 2:
                    continue
                d, level = theirs_[at] - mine_[at], float(theirs_[at].mean())
                tests = (
                    {BOTH: two_way(d, person[at], draw[at])}
                    if forward
                    else {PERSON: clustered(d, person[at])}
                )
                if not forward and len(np.unique(year[at])) >= 2:
                    tests[YEAR] = diebold_mariano(d, year[at], int(horizon))
                shared = {
                    "model": model,
                    "setting": setting,
                    "metric": metric,
                    "horizon": horizon,
                    "group": group,
                }
                shared["n"] = len(np.unique(person[at]))
                relative = float(d.mean()) / level if level > 0 and metric != "logscore" else None
                rows += [
                    {**shared, "test": name, "relative": relative, **found}
                    for name, found in tests.items()
                    if found
                ]
    return rows


def clustered(d: Array, cluster: Codes) -> dict[str, Any] | None:
    """Mean of `d` (n,), its standard error clustered by `cluster` (n,) with the C / (C - 1) correction, t and p. None with one cluster."""
    clusters, variance = _cluster_variance(d - d.mean(), cluster)
    return _tested(float(d.mean()), variance, clusters) if clusters > 1 else None


def two_way(d: Array, first: Codes, second: Codes) -> dict[str, Any] | None:
    """The same clustered along two dimensions: variance by the one, plus by the other, less by both (Cameron, Gelbach and Miller 2011).

    Where that is not above each of the two, the larger of them stands. None with one cluster in either.
    """
    e = d - d.mean()
    (c1, v1), (c2, v2) = _cluster_variance(e, first), _cluster_variance(e, second)
    if min(c1, c2) < 2:
        return None
    _, v12 = _cluster_variance(e, first * (int(second.max()) + 1) + second)
    return _tested(float(d.mean()), max(v1 + v2 - v12, v1, v2), min(c1, c2))


def diebold_mariano(d: Array, year: Codes, horizon: int) -> dict[str, Any] | None:
    """The test of equal scores over T consecutive origin years (years without anybody count as years without difference from the mean).

    `d` (n,) differences of forecasts `horizon` years ahead from the origin `year` (n,). None where T < 2 `horizon`: then the errors of
    nearly all years overlap, and the long-run variance cannot be told.
    """
    years = int(year.max() - year.min()) + 1
    if years < max(2 * horizon, 2):
        return None
    sums = np.bincount(year - year.min(), weights=d - d.mean(), minlength=years)
    lags = horizon - 1
    variance = float(sums @ sums) + 2 * sum(
        (1 - k / (lags + 1)) * float(sums[k:] @ sums[:-k]) for k in range(1, lags + 1)
    )
    correction = (years + 1 - 2 * horizon + horizon * (horizon - 1) / years) / years
    return _tested(float(d.mean()), variance / len(d) ** 2 / correction, years)


def holm(p: Array) -> Array:
    """p-values (m,) adjusted for the number of tests (Holm 1979): the k-th smallest times m - k + 1, not below those before; NaN stays."""
    adjusted = np.full(len(p), np.nan)
    order = [i for i in np.argsort(p, kind="stable") if np.isfinite(p[i])]
    if order:
        steps = np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1))
        adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def verdicts(table: pl.DataFrame, *, metric: str = "crps_log") -> list[str]:
    """One plain line a setting and test: against whom the referee is better at every horizon with p < .01 after Holm, and where not."""
    rows = table.filter(
        pl.col("metric") == metric, pl.col("group") == "all", pl.col("model") != BOUND
    )
    rows = rows.filter(~pl.col("model").str.starts_with(VARIANT))
    lines = []
    for (setting, test), some in rows.group_by("setting", "test", maintain_order=True):
        horizons = some["horizon"].unique().sort().to_list()
        won, not_won = [], []
        for (model,), own in some.sort("horizon").group_by("model", maintain_order=True):
            short = [
                h
                for h, d, p in own.select("horizon", "difference", "p_holm").iter_rows()
                if not (d > 0 and p < SURE)
            ]
            if short:
                not_won.append(f"{model} (h = {_listed(short)})")
            else:
                won.append(str(model))
        line = f"{setting}, test by {test}, h = {_listed(horizons)}: "
        if won and not not_won:
            line += (
                f"{REFEREE} is best at every horizon with p < .01 (Holm): against {_listed(won)}."
            )
        else:
            line += f"{REFEREE} is not better at every horizon with p < .01 (Holm) than {_listed(not_won)}"
            line += f"; it is than {_listed(won)}." if won else "."
        lines.append(line)
    return lines


def _listed(items: Iterable[Any]) -> str:
    return ", ".join(str(item) for item in items)


def _cluster_variance(e: Array, cluster: Codes) -> tuple[int, float]:
    _, codes = np.unique(cluster, return_inverse=True)
    sums = np.bincount(codes, weights=e)
    count = len(sums)
    return count, float(sums @ sums) / len(e) ** 2 * count / max(count - 1, 1)


def _tested(difference: float, variance: float, clusters: int) -> dict[str, Any]:
    se = float(np.sqrt(max(variance, 0.0)))
    t = difference / se if se > 0 else None
    p = float(2 * stats.t.sf(abs(t), clusters - 1)) if t is not None else None
    return {
        "difference": difference,
        "se": se,
        "t": t,
        "df": clusters - 1,
        "p": p,
        "clusters": clusters,
    }
