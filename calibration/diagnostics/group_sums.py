"""Sums over persons: means of groups, forecast and realised, beside a simple rule.

The error is that of forecasts given the realised macro series, if there are any. Persons of one
year have errors in common, so its standard error is the larger of two: with persons as independent,
and with the years of the outcomes as independent. The band is that of forecasts as they are issued.

A verdict "holds" needs both: a mean that is right, and bands that contain the outcomes. One band
of 90 % misses once in ten times, and groups of one economy miss together, so a miss proves nothing
and makes a figure unclear. The bands of a horizon do not hold if fewer contain the outcome than in
90 of 100 simulated futures, whose groups miss together as the forecaster says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from saga.calibration.diagnostics.person_results import QUESTION_ALPHA, Cases, Rows
from saga.calibration.diagnostics.simple_rules import GrowthRule
from saga.calibration.diagnostics.verdicts import (
    Verdict,
    rounded,
    worst_verdict,
)
from scipy import stats

from saga.arrays import Array
from saga.conformal.calibration_table import ALL
from saga.data.origins import Origins, cut
from saga.data.panel import Panel
from saga.model_error import EVERYBODY, GROUPS, ModelError
from saga.paths import Paths
from saga.population.cell_statistics import PathStatistic
from saga.population.group_bands import band, central_range
from saga.population.scored_paths import last_known, rows_of

QUESTION = "sum"
_ALIKE = ("sex", "education_level")  # with the age: whom the rule takes for alike
_RARE = 0.1  # so few futures have as few bands with the outcome, if the forecaster is right
# (Horizon, grouping, group) -> sums over the persons of a group on each path, (M,).
PathSums = dict[tuple[int, str, str], Array]


def sum_paths(
    groups: pl.DataFrame, paths: Paths, outcomes: Array, horizons: Sequence[int]
) -> PathSums:
    """Sums over those of n persons who have an outcome (n, H); `groups` has a column a grouping."""
    sums: PathSums = {}
    labels = groups.drop("person_id").with_columns(pl.lit(ALL).alias(ALL))
    for h in (h for h in horizons if h <= paths.n_horizons):
        earnings = paths.earnings[:, h - 1].astype(np.float64)
        known = ~np.isnan(outcomes[:, h - 1]) & np.isfinite(earnings).all(1)
        for grouping in labels.columns:
            of_persons = labels[grouping].fill_null("").to_numpy()
            for group in np.unique(of_persons[known]):
                sums[h, grouping, str(group)] = earnings[known & (of_persons == group)].sum(0)
    return sums


def predict_by_rule(panel: Panel, origins: Origins, horizons: Sequence[int]) -> pl.DataFrame:
    """What the rule of growth says about each person: `person_id`, and a column for each horizon.

    It knows the panel's records up to the person's origin: means of those of the age, sex and
    education in the last five years, grown as means within ages did before.
    """
    parts = []
    for year in np.unique(origins.year).tolist():
        known = cut(panel, year)
        level = pl.concat_str(pl.col(_ALIKE).fill_null(""), separator="/")
        people = last_known(known, _ALIKE).with_columns(level=level)
        persons = rows_of(people, origins.person_id[origins.year == year].tolist())
        rule = GrowthRule.fit(known)
        ahead = {str(h): rule.predict(persons, people, year + h)[0] for h in horizons}
        parts.append(persons.select("person_id").with_columns(**ahead))
    return pl.concat(parts)


def tabulate_sums(
    cases: Cases,
    issued: Cases,
    path_sums: PathSums,
    by_rule: pl.DataFrame | None,
    model: ModelError | None,
) -> tuple[Rows, list[Verdict]]:
    """Means of everybody and of groups; the worst verdict of a horizon counts.

    Args:
        cases: Forecasts given the realised macro series, if there are any.
        issued: Forecasts of the same persons as they are issued.
        path_sums: Sums over these on each path (`sum_paths`); those not there have no band.
        by_rule: `predict_by_rule`.
        model: The model's own error of means, which bands have; None: it is not known.
    """
    shown = {
        (h, *key): rows
        for h, members in cases.members.items()
        for key, rows in members.items()
        if rows is not None
    }
    z = float(stats.norm.ppf(1 - QUESTION_ALPHA / max(len(shown), 1) / 2))
    table = Rows()
    verdicts: dict[int, list[Verdict]] = {h: [] for h in cases.results}
    bands = {h: _Bands() for h in cases.results}
    for (h, grouping, group), rows in shown.items():
        frame, n = cases.results[h][rows], len(rows)
        forecast, outcome = (float(frame[name].mean()) for name in ("mean", "y"))  # type: ignore[arg-type]
        if not forecast:
            continue
        size, se = outcome / forecast - 1, _standard_error(frame) / forecast
        name = None if grouping == ALL else f"{grouping}={group}"
        verdict = Verdict(QUESTION, h, group=name).of_mean(size, n, se, z)
        as_issued = float(issued.results[h]["mean"][rows].mean())  # type: ignore[arg-type]
        row: dict[str, Any] = {"lower_90": None, "upper_90": None, "inside": None, "value": None}
        if (h, grouping, group) in path_sums:
            values = path_sums[h, grouping, group] / n
            of = EVERYBODY if grouping == ALL else GROUPS
            sd = None if model is None else model.sd("mean", of, {h: 1.0}, as_issued)
            limits = band(PathStatistic(values, np.zeros((2, len(values)))), model=sd)
            row |= {"lower_90": limits.lower_90, "upper_90": limits.upper_90}
            row["inside"] = float(limits.lower_90 <= outcome <= limits.upper_90)  # type: ignore[operator]
            bands[h].add(values, inside=bool(row["inside"]), everybody=grouping == ALL)
            if verdict.status == "holds" and not row["inside"]:
                verdict = replace(verdict, status="unclear")
        verdicts[h].append(verdict)
        if by_rule is not None:
            ruled = frame.select("person_id").join(by_rule, on="person_id", how="left")[str(h)]
            row["value"] = ruled.fill_nan(None).mean()
        row |= {"mean_forecast": forecast, "mean_outcome": outcome, "forecast": as_issued}
        table.append(
            {
                **{key: None if x is None else rounded(x) for key, x in row.items()},
                **{"horizon": h, "grouping": grouping, "group": group},
                **{"n": n, "size": size, "reach": z * se, "status": verdict.status},
            }
        )
    return table, [
        bands[h].judge(worst_verdict(v)) if v else Verdict(QUESTION, h) for h, v in verdicts.items()
    ]


@dataclass
class _Bands:
    """How many bands of a horizon contain the outcome, and how many do in each simulated future."""

    inside: int = 0
    in_futures: Array | int = 0  # (M,)
    misses_everybody: bool = False

    def add(self, values: Array, *, inside: bool, everybody: bool) -> None:
        """Count the band of a group with these means on paths, (M,).

        The model's error widens values and band alike, so a future is inside with or without it.
        """
        lower, upper = central_range(values)
        self.inside += inside
        self.in_futures = self.in_futures + ((values >= lower) & (values <= upper))
        self.misses_everybody |= everybody and not inside

    def judge(self, verdict: Verdict) -> Verdict:
        """The verdict on the means, unclear instead of "holds" if the bands do not hold."""
        is_rare = float(np.mean(self.in_futures <= self.inside)) < _RARE
        if verdict.status == "holds" and (self.misses_everybody or is_rare):
            return replace(verdict, status="unclear")
        return verdict


def _standard_error(frame: pl.DataFrame) -> float:
    """The standard error of the mean of outcome less forecast."""
    errors = frame.select("year", error=pl.col("y") - pl.col("mean")).with_columns(
        pl.col("error") - pl.col("error").mean()
    )
    by_year = errors.group_by("year").agg(pl.col("error").sum())
    squares = [
        (part**2).sum() * len(part) / max(len(part) - 1, 1)
        for part in (errors["error"].to_numpy(), by_year["error"].to_numpy())
    ]
    return float(max(squares) ** 0.5 / frame.height)
