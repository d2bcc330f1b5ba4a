"""Scores of totals: what a group of the round's persons earns together in a year.

A total counts the persons whose outcome exists in a future, so that forecast and outcome are of
the same persons. Errors are relative to the outcome; the standard error is that of the mean over
the futures. Means of persons give a bias and an error, joint paths also a distribution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.evaluation.scoring.ensemble_scores import crps
from saga.evaluation.scoring.evaluation_settings import Setting
from saga.evaluation.scoring.metrics import CLUSTER

from saga.arrays import Floats
from saga.scores import interval_score

COVERAGE = 0.9


def score_totals(
    model: str,
    means: Floats,
    paths: NDArray[np.float32] | None,
    setting: Setting,
    horizons: Sequence[int],
    groups: pl.DataFrame,
) -> pl.DataFrame:
    """Scores of totals, one row per horizon, group and metric, in the form of the metrics table.

    `total_bias` is forecast / outcome - 1, `total_error` its absolute value. With paths also
    `total_crps` (fair, of the log of the total), `total_coverage_90` and `total_interval_90` (of
    the 5 to 95 % quantiles of the paths' totals, as a share of the outcome).

    Args:
        model: Name of the entry.
        means: Expected earnings (n, H).
        paths: Joint futures (n, H, M); None: only means are scored.
        setting: The round.
        horizons: Years ahead, H.
        groups: As of `saga.evaluation.contest_tables.ScoredSample`, rows in the order of `means`.

    Returns:
        Columns model, metric, horizon, group, value, se, n (persons).
    """
    rows = []
    for group, members in _members(groups):
        scores: dict[tuple[str, int], list[float]] = {}
        for _, outcomes in setting.outcomes:
            known = np.isfinite(outcomes) & members[:, None]
            outcome = np.where(known, outcomes, 0.0).sum(axis=0)
            forecast = np.where(known, means, 0.0).sum(axis=0)
            futures = None if paths is None else np.where(known[..., None], paths, 0.0).sum(axis=0)
            for k, horizon in enumerate(horizons):
                if outcome[k] > 0:
                    draws = None if futures is None else futures[k]
                    for metric, score in _scores(forecast[k], draws, outcome[k]):
                        scores.setdefault((metric, horizon), []).append(score)
        rows += [
            {
                "model": model,
                "metric": metric,
                "horizon": horizon,
                "group": group,
                "value": float(np.mean(values)),
                "se": float(np.std(values, ddof=1) / np.sqrt(len(values)))
                if len(values) > 1
                else None,
                "n": int(members.sum()),
            }
            for (metric, horizon), values in scores.items()
        ]
    return pl.DataFrame(rows, schema_overrides={"horizon": pl.Int32, "se": pl.Float64})


def _scores(forecast: float, futures: Floats | None, outcome: float) -> Iterator[tuple[str, float]]:
    """Name and score of one total."""
    error = forecast / outcome - 1
    yield "total_bias", error
    yield "total_error", abs(error)
    if futures is None:
        return
    lower, upper = np.quantile(futures, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2]) / outcome
    yield "total_crps", float(crps(np.log(futures[None]), np.log([outcome]))[0])
    yield "total_coverage_90", float(lower <= 1 <= upper)
    yield "total_interval_90", float(interval_score(np.array(1.0), lower, upper, COVERAGE))


def _members(groups: pl.DataFrame) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Name and members (n,) of everybody and of each group."""
    yield "all", np.ones(groups.height, dtype=bool)
    for name in groups.columns:
        if name not in ("setting", "person_id", "year", CLUSTER):
            for label in groups[name].unique().drop_nulls().sort().to_list():
                yield f"{name}={label}", (groups[name] == label).fill_null(False).to_numpy()
