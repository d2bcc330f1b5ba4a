"""Simulation of chunks of persons, year by year: their history and their futures.

A chunk is a function of the seed, the birth year, the chunk number and the parameters. The result
therefore does not depend on the number of workers, and memory is bounded by the size of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np
import polars as pl

from saga.arrays import Bools
from saga.register.simulation.benefits import compute_benefits
from saga.register.simulation.careers import simulate_work
from saga.register.simulation.earnings import ROUND, compute_earnings, simulate_firms
from saga.register.simulation.economy import (
    FIRST_HISTORY,
    LAST_HISTORY,
    Economy,
    Employers,
    build_economy,
)
from saga.register.simulation.family import partner_earnings, simulate_family
from saga.register.simulation.life_state import CohortYear, LifeState
from saga.register.simulation.parameters import Parameters
from saga.register.simulation.population import (
    create_cohort,
    simulate_education,
    simulate_population,
)
from saga.register.simulation.records import FutureEarnings, FutureRecords, PanelRecords, YearResult
from saga.schema import MAX_AGE, MIN_AGE

CHUNK = 10_000  # persons simulated at once: about 100 MB
STREAM_TAG = 0x6C6966  # separates the streams of persons from those of the economy and employers


class Process(Protocol):
    """A textbook process (a frozen dataclass), which replaces the full simulation."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def name(self) -> str:
        """Its name in `register.json`."""
        ...

    def cohort_sizes(self, persons: int, first_year: int, last_year: int) -> dict[int, int]:
        """Persons of each birth cohort; they sum to `persons`."""
        ...

    def simulate_chunk(
        self, settings: RegisterSettings, birth_year: int, chunk: int, persons: int
    ) -> Iterator[tuple[str, pl.DataFrame]]:
        """Names and rows of the register's folders for one chunk; the panel's is `panel`."""
        ...


@dataclass(frozen=True)
class RegisterSettings:
    """Definition of one register.

    Attributes:
        persons: Number of persons with a row in the panel.
        seed: Seed of all random numbers.
        first_year: First year of the panel.
        last_year: Last year of the panel.
        future_to: Last year of the futures; None for no futures.
        future_draws: Number of futures, one for each draw of the economy.
        parameters: Parameters of the full process.
        latent_years: Years at whose end the hidden state is saved, in addition to the last.
        process: Textbook process that replaces the full one.
        without: Names of mechanisms that are switched off.
        future_records: Whether futures have all columns of the panel instead of earnings alone.
        history: Number of the drawn history; None for the years of Sweden.
    """

    persons: int
    seed: int
    first_year: int = FIRST_HISTORY
    last_year: int = LAST_HISTORY
    future_to: int | None = None
    future_draws: int = 0
    parameters: Parameters = field(default_factory=Parameters)
    latent_years: tuple[int, ...] = ()
    process: Process | None = None
    without: tuple[str, ...] = ()
    future_records: bool = False
    history: int | None = None

    def world(self, draw: int | None = None) -> World:
        """Economy and employers of the history, or of the future under macro draw `draw`."""
        return _world(self, draw)

    @property
    def future_end(self) -> int:
        """Last year of the futures; the last year of the panel if there are none."""
        return max(self.future_to or self.last_year, self.last_year)


@dataclass(frozen=True)
class World:
    """The economy, the employers, and by year flags of the employers that close (employer,)."""

    economy: Economy
    employers: Employers
    closings: dict[int, Bools]


@lru_cache(maxsize=8)
def _world(settings: RegisterSettings, draw: int | None) -> World:
    seed, p = settings.seed, settings.parameters
    first = settings.first_year - (MAX_AGE - MIN_AGE)
    last = settings.last_year if draw is None else settings.future_end
    economy = build_economy(first, last, p.economy, seed=seed, draw=draw, history=settings.history)
    employers = Employers.draw(seed, p.labour_market)
    closings = {
        year: employers.draw_closings(seed, draw, year, economy[year].job_loss)
        for year in range(first if draw is None else settings.last_year + 1, last + 1)
    }
    return World(economy, employers, closings)


