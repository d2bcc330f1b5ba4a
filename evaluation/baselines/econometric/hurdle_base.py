"""The common part of the econometric baselines: a profile, a hurdle for work, and a process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from evaluation.baselines.econometric.histories import (
    LOW,
    WORK,
    Histories,
    align_histories,
    histories_at,
    rows_of,
    status_of,
)
from evaluation.baselines.econometric.hurdle import Career, Hurdle, careers, deaths_next_year
from evaluation.baselines.econometric.profile import Profile
from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.errors import InputError, Problem
from saga.keyed_random import uniform_rows
from saga.paths import Paths

Array = NDArray[Any]
Floats = NDArray[np.float64]
State = TypeVar("State")
BLOCK = 256  # persons whose paths are simulated at once
NUMBERS = 5  # uniforms per year: death, work, amount below the floor, two for the process


class HurdleBaseline(ABC, Generic[State]):
    """Earnings = work or not (`Hurdle`) times exp(profile + year effect + residual).

    A subclass gives the process of the residual. Year effects are common to all persons on a path.
    Death is absorbing: earnings are 0 from then on. Years between a person's last known year and
    the origin are simulated like later ones, but without deaths.
    """

    name: str

    @abstractmethod
    def learn(self, past: Histories, *, seed: int) -> None:
        """Fits the process on aligned histories. Raises InputError if they hold too little."""

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
        """Learns profile, hurdle and process from `panel`.

        Raises InputError if no person has earnings in two years, or if hurdle or process cannot be
        learned from the panel's rhythm.
        """
        self.floor = panel.meta.floor or 0.0
        person, persons, states = rows_of(panel)
        status = status_of(states.earnings, self.floor)
        if not (status == WORK).any() or len(person) == len(persons):
            fix = "Give a panel in which persons are observed in at least two years."
            raise InputError(
                "There is nothing to learn from",
                [Problem("no-outcomes", "No person has earnings in two years", fix)],
            )
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

        A person without known earnings starts like a person who enters the labour market.
        """
        parts = []
        for start in range(0, len(origins), BLOCK):
            in_block = origins.take(slice(start, start + BLOCK))
            past, last, born = histories_at(history, in_block, self.profile, self.floor)
            lag = in_block.year - last.year
            earnings = np.empty((len(in_block), to_horizon, n_paths), dtype=np.float32)
            for late in np.unique(lag):
                rows = np.flatnonzero(lag == late)
                ids = list(
                    zip(
                        in_block.person_id[rows].tolist(), in_block.year[rows].tolist(), strict=True
                    )
                )
                earnings[rows] = self._simulate(
                    past.take(rows), last.year[rows], ids, int(late), to_horizon, n_paths, seed
                )
            block = Paths(np.asarray(in_block.person_id), born, np.asarray(in_block.year), earnings)
            earnings[~block.within_age] = np.nan
            parts.append(block)
        if not parts:
            return Paths(
                np.asarray(origins.person_id),
                origins.year,
                origins.year,
                np.empty((0, to_horizon, n_paths), dtype=np.float32),
            )
        return Paths.joined(parts)

    def _simulate(
        self,
        past: Histories,
        year: Array,
        ids: list[tuple[str, int]],
        late: int,
        horizon: int,
        n_paths: int,
        seed: int,
    ) -> NDArray[np.float32]:
        n, steps = len(ids), late + horizon
        chance = uniform_rows(n_paths * (1 + NUMBERS * steps), ids, self.name, seed).reshape(
            n, 1 + NUMBERS * steps, n_paths
        )
        before = list(careers(past))
        state = self.states(past, before, chance[:, 0])
        career = Career(
            **{
                name: np.repeat(values[:, None], n_paths, axis=1)
                for name, values in vars(before[-1]).items()
            }
        )
        sex, education = past.sex[:, None], past.education[:, None]
        level = np.repeat(self.profile.year_effect(year)[:, None], n_paths, axis=1)
        growth = {
            int(y): self.profile.draw(int(y), n_paths, seed)
            for first in np.unique(year)
            for y in range(first + 1, first + steps + 1)
        }
        dead = np.zeros((n, n_paths), dtype=np.bool_)
        earnings = np.empty((n, horizon, n_paths), dtype=np.float32)
        for h in range(1, steps + 1):
            u = chance[:, 1 + NUMBERS * (h - 1) : 1 + NUMBERS * h]
            age = past.age[:, -1:] + h
            if h > late:
                dead |= u[:, 0] < self.hurdle.chance_of_death(age, sex, career)
            status, small = self.hurdle.draw(age, sex, education, career, (u[:, 1], u[:, 2]))
            residual, state = self.step(state, age, status, career, (u[:, 3], u[:, 4]))
            career = career.after(status, residual)
            level += np.stack([growth[int(y) + h] for y in year])
            if h > late:
                mean_log = self.profile.mean_log(age, sex, education) + level
                work = np.maximum(np.exp(mean_log + residual), self.floor)
                earnings[:, h - late - 1] = np.where(
                    dead, 0.0, np.where(status == WORK, work, np.where(status == LOW, small, 0.0))
                )
        return earnings
