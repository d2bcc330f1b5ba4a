"""Generate a register: cohort by cohort, in chunks of persons, each chunk from its own named random stream.

A chunk depends on (seed, birth year, chunk number) and the parameters only, so the bytes are the same whatever the number of
workers, and memory is bounded by the chunk, not by the register.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import polars as pl

from saga.errors import UsageError
from saga.files.atomic import whole_folder
from saga.register.simulation.benefits import Benefits, entitle
from saga.register.simulation.careers import Activity, work_year
from saga.register.simulation.earnings import earn
from saga.register.simulation.economy import FIRST_HISTORY, LAST_HISTORY, Economy, build_economy
from saga.register.simulation.education import advance
from saga.register.simulation.family import family_year, partner_earnings
from saga.register.simulation.labour_market import Employers
from saga.register.simulation.life_state import ABROAD, RESIDENT, Bools, Floats, Life
from saga.register.simulation.mechanisms import without as switched_off
from saga.register.simulation.parameters import Parameters
from saga.register.simulation.population import cohort_sizes, found, migrate_and_die
from saga.register.simulation.records import FutureLedger, FutureRecords, Ledger
from saga.register.simulation.self_employment import own_account_year
from saga.register.textbook.textbook_register import Cohort, Process, future_rows, panel_rows
from saga.register.textbook.textbook_register import cohort_sizes as equal_cohorts
from saga.schema import MAX_AGE, MIN_AGE, PRICE_YEAR

FORMAT_VERSION = 1
CHUNK = 10_000  # persons simulated at once: about 100 MB
ROWS_A_GROUP = 100_000
CLOSING_SHARE = (
    0.25  # yearly share of employers that shed most jobs, relative to the rate of job loss
)
MAX_PERSONS = 9_999_999  # a cohort's running number has seven digits


@dataclass(frozen=True)
class Run:
    """What one register run is: everything that a chunk needs to know."""

    seed: int
    first_year: int
    last_year: int
    future_to: int | None
    future_draws: int
    parameters: Parameters
    latent_years: tuple[int, ...] = ()  # the hidden state is saved at the end of these years, too
    process: Process | None = None  # a textbook process instead of the full one
    future_records: bool = False  # futures have all columns, not the earnings only

    def world(self, draw: int | None = None) -> World:
        """Economy and employers of the history, or of the future under macro draw `draw`."""
        return _world(self, draw)


@dataclass(frozen=True)
class World:
    """What all lives share: the economy, the employers, and which employers close in each year."""

    economy: Economy
    employers: Employers
    closings: dict[int, Bools]


@dataclass(frozen=True)
class YearResult:
    """What a year brought to a chunk of persons: weeks, labour and partner's earnings (nominal SEK), benefits."""

    activity: Activity
    earnings: Floats
    partner: Floats
    benefits: Benefits


@lru_cache(maxsize=8)
def _world(run: Run, draw: int | None) -> World:
    first = run.first_year - (MAX_AGE - MIN_AGE)
    last = run.last_year if draw is None else max(run.future_to or run.last_year, run.last_year)
    economy = build_economy(first, last, run.parameters.economy, seed=run.seed, draw=draw)
    employers = Employers.draw(run.seed)
    closings = {
        year: employers.closing(run.seed, draw, year, CLOSING_SHARE * economy[year].job_loss)
        for year in range(first if draw is None else run.last_year + 1, last + 1)
    }
    return World(economy, employers, closings)


def live_year(
    life: Life, year: int, world: World, rng: np.random.Generator, first_year: int, p: Parameters
) -> YearResult:
    """One calendar year of a chunk, in place: the law of motion that the panel, the futures and an oracle share."""
    age = year - life.birth_year
    macro = world.economy[year]
    started = migrate_and_die(life, year, age, first_year, rng, p.population)
    births = family_year(life, macro, age, rng, p.population)
    entrants = advance(life, year, age, rng, p.education)
    activity = work_year(
        life,
        macro,
        age,
        started,
        entrants,
        births,
        world.employers,
        world.closings[year],
        rng,
        p.careers,
    )
    own = own_account_year(life, activity, age, rng, p.self_employment)
    earnings = earn(life, macro, age, activity, births, own, world.employers, rng, p.careers)
    partner = (
        np.round(partner_earnings(life, year, age, p.careers.base) * macro.wages / 100.0) * 100.0
    )
    return YearResult(
        activity,
        earnings,
        partner,
        entitle(life, macro, age, activity, births, earnings, partner, rng, p.benefits),
    )


