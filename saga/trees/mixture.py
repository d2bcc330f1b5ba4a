"""Marginals of a network and boosted trees together (linear opinion pool: Stone 1961).

Both are proper forecasts with different faults: a network follows a whole record and trees cut few
features finely. The average of their CDFs has a lower CRPS than the average of their CRPS, because
the CRPS is convex in the CDF.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.data.groups import last_record_origins
from saga.data.panel import Panel
from saga.distributions import Marginals
from saga.errors import BundleError
from saga.trees.atom_quantiles import AtomQuantiles
from saga.trees.tree_forecast import TreeForecast

WEIGHT = "tree_weight"  # in config.json
Mix = Callable[[NDArray[np.int64], Marginals], Marginals]


@dataclass(frozen=True, eq=False)
class TreeMember:
    """The boosted trees of a bundle.

    Args:
        trees: the trees.
        weight: their weight in the average, between 0 and 1; the network has the rest.
    """

    trees: TreeForecast
    weight: float

    @classmethod
    def of(cls, table: pl.DataFrame, weight: float) -> Self:
        """From a bundle's table and weight. Raises BundleError without LightGBM."""
        try:
            return cls(TreeForecast.from_table(table), weight)
        except ImportError as error:
            raise BundleError(
                "This bundle contains boosted trees, which need LightGBM. Install it with: pip "
                'install "saga-forecast[trees]".'
            ) from error

    def mix_with(self, panel: Panel) -> Mix:
        """A function of persons' rows in the order of `panel` and of their network's marginals.

        It returns the averages, see `mixed`.
        """
        origins, window = last_record_origins(panel), self.trees.window
        features = window.features(panel, origins)

        def mix(rows: NDArray[np.int64], marginals: Marginals) -> Marginals:
            last = min(marginals.n_horizons, int(self.trees.grid[-1]))
            trees = self.trees.predict(features[rows], origins.take(rows), range(1, last + 1))
            return mixed(marginals, trees, self.weight)

        return mix


def mixed(marginals: Marginals, trees: AtomQuantiles, weight: float) -> Marginals:
    """The average of two sets of distributions, on the grid of the first.

    Horizons beyond the last of `trees` stay as they are.

    Args:
        marginals: raw distributions at horizons 1..H.
        trees: distributions of the same persons at horizons 1..K, K <= H.
        weight: weight of `trees`.
    """
    h = slice(0, trees.zero.shape[1])
    grid = marginals.grid[:, h].astype(np.float64)
    cdf, p_zero = marginals.cdf.copy(), marginals.p_zero.copy()
    both = (1 - weight) * cdf[:, h] + weight * trees.cdf(grid)
    atom = (1 - weight) * p_zero[:, h] + weight * trees.zero
    both[..., 0], both[..., -1] = atom, np.where(np.isnan(atom), np.nan, 1.0)
    cdf[:, h], p_zero[:, h] = np.maximum.accumulate(both, axis=-1), atom
    return replace(marginals, cdf=cdf, p_zero=p_zero)
