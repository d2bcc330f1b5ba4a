"""Boosted trees beside the network of a bundle: fitted, and weighted by validation persons.

The CRPS of an average of two distributions is a quadratic function of the weight, so the best
weight has a closed form. Few validation persons estimate it badly, so it is shrunk towards a common
weight of all horizons, and the common weight towards one half. The more persons there are, the less
it is shrunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from saga.training.train_config import TrainConfig

from saga.arrays import Floats
from saga.bundle import Bundle
from saga.data.origins import Origins, draw_origins, history, last_year, realised_earnings
from saga.data.panel import Panel
from saga.data.split import units_of
from saga.distributions import Marginals
from saga.errors import InputError
from saga.forecaster import Forecaster
from saga.keyed_random import sample_persons
from saga.requests import MAX_HORIZON
from saga.scores import marginal_scores
from saga.trees.mixture import described_weights, mixed
from saga.trees.recent_years import Window
from saga.trees.tree_forecast import TreeForecast, TreeOptions, held_out_persons

# Raised when the same panel and configuration may give other trees or weights, so that stored
# bundles of folds are not reused.
TREES_VERSION = 4
_ORIGINS = 3  # origins of each validation person
# The prior: the common weight has mean COMMON and standard deviation COMMON_SD, and the weight of
# each horizon deviates from it with standard deviation OWN_SD. If few outcomes estimate weights,
# equal ones are hard to beat (Stock and Watson 2004). The estimates are somewhat low: their trees
# have learnt from fewer persons than the final trees, and the outcomes of the same persons have
# decided when the training of the network stopped.
COMMON, COMMON_SD, OWN_SD = 0.5, 0.15, 0.1
SMALLEST = 0.05  # trees whose weights are all below this are left out


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
    training: Sequence[str],
    validation: Sequence[str],
    seed: int,
    report: Callable[[str], None] | None = None,
) -> tuple[pl.DataFrame, dict[int, float]] | None:
    """Trees beside the network, and their weights; None if these are small or outcomes too few.

    The trees are a table of the bundle, and each of their horizons has a weight.

    First trees are fitted on the training persons, a tenth of whom decides settings and numbers of
    trees. Validation persons then decide the weights (`shrunk_weights`) by the CRPS of log
    earnings; they could not weigh trees that were fitted on their outcomes. Then trees with these
    settings and numbers are fitted on training and validation persons together.

    Args:
        bundle: the network, trained on the training persons.
        panel: all persons, up to the last year that may be used.
        settings: the configuration.
        training: ids of the network's training persons.
        validation: ids of its validation persons.
        seed: seed of the trees and of the validation persons' origins.
        report: receives a line of text after each step.
    """
    report = report or (lambda _: None)
    trees = fit_first_trees(panel.only(training), settings, seed, report)
    if trees is None:
        return None
    weights = weights_beside(bundle, trees, panel, settings, validation, seed)
    horizons = trees.grid.tolist()
    if weights.max() < SMALLEST:
        return None
    report(f"Weights of the trees from validation persons: {described_weights(horizons, weights)}.")
    everybody = panel.only(sorted((*training, *validation)))
    final = trees.refitted(
        everybody,
        Window(everybody),
        TreeOptions(threads=settings.tree_threads),
        seed=seed,
        progress=lambda done, total: report(
            f"Trees of {done} of {total} horizons are fitted to validation persons, too."
        ),
    )
    return final.to_table(), dict(zip(horizons, weights.tolist(), strict=True))


def fit_first_trees(
    people: Panel, settings: TrainConfig, seed: int, report: Callable[[str], None]
) -> TreeForecast | None:
    """Trees of the training persons `people`; None if they have too few outcomes."""
    try:
        return TreeForecast.fit(
            people,
            held_out_persons(people, seed),
            Window(people),
            TreeOptions(threads=settings.tree_threads),
            seed=seed,
            progress=lambda done, total: report(f"Trees of {done} of {total} horizons are fitted."),
        )
    except InputError:
        return None


def weights_beside(
    bundle: Bundle,
    trees: TreeForecast,
    panel: Panel,
    settings: TrainConfig,
    validation: Sequence[str],
    seed: int,
) -> Floats:
    """Weights (K,) of the trees beside the network; arguments as in `fit_tree_member`."""
    sample = sample_persons(
        validation, settings.validation_persons, "validation", panel.meta.panel_id
    )
    people, forecaster = panel.only(sample), Forecaster(bundle)
    end, losses, units = last_year(people), [], list[str]()
    for k in range(_ORIGINS):
        origins = draw_origins(people, max_horizon=MAX_HORIZON, seed=seed + k, end=end)
        losses.append(_losses(trees, forecaster, people, origins))
        units += units_of(people, origins.person_id.tolist())
    return shrunk_weights(np.concatenate(losses, axis=1), units)


def _losses(trees: TreeForecast, forecaster: Forecaster, people: Panel, origins: Origins) -> Floats:
    """CRPS (3, n, K) with the weights 0, 1/2 and 1, at the horizons of the trees."""
    past, horizons = history(people, origins), trees.grid.tolist()
    blocks = list(forecaster.marginals(past, recalibrate=False))
    network = Marginals.joined(blocks).at_horizons(horizons)
    features = trees.window.features(past, origins)
    of_trees = trees.marginals(features, origins, network, horizons)
    outcomes = realised_earnings(people, origins, horizons)
    floor = people.meta.floor
    return np.stack(
        [
            marginal_scores(mixed(network, of_trees, weight), outcomes, floor)["crps_log"]
            for weight in (0.0, 0.5, 1.0)
        ]
    )


def shrunk_weights(losses: Floats, units: Sequence[str]) -> Floats:
    """Weights (K,) of the trees at K horizons, between 0 and 1.

    The best weights on the persons have a covariance matrix, clustered by unit. With it, and with
    the normal prior above, the result is the posterior mean (random effects: Lindley and Smith
    1972), restricted to [0, 1]. A horizon without outcomes has the weight that the others suggest.

    Args:
        losses: (3, n, K), the CRPS of n rows with weights 0, 1/2 and 1; NaN without an outcome.
        units: (n,), the person or family of each row.
    """
    none, half, whole = np.nan_to_num(losses)
    curve = 2 * (none + whole - 2 * half)  # loss(w) = none + slope w + curve w^2
    slope = whole - none - curve
    total = curve.sum(axis=0)
    judged = total > 0  # otherwise no outcome is known, or both forecasts are the same
    common = np.full(len(total), COMMON)
    prior = COMMON_SD**2 + OWN_SD**2 * np.eye(len(total))
    if not judged.any():
        return common
    best = -slope.sum(axis=0)[judged] / (2 * total[judged])
    influence = -(slope[:, judged] + 2 * best * curve[:, judged]) / (2 * total[judged])
    _, unit = np.unique(units, return_inverse=True)
    of_units = np.stack([np.bincount(unit, weights=column) for column in influence.T], axis=1)
    covariance = prior[np.ix_(judged, judged)] + of_units.T @ of_units
    shift = prior[:, judged] @ np.linalg.solve(covariance, best - COMMON)
    return np.asarray(np.clip(common + shift, 0, 1).round(2))
