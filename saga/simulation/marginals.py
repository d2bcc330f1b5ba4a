"""Marginals: distributions of single years from the direct head, averaged over macro futures.

The record is encoded once. For each horizon the direct head (for the next record: the yearly head)
gives one distribution per macro future, relative to that future's wage index. Their average, on a
grid of log earnings, is the marginal. It has no sampling noise: macro futures are a fixed set of
nodes, equal for all persons and seeds (`macro_nodes`).
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saga.arrays import Floats
from saga.distributions import Marginals
from saga.features.calendar import (
    MACRO_FEATURES,
    PATH_FEATURES,
    Calendar,
    path_features,
)
from saga.features.sequences import Sequences, pad
from saga.features.transforms import Transforms
from saga.macro.process import MacroProcess
from saga.macro.scenarios import Scenario
from saga.model import Saga
from saga.model.heads.head import Head, Predictive
from saga.requests import MAX_HORIZON
from saga.schema import MAX_AGE
from saga.simulation.matmul import with_affine_layers
from saga.simulation.pool import single_threaded, split_persons, thread_pool
from saga.simulation.rollout import (
    MAX_STEPS,
    RolloutOptions,
    draw_macro_futures,
    persons_per_group,
)

N_NODES = 16  # macro futures per horizon, a power of two
_N_DRAWS = 4_096  # macro futures that the nodes represent
_KEPT_PLACES = 8  # origins and horizons of the latest forecasts
_GROUP_ROWS = 8_192  # computed together: 17 persons with all horizons and nodes
_PERSONS_A_THREAD = 16  # for each further thread, whose start costs more than fewer save
_SEED = 0  # of these draws; a user's seed moves paths, not marginals
# Grid points beyond the outermost knots of the head, in logs.
_BELOW = np.array([12.0, 8.0, 5.5, 4.0, 3.0, 2.2, 1.6, 1.1, 0.7, 0.4, 0.2])
_ABOVE = np.array(
    [0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0, 1.25, 1.5, 1.8, 2.1, 2.5, 3.0, 3.5, 4.0, 5.0, 6.5, 9.0]
)


@dataclass(frozen=True, eq=False)
class MacroNodes:
    """E representative macro futures ("nodes") of an origin year, separately for each horizon.

    `features` (H, E, 7) are the covariates (`saga.features.calendar.path_features`), `level` (H,)
    is the mean log wage index and `shift` (H, E) what each node adds to it.
    """

    features: Tensor
    level: Floats
    shift: Tensor


@dataclass(frozen=True)
class _Economy:
    """What nodes are computed from; equal if the contents are."""

    calendar: Calendar = field(compare=False)
    process: MacroProcess | None = field(compare=False)
    scenario: Scenario | None = field(compare=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        contents = pickle.dumps((self.calendar, self.process, self.scenario))
        object.__setattr__(self, "digest", hashlib.sha256(contents).hexdigest())


# Nodes of an origin take a tenth of a second, and 30 KB. Forecasters of one economy share them.
@lru_cache(maxsize=512)
def _nodes(economy: _Economy, origin: int, n_horizons: int) -> MacroNodes:
    features, wage = macro_nodes(
        economy.calendar, economy.process, origin, economy.scenario, n_horizons
    )
    level = wage.mean(axis=1)
    return MacroNodes(
        torch.from_numpy(features.astype(np.float32)),
        level,
        torch.from_numpy((wage - level[:, None]).astype(np.float32)),
    )


class _Places(NamedTuple):
    """Where the grid points lie among the knots of a head, for every node of an origin.

    `direct` is for the direct head, `yearly` for the yearly one.
    """

    direct: Any
    yearly: Any


class DirectMarginals:
    """Computes marginals for one network of a bundle and one scenario."""

    def __init__(
        self,
        network: Saga,
        transforms: Transforms,
        calendar: Calendar,
        process: MacroProcess | None,
        scenario: Scenario | None = None,
        *,
        threads: int = 1,
        n_horizons: int = MAX_HORIZON,
    ) -> None:
        self.threads, self.n_horizons = threads, n_horizons
        self._group_size = 1  # until it is found
        self.network, self.scenario = network, scenario
        with torch.inference_mode():
            self.direct = with_affine_layers(network.direct)
            self.head = with_affine_layers(network.head)
        self.rhythm, self.units = transforms.rhythm, transforms.units
        self.grid = marginal_grid(transforms)
        self.z = torch.from_numpy(self.grid.astype(np.float32))
        self.economy = _Economy(calendar, process, scenario)
        # Finding the places is a seventh of the time for one person; an entry has 1 MB.
        self._places_of = lru_cache(maxsize=_KEPT_PLACES)(self._kept_places)

    def nodes(self, origin: int) -> MacroNodes:
        """The representative macro futures of an origin year."""
        return _nodes(self.economy, origin, self.n_horizons)

    def group_size(self, n_persons: int) -> int:
        """Number of persons to compute together, of `n_persons` in all."""
        if self._group_size > 1:
            return self._group_size
        modules = (self.network, self.direct, self.head)
        # Numbers of rows that a person has in the matrix products: nodes of the years up to the
        # next record, horizons, and combinations of both.
        n = self.n_horizons
        rows = (self.rhythm * N_NODES, n, min(n, N_NODES) * N_NODES, n * N_NODES)
        self._group_size = persons_per_group(modules, rows, n_persons, _GROUP_ROWS)
        return self._group_size

    def marginals(
        self,
        sequences: Sequences,
        persons: NDArray[np.int64],
        groups: Mapping[str, NDArray[np.str_]],
        n_horizons: int = MAX_HORIZON,
    ) -> Marginals:
        """Raw marginals of `persons` at horizons 1..`n_horizons`; group labels are `groups`."""
        origins = sequences.year[sequences.offsets[1:][persons] - 1]
        for origin in np.unique(origins):
            self.nodes(int(origin))  # cached before the threads start
        size = self.group_size(len(persons))
        parts = split_persons(
            persons, min(self.threads, 1 + len(persons) // _PERSONS_A_THREAD), size
        )
        # Products of few rows may round differently. If they do, all horizons are computed.
        n_computed = max(n_horizons, N_NODES) if size > 1 else self.n_horizons
        compute = partial(
            self._compute,
            sequences,
            n_horizons=n_horizons,
            n_computed=min(n_computed, self.n_horizons),
        )
        with single_threaded(), thread_pool(min(self.threads, len(parts))) as pool:
            computed = list(pool.map(compute, parts))
        grid, cdf, p_zero = (np.concatenate(arrays) for arrays in zip(*computed, strict=True))
        return Marginals(
            sequences.person_id[persons],
            sequences.birth_year[persons],
            origins,
            grid,
            cdf,
            p_zero,
            groups=groups,
            conditioned=self.scenario is not None,
        )

    @torch.inference_mode()
    def _compute(
        self,
        sequences: Sequences,
        persons: NDArray[np.int64],
        *,
        n_horizons: int,
        n_computed: int,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """Grid (n, H, G) of log earnings, CDF (n, H, G) and probability of zero (n, H).

        NaN beyond age 64. The network computes `n_computed` horizons.
        """
        n_horizons = min(n_horizons, n_computed)
        padded, lengths = pad(sequences, persons, MAX_STEPS + 1), sequences.lengths[persons]
        rows, last = np.arange(len(persons)), lengths - 1
        origin, age = padded.year[rows, last], padded.age[rows, last]
        hidden, _ = self.network.hidden(self.network.embed(padded), torch.from_numpy(padded.age))
        hidden = torch.stack([person[n - 1] for person, n in zip(hidden, lengths, strict=True)])
        # Persons with one origin share their nodes, and the work on them.
        years = origin[:1] if (origin == origin[0]).all() else origin
        nodes = [self.nodes(int(year)) for year in years]
        features = torch.stack([node.features for node in nodes])
        level = np.stack([node.level for node in nodes])
        shift = torch.stack([node.shift for node in nodes])
        horizon = torch.arange(1, n_computed + 1)
        target_age = torch.from_numpy(age)[:, None] + horizon
        by_horizon = self.direct(
            hidden[:, None, None],
            horizon[:, None],
            target_age[..., None],
            features[:, :n_computed],
        )
        by_horizon = type(by_horizon)(*(values[:, :n_horizons] for values in by_horizon))
        places = (
            self._places_of(int(years[0]), n_horizons)
            if len(years) == 1
            else self._places(shift, n_horizons)
        )
        p_zero, cdf = _averaged(self.direct.head, by_horizon, places.direct)
        # The yearly head forecasts as far as the next record: every token of the training was an
        # example. Where records are two years apart at the end of a panel, older ones may have been
        # one year apart.
        h = slice(self.rhythm)
        # Expanded to N_NODES equal rows, because products of few rows may round differently.
        yearly = self.head(
            hidden[:, None, None].expand(-1, -1, N_NODES, -1),
            horizon[h, None],
            features[:, h, :, :MACRO_FEATURES],
        )
        near = _averaged(self.head, yearly, places.yearly)
        p_zero[:, h], cdf[:, h] = (part[:, :n_horizons] for part in near)
        horizon, target_age = horizon[:n_horizons], target_age[:, :n_horizons]
        level = level[:, :n_horizons]
        beyond = target_age > MAX_AGE
        cdf[beyond], p_zero[beyond] = float("nan"), float("nan")
        level = level + self.units.level(target_age.numpy(), origin[:, None] + horizon.numpy())
        grid = (self.units.scale * self.grid + level[..., None]).astype(np.float32)
        return np.broadcast_to(grid, cdf.shape), cdf.numpy(), p_zero.numpy()

    def _kept_places(self, origin: int, n_horizons: int) -> _Places:
        """The places of one origin, which the next persons with this origin share."""
        return self._places(self.nodes(origin).shift[None], n_horizons)

    def _places(self, shift: Tensor, n_horizons: int) -> _Places:
        """The grid's places for the shifts (n, H, E) of the nodes, for both heads."""
        scale, near = self.units.scale, slice(self.rhythm)
        return _Places(
            self.direct.head.places(self.z - shift[:, :n_horizons, :, None] / scale),
            self.head.places(self.z - shift[:, near, :, None] / scale),
        )