def simulate_chunk(
    run: Run,
    birth_year: int,
    chunk: int,
    persons: int,
    visit: Callable[[int, Life], None] | None = None,
) -> tuple[Life, pl.DataFrame]:
    """The panel rows of one chunk and its state at the end of the panel; `visit(year, life)` sees the state after each year, before it
    is changed in place."""
    p, world = run.parameters, run.world()
    rng = stream(run.seed, 0, birth_year, chunk)
    serials = np.arange(chunk * CHUNK, chunk * CHUNK + persons)
    life = found(birth_year, serials, run.first_year, run.last_year, rng, p)
    ledger = Ledger(
        life,
        range(run.first_year, run.last_year + 1),
        stream(run.seed, 1, birth_year, chunk),
        p.records,
    )
    for year in range(birth_year + MIN_AGE, min(run.last_year, birth_year + MAX_AGE) + 1):
        result = live_year(life, year, world, rng, run.first_year, p)
        if year >= run.first_year:
            ledger.write(
                life,
                world.economy[year],
                result.activity,
                result.earnings,
                result.partner,
                result.benefits,
                world.employers,
                p.careers,
            )
        if visit is not None:
            visit(year, life)
    return life, ledger.frame(life)


def continue_chunk(run: Run, life: Life, chunk: int, draw: int) -> pl.DataFrame:
    """True later years of the persons of `life` (the state at the panel's end, left untouched) under macro draw `draw`."""
    life = life.copy()
    years = range(
        run.last_year + 1, min(run.future_to or run.last_year, life.birth_year + MAX_AGE) + 1
    )
    records = _future_records(run, life, years, chunk, draw) if run.future_records else None
    frame = live_on(
        run,
        life,
        years,
        run.world(draw),
        stream(run.seed, 2 + draw, life.birth_year, chunk),
        records,
    ).frame(life)
    return frame if records is None else frame.hstack(records.frame(life))


def live_on(
    run: Run,
    life: Life,
    years: range,
    world: World,
    rng: np.random.Generator,
    records: FutureRecords | None = None,
) -> FutureLedger:
    """The years that follow the state `life`, which is changed in place; also entered in `records`, which takes no number of `rng`."""
    ledger, careers = FutureLedger(life, years), run.parameters.careers
    for year in years:
        result = live_year(life, year, world, rng, run.first_year, run.parameters)
        macro = world.economy[year]
        ledger.write(life, macro, result.earnings)
        if records is not None:
            records.write(
                life,
                macro,
                result.activity,
                result.earnings,
                result.partner,
                result.benefits,
                world.employers,
                careers,
            )
    return ledger


def _future_records(run: Run, life: Life, years: range, chunk: int, draw: int) -> FutureRecords:
    # The panel's records draw these numbers first, one for each person of the chunk in order. Those that they draw next, who is understated
    # before 2000, depend on how many the chunk had: a future that starts before 2000 has others.
    school_unknown = stream(run.seed, 1, life.birth_year, chunk).random(CHUNK)[
        life.person - chunk * CHUNK
    ]
    rng = stream(run.seed, 1, life.birth_year, chunk, 1 + draw)
    return FutureRecords(
        life,
        years,
        rng,
        run.parameters.records,
        first_year=run.first_year,
        school_unknown=school_unknown,
    )


def stream(
    seed: int, purpose: int, birth_year: int, chunk: int, *further: int
) -> np.random.Generator:
    """The counter-based random stream of a chunk: purpose 0 lives, 1 records (`further` 1 + k: of the future under macro draw k),
    2 + k the future under macro draw k."""
    return np.random.Generator(
        np.random.Philox(
            np.random.SeedSequence((seed, 0x6C6966, purpose, birth_year, chunk, *further))
        )
    )


