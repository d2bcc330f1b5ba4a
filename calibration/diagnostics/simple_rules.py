"""Two simple rules that intervals are compared with.

- `last_year`: last known earnings plus the changes of training persons over the same number of
  years.
- `group_quantiles`: the earnings of training persons of the same age band and quintile of past
  earnings, the same number of years after their origin.

Both use only training persons' records up to the last year of the model's training. Their
intervals are of the same family as SAGA's (`saga.conformal.families.year`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.conformal.families import YEAR
from saga.data.groups import Grouping
from saga.data.origins import Origins, cut, draw_origins, history, realised_earnings
from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.distributions import Marginals
from saga.keyed_random import sample_persons
from saga.requests import MAX_HORIZON
from saga.scores import covered, interval_score

Array = NDArray[Any]
RULES = ("last_year", "group_quantiles")
MAX_PERSONS = 20_000  # training persons on whom the rules are fitted
MIN_PERSONS = 100  # training persons behind the quantiles of a rule
_POINTS = 199  # quantiles that describe a distribution


@dataclass(frozen=True, eq=False)
class KnownAtOrigin:
    """What the rules know about n persons: last known earnings (n,), and age and quintile."""

    person_id: NDArray[np.str_]
    last: Array
    age: NDArray[np.str_]
    quintile: NDArray[np.str_]

    @classmethod
    def of(cls, records: Panel, origins: Origins, grouping: Grouping) -> Self:
        """From the records up to the origins."""
        last = (
            records.frame.drop_nulls("earnings")
            .group_by("person_id")
            .agg(pl.col("earnings").sort_by("year").last())
        )
        rows = origins.frame().join(last, on="person_id", how="left", maintain_order="left")
        labels = grouping.labels(records, origins)
        return cls(
            origins.person_id,
            rows["earnings"].cast(pl.Float64).to_numpy(),
            labels["age"],
            labels["quintile"],
        )

    @property
    def groups(self) -> list[NDArray[np.str_]]:
        """Names (n,) of each person's groups, from the smallest to all persons."""
        both = np.strings.add(np.strings.add(self.age, "*"), self.quintile)
        return [both, self.quintile, np.full(len(self.last), "all")]


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
        known = KnownAtOrigin.of(history(people, origins), origins, grouping)
        outcomes = realised_earnings(people, origins, list(horizons), end=until)
        changes: dict[int, Array] = {}
        amounts: dict[int, dict[str, Array]] = {}
        for h, y in zip(horizons, outcomes.T, strict=True):
            rows = np.flatnonzero(~np.isnan(y))
            if len(rows) >= MIN_PERSONS:
                changes[h] = _even_quantiles(y[rows] - known.last[rows])
                amounts[h] = {
                    str(name): _even_quantiles(y[rows][groups[rows] == name])
                    for groups in known.groups
                    for name, n in zip(*np.unique(groups[rows], return_counts=True), strict=True)
                    if n >= MIN_PERSONS
                }
        return cls(changes, amounts)

    def judge(
        self, known: KnownAtOrigin, outcomes: Array, horizon: int, coverage: float
    ) -> pl.DataFrame:
        """One row per rule and person with an outcome (n,).

        Columns `person_id`, `rule`, `width`, `winkler` (interval score) and `inside`.
        """
        rows = np.flatnonzero(~np.isnan(outcomes))
        if horizon not in self.changes:
            rows = rows[:0]
        y = outcomes[rows]
        frames = []
        for rule in RULES:
            lower, upper, zero = self._sets(rule, known, rows, horizon, coverage)
            frames.append(
                pl.DataFrame(
                    {
                        "rule": pl.Series([rule] * len(rows), dtype=pl.String),
                        "person_id": pl.Series(known.person_id[rows].tolist(), dtype=pl.String),
                        "width": upper - lower,
                        "winkler": interval_score(y, lower, upper, coverage, zero),
                        "inside": covered(y, lower, upper, zero),
                    }
                )
            )
        return pl.concat(frames)

    def _sets(
        self, rule: str, known: KnownAtOrigin, rows: Array, horizon: int, coverage: float
    ) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Ends (n,) of the intervals of the persons in `rows`, and whether they include zero."""
        samples = np.empty((len(rows), _POINTS))
        if rule == "last_year" and len(rows):
            samples = np.maximum(known.last[rows, None] + self.changes[horizon], 0.0)
        elif len(rows):
            names = [groups[rows].tolist() for groups in known.groups]
            amounts = self.amounts[horizon]
            for i, candidates in enumerate(zip(*names, strict=True)):
                samples[i] = next(amounts[name] for name in candidates if name in amounts)
        marginals = Marginals.from_samples(samples[:, None], recalibrated=True)
        q = np.full((len(rows), 1, 1), coverage)
        lower, upper, zero = YEAR.ends(marginals, q, (coverage,))
        return lower[:, 0, 0], upper[:, 0, 0], zero[:, 0, 0]


def _even_quantiles(values: Array) -> Array:
    """Evenly spaced quantiles (199,) of values (n,)."""
    return np.quantile(values, (np.arange(_POINTS) + 0.5) / _POINTS)
