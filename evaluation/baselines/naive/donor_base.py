"""The common part of the naive baselines: relative outcomes of donors in the same state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.evaluation.baselines.naive.donors import DonorPool
from saga.evaluation.baselines.origin_states import identities, paths_of, states_at
from saga.evaluation.baselines.person_states import States, as_states, known_states

from saga.arrays import Array
from saga.data.origins import Origins, realised_earnings
from saga.data.panel import Panel
from saga.keyed_random import Identity, uniform_rows, uniforms
from saga.paths import Paths
from saga.schema import MAX_AGE, MIN_AGE
from saga.trees.earnings_ranks import Reference, no_outcomes_error

DONORS = 200_000  # largest number of past origins; more would not change the quantiles


class DonorBaseline(ABC):
    """Forecasts of base x donor's outcome / donor's base, with donors of the same group.

    A donor is a training person at a past origin. A subclass defines the base and the groups. Paths
    are joint over a person's horizons; persons are independent given the groups (no common macro
    future). Beyond the longest record a second donor continues from the state at its end.
    """

    name: str

    @abstractmethod
    def base(self, states: States) -> Array:
        """Positive money by which outcomes are divided, same shape as the states."""

    @abstractmethod
    def groups(self, states: States) -> list[Array]:
        """The group of each state at every level of detail, finest first, last a single group 0."""

    def fit(self, panel: Panel, *, seed: int) -> Self:
        """Take at most 200,000 person-years with known earnings as past origins.

        Raises InputError if no person has earnings in two years.
        """
        self.floor = panel.meta.floor or 0.0
        rows = known_states(panel)
        self.reference = Reference(panel)
        rows = rows.filter(pl.col("age").is_between(MIN_AGE, MAX_AGE - 1))
        if rows.height > DONORS:
            order = np.argpartition(uniforms(rows.height, "donors", seed), DONORS)
            rows = rows[np.sort(order[:DONORS])]
        span = int(panel.frame["year"].max() or 0) - int(panel.frame["year"].min() or 0)  # type: ignore[arg-type]
        states = as_states(rows)
        horizons = range(1, min(span, MAX_AGE - MIN_AGE) + 1)
        outcomes = _outcomes(
            panel,
            Origins(np.array(rows["person_id"].to_list(), dtype=np.str_), states.year),
            horizons,
        )
        if not np.isfinite(outcomes).any():
            fix = "Give a panel in which persons are observed in at least two years."
            raise no_outcomes_error("No person has earnings in two years", fix)
        relative = (outcomes / self.base(states)[:, None]).astype(np.float32)
        self.pool = DonorPool(self.groups(states), relative, np.random.default_rng(seed))
        return self

    def simulate(
        self, history: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Paths:
        """`n_paths` joint futures of each person, shape (n, to_horizon, n_paths).

        A person without known earnings is drawn from all persons.
        """
        states, born = states_at(history, origins)
        # Years since the last known earnings: the donor's years are counted from there.
        lags = origins.year - states.year
        earnings = np.empty((len(born), to_horizon, n_paths), dtype=np.float32)
        for lag in np.unique(lags):
            rows = np.flatnonzero(lags == lag)
            ids = identities(origins.take(rows))
            futures = self._simulate(states.take(rows), ids, int(lag) + to_horizon, n_paths, seed)
            earnings[rows] = futures[:, lag:]
        return paths_of(origins, born, earnings)

    def _simulate(
        self, states: States, ids: Sequence[Identity], horizon: int, n_paths: int, seed: int
    ) -> NDArray[np.float32]:
        """Earnings (n, horizon, n_paths) in blocks of as many years as the donors' futures reach.

        Each block starts from the simulated state at the end of the block before.
        """
        blocks = -(-horizon // self.pool.reach)
        chance = uniform_rows(2 * n_paths * blocks, ids, self.name, seed).reshape(
            len(ids), blocks, 2, n_paths
        )
        earnings = np.empty((len(ids), horizon, n_paths), dtype=np.float32)
        state = states.take((slice(None), None))  # (n, 1): the same state on every path
        for block in range(blocks):
            outcomes_of_block = self.pool.draw(
                self.groups(state), (chance[:, block, 0], chance[:, block, 1])
            )
            outcomes_of_block *= self.base(state)[:, None, :].astype(np.float32)
            done = block * self.pool.reach
            earnings[:, done : done + self.pool.reach] = outcomes_of_block[:, : horizon - done]
            last = outcomes_of_block[:, -1]
            before = outcomes_of_block[:, -2] if self.pool.reach > 1 else state.earnings
            state = replace(
                state,
                year=state.year + self.pool.reach,
                age=state.age + self.pool.reach,
                earnings=last,
                idle=np.broadcast_to(before == 0, last.shape),
            )
        return earnings


def _outcomes(panel: Panel, origins: Origins, horizons: range) -> Array:
    """`realised_earnings` (n, H), a part of the origins at a time to save memory."""
    outcomes = np.full((len(origins), len(horizons)), np.nan, dtype=np.float32)
    for start in range(0, len(origins) if len(horizons) else 0, DONORS // 10):
        part = slice(start, start + DONORS // 10)
        outcomes[part] = realised_earnings(panel, origins.take(part), horizons)
    return outcomes


def employment_codes(states: States, rank: Array, ranks: int) -> tuple[Array, int]:
    """Employment and rank as one code, and the number of codes.

    Code 0 is unknown, 1 zero twice in a row, 2 zero in the last year only; 3 and above are `ranks`
    equal groups of `rank`.
    """
    code = np.where(states.earnings > 0, 3 + rank * ranks // 20, np.where(states.idle, 1, 2))
    return np.where(np.isnan(states.earnings), 0, code), 3 + ranks


def age_band(states: States, width: int) -> tuple[Array, int]:
    """Age in bands of `width` years from 16, and the number of bands."""
    band = (np.clip(states.age, MIN_AGE, MAX_AGE) - MIN_AGE) // width
    return band, (MAX_AGE - MIN_AGE) // width + 1


def cross(*codes: tuple[Array, int]) -> Array:
    """One group number for each combination of (code, number of codes) pairs; 0 without pairs."""
    number: Array = np.zeros(1, dtype=np.int64)
    for code, size in codes:
        number = number * size + code
    return number
