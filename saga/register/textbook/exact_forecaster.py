"""Forecasters that know a textbook register's process: the best forecasts that its records allow.

They know the parameters, not the hidden state, so unlike the oracle of the full register they can be met by a model, never beaten.
They fit the contest's protocol for baselines and are scored by the same functions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.errors import InputError, Problem, UsageError
from saga.keyed_random import uniform_rows
from saga.paths import Paths
from saga.register.textbook.gaussian_ar1 import GaussianProcess
from saga.register.textbook.gkos_process import GkosProcess
from saga.register.textbook.kalman_filter import KalmanFilter
from saga.register.textbook.particle_filter import GkosFilter
from saga.schema import MAX_AGE

Floats = NDArray[np.float64]
BLOCK = 64  # persons whose random numbers are held at once


class Filter(Protocol):
    """What turns a record into draws of the hidden state at the origin."""

    @property
    def process(self) -> GaussianProcess | GkosProcess:
        """The process that the filter knows."""
        ...

    @property
    def draw_numbers(self) -> int:
        """Uniforms that one draw needs."""
        ...

    def draws(self, earnings: Floats, age: NDArray[np.int64], u: Floats) -> Floats:
        """States (S, n, M) from records (n, A), origin ages (n,) and uniforms (n, M, `draw_numbers`)."""
        ...


class ExactForecaster:
    """Joint paths from the exact predictive law: a draw of the hidden state given the record, then the process itself.

    Any record does: skipped years, null cells, none at all. `name` is the row in the metrics table.
    """

    version = 1  # raise it when its numbers may change: stored scores carry it

    def __init__(self, filter_: Filter, name: str = "exact") -> None:
        self.filter, self.name = filter_, name

    def fit(self, panel: Panel, *, seed: int) -> Self:
        """Returns itself: there is nothing to learn. The contest calls it."""
        return self

    def simulate(
        self, history: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Paths:
        """`n_paths` joint futures of each person: real SEK of 2022, (n, to_horizon, n_paths), NaN beyond 64.

        The first paths of a person do not depend on how many there are, the first horizons not on how many follow.
        Raises InputError for a person without rows, with an origin before the process starts, or with earnings that it cannot produce.
        """
        process = self.filter.process
        born, age, earnings = records(history, origins, process)
        future = np.full((len(origins), to_horizon, n_paths), np.nan, dtype=np.float32)
        for start in range(0, len(origins), BLOCK):
            rows = slice(start, start + BLOCK)
            ids = list(
                zip(origins.person_id[rows].tolist(), origins.year[rows].tolist(), strict=True)
            )

            def numbers(step: int, each: int, ids: list[tuple[str, int]] = ids) -> Floats:
                return uniform_rows(n_paths * each, ids, "exact", seed, step).reshape(
                    len(ids), n_paths, each
                )

            state = self.filter.draws(
                earnings[rows], age[rows], numbers(0, self.filter.draw_numbers)
            )
            for h in range(1, to_horizon + 1):
                u = np.moveaxis(numbers(h, process.step_numbers), -1, 0)
                state, future[rows, h - 1] = process.step(state, age[rows, None] + h, u)
        simulated = Paths(np.asarray(origins.person_id), born, np.asarray(origins.year), future)
        future[~simulated.within_age] = np.nan
        return simulated


def records(
    history: Panel, origins: Origins, process: GaussianProcess | GkosProcess
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Birth years (n,), origin ages (n,) and real earnings (n, A) by age from `process.first_age` to 64; NaN where unknown.

    Rows after the origin and before `first_age` are not used. Raises InputError as `ExactForecaster.simulate`.
    """
    persons = origins.frame().with_row_index("row")
    known = history.frame.group_by("person_id").agg(pl.col("birth_year").first())
    born = persons.join(known, on="person_id", how="left", maintain_order="left")["birth_year"]
    if born.null_count():
        who = str(origins.person_id[born.is_null().arg_max() or 0])
        problem = Problem(
            "no-record",
            "the person has no row",
            "Leave the person out.",
            person_id=who,
            count=born.null_count(),
        )
        raise InputError("A person cannot be forecast", [problem])
    birth = born.to_numpy().astype(np.int64)
    age = np.asarray(origins.year, np.int64) - birth
    early = np.flatnonzero(age < process.first_age - 1)
    if len(early):
        fix = f"Use origins at age {process.first_age - 1} or later."
        who = str(origins.person_id[early[0]])
        problem = Problem(
            "origin-age",
            f"the process starts at age {process.first_age}",
            fix,
            person_id=who,
            count=len(early),
        )
        raise InputError("An origin is too early", [problem])
    place = pl.col("year") - pl.col("birth_year") - process.first_age
    cells = (
        history.frame.join(persons, on="person_id")
        .filter(pl.col("year") <= pl.col("origin"), place >= 0, pl.col("earnings").is_not_null())
        .select("row", place.alias("place"), "earnings")
    )
    earnings = np.full((len(origins), MAX_AGE - process.first_age + 1), np.nan)
    earnings[cells["row"].to_numpy(), cells["place"].to_numpy()] = cells["earnings"].to_numpy()
    wrong = earnings <= 0 if isinstance(process, GaussianProcess) else earnings < 0
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        problem = Problem(
            "impossible-earnings", f"the {process.name} process has no such earnings", "Use the register that the process made.",
            column="earnings", person_id=str(origins.person_id[row]),
            year=int(birth[row] + process.first_age + column), count=int(wrong.sum()),
        )  # fmt: skip
        raise InputError("A record does not come from the process", [problem])
    return birth, age, earnings


def exact_forecaster(directory: Path, *, particles: int = 500) -> ExactForecaster:
    """The exact forecaster of the register in `directory`, with the parameters of its `register.json`.

    Raises UsageError for a register of another process, InputError where there is no register.
    """
    file = directory / "register.json"
    if not file.is_file():
        fix = "Give the directory that `saga register generate` wrote."
        raise InputError(
            "There is no register",
            [Problem("no-register", f"no register.json in {directory.name}", fix)],
        )
    about = json.loads(file.read_text(encoding="utf-8"))
    match about.get("process"):
        case "gaussian":
            return ExactForecaster(KalmanFilter(GaussianProcess.from_dict(about["parameters"])))
        case "gkos":
            return ExactForecaster(
                GkosFilter(GkosProcess.from_dict(about["parameters"]), particles)
            )
    fix = "Use saga.register.oracle for the full process, or generate with --process gaussian or gkos."
    raise UsageError(
        "Only textbook processes have an exact forecaster",
        [Problem("process", "the register is of another process", fix)],
    )
