"""Forecasts of the study of deliveries: a register continued, with and without planted breaks.

A future of the register has all columns, so persons can be forecast from each later year. A break
changes the earnings of future years from `BREAK_YEAR` on, person by person, by keyed random
numbers; the other columns stay. The forecaster knows the published macro series of the future up to
the origin, and the records up to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.evaluation.scoring.futures import macro_of_futures

from saga.conformal.families.set_family import probability_of_less
from saga.conformal.recalibration import map_paths
from saga.data.macro_rows import SERIES
from saga.data.origins import Origins, history, origins_at
from saga.data.panel import Panel
from saga.distributions import Marginals
from saga.features.calendar import Calendar
from saga.features.sequences import encode
from saga.forecaster import Forecaster
from saga.keyed_random import sample_rows, uniform_each
from saga.lifetime import realised_value
from saga.macro.history import MacroHistory, log_wage_index
from saga.paths import Paths
from saga.person_forecasts import PersonForecasts
from saga.simulation.marginals import DirectMarginals
from saga.simulation.rollout import Rollout, RolloutOptions

Array = NDArray[np.float64]
Forecasts = TypeVar("Forecasts", bound=PersonForecasts)
FIRST_ORIGIN, LAST_ORIGIN, BREAK_YEAR = 2022, 2032, 2024
N_HORIZONS = 5
GROUPS = ("quintile", "sex", "age")
BREAKS = ("none", "recession", "wages", "zeros", "definition")
# Probabilities whose quantiles are kept: widths of moved sets are computed from them.
P = np.array([0.001, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.25, 0.5])
PROBABILITIES = np.concatenate([P, 1 - P[-2::-1]])
N_PATHS = 100


_STORED = ("person_id", "less", "p_zero", "quantiles", "simulated", "slices", "ranks", "value")


@dataclass(frozen=True, eq=False)
class OriginForecasts:
    """Recalibrated forecasts from one origin year, and what became of them.

    `less` (n, 5) is the forecast probability of less earnings than the outcome, NaN without one;
    `p_zero` (n, 5); `quantiles` (n, 2, len(PROBABILITIES)) in money, one and five years ahead;
    `groups` name -> labels (n,). `simulated` (m,) are the rows of the persons with paths. `slices`
    (m, 5, N_PATHS) are the means of slices of equal probability, `ranks` of the same shape the
    slice of each path in each year; `value` (m, 5) are the realised present values of the first one
    to five years.
    """

    origin: int
    person_id: NDArray[np.str_]
    less: Array
    p_zero: Array
    quantiles: NDArray[np.float32]
    simulated: NDArray[np.int64]
    slices: NDArray[np.float32]
    ranks: NDArray[np.uint8]
    value: Array
    groups: dict[str, NDArray[np.str_]]


class PublishedCalendar(Calendar):
    """A calendar with later published years; the wage index stays 0 in the bundle's last year."""

    base_year: int

    @classmethod
    def of(cls, series: MacroHistory, base_year: int) -> PublishedCalendar:
        """The calendar of a series with the base of the bundle."""
        calendar = cls(series)
        object.__setattr__(calendar, "base_year", base_year)
        return calendar

    def wage_index(self, years: NDArray[np.integer[Any]]) -> Array:
        """Log real wage index of each year, 0 in the base year."""
        assert self.history is not None
        logs = log_wage_index(self.history.values[:, 1])
        index = np.clip(years - self.history.first_year, 0, len(logs) - 1)
        return np.asarray(logs[index] - logs[self.base_year - self.history.first_year])


