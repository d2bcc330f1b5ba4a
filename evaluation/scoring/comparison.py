"""Paired differences of scores between the model and the others, with tests.

Three two-sided tests, named in the column `test`:

- `person` (in-time, and forward on observed years): differences clustered by person, t with C - 1
  degrees of freedom. If the panel has families, the cluster is the family, and the test is named
  `family` (forward on drawn futures `family and future`).
- `person and future` (forward on drawn futures): the same persons occur in every drawn macro
  future, so differences are dependent in both dimensions. Variances are added as in Cameron,
  Gelbach and Miller (2011, eq. 2.8); t has as many degrees of freedom as the smaller number of
  clusters less one, usually the futures.
- `year` (in-time): Diebold and Mariano (1995) over origin years. Differences are summed by origin
  year, as in Driscoll and Kraay (1998), so that the test accounts for shocks that persons of one
  year share. It has Newey-West weights over h - 1 lags, because errors h years ahead overlap, the
  correction of Harvey, Leybourne and Newbold (1997), and t with T - 1 degrees of freedom. It needs
  at least 2 h years. Newey-West weights make the variance positive, and too small: the correction
  was derived without them. Equal forecasts are rejected too often the longer h is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.evaluation.scoring.gap import CLAIRVOYANT
from saga.evaluation.scoring.metrics import CLUSTER, percent_names
from scipy import stats

from saga.arrays import Floats

Codes = NDArray[np.int64]
BUNDLE_NAME = "saga"  # name of the judged bundle in tables; all others are compared with it
VARIANT = "saga:"  # prefix of the names of the model's variants, which are no competitors
HINDSIGHT = f"{VARIANT}told"  # the bundle conditioned on realised macro
GROUP_METRICS = ("crps_log",)  # the metrics in which groups are compared
COMPARED = (
    *("crps_log", "crps_sek", "mae_log", "pinball_log", "brier_zero", "logscore"),
    *percent_names("interval"),
)
PERSON, BOTH, YEAR = "person", "person and future", "year"
FAMILY, FAMILY_BOTH = "family", "family and future"  # in place of the first two
SURE = 0.01  # a difference with a smaller adjusted p is called sure
SURE_TEXT = f"p < {SURE:g}".replace("0.", ".")
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


def compare_models(scores: pl.LazyFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Every model against the bundle, one row per (model, setting, metric, horizon, group, test).

    `difference` is the model's mean score less the bundle's on the same persons and outcomes; if
    it is positive, the bundle is better. Pairs with a missing score are left out. `relative` is
    the difference as a share of the model's score. `p_holm` is adjusted for the horizons of one
    model, setting, metric, group and test (Holm 1979). `n` is the number of persons, `clusters` the
    number of clusters that `df` depends on. Groups are compared in CRPS of log earnings only. The
    table is empty without the bundle.

    Args:
        scores: As in `saga.evaluation.scoring.metrics.metrics_table`.
        groups: As in `metrics_table`, with a further column `year`, the origin. With CLUSTER, tests
            are by family.

    Returns:
        Columns of SCHEMA.
    """
    models = scores.select("model").unique().collect()["model"].sort().to_list()
    others = ("setting", "person_id", "year", CLUSTER)
    group_columns = [name for name in groups.columns if name not in others]
    rows: list[dict[str, Any]] = []
    if BUNDLE_NAME in models:
        for model in (name for name in models if name != BUNDLE_NAME):
            for setting in groups["setting"].unique().sort().to_list():
                paired = _paired_scores(scores, groups.filter(setting=setting), model, setting)
                for (horizon,), pairs in paired.group_by("horizon", maintain_order=True):
                    key = {"model": model, "setting": setting, "horizon": horizon}
                    tested = _tested_pairs(pairs, int(horizon), group_columns)
                    rows += [{**key, **row} for row in tested]
    table = pl.DataFrame(
        rows, schema={name: dtype for name, dtype in SCHEMA.items() if name != "p_holm"}
    )
    keys = ["model", "setting", "metric", "group", "test"]
    adjusted = (
        pl.col("p")
        .map_batches(lambda p: pl.Series(adjust_holm(p.to_numpy())), return_dtype=pl.Float64)
        .over(keys)
    )
    return (
        table.with_columns(p_holm=adjusted)
        .select(list(SCHEMA))
        .sort("setting", "test", pl.col("group") != "all", "group", "metric", "horizon", "model")
    )


