"""Simple rules that forecasts are compared with.

Two give intervals of persons, which are judged by width and interval score:

- `last_year`: last known earnings plus the changes of training persons over the same number of
  years.
- `group_quantiles`: the earnings of training persons of the same age band and quintile of past
  earnings, the same number of years after their origin.

Both use only training persons' records up to the last year of the model's training. Their
intervals are of the same family as SAGA's (`saga.conformal.families.year`). `GrowthRule` gives
means of groups.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.calibration.diagnostics.person_results import QUESTION_ALPHA, Cases, Rows
from saga.calibration.diagnostics.verdicts import MIN_VERDICT_PERSONS, Verdict, rounded, severity
from scipy import stats

from saga.arrays import Array, Floats
from saga.conformal.families import YEAR
from saga.data.groups import Grouping
from saga.data.origins import Origins, cut, draw_origins, history, last_year, realised_earnings
from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.diagnostics_tables import QUESTIONS
from saga.distributions import Marginals
from saga.keyed_random import sample_persons
from saga.requests import MAX_HORIZON, percent_label
from saga.scores import covered, interval_score
from saga.small_groups import MIN_PERSONS

RULES, SAGA = ("last_year", "group_quantiles"), "saga"
QUESTION = "efficiency"
GROUPS = ("age_and_quintile", "quintile", "all")  # from the smallest to all persons
MAX_PERSONS = 20_000  # training persons on whom the rules are fitted
MIN_RULE_PERSONS = 100  # training persons behind the quantiles of a rule
_AGES, _RECENT = 5, 5  # of the rule for groups: ages in a band, and years of "lately"
_POINTS = 199  # quantiles that describe a distribution


def known_at_origin(records: Panel, origins: Origins, grouping: Grouping) -> pl.DataFrame:
    """What the rules know about n persons, from the records up to their origins.

    Columns `person_id`, `last` (earnings last known), and the name of each one's group in GROUPS.
    """
    last = (
        records.frame.drop_nulls("earnings")
        .group_by("person_id")
        .agg(pl.col("earnings").sort_by("year").last().cast(pl.Float64).alias("last"))
    )
    labels = {name: labels.tolist() for name, labels in grouping.labels(records, origins).items()}
    age_and_quintile = pl.concat_str("age", "quintile", separator="*").alias("age_and_quintile")
    return (
        origins.frame()
        .join(last, on="person_id", how="left", maintain_order="left")
        .with_columns(age=pl.Series(labels["age"]), quintile=pl.Series(labels["quintile"]))
        .select("person_id", "last", age_and_quintile, "quintile", pl.lit("all").alias("all"))
    )


@dataclass(frozen=True, eq=False)
class SimpleRules:
    """Quantiles of the training persons' outcomes by horizon, each of shape (199,).

    Args:
        changes: Quantiles of the change of earnings since the origin.
        amounts: Quantiles of earnings, by group.
    """

    changes: Mapping[int, Array]
    amounts: Mapping[int, Mapping[str, Array]]

    @classmethod
    def fit(
        cls, panel: Panel, grouping: Grouping, horizons: Sequence[int], *, seed: int, until: int
    ) -> Self:
        """From one keyed origin of each training person, with records up to the year `until`.

        A horizon with fewer than 100 outcomes has no rule.
        """
        training = sample_persons(
            persons_of(panel, "train"), MAX_PERSONS, "rules", panel.meta.panel_id
        )
        people = panel.only(training)
        if people.frame.filter(pl.col("year") <= until).is_empty():
            return cls({}, {})
        people = cut(people, until)
        origins = draw_origins(people, max_horizon=MAX_HORIZON, seed=seed, end=until)
        if not len(origins):
            return cls({}, {})
        known = known_at_origin(history(people, origins), origins, grouping)
        outcomes = realised_earnings(people, origins, list(horizons), end=until)
        changes: dict[int, Array] = {}
        amounts: dict[int, dict[str, Array]] = {}
        for h, y in zip(horizons, outcomes.T, strict=True):
            rows = np.flatnonzero(~np.isnan(y))
            if len(rows) >= MIN_RULE_PERSONS:
                changes[h] = _even_quantiles(y[rows] - known["last"].to_numpy()[rows])
                amounts[h] = {
                    str(name): _even_quantiles(y[rows][groups[rows] == name])
                    for groups in (np.array(known[group].to_list()) for group in GROUPS)
                    for name, n in zip(*np.unique(groups[rows], return_counts=True), strict=True)
                    if n >= MIN_RULE_PERSONS
                }
        return cls(changes, amounts)

    def judge(
        self, known: pl.DataFrame, outcomes: Array, horizon: int, coverage: float
    ) -> pl.DataFrame:
        """One row per rule and person with an outcome (n,); `known` is from `known_at_origin`.

        Columns `person_id`, `rule`, `width`, `winkler` (interval score) and `inside`.
        """
        rows = np.flatnonzero(~np.isnan(outcomes))
        if horizon not in self.changes:
            rows = rows[:0]
        y, known = outcomes[rows], known[rows]
        frames = []
        for rule in RULES:
            lower, upper, zero = self._sets(rule, known, horizon, coverage)
            frames.append(
                pl.DataFrame(
                    {
                        "rule": pl.Series([rule] * len(rows), dtype=pl.String),
                        "person_id": known["person_id"],
                        "width": upper - lower,
                        "winkler": interval_score(y, lower, upper, coverage, zero),
                        "inside": covered(y, lower, upper, zero),
                    }
                )
            )
        return pl.concat(frames)

    def _sets(
        self, rule: str, known: pl.DataFrame, horizon: int, coverage: float
    ) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Ends (n,) of the intervals of persons, and whether they include zero."""
        samples = np.empty((len(known), _POINTS))
        if rule == "last_year" and len(known):
            samples = np.maximum(known["last"].to_numpy()[:, None] + self.changes[horizon], 0.0)
        elif len(known):
            amounts = self.amounts[horizon]
            for i, names in enumerate(known.select(GROUPS).iter_rows()):
                samples[i] = next(amounts[name] for name in names if name in amounts)
        marginals = Marginals.from_samples(samples[:, None], recalibrated=True)
        q = np.full((len(known), 1, 1), coverage)
        lower, upper, zero = YEAR.ends(marginals, q, (coverage,))
        return lower[:, 0, 0], upper[:, 0, 0], zero[:, 0, 0]


