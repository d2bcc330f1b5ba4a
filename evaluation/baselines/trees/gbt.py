"""Boosted trees: quantile models per horizon on the last ten years, and a copula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray
from saga.evaluation.baselines.origin_states import identities, paths_of
from saga.evaluation.baselines.trees.atom_quantiles import AtomQuantiles
from saga.evaluation.baselines.trees.copula import (
    estimate_correlations,
    extend_correlations,
    joint_uniforms,
)

from saga.data.origins import Origins, draw_origins, last_year, realised_earnings
from saga.data.panel import Panel
from saga.paths import Paths
from saga.trees.recent_years import Window
from saga.trees.tree_forecast import GRID, ROWS, TreeForecast, TreeOptions, held_out_persons


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
        grid: Horizons with models.
        rows: Largest number of origins per horizon, several per person.
        leaves: Numbers of leaves to try.
        rates: Learning rates to try.
        threads: See `Settings`.
    """

    name = "gbt"
    version = 3

    def __init__(
        self,
        *,
        grid: Sequence[int] = GRID,
        rows: int = ROWS,
        leaves: Sequence[int] = (6, 12, 24),
        rates: Sequence[float] = (0.1, 0.05),
        threads: int = 0,
    ) -> None:
        self.options = TreeOptions(grid, rows, leaves, rates, threads)

    def fit(self, panel: Panel, *, seed: int) -> Self:
        """Fit the trees and the copula from `panel`.

        Raises InputError if no horizon has enough outcomes.
        """
        held_out = held_out_persons(panel, seed)
        self.trees = TreeForecast.fit(
            panel, held_out, self.window_of(panel), self.options, seed=seed
        )
        self.correlations = self._dependence(panel.only(sorted(held_out)), last_year(panel), seed)
        return self

    def window_of(self, panel: Panel) -> Window:
        """The features, defined by the persons of `panel`."""
        return Window(panel)

    def simulate(
        self, history: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Paths:
        """`n_paths` joint futures of each person, shape (n, to_horizon, n_paths).

        Raises InputError for a person without a record.
        """
        window = self.trees.window
        features = window.features(history, origins)
        horizons = np.arange(1, to_horizon + 1)
        ids = identities(origins)
        work, rank = (
            joint_uniforms(
                extend_correlations(matrix, to_horizon), n_paths, ids, self.name, part, seed
            )
            for part, matrix in self.correlations.items()
        )
        marginals = AtomQuantiles(*self.trees.predict(features, origins, horizons.tolist()))
        age = features[:, window.names.index("age")].astype(np.int64)
        earnings = marginals.amounts(work, rank).astype(np.float32)
        return paths_of(origins, origins.year - age, earnings)

    def marginals(self, history: Panel, origins: Origins, horizons: Sequence[int]) -> AtomQuantiles:
        """The distributions that paths are drawn from, (n, H), at ascending horizons."""
        features = self.trees.window.features(history, origins)
        return AtomQuantiles(*self.trees.predict(features, origins, horizons))

    def _dependence(self, held_out: Panel, end: int, seed: int) -> dict[str, NDArray[np.float64]]:
        """Correlations over horizons of work and of ranks, from one origin per held-out person."""
        horizons = list(range(1, int(self.trees.grid[-1]) + 1))
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