def _paired_scores(
    scores: pl.LazyFrame, groups: pl.DataFrame, model: str, setting: str
) -> pl.DataFrame:
    """Scores of a model and the bundle (with the suffix ":saga") on the same outcomes."""
    keys = ["draw", "person_id", "horizon"]
    of_setting = scores.filter(pl.col("setting") == setting).select("model", *keys, *COMPARED)
    bundle, other = (
        of_setting.filter(pl.col("model") == name).drop("model") for name in (BUNDLE_NAME, model)
    )
    return (
        other.join(
            bundle, on=keys, how="inner", suffix=":saga", nulls_equal=True, maintain_order="left"
        )
        .join(groups.lazy(), on="person_id", maintain_order="left")
        .collect()
    )


def _tested_pairs(
    pairs: pl.DataFrame, horizon: int, group_columns: list[str]
) -> Iterator[dict[str, Any]]:
    """A row by metric, group and test, from the paired scores of one horizon."""
    by_family = CLUSTER in pairs.columns
    person, cluster = (
        pairs[name].cast(pl.Categorical).to_physical().to_numpy().astype(np.int64)
        for name in ("person_id", CLUSTER if by_family else "person_id")
    )
    draw, year = (pairs[name].fill_null(0).to_numpy().astype(np.int64) for name in ("draw", "year"))
    forward = pairs["draw"].null_count() == 0
    everybody = ("all", np.ones(pairs.height, dtype=bool))
    masks = [everybody, *_group_masks(pairs.select(group_columns))]
    for metric in COMPARED:
        model_score, bundle_score = (
            pairs[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
            for name in (metric, f"{metric}:saga")
        )
        scored = np.isfinite(model_score) & np.isfinite(bundle_score)
        for group, mask in masks if metric in GROUP_METRICS else masks[:1]:
            at = scored & mask
            if at.sum() < 2:
                continue
            d, mean = model_score[at] - bundle_score[at], float(model_score[at].mean())
            if forward:
                name = FAMILY_BOTH if by_family else BOTH
                tests = {name: two_way_test(d, cluster[at], draw[at])}
            else:
                tests = {FAMILY if by_family else PERSON: clustered_test(d, cluster[at])}
                if len(np.unique(year[at])) >= 2:
                    tests[YEAR] = diebold_mariano_test(d, year[at], horizon)
            shared = {
                "metric": metric,
                "group": group,
                "n": len(np.unique(person[at])),
                "relative": float(d.mean()) / mean if mean > 0 and metric != "logscore" else None,
            }
            yield from ({**shared, "test": name, **test} for name, test in tests.items() if test)


def _group_masks(labels: pl.DataFrame) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Name and rows of each group of each column of `labels`."""
    for name in labels.columns:
        for label in labels[name].unique().drop_nulls().sort().to_list():
            yield f"{name}={label}", (labels[name] == label).fill_null(False).to_numpy()


def clustered_test(d: Floats, cluster: Codes) -> dict[str, Any] | None:
    """Mean of `d` (n,), its standard error clustered by `cluster` (n,), t and p.

    The variance has the C / (C - 1) correction. None with one cluster.
    """
    clusters, variance = _cluster_variance(d - d.mean(), cluster)
    return _tested(float(d.mean()), variance, clusters) if clusters > 1 else None


def two_way_test(d: Floats, first: Codes, second: Codes) -> dict[str, Any] | None:
    """As `clustered_test`, clustered in two dimensions (Cameron, Gelbach and Miller 2011).

    The variance is that by the first dimension plus that by the second less that by both, and at
    least the larger of the first two. None with one cluster in either dimension.
    """
    e = d - d.mean()
    (c1, v1), (c2, v2) = _cluster_variance(e, first), _cluster_variance(e, second)
    if min(c1, c2) < 2:
        return None
    _, v12 = _cluster_variance(e, first * (int(second.max()) + 1) + second)
    return _tested(float(d.mean()), max(v1 + v2 - v12, v1, v2), min(c1, c2))


def diebold_mariano_test(d: Floats, year: Codes, horizon: int) -> dict[str, Any] | None:
    """The test of equal scores over T consecutive origin years.

    `d` (n,) are differences of forecasts `horizon` years ahead from the origin `year` (n,). A year
    without persons counts as a year without deviation from the mean. None if T < 2 `horizon`: the
    errors of nearly all years then overlap, and the long-run variance cannot be estimated.
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


def adjust_holm(p: Floats) -> Floats:
    """p-values (m,) adjusted for the number of tests (Holm 1979); NaN stays.

    The k-th smallest is multiplied by m - k + 1; the result is at least that of the smaller ones.
    """
    adjusted = np.full(len(p), np.nan)
    order = [i for i in np.argsort(p, kind="stable") if np.isfinite(p[i])]
    if order:
        steps = np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1))
        adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def adjust_together(table: pl.DataFrame) -> pl.DataFrame:
    """The tests of everybody against the other methods, with `p_holm` over all of them together.

    CRPS of log earnings and interval scores, whatever the setting, horizon and test; variants of
    the bundle and the clairvoyant are left out.
    """
    tests = table.filter(
        pl.col("group") == "all",
        pl.col("metric").is_in([*GROUP_METRICS, *percent_names("interval")]),
        pl.col("model") != CLAIRVOYANT,
        ~pl.col("model").str.starts_with(VARIANT),
    )
    p = tests["p"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    return tests.with_columns(p_holm=pl.Series(adjust_holm(p)).fill_nan(None))


def verdict_lines(table: pl.DataFrame, *, metric: str = "crps_log") -> dict[tuple[str, str], str]:
    """A line by setting and test: which models the bundle beats at each horizon, which beat it.

    "Beats" means a lower mean score with p < SURE after Holm. A model that is beaten at some of the
    line's horizons has them in brackets.
    """
    rows = table.filter(
        pl.col("metric") == metric, pl.col("group") == "all", pl.col("model") != CLAIRVOYANT
    )
    rows = rows.filter(~pl.col("model").str.starts_with(VARIANT))
    lines = {}
    for (setting, test), tested in rows.group_by("setting", "test", maintain_order=True):
        horizons = tested["horizon"].unique().sort().to_list()
        at_all, at_some, at_none, better = [], [], [], []
        for (model,), results in tested.sort("horizon").group_by("model", maintain_order=True):
            sure = results.filter(pl.col("p_holm") < SURE)
            leads = sure.filter(pl.col("difference") > 0)["horizon"].to_list()
            if behind := sure.filter(pl.col("difference") < 0)["horizon"].to_list():
                better.append(f"{model} (h = {_join(behind)})")
            if leads == horizons:
                at_all.append(str(model))
            elif leads:
                at_some.append(f"{model} (h = {_join(leads)})")
            else:
                at_none.append(str(model))
        places = {"at every horizon": at_all, "at some horizons": at_some}
        led = [f"{place} than {_join(models)}" for place, models in places.items() if models]
        clauses = [f"is significantly better ({SURE_TEXT}, Holm) {'; '.join(led)}"] if led else []
        if at_none:
            clauses.append(f"has no significant lead over {_join(at_none)}")
        line = f"{setting}, test by {test}, h = {_join(horizons)}: {BUNDLE_NAME} "
        line += "; it ".join(clauses)
        if better:
            line += f"; significantly better than it: {_join(better)}"
        lines[str(setting), str(test)] = f"{line}."
    return lines


def _join(items: Iterable[Any]) -> str:
    return ", ".join(str(item) for item in items)


def _cluster_variance(e: Floats, cluster: Codes) -> tuple[int, float]:
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
