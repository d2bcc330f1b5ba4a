"""The common part of the econometric baselines: profile, hurdle for work, residual process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from saga.evaluation.baselines.econometric.histories import (
    LOW,
    WORK,
    Histories,
    align_histories,
    histories_at,
    rows_of,
    status_of,
)
from saga.evaluation.baselines.econometric.hurdle import Career, Hurdle, careers, deaths_next_year
from saga.evaluation.baselines.econometric.profile import Profile
from saga.evaluation.baselines.origin_states import identities, paths_of

from saga.arrays import Array, Floats
from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.keyed_random import Identity, uniform_rows
from saga.paths import Paths
from saga.trees.earnings_ranks import no_outcomes_error

State = TypeVar("State")
BLOCK = 256  # persons whose paths are simulated at once
NUMBERS = 5  # uniforms per year: death, work, amount below the floor, two of the residual process


class HurdleBaseline(ABC, Generic[State]):
    """Earnings = work or not (`Hurdle`) times exp(profile + year effect + residual).

    A subclass defines the process of the residual. Year effects are common to all persons on a
    path. Earnings after a death are 0. Years between a person's last known year and the origin are
    simulated as later years are, but without deaths.
    """

    name: str

    @abstractmethod
    def learn(self, past: Histories, *, seed: int) -> None:
        """Fit the process to aligned histories. Raises InputError if they do not identify it."""

    @abstractmethod
    def states(self, past: Histories, careers: list[Career], u: Floats) -> State:
        """M draws of the process's state in the last column of the histories; `u` (n, M)."""

    @abstractmethod
    def step(
        self, state: State, age: Array, status: Array, career: Career, u: tuple[Floats, Floats]
    ) -> tuple[Floats, State]:
        """Residuals (n, M) of the year at `age` (n, 1), and the state in that year.

        Residuals are used if `status` (n, M) is WORK. `career` (n, M) is that of the year before.
        """

    def fit(self, panel: Panel, *, seed: int) -> Self:
        """Fit profile, hurdle and process to `panel`.

        Raises InputError if no person has earnings in two years, or if hurdle or process cannot be
        estimated, for example because no person has records in consecutive years.
        """
        self.floor = panel.meta.floor or 0.0
        person, persons, states = rows_of(panel)
        status = status_of(states.earnings, self.floor)
        if not (status == WORK).any() or len(person) == len(persons):
            fix = "Give a panel in which persons are observed in at least two years."
            raise no_outcomes_error("No person has earnings in two years", fix)
        self.profile = Profile(states, status == WORK)
        past = align_histories(person, len(persons), states, self.profile, self.floor)
        deaths = deaths_next_year(panel, person, states.year, past.age.shape)
        self.hurdle = Hurdle.fit(past, states.earnings[status == LOW], deaths, seed=seed)
        self.learn(past, seed=seed)
        return self

    def simulate(
        self, history: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Paths:
        """`n_paths` joint futures of each person, shape (n, to_horizon, n_paths).

        A person without known earnings is treated as one who enters the labour market.
        """
        earnings = np.empty((len(origins), to_horizon, n_paths), dtype=np.float32)
        born = np.zeros(len(origins), dtype=np.int64)
        for start in range(0, len(origins), BLOCK):
            block = slice(start, start + BLOCK)
            in_block = origins.take(block)
            past, last, born[block] = histories_at(history, in_block, self.profile, self.floor)
            lags = in_block.year - last.year
            for lag in np.unique(lags):
                rows = np.flatnonzero(lags == lag)
                earnings[start + rows] = self._simulate(
                    past.take(rows),
                    last.year[rows],
                    identities(in_block.take(rows)),
                    int(lag),
                    earnings.shape[1:],
                    seed,
                )
        return paths_of(origins, born, earnings)

    def _simulate(
        self,
        past: Histories,
        year: Array,
        ids: Sequence[Identity],
        lag: int,
        shape: tuple[int, int],
        seed: int,
    ) -> NDArray[np.float32]:
        """Earnings (n, *shape), `shape` (H, M); the origin is `lag` years after `year` (n,)."""
        n, (horizon, n_paths), steps = len(ids), shape, lag + shape[0]
        uniforms = uniform_rows(n_paths * (1 + NUMBERS * steps), ids, self.name, seed).reshape(
            n, 1 + NUMBERS * steps, n_paths
        )
        before = list(careers(past))
        state = self.states(past, before, uniforms[:, 0])
        career = before[-1].on_paths(n_paths)
        sex, education = past.sex[:, None], past.education[:, None]
        year_effect = np.repeat(self.profile.year_effect(year)[:, None], n_paths, axis=1)
        growth = {
            int(y): self.profile.draw(int(y), n_paths, seed)
            for first in np.unique(year)
            for y in range(first + 1, first + steps + 1)
        }
        dead = np.zeros((n, n_paths), dtype=np.bool_)
        earnings = np.empty((n, horizon, n_paths), dtype=np.float32)
        for h in range(1, steps + 1):
            u = uniforms[:, 1 + NUMBERS * (h - 1) : 1 + NUMBERS * h]
            age = past.age[:, -1:] + h
            if h > lag:
                dead |= u[:, 0] < self.hurdle.chance_of_death(age, sex, career)
            status, small = self.hurdle.draw(age, sex, education, career, (u[:, 1], u[:, 2]))
            residual, state = self.step(state, age, status, career, (u[:, 3], u[:, 4]))
            career = career.after(status, residual)
            year_effect += np.stack([growth[int(y) + h] for y in year])
            if h > lag:
                mean_log = self.profile.mean_log(age, sex, education) + year_effect
                work = np.maximum(np.exp(mean_log + residual), self.floor)
                alive = np.where(status == WORK, work, np.where(status == LOW, small, 0.0))
                earnings[:, h - lag - 1] = np.where(dead, 0.0, alive)
        return earnings