def _averaged(head: Head[Any], distribution: Predictive, places: Any) -> tuple[Tensor, Tensor]:
    """Probability of zero (n, H) and CDF (n, H, G), averages over the nodes (n, H, E).

    A dead person has earnings of zero.
    """
    zero, cdf = head.cdf_at(distribution, places)
    survival = torch.sigmoid(-distribution.death)
    p_zero = (1 - survival * (1 - zero)).mean(2)
    cdf = (1 - survival[..., None] * (1 - cdf)).mean(2)
    cdf[..., 0], cdf[..., -1] = p_zero, 1.0
    return p_zero, cdf.clamp(max=1.0).cummax(-1).values


def marginal_grid(transforms: Transforms) -> Floats:
    """Grid points (G,) of relative log earnings: the head's knots, and tails beyond them."""
    knots = transforms.knots
    return np.concatenate([knots[0] - _BELOW, knots, knots[-1] + _ABOVE])


def macro_nodes(
    calendar: Calendar,
    process: MacroProcess | None,
    origin: int,
    scenario: Scenario | None,
    n_horizons: int = MAX_HORIZON,
) -> tuple[Floats, Floats]:
    """Covariates (H, E, 7) and log wage index (H, E) of nodes for horizons 1..`n_horizons`.

    At each horizon, draws of the macro process are split at the median of their most variable
    coordinate, repeatedly, into `N_NODES` parts of equal size. A node is the mean of a part, so
    the nodes have the mean of the draws, and less variance (docs/method/marginals.md). Without a
    process there is one node, of zeros.
    """
    if process is None:
        return np.zeros((n_horizons, 1, PATH_FEATURES)), np.zeros((n_horizons, 1))
    options = RolloutOptions(_N_DRAWS, _SEED, scenario)
    covariates, wage = draw_macro_futures(calendar, process, options, origin, n_horizons)
    features = path_features(covariates)
    # Coordinates are weighted by their effect on earnings: that of a standard deviation of a
    # covariate is far smaller than that of a log point of the wage index.
    draws = np.concatenate([features, wage[..., None]], axis=-1).transpose(1, 0, 2)
    weight = np.array([0.05] * (draws.shape[-1] - 1) + [1.0])
    nodes = np.stack([_partition_means(draws[h], weight) for h in range(n_horizons)])
    return nodes[..., :-1], nodes[..., -1]


def _partition_means(draws: Floats, weight: Floats) -> Floats:
    """Means (E, m) of the parts of draws (N, m)."""
    columns = np.ascontiguousarray(draws.T)
    parts = np.arange(len(draws))[None]  # the numbers of the draws in each part
    while len(parts) < N_NODES:
        values = columns[:, parts]
        axis = (values.std(axis=2).T * weight).argmax(axis=1)
        key = values[axis, np.arange(len(parts))]
        order = np.argsort(key, axis=1, kind="stable")
        parts = np.take_along_axis(parts, order, axis=1).reshape(2 * len(parts), -1)
    means: Floats = draws[parts].mean(axis=1)
    return means