def generate_register(
    out: Path,
    *,
    persons: int,
    seed: int,
    first_year: int = FIRST_HISTORY,
    last_year: int = LAST_HISTORY,
    future_to: int | None = None,
    future_draws: int = 0,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
    parameters: Parameters | None = None,
    latent_years: Sequence[int] = (),
    process: Process | None = None,
    without: Sequence[str] = (),
    future_records: bool = False,
) -> dict[str, object]:
    """Simulate a register of `persons` and write it to the new directory `out`; returns the content of `register.json`.

    `panel/` holds the rows (nominal SEK), `latent/year=YYYY/` the hidden state of those still there at the end of the last year and of
    each of `latent_years`, `future/draw=k/` the true later years of those there at the panel's end under macro draw k (earnings in SEK
    of 2022, one row a person and year to age 64: 0 after death, null abroad), `future/macro.parquet` the draws. With `future_records`
    these rows go on with the other columns of the panel, as the register would record them (money in SEK of 2022; null after death
    and abroad). `progress(done, total)` counts persons. Written beside `out` and renamed when complete. With a textbook `process` the
    same files hold its persons; the drawn economies are written as ever, but do not touch them. `without` names mechanisms to switch off
    in `parameters`.
    Raises UsageError for arguments out of range, an unknown mechanism, and when `out` exists and is not empty.
    """
    _check(out, persons, seed, first_year, last_year, future_to, future_draws, workers)
    saved = tuple(sorted({*latent_years, last_year}))
    if saved[0] < first_year or saved[-1] > last_year:
        raise UsageError(
            f"The hidden state exists at the end of each year of the panel: give latent years within {first_year}-{last_year}"
        )
    if process is not None and without:
        raise UsageError(
            "A textbook process has none of the register's mechanisms; leave out --without or --process"
        )
    if future_records and future_to is None:
        raise UsageError(
            "Records of futures need futures; give --future-to, too, or leave out --future-records"
        )
    if future_records and process is not None:
        raise UsageError(
            "A textbook process has earnings and no other records; leave out --future-records or --process"
        )
    law = switched_off(parameters or Parameters(), without)
    run = Run(
        seed, first_year, last_year, future_to, future_draws, law, saved, process, future_records
    )
    with whole_folder(out) as partial:
        tasks = list(_tasks(run, persons))
        done = rows = 0
        with closing(_execute(run, tasks, partial, workers)) as results:
            for task_persons, task_rows in results:
                done, rows = done + task_persons, rows + task_rows
                if progress is not None:
                    progress(done, persons)
        _write_macro(run, partial)
        description = _describe(run, persons, rows, without)
        (partial / "register.json").write_text(json.dumps(description, indent=2) + "\n")
    return description


def _tasks(run: Run, persons: int) -> Iterator[tuple[int, int, int]]:
    """(birth year, chunk, persons) in order."""
    if run.process is None:
        sizes = cohort_sizes(persons, run.first_year, run.last_year, run.parameters.population)
    else:
        sizes = equal_cohorts(run.process, persons, run.first_year, run.last_year)
    for birth_year, size in sizes.items():
        for chunk, start in enumerate(range(0, size, CHUNK)):
            yield birth_year, chunk, min(CHUNK, size - start)


