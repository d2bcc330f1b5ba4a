"""Boosted trees: quantile models per horizon on the features of the last ten years, with a copula over the horizons."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluation.baselines.recent_years import Window
from evaluation.baselines.trees.atom_quantiles import Marginals
from evaluation.baselines.trees.copula import correlations, extended, joint_uniforms
from evaluation.baselines.trees.horizon_trees import (
    Examples,
    HorizonTrees,
    Settings,
    Shape,
    held_out_loss,
)
from saga.data.origins import Origins, draw_origins, eligible_origins, last_year, realised_earnings
from saga.data.panel import Panel
from saga.errors import InputError, Problem
from saga.keyed_random import Identity, uniform_each, uniforms
from saga.paths import Paths
from saga.schema import MAX_AGE

Array = NDArray[Any]
GRID = (1, 2, 5, 10, 20, 30)
HELD = 0.1  # share of the persons that choose settings and numbers of trees, and tell how horizons hang together
ROWS = 80_000  # origins at most that a horizon is learned from
FEWEST = (200, 20)  # positive outcomes that a horizon needs, of training and of held-out persons
SEARCH_HORIZON, SEARCH_ROWS = 5, 20_000


class BoostedTrees:
    """At each horizon of a grid a zero classifier and nine quantile models of positive earnings (`trees`), on `Window` features.

    The marginals are the trees'; between grid horizons the distribution is interpolated, beyond the last it stays. The dependence over
    horizons is that of two Gaussian copulas, the same for everybody and independent of each other: of work or none, and of the place among
    positive earnings. They are estimated from where the outcomes of held-out persons fell in their forecasts.
    Persons are independent (no common macro future). Deaths count as zeros, as they are scored. A tenth of the persons, by key, is held
    out: it chooses leaves and learning rate at one horizon and stops every model early. `rows` origins a horizon, several a person.
    """

    name = "gbt"
    version = 1  # raise it when its numbers may change (see `evaluation.cache`)

    def __init__(
        self,
        *,
        grid: Sequence[int] = GRID,
        rows: int = ROWS,
        leaves: Sequence[int] = (6, 12, 24),
        rates: Sequence[float] = (0.1, 0.05),
        threads: int = 0,
    ) -> None:
        self._wanted, self._rows, self._leaves, self._rates, self._threads = (
            grid,
            rows,
            leaves,
            rates,
            threads,
        )

    def fit(self, panel: Panel, *, seed: int) -> Self:
        """Learns the trees and the copula from `panel`.

        Raises InputError when no horizon has enough outcomes (FEWEST).
        """
        persons = panel.persons()
        drawn = uniform_each(persons, "gbt", panel.meta.panel_id, seed, "held")
        held = {person for person, u in zip(persons, drawn, strict=True) if u < HELD}
        self.window = Window(panel)
        examples = self._examples(panel, held, seed)
        if not examples:
            fix = "Give more persons, or persons seen for more years: an origin needs three known years before an outcome."
            raise InputError(
                "There is nothing to learn from",
                [Problem("no-outcomes", "No horizon has enough outcomes", fix)],
            )
        self.grid = np.array(sorted(examples))
        lowest = float(
            np.log(self.window.floor)
            - np.log(self.window.reference.level(np.array(last_year(panel))))
        )
        shape = Shape(self.window.names, self.window.categorical, lowest)
        self.settings = self._search(
            *examples[int(self.grid[np.abs(self.grid - SEARCH_HORIZON).argmin()])], shape, seed
        )
        self.models = [HorizonTrees(*examples[h], shape, self.settings) for h in self.grid.tolist()]
        self.correlations = self._dependence(panel.only(sorted(held)), last_year(panel), seed)
        return self

    def simulate(
        self, history: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Paths:
        """`n_paths` joint futures a person; shape (n, to_horizon, n_paths). Raises InputError for a person without a record."""
        features = self.window.features(history, origins)
        horizons = np.arange(1, to_horizon + 1)
        ids: list[Identity] = list(
            zip(origins.person_id.tolist(), origins.year.tolist(), strict=True)
        )
        levels = [
            joint_uniforms(extended(matrix, to_horizon), n_paths, ids, self.name, part, seed)
            for part, matrix in self.correlations.items()
        ]
        earnings = (
            self._predict(features, origins)
            .at(self.grid, horizons)
            .amounts(*levels)
            .astype(np.float32)
        )
        age = features[:, self.window.names.index("age")].astype(np.int64)
        simulated = Paths(
            np.asarray(origins.person_id), origins.year - age, np.asarray(origins.year), earnings
        )
        earnings[~simulated.within_age] = np.nan
        return simulated

    def marginals(self, history: Panel, origins: Origins, horizons: Sequence[int]) -> Marginals:
        """The distributions that the paths are drawn from, (n, H), at any ascending horizons."""
        return self._predict(self.window.features(history, origins), origins).at(
            self.grid, np.asarray(horizons)
        )

    def _predict(self, features: NDArray[np.float32], origins: Origins) -> Marginals:
        found = [model.predict(features) for model in self.models]
        logs = (
            np.stack([logs for _, logs in found], axis=1)
            + self.window.level(origins)[:, None, None]
        )
        return Marginals.of(np.stack([zero for zero, _ in found], axis=1), logs)

    def _examples(
        self, panel: Panel, held: set[str], seed: int
    ) -> dict[int, tuple[Examples, Examples]]:
        """For each horizon of the grid training and held-out examples; one without enough gives way to the next horizon, or is left out."""
        end = last_year(panel)
        able = eligible_origins(panel).with_columns(held=pl.col("person_id").is_in(list(held)))
        chosen: dict[int, tuple[Array, Array]] = {}
        for wanted in self._wanted:
            for h in (wanted, wanted + 1):
                if (
                    h not in chosen
                    and (found := self._drawn(panel, able, h, end, seed)) is not None
                ):
                    chosen[h] = found
                    break
        if not chosen:
            return {}
        used = np.unique(np.concatenate([rows for rows, _ in chosen.values()]))
        origins = _origins(able[used])
        features, level = self.window.features(panel, origins), self.window.level(origins)
        is_held = able["held"].to_numpy()[used]
        examples = {}
        for h, (rows, outcomes) in chosen.items():
            at = np.searchsorted(used, rows)
            with np.errstate(divide="ignore"):
                known = Examples(features[at], np.log(outcomes) - level[at])
            examples[h] = known.take(~is_held[at]), known.take(is_held[at])
        return examples

    def _drawn(
        self, panel: Panel, able: pl.DataFrame, h: int, end: int, seed: int
    ) -> tuple[Array, Array] | None:
        """Rows of `able` with an outcome at horizon h, at most `rows` of them by key, and the outcomes; None if there are too few."""
        reach = (pl.col("year") + h <= end) & (pl.col("year") + h - pl.col("birth_year") <= MAX_AGE)
        rows = np.flatnonzero(able.select(reach.alias("reach"))["reach"].to_numpy())
        most = 3 * self._rows  # outcomes may be missing, every second one in a biennial panel
        rows = rows[np.argsort(uniforms(len(rows), "gbt", seed, "origin", h))[:most]]
        if not len(rows):
            return None
        outcomes = realised_earnings(panel, _origins(able[rows]), [h], end=end)[:, 0]
        seen = np.flatnonzero(np.isfinite(outcomes))[: self._rows]
        rows, outcomes = rows[seen], outcomes[seen]
        is_held = able["held"].to_numpy()[rows]
        few = (outcomes[~is_held] > 0).sum() < FEWEST[0] or (outcomes[is_held] > 0).sum() < FEWEST[
            1
        ]
        return None if few else (rows, outcomes)

    def _search(self, training: Examples, held: Examples, shape: Shape, seed: int) -> Settings:
        """The leaves and learning rate with the least quantile loss on held-out persons."""
        some = training.take(slice(0, SEARCH_ROWS))
        tried = [
            Settings(leaves, rate, self._threads, seed)
            for leaves, rate in product(self._leaves, self._rates)
        ]
        if len(tried) == 1:
            return tried[0]
        losses = [held_out_loss(some, held, shape, settings) for settings in tried]
        return tried[int(np.argmin(losses))]

    def _dependence(self, held: Panel, end: int, seed: int) -> dict[str, NDArray[np.float64]]:
        """Correlations over horizons 1 to the last of the grid behind work and behind places, one origin a held-out person."""
        horizons = list(range(1, int(self.grid[-1]) + 1))
        origins = draw_origins(held, max_horizon=horizons[-1], seed=seed, end=end)
        outcomes = realised_earnings(held, origins, horizons, end=end)
        forecast, rng = self.marginals(held, origins, horizons), np.random.default_rng(seed)
        places = forecast.places(outcomes)
        unseen = np.isnan(places)
        return {
            "work": correlations(
                np.where(outcomes > 0, forecast.zero, 0.0),
                np.where(outcomes == 0, forecast.zero, 1.0),
                rng,
            ),
            "place": correlations(
                np.where(unseen, 0.0, places), np.where(unseen, 1.0, places), rng
            ),
        }


def _origins(rows: pl.DataFrame) -> Origins:
    return Origins(
        np.array(rows["person_id"].to_list(), dtype=np.str_),
        rows["year"].to_numpy().astype(np.int64),
    )
