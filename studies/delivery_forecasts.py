"""Forecasts of the study of deliveries: a register continued, with and without planted breaks.

A future of the register has all columns, so persons can be forecast from each later year. A break
changes the earnings of future years from `BREAK_YEAR` on, person by person, by keyed random
numbers; the other columns stay. The forecaster knows the published macro series of the future up to
the origin, and the records up to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.evaluation.scoring.futures import macro_of_futures

from saga.arrays import Floats
from saga.conformal.families.set_family import probability_of_less
from saga.data.macro_rows import SERIES
from saga.data.origins import history, origins_at
from saga.data.panel import Panel
from saga.distributions import Marginals
from saga.forecaster import Forecaster
from saga.keyed_random import sample_rows, uniform_each
from saga.macro.history import MacroHistory
from saga.paths import Paths
from saga.requests import Draws

FIRST_ORIGIN, LAST_ORIGIN, BREAK_YEAR = 2022, 2032, 2024
N_HORIZONS = 5
GROUPS = ("quintile", "sex", "age")
BREAKS = ("none", "recession", "wages", "zeros", "definition")
N_PATHS = 100


@dataclass(frozen=True, eq=False)
class OriginForecasts:
    """Forecasts of n persons from one origin year, and what became of them.

    `raw` are the raw marginals of the next five years, `marginals` those of the bundle, and `paths`
    the raw paths of the persons in the rows `simulated` (m,). `outcomes` (n, 5) are NaN if unknown.
    """

    origin: int
    raw: Marginals
    marginals: Marginals
    simulated: NDArray[np.int64]
    paths: Paths
    outcomes: Floats

    @cached_property
    def less(self) -> Floats:
        """The bundle's probability of less earnings than the outcome (n, 5), NaN without one."""
        return probability_of_less(self.marginals, self.outcomes)

    @cached_property
    def p_zero(self) -> Floats:
        """The bundle's probability of zero (n, 5)."""
        return self.marginals.p_zero.astype(np.float64)

    @property
    def groups(self) -> dict[str, NDArray[np.str_]]:
        """Labels (n,) by name of the group."""
        return {name: self.marginals.groups[name] for name in GROUPS}


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


def forecasts_of_future(
    forecaster: Forecaster,
    panel: Panel,
    register: Path,
    draw: int,
    planted: str,
    value_persons: set[str],
) -> Iterator[OriginForecasts]:
    """The forecasts from each origin of one future under one break, with paths of some persons."""
    records, outcomes = continued_panel(panel, register, draw, planted)
    published = macro_of_futures(register)[draw]
    for origin in range(FIRST_ORIGIN, LAST_ORIGIN + 1):
        past = history(records, origins_at(records, origin))
        there = knowing(forecaster, published.filter(pl.col("year") <= origin))
        blocks = there.marginals(past, recalibrate=False, n_horizons=N_HORIZONS)
        raw = Marginals.joined([block.first(N_HORIZONS) for block in blocks])
        simulated = np.flatnonzero(np.isin(raw.person_id, sorted(value_persons)))
        paths = there.simulate(
            past.only(raw.person_id[simulated].tolist()),
            Draws(N_PATHS),
            to_horizon=N_HORIZONS,
            recalibrate=False,
        )
        marginals = forecaster.calibrator.recalibrate(raw)
        yield OriginForecasts(origin, raw, marginals, simulated, paths, _outcomes(outcomes, raw))


def knowing(forecaster: Forecaster, published: pl.DataFrame) -> Forecaster:
    """The forecaster that knows the `published` macro years as well."""
    model = forecaster.model
    assert model.process is not None
    bundle_years = model.process.history
    later = published.filter(pl.col("year") > bundle_years.last_year).select(SERIES).to_numpy()
    known = MacroHistory(bundle_years.first_year, np.concatenate([bundle_years.values, later]))
    process, calendar = replace(model.process, known=known), replace(model.calendar, history=known)
    return forecaster.with_model(replace(model, process=process, calendar=calendar))


def _outcomes(outcomes: Panel, marginals: Marginals) -> Floats:
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