def continued_panel(panel: Panel, register: Path, draw: int, planted: str) -> tuple[Panel, Panel]:
    """The panel with the rows of a future under a break: records, and rows with outcomes.

    The second panel has also the zero earnings of years after a death.
    """
    future = register / "future" / f"draw={draw}"
    files = pl.scan_parquet(sorted(future.rglob("*.parquet")), glob=False, hive_partitioning=False)
    persons = panel.frame.lazy().select("person_id").unique()
    rows = files.join(persons, on="person_id", how="semi").collect()
    rows = rows.filter(pl.col("earnings").is_not_null()).sort("person_id", "year")
    known = [name for name in panel.frame.columns if name in rows.columns]
    later = rows.select(
        pl.col(name).cast(dtype) if name in known else pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in panel.frame.schema.items()
    )
    later = plant(later, planted)
    # Labels of an exit are the same in all rows of a person.
    exits = later.group_by("person_id").agg(pl.col("exit_year", "exit_reason").last())
    past = panel.frame.drop("exit_year", "exit_reason").join(
        exits, on="person_id", how="left", maintain_order="left"
    )
    frame = pl.concat([past.select(panel.frame.columns), later]).sort("person_id", "year")
    alive = pl.col("exit_year").is_null() | (pl.col("year") < pl.col("exit_year"))
    return panel.with_frame(frame.filter(alive)), panel.with_frame(frame)


def plant(rows: pl.DataFrame, planted: str) -> pl.DataFrame:
    """The future rows with the earnings that they have under a break.

    - recession: each year a share of the persons (12 % at first, falling to 6 %) permanently loses
      an exponentially distributed part of log earnings with mean 0.7; a tenth of it heals a year.
    - wages: the wages of all fall by 4 % a year in four years, beyond the published series.
    - zeros: each year 4 % of the persons earn nothing, and half of the persons have no earnings
      below 100,000 SEK any more.
    - definition: earnings include benefits worth 6 %, and amounts below 24,150 SEK are no earnings.
    """
    if planted == "none":
        return rows
    since = rows["year"].to_numpy() - BREAK_YEAR
    earnings = rows["earnings"].to_numpy().astype(np.float64)
    ids = rows["person_id"].to_list()
    is_after = since >= 0
    if planted == "wages":
        factor = 0.96 ** np.clip(since + 1, 0, 4)
        changed = earnings * factor
    elif planted == "definition":
        changed = np.where(is_after, np.where(earnings < 24_150, 0.0, 1.06 * earnings), earnings)
    else:
        years = rows["year"].to_list()
        keys = list(zip(ids, years, strict=True))
        hit, size = (uniform_each(keys, planted, name) for name in ("hit", "size"))
        if planted == "recession":
            share = 0.06 + 0.06 * 0.6 ** np.maximum(since, 0)
            loss = np.where(is_after & (hit < share), -0.7 * np.log(size), 0.0)
            starts = np.flatnonzero(np.r_[True, np.array(ids[1:]) != np.array(ids[:-1])])
            scar = np.zeros(len(loss))
            first = np.zeros(len(loss), dtype=np.bool_)
            first[starts] = True
            for i in range(len(loss)):
                scar[i] = loss[i] + (0.0 if first[i] else 0.9 * scar[i - 1])
            changed = earnings * np.exp(-scar)
        else:
            small = uniform_each(ids, planted, "small") < 0.5
            gone = (hit < 0.04) | (small & (earnings < 100_000))
            changed = np.where(is_after & gone, 0.0, earnings)
    return rows.with_columns(pl.Series("earnings", changed))


def sample_persons(panel: Panel, n_persons: int, seed: int) -> Panel:
    """About `n_persons` persons with a record in the last year who are at most 60 then."""
    last = panel.frame.filter(
        (pl.col("year") == FIRST_ORIGIN) & (pl.col("year") - pl.col("birth_year") <= 60)
    )
    ids = last["person_id"].to_list()
    rows = sample_rows(ids, n_persons, "deliveries", seed)
    return panel.only([ids[i] for i in rows.tolist()])


@dataclass(frozen=True, eq=False)
class Unbroken:
    """A future without a break: its records, and the raw forecasts from each origin so far.

    A person whose record is the same under a break has the same forecast.
    """

    records: Panel
    raw: dict[int, tuple[Marginals, Paths]] = field(default_factory=dict)

    def same_records(self, records: Panel, origin: int) -> set[str]:
        """The persons whose earnings up to `origin` are those without a break."""
        later = pl.col("year").is_between(BREAK_YEAR, origin)
        both = self.records.frame.filter(later).join(records.frame, on=["person_id", "year"])
        changed = both.filter(pl.col("earnings") != pl.col("earnings_right"))["person_id"]
        return set(records.persons()) - set(changed)