def _even_quantiles(values: Array) -> Array:
    """Evenly spaced quantiles (199,) of values (n,)."""
    return np.quantile(values, (np.arange(_POINTS) + 0.5) / _POINTS)


def tabulate_efficiency(
    cases: Cases, rules: Mapping[int, pl.DataFrame]
) -> tuple[Rows, list[Verdict]]:
    """Mean width and interval score of intervals and of the rules, for the same persons.

    The intervals are those of 90 %, or of the highest coverage. `rules` has, by horizon, the
    columns `person_id`, `rule`, `width`, `winkler`, `inside`. The difference of mean scores is
    judged against its paired standard error, and the worst verdict of a horizon counts.
    """
    label = percent_label(cases.headline)
    figures = max(1, len(RULES) * len(rules))
    z = float(stats.norm.ppf(1 - QUESTION_ALPHA / figures))
    rows: Rows = []
    verdicts: list[Verdict] = []
    for h, of_rules in rules.items():
        ours = cases.results[h].select(
            "person_id",
            pl.col(f"width_{label}").alias("width_saga"),
            pl.col(f"winkler_{label}").alias("winkler_saga"),
            pl.col(f"inside_{label}").cast(pl.Float64).alias("inside_saga"),
        )
        paired = of_rules.drop_nulls().join(ours.drop_nulls(), on="person_id")
        of_horizon: list[Verdict] = []
        compared: Rows = []
        for rule in RULES:
            part = paired.filter(rule=rule)
            if part.height < cases.min_persons:
                of_horizon.append(Verdict(QUESTION, h))
                continue
            row, verdict = _compare(part, rule, h, cases.headline, z)
            compared = compared or [_describe(part, SAGA, h, cases.headline, suffix="_saga")]
            compared.append(row)
            of_horizon.append(verdict)
        rows += compared
        verdicts.append(max(of_horizon, key=severity))
    return rows, verdicts


def _describe(
    part: pl.DataFrame, rule: str, h: int, coverage: float, suffix: str = ""
) -> dict[str, Any]:
    mean = {name: float(part[name + suffix].mean()) for name in ("width", "winkler", "inside")}  # type: ignore[arg-type]
    return {
        "horizon": h,
        "rule": rule,
        "coverage": coverage,
        "n": part.height,
        "inside": mean["inside"],
        "width": rounded(mean["width"]),
        "value": rounded(mean["winkler"]),
    }