def simulate_year(
    settings: RegisterSettings, life: LifeState, year: int, world: World, rng: np.random.Generator
) -> YearResult:
    """One year of a chunk, in the panel, a future or the oracle; updates `life` in place."""
    macro = world.economy[year]
    cohort_year = CohortYear(
        age=year - life.birth_year,
        first_year=settings.first_year,
        macro=macro,
        employers=world.employers,
        closing=world.closings[year],
        rng=rng,
        parameters=settings.parameters,
    )
    absent = simulate_population(life, cohort_year)
    births = simulate_family(life, cohort_year)
    entrants = simulate_education(life, cohort_year)
    activity = simulate_work(life, cohort_year, absent, entrants, births)
    firms = simulate_firms(life, cohort_year, activity)
    earnings = compute_earnings(life, cohort_year, activity, births, firms)
    partner = np.round(partner_earnings(life, cohort_year) * macro.wages / ROUND) * ROUND
    benefits = compute_benefits(life, cohort_year, activity, earnings, partner)
    return YearResult(macro, activity, earnings, partner, benefits)


def simulate_chunk(
    settings: RegisterSettings,
    birth_year: int,
    chunk: int,
    persons: int,
    visit: Callable[[int, LifeState], None] | None = None,
) -> tuple[LifeState, pl.DataFrame]:
    """Panel rows of one chunk, and its state at the end of the panel.

    Args:
        settings: Definition of the register.
        birth_year: Birth year of the cohort.
        chunk: Number of the chunk in its cohort.
        persons: Number of persons in the chunk.
        visit: Called with the year and the state at its end, before the next year changes it.
    """
    p, world = settings.parameters, settings.world()
    rng = random_stream(settings.seed, 0, birth_year, chunk)
    serials = np.arange(chunk * CHUNK, chunk * CHUNK + persons)
    panel_years = range(settings.first_year, settings.last_year + 1)
    life = create_cohort(birth_year, serials, panel_years, rng, p)
    record_rng = random_stream(settings.seed, 1, birth_year, chunk)
    records = PanelRecords(life, panel_years, record_rng, p, world.employers)
    for year in range(birth_year + MIN_AGE, min(settings.last_year, birth_year + MAX_AGE) + 1):
        result = simulate_year(settings, life, year, world, rng)
        if year >= settings.first_year:
            records.write(life, result)
        if visit is not None:
            visit(year, life)
    return life, records.to_frame(life)


def simulate_future(
    settings: RegisterSettings, life: LifeState, chunk: int, draw: int
) -> pl.DataFrame:
    """True later years of the persons of `life` under macro draw `draw`.

    `life` is the state at the end of the panel; it is not changed.
    """
    life = life.copy()
    years = range(settings.last_year + 1, min(settings.future_end, life.birth_year + MAX_AGE) + 1)
    records = _future_records(settings, life, years, chunk, draw)
    rng = random_stream(settings.seed, 2 + draw, life.birth_year, chunk)
    earnings = simulate_years(settings, life, years, settings.world(draw), rng, records)
    frame = earnings.to_frame(life)
    return frame if records is None else frame.hstack(records.to_frame(life))


def simulate_years(
    settings: RegisterSettings,
    life: LifeState,
    years: range,
    world: World,
    rng: np.random.Generator,
    records: FutureRecords | None = None,
) -> FutureEarnings:
    """Simulate the years after the state `life`, which is changed in place.

    The years are also written to `records`, which uses no random number of `rng`.
    """
    earnings = FutureEarnings(life, years)
    for year in years:
        result = simulate_year(settings, life, year, world, rng)
        earnings.write(life, result)
        if records is not None:
            records.write(life, result)
    return earnings


def _future_records(
    settings: RegisterSettings, life: LifeState, years: range, chunk: int, draw: int
) -> FutureRecords | None:
    if not settings.future_records:
        return None
    # The records of the panel draw these numbers first, one per person of the chunk. Their next
    # numbers (understated education before 2000) depend on the size of the chunk, so a future that
    # starts before 2000 has others.
    panel_rng = random_stream(settings.seed, 1, life.birth_year, chunk)
    school_unknown = panel_rng.random(CHUNK)[life.person - chunk * CHUNK]
    rng = random_stream(settings.seed, 1, life.birth_year, chunk, 1 + draw)
    return FutureRecords(
        life,
        years,
        rng,
        settings.parameters,
        settings.world(draw).employers,
        first_year=settings.first_year,
        school_unknown=school_unknown,
    )


def random_stream(
    seed: int, purpose: int, birth_year: int, chunk: int, *further: int
) -> np.random.Generator:
    """Counter-based random stream of a chunk.

    Purpose 0 is the history and 2 + k the future under macro draw k. Purpose 1 is the records of
    the panel; with `further` 1 + k, those of the future under macro draw k.
    """
    key = (seed, STREAM_TAG, purpose, birth_year, chunk, *further)
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))