def forecasts_of_future(
    forecaster: Forecaster,
    panel: Panel,
    register: Path,
    draw: int,
    planted: str,
    value_persons: set[str],
    unbroken: Unbroken,
) -> Iterator[OriginForecasts]:
    """The forecasts from each origin of one future under one break, with paths of some persons.

    The raw forecasts of `unbroken` are used again; without a break they are stored there.
    """
    records, outcomes = continued_panel(panel, register, draw, planted)
    published = macro_of_futures(register)[draw]
    for origin in range(FIRST_ORIGIN, LAST_ORIGIN + 1):
        origins = origins_at(records, origin)
        past = history(records, origins)
        macro = published.filter(pl.col("year") <= origin)
        known = unbroken.raw.get(origin)
        if known is None:
            raw = raw_forecasts(forecaster, past, macro, value_persons)
        elif origin < BREAK_YEAR:
            raw = known
        else:
            same = unbroken.same_records(records, origin)
            changed = past.only([person for person in past.persons() if person not in same])
            new = raw_forecasts(forecaster, changed, macro, value_persons)
            raw = _joined(known[0], new[0], same), _joined(known[1], new[1], same)
        if planted == BREAKS[0]:
            unbroken.raw[origin] = raw
        yield _judged(forecaster, past, origins, outcomes, *raw)


def _joined(known: Forecasts, new: Forecasts, same: set[str]) -> Forecasts:
    """The `same` persons of `known` and all of `new`, in the order of their names."""
    is_same = np.array([person in same for person in known.person_id.tolist()], dtype=np.bool_)
    both = type(known).joined([known.take(is_same), new])
    return both.take(np.argsort(both.person_id))


def _judged(
    forecaster: Forecaster,
    past: Panel,
    origins: Origins,
    outcomes: Panel,
    raw: Marginals,
    paths: Paths,
) -> OriginForecasts:
    grouping = forecaster.calibrator.grouping
    assert grouping is not None
    order = np.argsort(origins.person_id)
    labels = grouping.labels(past, origins.take(order))
    marginals = forecaster.calibrator.recalibrate(replace(raw, groups=labels))
    amounts = _outcomes(outcomes, marginals)
    simulated = np.flatnonzero(np.isin(marginals.person_id, paths.person_id))
    of_paths, known = marginals.take(simulated), amounts[simulated]
    return OriginForecasts(
        int(origins.year[0]),
        marginals.person_id,
        probability_of_less(marginals, amounts),
        marginals.p_zero.astype(np.float64),
        marginals.at_horizons([1, N_HORIZONS]).quantiles(PROBABILITIES).astype(np.float32),
        simulated,
        of_paths.slice_means(N_PATHS).astype(np.float32),
        path_ranks(paths, of_paths),
        np.stack([realised_value(known[:, :k]) for k in range(1, N_HORIZONS + 1)], axis=1),
        {name: labels[name] for name in GROUPS},
    )