def _execute(
    run: Run, tasks: list[tuple[int, int, int]], partial: Path, workers: int
) -> Generator[tuple[int, int]]:
    if workers == 1:
        for task in tasks:
            yield _write_chunk(run, *task, partial)
        return
    # An interrupt is the parent's to handle.
    pool = ProcessPoolExecutor(
        workers,
        mp_context=get_context("spawn"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )
    try:
        with _single_threaded():
            waiting = {pool.submit(_write_chunk, run, *task, partial) for task in tasks}
        for future in as_completed(waiting):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Processes started inside have one thread each, or workers would hold as many as the machine has cores, each with memory of its own:
    Polars and BLAS read these variables when they are loaded."""
    names = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _write_chunk(
    run: Run, birth_year: int, chunk: int, persons: int, partial: Path
) -> tuple[int, int]:
    """Simulate a chunk and write its files; returns (persons, panel rows)."""
    if run.process is not None:
        return _write_textbook_chunk(run, run.process, birth_year, chunk, persons, partial)

    def save(year: int, life: Life) -> None:
        if year in run.latent_years and (stays := _stays(life, year)).any():
            _write(
                life.take(np.flatnonzero(stays)).frame(),
                partial / "latent" / f"year={year}",
                birth_year,
                chunk,
            )

    life, frame = simulate_chunk(run, birth_year, chunk, persons, save)
    _write(frame, partial / "panel", birth_year, chunk)
    if (stays := _stays(life, run.last_year)).any():
        life = life.take(np.flatnonzero(stays))
        for draw in range(run.future_draws):
            _write(
                continue_chunk(run, life, chunk, draw),
                partial / "future" / f"draw={draw}",
                birth_year,
                chunk,
            )
    return persons, frame.height


def _write_textbook_chunk(
    run: Run, process: Process, birth_year: int, chunk: int, persons: int, partial: Path
) -> tuple[int, int]:
    rng = stream(run.seed, 0, birth_year, chunk)
    cohort = Cohort.found(
        process, birth_year, np.arange(chunk * CHUNK, chunk * CHUNK + persons), rng
    )
    lived = []
    for year in range(cohort.year + 1, min(run.last_year, birth_year + process.last_age) + 1):
        lived.append(cohort.live(year, rng))
        if year in run.latent_years and year < birth_year + process.last_age:
            _write(cohort.latent(), partial / "latent" / f"year={year}", birth_year, chunk)
    rows = pl.concat(lived).filter(pl.col("year") >= run.first_year).sort("person_id", "year")
    _write(panel_rows(rows), partial / "panel", birth_year, chunk)
    if run.last_year < birth_year + process.last_age:
        for draw in range(run.future_draws):
            rows_ahead = cohort.copy().live(
                run.future_to or run.last_year, stream(run.seed, 2 + draw, birth_year, chunk)
            )
            _write(future_rows(rows_ahead), partial / "future" / f"draw={draw}", birth_year, chunk)
    return persons, rows.height


def _stays(life: Life, year: int) -> Bools:
    """Who has a life in the register after `year`: below 65 then, and resident or abroad for a time."""
    return np.asarray(
        np.isin(life.presence, (RESIDENT, ABROAD)) & (year - life.birth_year < MAX_AGE)
    )


def _write(frame: pl.DataFrame, folder: Path, birth_year: int, chunk: int) -> None:
    path = folder / f"birth_year={birth_year}" / f"part-{chunk}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.write_parquet(path, compression="zstd", row_group_size=ROWS_A_GROUP)


def _write_macro(run: Run, partial: Path) -> None:
    if run.future_to is None:
        return
    draws = [
        run.world(k)
        .economy.frame(run.last_year + 1, run.future_to)
        .insert_column(0, pl.lit(k, pl.Int32).alias("draw"))
        for k in range(run.future_draws)
    ]
    (partial / "future").mkdir(exist_ok=True)
    pl.concat(draws).write_parquet(partial / "future" / "macro.parquet", compression="zstd")


def _describe(run: Run, persons: int, rows: int, without: Sequence[str]) -> dict[str, object]:
    name = "full" if run.process is None else run.process.name
    return {
        "register_id": f"saga-{'register' if run.process is None else name}-{run.seed}-{persons}",
        "format_version": FORMAT_VERSION,
        "process": name,
        "persons": persons,
        "rows": rows,
        "seed": run.seed,
        "years": [run.first_year, run.last_year],
        "latent_years": list(run.latent_years),
        "prices": "nominal",
        "macro": "sweden",
        "future_to": run.future_to,
        "future_draws": run.future_draws,
        "future_prices": PRICE_YEAR,
        **(
            {"future_records": True} if run.future_records else {}
        ),  # registers without are the same bytes as before there was a choice
        "without": sorted(set(without)),
        "versions": {"numpy": np.__version__, "polars": pl.__version__},
        "parameters": asdict(run.parameters if run.process is None else run.process),
    }


def _check(
    out: Path,
    persons: int,
    seed: int,
    first_year: int,
    last_year: int,
    future_to: int | None,
    future_draws: int,
    workers: int,
) -> None:
    if not FIRST_HISTORY <= first_year <= last_year <= LAST_HISTORY:
        raise UsageError(
            f"The years must lie within {FIRST_HISTORY}-{LAST_HISTORY}, the first before the last; give e.g. 1990-2022"
        )
    if not 1 <= persons <= MAX_PERSONS:
        raise UsageError(f"The number of persons must be 1 to {MAX_PERSONS}")
    if seed < 0:
        raise UsageError("The seed must be 0 or a positive whole number")
    if workers < 1 or workers > 4 * (os.cpu_count() or 1):
        raise UsageError(
            "The number of workers must be at least 1 and not far above the number of processor cores"
        )
    if (future_to is None) != (future_draws == 0) or future_draws < 0:
        raise UsageError("Futures need both a last year and a number of macro draws of at least 1")
    if future_to is not None and not last_year < future_to <= last_year + MAX_AGE - MIN_AGE:
        raise UsageError(
            f"The futures must end after the panel and within {MAX_AGE - MIN_AGE} years of it"
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists already; give a new directory")
