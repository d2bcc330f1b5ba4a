"""Generation of a register: all chunks are simulated and written to a new directory."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from concurrent.futures import as_completed
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import polars as pl

from saga.arrays import Bools
from saga.data.panel import SIMULATED_ID
from saga.errors import UsageError
from saga.files.atomic import whole_folder
from saga.machine import cpu_count
from saga.register.simulation.cohort_simulation import (
    CHUNK,
    RegisterSettings,
    simulate_chunk,
    simulate_future,
)
from saga.register.simulation.economy import FIRST_HISTORY, LAST_HISTORY
from saga.register.simulation.life_state import LifeState, Presence
from saga.register.simulation.parameters import switch_off
from saga.register.simulation.population import cohort_sizes
from saga.requests import Progress
from saga.schema import MAX_AGE, MIN_AGE, PRICE_YEAR
from saga.simulation.worker_process import run_task, worker_pool

FORMAT_VERSION = 1
ROW_GROUP_SIZE = 100_000
MAX_PERSONS = 9_999_999  # the running number in a cohort has seven digits
WORKERS_PER_CORE = 4

Task = tuple[int, int, int]  # birth year, chunk, persons


def generate_register(
    out: Path,
    settings: RegisterSettings,
    *,
    workers: int = 1,
    progress: Progress | None = None,
) -> dict[str, object]:
    """Simulate a register and write it to the new directory `out`.

    - `panel/`: the rows (nominal SEK).
    - `latent/year=YYYY/`: the hidden state of the persons still in the register at the end of the
      last year and of each of `latent_years`.
    - `future/draw=k/`: the true later years of the persons in the register at the end of the panel,
      under macro draw k: SEK of 2022, one row per person and year up to age 64, 0 after death and
      null abroad. With `future_records` the rows also have the other columns of the panel (null
      after death and abroad).
    - `future/macro.parquet`: the draws of the economy. A textbook process does not use them.

    All files are written to a temporary directory, which is renamed to `out` when complete.

    Args:
        out: Directory to write; it must not exist or be empty.
        settings: Definition of the register.
        workers: Number of processes.
        progress: Called with the number of persons simulated so far and the number in all.

    Returns:
        The content of `register.json`.

    Raises:
        UsageError: If a setting is out of range, a mechanism is unknown, or `out` is not empty.
    """
    _check(out, settings, workers)
    resolved = replace(
        settings,
        parameters=switch_off(settings.parameters, settings.without),
        latent_years=_saved_years(settings),
        without=tuple(sorted(set(settings.without))),
    )
    with whole_folder(out) as folder:
        tasks = list(_tasks(resolved))
        done = rows = 0
        with closing(_execute(resolved, tasks, folder, workers)) as results:
            for task_persons, task_rows in results:
                done, rows = done + task_persons, rows + task_rows
                if progress is not None:
                    progress(done, resolved.persons)
        _write_macro(resolved, folder)
        description = _describe(resolved, rows)
        text = json.dumps(description, indent=2) + "\n"
        (folder / "register.json").write_text(text, encoding="utf-8", newline="\n")
    return description


def _saved_years(settings: RegisterSettings) -> tuple[int, ...]:
    return tuple(sorted({*settings.latent_years, settings.last_year}))


def _tasks(settings: RegisterSettings) -> Iterator[Task]:
    first, last = settings.first_year, settings.last_year
    if settings.process is None:
        sizes = cohort_sizes(settings.persons, first, last, settings.parameters.population)
    else:
        sizes = settings.process.cohort_sizes(settings.persons, first, last)
    for birth_year, size in sizes.items():
        for chunk, start in enumerate(range(0, size, CHUNK)):
            yield birth_year, chunk, min(CHUNK, size - start)


def _execute(
    settings: RegisterSettings, tasks: list[Task], folder: Path, workers: int
) -> Generator[tuple[int, int]]:
    """Write all chunks; yields the numbers of persons and rows of each as it is done."""
    if workers == 1:
        for task in tasks:
            yield _write_chunk(settings, task, folder)
        return
    with worker_pool(workers, _write_chunk) as pool:
        tasks_left = {pool.submit(run_task, settings, task, folder) for task in tasks}
        for future in as_completed(tasks_left):
            yield future.result()


def _write_chunk(settings: RegisterSettings, task: Task, folder: Path) -> tuple[int, int]:
    """Simulate a chunk and write its files; returns the numbers of persons and panel rows."""
    birth_year, chunk, persons = task
    if settings.process is not None:
        rows = 0
        for name, table in settings.process.simulate_chunk(settings, birth_year, chunk, persons):
            _write(table, folder / name, birth_year, chunk)
            rows += table.height if name == "panel" else 0
        return persons, rows

    def save(year: int, life: LifeState) -> None:
        if year in settings.latent_years and (remains := _can_have_rows_after(year, life)).any():
            state = life.take(np.flatnonzero(remains)).to_frame()
            _write(state, folder / "latent" / f"year={year}", birth_year, chunk)

    life, frame = simulate_chunk(settings, birth_year, chunk, persons, save)
    _write(frame, folder / "panel", birth_year, chunk)
    if (remains := _can_have_rows_after(settings.last_year, life)).any():
        life = life.take(np.flatnonzero(remains))
        for draw in range(settings.future_draws):
            future = simulate_future(settings, life, chunk, draw)
            _write(future, folder / "future" / f"draw={draw}", birth_year, chunk)
    return persons, frame.height


def _can_have_rows_after(year: int, life: LifeState) -> Bools:
    """Whether persons can have rows after `year`: they are below 65, and have not left for good."""
    return np.asarray(
        np.isin(life.presence, (Presence.RESIDENT, Presence.ABROAD))
        & (year - life.birth_year < MAX_AGE)
    )


def _write(frame: pl.DataFrame, folder: Path, birth_year: int, chunk: int) -> None:
    path = folder / f"birth_year={birth_year}" / f"part-{chunk}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.write_parquet(path, compression="zstd", row_group_size=ROW_GROUP_SIZE)


def _write_macro(settings: RegisterSettings, folder: Path) -> None:
    if settings.future_to is None:
        return
    draws = [
        settings.world(k)
        .economy.to_frame(settings.last_year + 1, settings.future_to)
        .insert_column(0, pl.lit(k, pl.Int32).alias("draw"))
        for k in range(settings.future_draws)
    ]
    (folder / "future").mkdir(exist_ok=True)
    pl.concat(draws).write_parquet(folder / "future" / "macro.parquet", compression="zstd")


def _describe(settings: RegisterSettings, rows: int) -> dict[str, object]:
    process = settings.process
    name = "full" if process is None else process.name
    prefix = f"{SIMULATED_ID}{'register' if process is None else name}"
    history: dict[str, object] = {"macro": "sweden"}
    if settings.history is not None:
        prefix += f"-history-{settings.history}"
        years = settings.world().economy.to_frame(settings.first_year, settings.last_year)
        by_year = {str(year): rates for year, *rates in years.iter_rows()}
        history = {"macro": "drawn", "history": settings.history, "macro_rows": by_year}
    return {
        "register_id": f"{prefix}-{settings.seed}-{settings.persons}",
        "format_version": FORMAT_VERSION,
        "process": name,
        "persons": settings.persons,
        "rows": rows,
        "seed": settings.seed,
        "years": [settings.first_year, settings.last_year],
        "latent_years": list(settings.latent_years),
        "prices": "nominal",
        **history,
        "future_to": settings.future_to,
        "future_draws": settings.future_draws,
        "future_prices": PRICE_YEAR,
        # Only with the option, so that other registers have the bytes of earlier versions.
        **({"future_records": True} if settings.future_records else {}),
        "without": list(settings.without),
        "versions": {"numpy": np.__version__, "polars": pl.__version__},
        "parameters": settings.parameters.as_dict() if process is None else asdict(process),
    }


def _check(out: Path, settings: RegisterSettings, workers: int) -> None:
    """Raise UsageError for the first setting that is out of range."""
    first, last, future_to = settings.first_year, settings.last_year, settings.future_to
    saved, longest = _saved_years(settings), MAX_AGE - MIN_AGE
    refusals = (
        (
            not FIRST_HISTORY <= first <= last <= LAST_HISTORY,
            f"The years must lie within {FIRST_HISTORY}-{LAST_HISTORY}, the first before the last; "
            "give e.g. 1990-2022",
        ),
        (
            not 1 <= settings.persons <= MAX_PERSONS,
            f"The number of persons must be 1 to {MAX_PERSONS}",
        ),
        (settings.seed < 0, "The seed must be 0 or a positive whole number"),
        (
            not 1 <= workers <= WORKERS_PER_CORE * cpu_count(),
            "The number of workers must be at least 1 and not far above the number of processor "
            "cores",
        ),
        (
            (future_to is None) != (settings.future_draws == 0) or settings.future_draws < 0,
            "Futures need both a last year and a number of macro draws of at least 1",
        ),
        (
            future_to is not None and not last < future_to <= last + longest,
            f"The futures must end after the panel and within {longest} years of it",
        ),
        (
            out.exists() and (not out.is_dir() or any(out.iterdir())),
            f"{out} exists already; give a new directory",
        ),
        (
            saved[0] < first or saved[-1] > last,
            "The hidden state exists at the end of each year of the panel: give latent years "
            f"within {first}-{last}",
        ),
        (
            settings.future_records and future_to is None,
            "Records of futures need futures; also give --future-to, or leave out --future-records",
        ),
        (
            settings.process is not None
            and (bool(settings.without) or settings.history is not None),
            "A textbook process has none of the register's mechanisms and no history; leave out "
            "--without and --history, or --process",
        ),
        (
            settings.process is not None and settings.future_records,
            "A textbook process has earnings and no other records; leave out --future-records or "
            "--process",
        ),
    )
    for refused, message in refusals:
        if refused:
            raise UsageError(message)