def _compare(
    part: pl.DataFrame, rule: str, h: int, coverage: float, z: float
) -> tuple[dict[str, Any], Verdict]:
    """The row that compares SAGA with a simple rule at a horizon and coverage, and its verdict."""
    of_rule, n = float(part["winkler"].mean()), part.height  # type: ignore[arg-type]
    difference = part["winkler_saga"] - part["winkler"]
    size = float(difference.mean()) / of_rule  # type: ignore[arg-type]
    reach = z * float(difference.std()) / math.sqrt(n) / of_rule  # type: ignore[arg-type]
    status = efficiency_status(size, reach, n)
    verdict = Verdict(QUESTION, h, status, n, size, coverage, rule)
    row = _describe(part, rule, h, coverage)
    return row | {"size": size, "reach": reach, "status": status}, verdict


def efficiency_status(size: float, reach: float, n: int) -> str:
    """The status of a relative difference of mean interval scores, negative if SAGA's is lower.

    A difference beyond the `reach` of chance "holds" if it is negative. If it is positive it
    "fails", or is on "watch" if it is within the tolerance. Any other difference is "unclear", and
    so is a negative one of fewer than 100 persons.
    """
    if size > reach:
        return "fails" if size > QUESTIONS[QUESTION] else "watch"
    return "holds" if size < -reach and n >= MIN_VERDICT_PERSONS else "unclear"


@dataclass(frozen=True)
class GrowthRule:
    """The rule for groups: what persons of an age had lately, grown as in the past.

    A forecast of a group mean has to be better than this. The growth is that of mean earnings
    within ages over all years of the records: the slope of log means on years, beside a level of
    each age.

    Attributes:
        recent: person_id, band of ages, earnings of the last five years, grown to the last one.
        growth: Of mean earnings, in logs a year.
        year: The last year of the records.
    """

    recent: pl.DataFrame
    growth: float
    year: int

    @classmethod
    def fit(cls, panel: Panel) -> Self:
        """From all records of a panel, which ends where the forecasts begin."""
        year, age = last_year(panel), (pl.col("year") - pl.col("birth_year")) // _AGES
        rows = panel.frame.drop_nulls("earnings").with_columns(age=age)
        cells = rows.group_by("age", "year").agg(n=pl.len(), mean=pl.col("earnings").mean())
        cells = cells.filter(pl.col("n") >= MIN_PERSONS, pl.col("mean") > 0)
        n, at, level = pl.col("n"), pl.col("year"), pl.col("mean").log()
        at, level = (x - (n * x).sum().over("age") / n.sum().over("age") for x in (at, level))
        moments = cells.sort("age", "year").select(xy=(n * at * level).sum(), xx=(n * at**2).sum())
        xy, xx = moments.row(0)
        growth = float(xy / xx) if xx else 0.0
        lately = rows.filter(pl.col("year") > year - _RECENT)
        grown = pl.col("earnings") * (growth * (year - pl.col("year"))).exp()
        return cls(lately.select("person_id", "age", grown), growth, year)

    def predict(
        self, persons: pl.DataFrame, levels: pl.DataFrame, year: int
    ) -> tuple[Floats, Floats]:
        """Mean earnings and share without earnings of persons like each one, both (n,).

        NaN if nobody of the level has recent records. Ages beyond those of the records count as
        the nearest one.

        Args:
            persons: birth_year and the text column `level`.
            levels: person_id and `level` of the persons of the records.
            year: The year of the forecast.
        """
        earnings = pl.col("earnings")
        known = (
            self.recent.join(levels, on="person_id")
            .group_by("level", "age")
            .agg(mean=earnings.mean(), zero=(earnings == 0).mean())
            .sort("age")
        )
        each = persons.select("level", age=(year - pl.col("birth_year")) // _AGES)
        each = each.with_row_index("row").sort("age")
        like = each.join_asof(
            known, on="age", by="level", strategy="nearest", check_sortedness=False
        ).sort("row")
        grown = like["mean"] * np.exp(self.growth * (year - self.year))
        return grown.to_numpy().astype(float), like["zero"].to_numpy().astype(float)
