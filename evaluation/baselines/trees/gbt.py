"""Boosted trees: quantile models per horizon on the last ten years, and a copula."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluation.baselines.origin_states import identities, no_outcomes_error, paths_of
from evaluation.baselines.recent_years import Window
from evaluation.baselines.trees.atom_quantiles import AtomQuantiles
from evaluation.baselines.trees.copula import (
    estimate_correlations,
    extend_correlations,
    joint_uniforms,
)
from evaluation.baselines.trees.horizon_trees import (
    Examples,
    FeatureInfo,
    HorizonTrees,
    Settings,
    held_out_loss,
)
from saga.data.origins import Origins, draw_origins, eligible_origins, last_year, realised_earnings
from saga.data.panel import Panel
from saga.data.split import units_of
from saga.keyed_random import uniform_each, uniforms
from saga.paths import Paths
from saga.schema import MAX_AGE

Array = NDArray[Any]
GRID = (1, 2, 5, 10, 20, 30)
HELD_OUT = 0.1  # share of persons for settings, numbers of trees and dependence over horizons
ROWS = 80_000  # largest number of origins per horizon
MIN_POSITIVE = (
    200,
    20,
)  # positive outcomes that a horizon needs, of training and of held-out persons
SEARCH_HORIZON, SEARCH_ROWS = 5, 20_000  # the search for settings uses this horizon and sample
# Leaves, learning rate and share of features that are also tried if a panel has fewer than ROWS
# origins: with few persons, small steps and a choice among features for each tree overfit less.
SLOW = ((6, 0.03, 0.5), (12, 0.03, 0.5))


class BoostedTrees:
    """A zero classifier and nine quantile models of positive earnings per horizon.

    The features are those of `Window`. The distribution is interpolated between grid horizons and
    constant beyond the last. The dependence over horizons is that of two Gaussian copulas, one for
    working or not and one for the rank among positive earnings, independent of each other and the
    same for all persons. They are estimated from the ranks of held-out persons' outcomes in their
    forecasts. Persons are independent (no common macro future). Years after a death count as zeros,
    in the fit and in scores. A tenth of the persons, chosen reproducibly at random, is held out:
    leaves, learning rate and share of features are chosen by their loss at one horizon, and every
    model stops early by their loss.

    Args:
        grid: horizons with models.
        rows: largest number of origins per horizon, several per person.
        leaves: numbers of leaves to try.
        rates: learning rates to try.
        threads: see `Settings`.
    """

    name = "gbt"
    version = 2

    def __init__(
        self,
        *,
        grid: Sequence[int] = GRID,
        rows: int = ROWS,
        leaves: Sequence[int] = (6, 12, 24),
        rates: Sequence[float] = (0.1, 0.05),
        threads: int = 0,
    ) -> None:
        self._horizons, self._rows, self._threads = grid, rows, threads
        self._leaves, self._rates = leaves, rates

    def fit(self, panel: Panel, *, seed: int) -> Self:
        """Learns the trees and the copula from `panel`.

        Raises InputError if no horizon has enough outcomes (MIN_POSITIVE).
        """
        persons = panel.persons()
        uniform = uniform_each(units_of(panel), "gbt", panel.meta.panel_id, seed, "held")
        held_out = {person for person, u in zip(persons, uniform, strict=True) if u < HELD_OUT}
        self.window = Window(panel)
        examples = self._examples(panel, held_out, seed)
        if not examples:
            fix = (
                "Give more persons, or persons with more years: an origin needs three known years "
                "before an outcome."
            )
            raise no_outcomes_error("No horizon has enough outcomes", fix)
        self.grid = np.array(sorted(examples))
        last_median = self.window.reference.level(np.array(last_year(panel)))
        lowest = float(np.log(self.window.floor) - np.log(last_median))
        info = FeatureInfo(self.window.names, self.window.categorical, lowest)
        search_horizon = int(self.grid[np.abs(self.grid - SEARCH_HORIZON).argmin()])
        self.settings = self._search(*examples[search_horizon], info, seed)
        self.models = [HorizonTrees(*examples[h], info, self.settings) for h in self.grid.tolist()]
        self.correlations = self._dependence(panel.only(sorted(held_out)), last_year(panel), seed)
        return self

    def simulate(
        self, history: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Paths:
        """`n_paths` joint futures of each person, shape (n, to_horizon, n_paths).

        Raises InputError for a person without a record.
        """
        features = self.window.features(history, origins)
        horizons = np.arange(1, to_horizon + 1)
        ids = identities(origins)
        work, rank = (
            joint_uniforms(
                extend_correlations(matrix, to_horizon), n_paths, ids, self.name, part, seed
            )
            for part, matrix in self.correlations.items()
        )
        marginals = self._predict(features, origins).at(self.grid, horizons)
        age = features[:, self.window.names.index("age")].astype(np.int64)
        earnings = marginals.amounts(work, rank).astype(np.float32)
        return paths_of(origins, origins.year - age, earnings)

    def marginals(self, history: Panel, origins: Origins, horizons: Sequence[int]) -> AtomQuantiles:
        """The distributions that paths are drawn from, (n, H), at ascending horizons."""
        marginals = self._predict(self.window.features(history, origins), origins)
        return marginals.at(self.grid, np.asarray(horizons))

    def _predict(self, features: NDArray[np.float32], origins: Origins) -> AtomQuantiles:
        zeros, logs = zip(*(model.predict(features) for model in self.models), strict=True)
        level = self.window.level(origins)[:, None, None]
        return AtomQuantiles.of(np.stack(zeros, axis=1), np.stack(logs, axis=1) + level)

    def _examples(
        self, panel: Panel, held_out: set[str], seed: int
    ) -> dict[int, tuple[Examples, Examples]]:
        """Training and held-out examples of each horizon of the grid.

        A horizon without enough examples is replaced by the next horizon, or left out.
        """
        end = last_year(panel)
        eligible = eligible_origins(panel).with_columns(
            is_held_out=pl.col("person_id").is_in(list(held_out))
        )
        rows_of_horizon: dict[int, tuple[Array, Array]] = {}
        for horizon in self._horizons:
            for h in (horizon, horizon + 1):
                if (
                    h not in rows_of_horizon
                    and (drawn_rows := self._draw_rows(panel, eligible, h, end, seed)) is not None
                ):
                    rows_of_horizon[h] = drawn_rows
                    break
        if not rows_of_horizon:
            return {}
        used = np.unique(np.concatenate([rows for rows, _ in rows_of_horizon.values()]))
        origins = Origins.from_rows(eligible[used])
        features, level = self.window.features(panel, origins), self.window.level(origins)
        is_held_out = eligible["is_held_out"].to_numpy()[used]
        examples = {}
        for h, (rows, outcomes) in rows_of_horizon.items():
            at = np.searchsorted(used, rows)
            with np.errstate(divide="ignore"):
                of_horizon = Examples(features[at], np.log(outcomes) - level[at])
            examples[h] = of_horizon.take(~is_held_out[at]), of_horizon.take(is_held_out[at])
        return examples

    def _draw_rows(
        self, panel: Panel, eligible: pl.DataFrame, h: int, end: int, seed: int
    ) -> tuple[Array, Array] | None:
        """Rows of `eligible` with an outcome at horizon h, and the outcomes; None if too few.

        At most `rows` of them, chosen reproducibly at random.
        """
        reach = (pl.col("year") + h <= end) & (pl.col("year") + h - pl.col("birth_year") <= MAX_AGE)
        rows = np.flatnonzero(eligible.select(reach=reach)["reach"].to_numpy())
        limit = 3 * self._rows  # outcomes may be missing, every second one in a biennial panel
        rows = rows[np.argsort(uniforms(len(rows), "gbt", seed, "origin", h))[:limit]]
        if not len(rows):
            return None
        outcomes = realised_earnings(panel, Origins.from_rows(eligible[rows]), [h], end=end)[:, 0]
        seen = np.flatnonzero(np.isfinite(outcomes))[: self._rows]
        rows, outcomes = rows[seen], outcomes[seen]
        is_held_out = eligible["is_held_out"].to_numpy()[rows]
        positive = ((outcomes[part] > 0).sum() for part in (~is_held_out, is_held_out))
        enough = all(count >= least for count, least in zip(positive, MIN_POSITIVE, strict=True))
        return (rows, outcomes) if enough else None

    def _search(
        self, training: Examples, held_out: Examples, info: FeatureInfo, seed: int
    ) -> Settings:
        """The candidate settings with the least quantile loss on held-out persons."""
        subset = training.take(slice(0, SEARCH_ROWS))
        candidates = [
            Settings(leaves, rate, self._threads, seed)
            for leaves, rate in product(self._leaves, self._rates)
        ]
        if len(candidates) == 1:
            return candidates[0]
        if len(training) + len(held_out) < self._rows:
            candidates += [
                Settings(leaves, rate, self._threads, seed, share) for leaves, rate, share in SLOW
            ]
        losses = [held_out_loss(subset, held_out, info, settings) for settings in candidates]
        return candidates[int(np.argmin(losses))]

    def _dependence(self, held_out: Panel, end: int, seed: int) -> dict[str, NDArray[np.float64]]:
        """Correlations over horizons of work and of ranks, from one origin per held-out person."""
        horizons = list(range(1, int(self.grid[-1]) + 1))
        origins = draw_origins(held_out, max_horizon=horizons[-1], seed=seed, end=end)
        outcomes = realised_earnings(held_out, origins, horizons, end=end)
        forecast, rng = self.marginals(held_out, origins, horizons), np.random.default_rng(seed)
        ranks = forecast.ranks(outcomes)
        unknown = np.isnan(ranks)
        return {
            "work": estimate_correlations(
                np.where(outcomes > 0, forecast.zero, 0.0),
                np.where(outcomes == 0, forecast.zero, 1.0),
                rng,
            ),
            "place": estimate_correlations(
                np.where(unknown, 0.0, ranks), np.where(unknown, 1.0, ranks), rng
            ),
        }
