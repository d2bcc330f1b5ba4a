"""Marginals of a network and boosted trees together (linear opinion pool: Stone 1961).

Both are proper forecasts with different faults: a network follows a whole record and trees cut few
features finely. The average of their CDFs has a lower CRPS than the average of their CRPS, because
the CRPS is convex in the CDF.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.data.groups import last_record_origins
from saga.data.panel import Panel
from saga.distributions import Marginals
from saga.errors import BundleError
from saga.trees.tree_forecast import TreeForecast

# In config.json: the weight at each horizon of the trees, or these of each member.
WEIGHTS = "tree_weights"
_MEMBER = "member"  # column of the table if members have trees of their own
Mix = Callable[[NDArray[np.int64], Marginals], Marginals]


@dataclass(frozen=True, eq=False)
class TreeMember:
    """The boosted trees of a bundle, or of one of its members.

    Args:
        trees: the trees.
        weights: (G,), their weights in the average at the horizons with models, between 0 and 1;
            the network has the rest.
    """

    trees: TreeForecast
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, table: pl.DataFrame, weights: Mapping[str, float]) -> Self:
        """From a table and the weights at its horizons. Raises BundleError without LightGBM."""
        try:
            trees = TreeForecast.from_table(table)
        except ImportError as error:
            raise BundleError(
                "This bundle contains boosted trees, which need LightGBM. Install it with: pip "
                'install "saga-forecast[trees]".'
            ) from error
        of_horizons = [weights[str(h)] for h in trees.grid.tolist()]
        return cls(trees, np.array(of_horizons, dtype=float))

    def weights_at(self, horizons: Sequence[int]) -> NDArray[np.float64]:
        """Weights (K,) at `horizons`, interpolated as the trees are, and constant beyond."""
        return np.interp(horizons, self.trees.grid, self.weights)

    def mix_with(self, panel: Panel) -> Mix:
        """A function of persons' rows in the order of `panel` and of their network's marginals.

        It returns the averages, see `mixed`.
        """
        origins, window = last_record_origins(panel), self.trees.window
        features = window.features(panel, origins)

        def mix(rows: NDArray[np.int64], marginals: Marginals) -> Marginals:
            horizons = range(1, marginals.n_horizons + 1)
            trees = self.trees.marginals(features[rows], origins.take(rows), marginals, horizons)
            return mixed(marginals, trees, self.weights_at(horizons))

        return mix

    def __str__(self) -> str:
        """The weights, for a summary."""
        return described_weights(self.trees.grid.tolist(), self.weights)


def joined_tables(tables: Sequence[pl.DataFrame | None]) -> pl.DataFrame | None:
    """The trees of all members as one table; None if no member has trees."""
    of_members = [
        table.with_columns(pl.lit(k).alias(_MEMBER))
        for k, table in enumerate(tables)
        if table is not None
    ]
    return pl.concat(of_members) if of_members else None


def tree_members(
    table: pl.DataFrame | None, config: Mapping[str, Any]
) -> tuple[TreeMember | None, ...]:
    """What stands beside the networks of a bundle, from its table and configuration.

    Nothing, the trees beside their average, or the trees of each member (None: it has none).
    """
    if table is None:
        return ()
    weights = config[WEIGHTS]
    if _MEMBER not in table.columns:
        return (TreeMember.of(table, weights),)
    return tuple(
        TreeMember.of(table.filter(pl.col(_MEMBER) == k), of_member) if of_member else None
        for k, of_member in enumerate(weights)
    )


def described_weights(horizons: Sequence[int], weights: NDArray[np.float64]) -> str:
    """The weights of the trees by horizon, as text."""
    texts = [f"{w:.2f}".lstrip("0") if w < 1 else "1" for w in weights]
    return f"{', '.join(texts)} at {', '.join(map(str, horizons))} years"


def mixed(
    marginals: Marginals, trees: Marginals, weights: float | NDArray[np.float64]
) -> Marginals:
    """The average of two sets of distributions on the same grid.

    Args:
        marginals: raw distributions (n, H).
        trees: distributions of the same persons (n, H).
        weights: weight of `trees`, one or (H,).
    """
    w = np.broadcast_to(weights, trees.n_horizons)
    cdf = (1 - w)[:, None] * marginals.cdf + w[:, None] * trees.cdf
    p_zero = (1 - w) * marginals.p_zero + w * trees.p_zero
    cdf[..., 0], cdf[..., -1] = p_zero, np.where(np.isnan(p_zero), np.nan, 1.0)
    # In the precision of the network's distributions: a person has the same bits in any batch.
    single = marginals.cdf.dtype
    cdf = np.maximum.accumulate(cdf, axis=-1).astype(single)
    return replace(marginals, cdf=cdf, p_zero=p_zero.astype(single))
