"""Forecasters that know the process of a textbook register.

Their forecasts are the best that its records allow, because they use the true parameters. The
hidden state is unknown to them, so a model can equal them, but not be better; it cannot equal the
clairvoyant of the full register. Their methods are those of `saga.evaluation.protocol.Baseline`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.evaluation.textbook.gaussian_ar1 import GaussianProcess
from saga.evaluation.textbook.gkos_process import GkosProcess
from saga.evaluation.textbook.kalman_filter import KalmanFilter
from saga.evaluation.textbook.particle_filter import GkosFilter

from saga.arrays import Floats
from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.errors import InputError, Problem, UsageError
from saga.keyed_random import uniform_rows
from saga.paths import Paths
from saga.schema import MAX_AGE

BLOCK = 64  # persons whose random numbers are in memory at once


class StateFilter(Protocol):
    """A filter draws the hidden state at the origin, given a record."""

    @property
    def process(self) -> GaussianProcess | GkosProcess:
        """The process of the records."""
        ...

    @property
    def draw_uniforms(self) -> int:
        """Number of uniforms that one draw needs."""
        ...

    def draw_states(self, earnings: Floats, age: NDArray[np.int64], u: Floats) -> Floats:
        """States (S, n, M) from records (n, A), origin ages (n,) and uniforms `u`.

        `u` has shape (n, M, `draw_uniforms`).
        """
        ...


class ExactForecaster:
    """Joint paths from the exact predictive distribution.

    A path is a draw of the hidden state given the record, continued by the process. A record may
    have skipped years and null cells, or be empty.

    Args:
        state_filter: Filter of the process.
        name: Name of its rows in the metrics table.
    """

    version = 1  # of its numbers; increase it when they may change (see `Baseline.version`)

    def __init__(self, state_filter: StateFilter, name: str = "exact") -> None:
        self.filter, self.name = state_filter, name

    @classmethod
    def open(cls, directory: Path, *, particles: int = 500) -> Self:
        """The exact forecaster of the register in `directory`, with its parameters.

        Raises UsageError for a register of another process, InputError if there is no register.
        """
        file = directory / "register.json"
        if not file.is_file():
            fix = "Give the directory that `saga register generate` wrote."
            problem = Problem("no-register", f"no register.json in {directory.name}", fix)
            raise InputError("There is no register", [problem])
        metadata = json.loads(file.read_text(encoding="utf-8"))
        match metadata.get("process"):
            case "gaussian":
                return cls(KalmanFilter(GaussianProcess.from_dict(metadata["parameters"])))
            case "gkos":
                return cls(GkosFilter(GkosProcess.from_dict(metadata["parameters"]), particles))
        fix = (
            "Use saga.register.oracle for the full process, or generate with --process gaussian "
            "or gkos."
        )
        problem = Problem("process", "the register is of another process", fix)
        raise UsageError("Only textbook processes have an exact forecaster", [problem])

    def fit(self, panel: Panel, *, seed: int) -> Self:
        """Return itself: the parameters are known, but the contest fits every baseline."""
        del panel, seed
        return self

    def simulate(
        self, history: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Paths:
        """`n_paths` joint futures of each person: real SEK of 2022, NaN beyond age 64.

        Earnings have shape (n, to_horizon, n_paths). The first paths do not depend on `n_paths`,
        the first horizons not on `to_horizon`.

        Args:
            history: Rows of the persons, in real money of 2022.
            origins: Persons and their origin years.
            to_horizon: Last horizon.
            n_paths: Futures per person.
            seed: Seed of the random numbers.

        Raises:
            InputError: For a person without rows, with an origin before the process starts, or
                with earnings that the process cannot produce.
        """
        process = self.filter.process
        birth_year, age, earnings = earnings_by_age(history, origins, process)
        future = np.full((len(origins), to_horizon, n_paths), np.nan, dtype=np.float32)
        for start in range(0, len(origins), BLOCK):
            rows = slice(start, start + BLOCK)
            block = origins.take(rows)
            ids = list(zip(block.person_id.tolist(), block.year.tolist(), strict=True))

            def uniforms(step: int, size: int, ids: list[tuple[str, int]] = ids) -> Floats:
                u = uniform_rows(n_paths * size, ids, "exact", seed, step)
                return u.reshape(len(ids), n_paths, size)

            u = uniforms(0, self.filter.draw_uniforms)
            state = self.filter.draw_states(earnings[rows], age[rows], u)
            for h in range(1, to_horizon + 1):
                u = np.moveaxis(uniforms(h, process.step_uniforms), -1, 0)
                state, future[rows, h - 1] = process.step(state, age[rows, None] + h, u)
        future[age[:, None] + np.arange(1, to_horizon + 1) > MAX_AGE] = np.nan
        return Paths(np.asarray(origins.person_id), birth_year, np.asarray(origins.year), future)


def earnings_by_age(
    history: Panel, origins: Origins, process: GaussianProcess | GkosProcess
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Birth years (n,), origin ages (n,) and real earnings by age (n, A), NaN if unknown.

    Column 0 is `process.first_age`, the last column age 64. Rows after the origin and before
    `first_age` are not used. Raises the errors of `ExactForecaster.simulate`.
    """
    persons = origins.frame().with_row_index("row")
    births = history.frame.group_by("person_id").agg(pl.col("birth_year").first())
    born = persons.join(births, on="person_id", how="left", maintain_order="left")["birth_year"]
    if born.null_count():
        person = str(origins.person_id[born.is_null().arg_max() or 0])
        fix, count = "Leave the person out.", born.null_count()
        problem = Problem("no-record", "the person has no row", fix, person_id=person, count=count)
        raise InputError("A person cannot be forecast", [problem])
    birth_year = born.to_numpy().astype(np.int64)
    age = np.asarray(origins.year, np.int64) - birth_year
    early = np.flatnonzero(age < process.first_age - 1)
    if len(early):
        problem = Problem(
            "origin-age",
            f"the process starts at age {process.first_age}",
            f"Use origins at age {process.first_age - 1} or later.",
            person_id=str(origins.person_id[early[0]]),
            count=len(early),
        )
        raise InputError("An origin is too early", [problem])
    column = pl.col("year") - pl.col("birth_year") - process.first_age
    rows = (
        history.frame.join(persons, on="person_id")
        .filter(pl.col("year") <= pl.col("origin"), column >= 0, pl.col("earnings").is_not_null())
        .select("row", "earnings", column=column)
    )
    earnings = np.full((len(origins), MAX_AGE - process.first_age + 1), np.nan)
    earnings[rows["row"].to_numpy(), rows["column"].to_numpy()] = rows["earnings"].to_numpy()
    impossible = earnings <= 0 if isinstance(process, GaussianProcess) else earnings < 0
    if impossible.any():
        row, first = np.argwhere(impossible)[0]
        problem = Problem(
            "impossible-earnings",
            f"the {process.name} process has no such earnings",
            "Use the register that the process generated.",
            column="earnings",
            person_id=str(origins.person_id[row]),
            year=int(birth_year[row] + process.first_age + first),
            count=int(impossible.sum()),
        )
        raise InputError("A record does not come from the process", [problem])
    return birth_year, age, earnings
