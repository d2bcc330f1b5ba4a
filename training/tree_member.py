"""Boosted trees beside the network of a bundle: fitted, and weighted by validation persons."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl

from saga.bundle import Bundle
from saga.data.origins import Origins, draw_origins, history, last_year, realised_earnings
from saga.data.panel import Panel
from saga.data.split import Shares, persons_of
from saga.distribution_scores import marginal_scores
from saga.distributions import Marginals
from saga.errors import InputError
from saga.forecaster import Forecaster
from saga.keyed_random import sample_persons
from saga.requests import MAX_HORIZON
from saga.trees.mixture import mixed
from saga.trees.recent_years import Window
from saga.trees.tree_forecast import TreeForecast, TreeOptions, held_out_persons
from training.train_config import TrainConfig

_WEIGHTS = np.arange(0, 11) / 10
_ORIGINS = 3  # origins of each validation person


class WeightedTrees(NamedTuple):
    """The trees as a table of the bundle, and their weight."""

    table: pl.DataFrame
    weight: float


def allows_trees(panel: Panel, settings: TrainConfig) -> bool:
    """Whether trees are fitted: the configuration asks for them, and they would be comparable.

    Trees know neither an economy with its scenarios nor which inputs are hidden.
    """
    return settings.trees and panel.meta.macro is None and not settings.without


def fit_tree_member(
    bundle: Bundle,
    panel: Panel,
    settings: TrainConfig,
    *,
    shares: Shares,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> WeightedTrees | None:
    """Trees fitted on the training persons, and the weight with the least CRPS.

    The CRPS is that of log earnings, averaged over validation persons and then over the horizons of
    the trees. None if no horizon has enough outcomes, or the network alone is best.

    Args:
        bundle: the network, trained on the training persons.
        panel: all persons, up to the last year that may be used.
        settings: the configuration.
        shares: shares of the panel's split.
        seed: seed of the trees and of the validation persons' origins.
        progress: see `TreeForecast.fit`.
    """
    people = panel.only(persons_of(panel, "train", shares))
    # Not the validation persons: they could not weigh trees that were stopped by their outcomes.
    held_out = held_out_persons(people, seed)
    options = TreeOptions(threads=settings.tree_threads)
    try:
        trees = TreeForecast.fit(
            people, held_out, Window(people), options, seed=seed, progress=progress
        )
    except InputError:  # too few outcomes
        return None
    sample = sample_persons(
        persons_of(panel, "validation", shares),
        settings.validation_persons,
        "validation",
        panel.meta.panel_id,
    )
    weight = _best_weight(trees, Forecaster(bundle), panel.only(sample), seed)
    return WeightedTrees(trees.to_table(), weight) if weight > 0 else None


def _best_weight(trees: TreeForecast, forecaster: Forecaster, people: Panel, seed: int) -> float:
    end, scores = last_year(people), []
    for k in range(_ORIGINS):
        origins = draw_origins(people, max_horizon=MAX_HORIZON, seed=seed + k, end=end)
        scores.append(_scores(trees, forecaster, people, origins))
    crps = np.concatenate(scores, axis=1)
    known = ~np.isnan(crps[0]).all(axis=0)
    losses = np.nanmean(crps[..., known], axis=1).mean(axis=-1)
    return float(_WEIGHTS[losses.argmin()])


def _scores(
    trees: TreeForecast, forecaster: Forecaster, people: Panel, origins: Origins
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """CRPS (W, n, K) at each weight, of the horizons of the trees."""
    past, horizons = history(people, origins), trees.grid.tolist()
    blocks = list(forecaster.marginals(past, recalibrate=False))
    network = Marginals.joined(blocks).at_horizons(horizons)
    of_trees = trees.marginals(past, origins, horizons)
    outcomes = realised_earnings(people, origins, horizons)
    floor = people.meta.floor
    return np.stack(
        [
            marginal_scores(mixed(network, of_trees, weight), outcomes, floor)["crps_log"]
            for weight in _WEIGHTS
        ]
    )