def raw_forecasts(
    forecaster: Forecaster, past: Panel, published: pl.DataFrame, value_persons: set[str]
) -> tuple[Marginals, Paths]:
    """Raw marginals of the next five years, and paths of some persons, in the order of names.

    The `published` macro years are known.
    """
    assert forecaster.process is not None
    known = forecaster.process.history
    later = published.filter(pl.col("year") > known.last_year).select(SERIES).to_numpy()
    series = MacroHistory(known.first_year, np.concatenate([known.values, later]))
    calendar = PublishedCalendar.of(series, known.last_year)
    process = replace(forecaster.process, history=series)
    member = forecaster.model.members[0]
    direct = DirectMarginals(
        member.network, member.transforms, calendar, process, n_horizons=N_HORIZONS
    )
    sequences = encode(past, member.transforms, calendar)
    marginals = direct.marginals(sequences, np.arange(len(sequences)), {})
    options = RolloutOptions(N_PATHS, 0, light=forecaster.rollout == "light")
    rollout = Rollout(member.network, calendar, process, options)
    years_left = 64 - (marginals.origin_year - marginals.birth_year)
    steps = np.minimum(years_left, N_HORIZONS)
    persons = np.flatnonzero([p in value_persons for p in marginals.person_id.tolist()])
    earnings = np.full((len(persons), N_HORIZONS, N_PATHS), np.nan, dtype=np.float32)
    size = rollout.group_size(len(persons))
    for start in range(0, len(persons), size):
        rows = np.arange(start, min(start + size, len(persons)))
        group = persons[rows]
        for i, simulated in zip(
            rows.tolist(), rollout.simulate(sequences, group, steps[group]), strict=True
        ):
            earnings[i, : len(simulated)] = simulated
    of_paths = marginals.take(persons)
    paths = Paths(of_paths.person_id, of_paths.birth_year, of_paths.origin_year, earnings)
    return marginals, paths


def path_ranks(paths: Paths, marginals: Marginals) -> NDArray[np.uint8]:
    """The slice of each raw path in each year, of N_PATHS; see `map_paths`."""
    grid, edges = np.log(np.arange(1, N_PATHS + 2)), np.linspace(0.0, 1.0, N_PATHS + 1)
    shape = (*marginals.p_zero.shape, len(grid))
    uniform = replace(
        marginals,
        grid=np.broadcast_to(grid, shape),
        cdf=np.broadcast_to(edges, shape),
        p_zero=np.where(marginals.exists, 0.0, np.nan),
    )
    mapped = map_paths(paths, uniform).earnings
    return (np.nan_to_num(mapped, nan=1.0) - 1).astype(np.uint8)


def _outcomes(outcomes: Panel, marginals: Marginals) -> Array:
    """Outcomes (n, 5): 0 after a death, NaN abroad and above age 64."""
    n = len(marginals)
    person_years = pl.DataFrame(
        {
            "person_id": np.repeat(marginals.person_id, N_HORIZONS).astype(object),
            "year": (marginals.origin_year[:, None] + np.arange(1, N_HORIZONS + 1)).ravel(),
        },
        schema={"person_id": pl.String, "year": pl.Int32},
    )
    outcome_rows = person_years.join(
        outcomes.frame.select("person_id", "year", "earnings"),
        on=["person_id", "year"],
        how="left",
        maintain_order="left",
    )
    return (
        outcome_rows["earnings"]
        .cast(pl.Float64)
        .fill_null(np.nan)
        .to_numpy()
        .reshape(n, N_HORIZONS)
    )


def store(forecasts: list[OriginForecasts], file: Path) -> None:
    """Write the forecasts of one future and break."""
    arrays: dict[str, NDArray[np.generic]] = {}
    for part in forecasts:
        arrays |= {f"{name}_{part.origin}": getattr(part, name) for name in _STORED}
        arrays |= {f"{name}_{part.origin}": labels for name, labels in part.groups.items()}
    temporary = file.with_suffix(".part.npz")
    np.savez(temporary, allow_pickle=False, **arrays)
    temporary.replace(file)


def load(file: Path) -> list[OriginForecasts]:
    """The forecasts that `store` wrote."""
    with np.load(file) as arrays:
        return [
            OriginForecasts(
                origin,
                arrays[f"person_id_{origin}"],
                arrays[f"less_{origin}"],
                arrays[f"p_zero_{origin}"],
                arrays[f"quantiles_{origin}"],
                arrays[f"simulated_{origin}"],
                arrays[f"slices_{origin}"],
                arrays[f"ranks_{origin}"],
                arrays[f"value_{origin}"],
                {name: arrays[f"{name}_{origin}"] for name in GROUPS},
            )
            for origin in range(FIRST_ORIGIN, LAST_ORIGIN + 1)
        ]
