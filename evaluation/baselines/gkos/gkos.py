"""The GKOS process as a forecaster: estimated on training persons, filtered by record.

Two baselines. `gkos-paper`: one process, from the paper's 87 moments. `gkos`: from robust moments,
by sex, with mean earnings and non-employment by age and education, and deaths. Method:
docs/method/baselines-gkos.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluation.baselines.gkos.gkos_moments import AGES, FIRST, PaperMoments, RobustMoments
from evaluation.baselines.gkos.gkos_smm import (
    GROWTH,
    IDLENESS,
    SHOCKS,
    Draws,
    Fit,
    ProfiledProcess,
    Weights,
    intercepts_for,
    process_of,
    process_values,
    search,
)
from evaluation.baselines.origin_states import (
    CODES,
    Reference,
    States,
    as_states,
    known_states,
    states_at,
)
from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.errors import InputError, Problem
from saga.keyed_random import sample_rows, uniform_rows
from saga.paths import Paths
from saga.register.textbook.exact_forecaster import ExactForecaster
from saga.register.textbook.gaussian_ar1 import THOUSAND_DOLLARS
from saga.register.textbook.gkos_process import FEW_ZEROS, GkosProcess
from saga.register.textbook.particle_filter import GkosFilter
from saga.schema import MAX_AGE

Floats = NDArray[np.float64]
Array = NDArray[Any]
PARTICLES = 125
# Careers simulated at each evaluation of a process; two per person in a smaller panel.
CAREERS = {"gkos-paper": 6_000, "gkos": 1_500}
PROFILED = 12_000  # careers simulated for the profiles of the estimated process
FEWEST = 400  # persons that a group with its own process or profile needs
MANY = 2_000  # persons that a sex with one process per era needs
SETTLED = 30  # from this age the last known education counts as final
SLACK = 0.02  # shares are matched at best within two points
NEGLIGIBLE = 0.02  # a less likely final education is left out of a forecast
PUBLISHED = GkosProcess()
SEXES, SCHOOLS = len(CODES["sex"]) + 1, len(CODES["education_level"]) + 1


@dataclass(frozen=True)
class Era:
    """Ages at which a process forecasts.

    Args:
        start: the first age.
        records_from: the first age of records that are used.
        decades: decades of age whose changes the process is estimated on.
    """

    start: int
    records_from: int
    decades: tuple[int, ...]


ERAS = (Era(FIRST, FIRST, (0,)), Era(30, 25, (1, 2, 3)))
ALWAYS = Era(FIRST, FIRST, (0, 1, 2, 3))


@dataclass(frozen=True, eq=False)
class Records:
    """Detrended records of n persons.

    Args:
        person_id: (n,).
        earnings: (n, A) at ages 20..64, NaN if unknown.
        sex: (n,), last known code, 0 if unknown.
        education: (n,), likewise.
    """

    person_id: NDArray[np.str_]
    earnings: Floats
    sex: Array
    education: Array

    @classmethod
    def of(cls, states: pl.DataFrame, detrended: Floats) -> Records:
        """From the rows of `known_states` and their detrended earnings.

        Raises InputError if no person has earnings at 20 or later.
        """
        rows = states.with_columns(pl.Series("real", detrended)).filter(
            pl.col("age").is_between(FIRST, MAX_AGE)
        )
        if rows.is_empty():
            fix = "Give a panel with persons of 20 to 64 years."
            raise InputError(
                "There is nothing to learn from",
                [Problem("no-outcomes", "No person has earnings at 20 or later", fix)],
            )
        last = rows.group_by("person_id", maintain_order=True).agg(
            pl.col("sex", "education_level").last()
        )
        row = rows["person_id"].rle_id().to_numpy()
        earnings = np.full((last.height, len(AGES)), np.nan)
        earnings[row, rows["age"].to_numpy() - FIRST] = rows["real"].to_numpy()
        sex, education = (
            last[name].to_numpy().astype(np.int64) for name in ("sex", "education_level")
        )
        return cls(np.array(last["person_id"].to_list(), dtype=np.str_), earnings, sex, education)

    def take(self, rows: Any) -> Records:
        """The persons in `rows`."""
        return Records(
            self.person_id[rows], self.earnings[rows], self.sex[rows], self.education[rows]
        )

    def sample(self, count: int, seed: int) -> Array:
        """Indices of at most `count` persons, a keyed choice."""
        return sample_rows(self.person_id.tolist(), count, "gkos", seed)


@dataclass(frozen=True, eq=False)
class LowEarnings:
    """Earnings in years below the minimum.

    Args:
        share: (A,), share with positive earnings by age 20..64.
        quantiles: of these earnings at all ages.
    """

    share: Floats
    quantiles: Floats

    @classmethod
    def of(cls, states: pl.DataFrame, minimum: float) -> LowEarnings:
        """From the rows of `known_states`."""
        low = states.filter(pl.col("earnings") < minimum, pl.col("age").is_between(FIRST, MAX_AGE))
        age, earned = low["age"].to_numpy() - FIRST, low["earnings"].to_numpy() > 0
        share = _ratio(
            np.bincount(age[earned], minlength=len(AGES)), np.bincount(age, minlength=len(AGES))
        )
        amounts = low["earnings"].to_numpy()[earned]
        return cls(
            share,
            np.quantile(amounts, (np.arange(100) + 0.5) / 100) if len(amounts) else np.zeros(100),
        )

    def earn(self, earnings: NDArray[np.float32], age: Array, u: Floats) -> None:
        """Adds small earnings to some years out of work in `earnings` (n, H, M), in place.

        `age` (n, H) counts from 20.
        """
        share = np.broadcast_to(self.share[age][:, :, None], u.shape)
        earns = (earnings == 0) & (u < share)
        earnings[earns] = self.quantiles[
            (u[earns] / share[earns] * len(self.quantiles)).astype(np.int64)
        ]


class GkosBaseline(ABC):
    """The common part of both baselines: detrending, the filter, and wage growth."""

    name: str
    fits: dict[str, Fit]  # by group of persons

    def fit(self, panel: Panel, *, seed: int) -> Self:
        """Estimates the process on the persons of `panel`; deterministic given `seed`.

        Earnings are first divided by the panel's median of each year. A keyed choice of persons is
        simulated. Raises InputError if no person has earnings at 20 or later.
        """
        states = known_states(panel)
        self.reference = Reference(as_states(states))
        self.last = self.reference.last
        positive = states["earnings"].filter(states["earnings"] > 0)
        self.minimum = panel.meta.floor or float(positive.min() or 1.0)  # type: ignore[arg-type]
        self.low_earnings, self.deaths = (
            LowEarnings.of(states, self.minimum),
            death_hazard(panel, states),
        )
        self._estimate(Records.of(states, self._detrended(states)), states, seed)
        return self

    def simulate(
        self, history: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Paths:
        """Joint futures given the record from age 20 on, shape (n, to_horizon, n_paths).

        They follow the distribution of (alpha, beta, z) given the record. Real wages grow from the
        origin's year at the average rate of the training years. Raises InputError for an origin
        before 19.
        """
        worked = history.frame.with_columns(
            pl.Series("earnings", self._detrended(history.frame)).fill_nan(None)
        )
        states, born = states_at(history, origins)
        earnings = self._simulate(
            states, history.with_frame(worked), origins, to_horizon, n_paths, seed
        )
        grown = self._index(origins.year)[:, None] * np.exp(
            self.reference.growth * np.arange(1, to_horizon + 1)
        )
        earnings = earnings * grown[:, :, None].astype(np.float32)
        age = (
            np.clip((origins.year - born)[:, None] + np.arange(1, to_horizon + 1), FIRST, MAX_AGE)
            - FIRST
        )
        ids = list(zip(origins.person_id.tolist(), origins.year.tolist(), strict=True))
        self.low_earnings.earn(
            earnings,
            age,
            uniform_rows(to_horizon * n_paths, ids, "gkos-little", seed).reshape(earnings.shape),
        )
        alive = np.cumprod(1.0 - self.deaths[states.sex.astype(np.int64)[:, None], age], axis=1)
        dead = uniform_rows(n_paths, ids, "gkos-death", seed)[:, None, :] > alive[:, :, None]
        earnings[dead & np.isfinite(earnings)] = 0.0
        return Paths(np.asarray(origins.person_id), born, np.asarray(origins.year), earnings)

    def estimates(self) -> pl.DataFrame:
        """After `fit`: `parameter` (with the group, if there are several), `value` and `se`."""
        rows = [
            (name if len(self.fits) == 1 else f"{name}, {people}", value, fit.errors[name])
            for people, fit in self.fits.items()
            for name, value in fit.values.items()
        ]
        return pl.DataFrame(
            rows,
            schema={"parameter": pl.String, "value": pl.Float64, "se": pl.Float64},
            orient="row",
        )

    def _detrended(self, rows: pl.DataFrame) -> Floats:
        """Earnings at the wages of the last training year; a year below the minimum is 0."""
        earnings = rows["earnings"].cast(pl.Float64).fill_null(np.nan).to_numpy()
        return np.where(
            earnings < self.minimum, 0.0, earnings / self._index(rows["year"].to_numpy())
        )

    def _index(self, year: Array) -> Floats:
        return np.asarray(self.reference.level(year) / self.reference.level(np.array(self.last)))

    @abstractmethod
    def _estimate(self, records: Records, rows: pl.DataFrame, seed: int) -> None:
        """Estimates the process from records; `rows` are those of `known_states`."""

    @abstractmethod
    def _simulate(
        self,
        states: States,
        detrended: Panel,
        origins: Origins,
        to_horizon: int,
        paths: int,
        seed: int,
    ) -> NDArray[np.float32]:
        """Detrended futures (n, to_horizon, n_paths) from detrended records."""


class GkosPaper(GkosBaseline):
    """The process from the paper's 87 moments.

    The moments do not depend on non-employment or on mean earnings. So b, c, d and lambda stay as
    published for US men, and the intercepts a and a0 reproduce the panel's share of zeros and mean
    log earnings.
    """

    name = "gkos-paper"
    version = 1  # raise it when its numbers may change (see `evaluation.cache`)

    def _estimate(self, records: Records, rows: pl.DataFrame, seed: int) -> None:
        del rows  # for `Gkos` only
        earnings = records.earnings
        moments = PaperMoments(self.minimum)
        count = min(CAREERS[self.name], 2 * len(earnings))
        draws = Draws(count, seed)
        seen = np.isfinite(np.resize(earnings[records.sample(count, seed)], (count, len(AGES))))
        zeros = float((earnings == 0).sum() / np.isfinite(earnings).sum())
        level = (
            float(np.log(earnings[earnings >= self.minimum]).mean())
            if (earnings >= self.minimum).any()
            else np.log(self.minimum)
        )
        fixed = process_values(PUBLISHED)

        def complete(values: dict[str, float]) -> tuple[GkosProcess, Floats]:
            """The process with both intercepts, and its careers with the panel's gaps."""
            process = process_of(fixed | values | {"a": 0.0, "a0": 0.0}, THOUSAND_DOLLARS)
            z = np.where(seen.T, draws.persistent(process), np.nan)[:, :1_500]
            slope = process.nonemployment_index(AGES[:, None], z)
            a = intercepts_for(
                np.clip(zeros * np.exp(process.rate), 1e-9, 0.99), slope[np.isfinite(slope)]
            )
            process = replace(process, nonemployment=(float(a), *process.nonemployment[1:]))
            earned = np.where(seen, draws.careers(process), np.nan)
            a0 = _lift(earned[earned > 0], level, self.minimum)
            return replace(process, profile=(a0, *process.profile[1:])), earned * np.exp(a0)

        weights = Weights.bootstrap(moments, earnings, count, seed)
        fit = search(
            GROWTH | SHOCKS, lambda values: moments.of(complete(values)[1]), weights,
            starts=[fixed], ratio=len(earnings) / count, seed=seed,
        )  # fmt: skip
        self.fits = {"all": fit}
        self.process = complete(fit.values)[0]
        self.forecaster = ExactForecaster(GkosFilter(self.process, PARTICLES), self.name)

    def _simulate(
        self,
        states: States,
        detrended: Panel,
        origins: Origins,
        to_horizon: int,
        paths: int,
        seed: int,
    ) -> NDArray[np.float32]:
        del states  # for `Gkos` only
        return self.forecaster.simulate(
            detrended, origins, to_horizon=to_horizon, n_paths=paths, seed=seed
        ).earnings


class Gkos(GkosBaseline):
    """The process with shocks by sex, and means and non-employment by age, sex and education.

    In the process shocks are the same at all ages, in the data they are not: persons are forecast
    until 30 with one process, from then on with another, each estimated from changes that start at
    those ages. The final education of a person is drawn, given age and education at the origin.
    """

    name = "gkos"
    version = 1  # raise it when its numbers may change (see `evaluation.cache`)

    def _estimate(self, records: Records, rows: pl.DataFrame, seed: int) -> None:
        last_age = len(AGES) - 1 - np.argmax(np.isfinite(records.earnings[:, ::-1]), axis=1) + FIRST
        settled = (
            records.take(last_age >= SETTLED) if (last_age >= SETTLED).mean() > 0.5 else records
        )
        self.strata = pooled(settled.sex, SEXES)
        # (era, sex, final education) -> number of the process
        self.groups = np.zeros((len(ERAS), SEXES, SCHOOLS), dtype=np.int64)
        self.processes: list[ProfiledProcess] = []
        self.records_from: list[int] = []  # of each process
        self.fits = {}
        for stratum in range(self.strata.max() + 1):
            of_stratum = settled.take(self.strata[settled.sex] == stratum)
            schools = pooled(of_stratum.education, SCHOOLS)
            for number, era in enumerate(ERAS if len(of_stratum.person_id) >= MANY else (ALWAYS,)):
                self.groups[number:, self.strata == stratum] = len(self.processes) + schools
                fit, processes = _fit_stratum(
                    of_stratum, schools[of_stratum.education], self.minimum, era, seed
                )
                sexes = [
                    name
                    for code, name in enumerate(("unknown", *CODES["sex"]))
                    if self.strata[code] == stratum
                ]
                self.fits[f"{'/'.join(sexes)} from {era.start}"] = fit
                self.processes += processes
                self.records_from += [era.records_from] * len(processes)
        self.prospects = school_prospects(
            rows.filter(pl.col("person_id").is_in(settled.person_id.tolist()))
        )
        self.forecasters = [
            ExactForecaster(GkosFilter(process, PARTICLES), self.name) for process in self.processes
        ]

    def _simulate(
        self,
        states: States,
        detrended: Panel,
        origins: Origins,
        to_horizon: int,
        paths: int,
        seed: int,
    ) -> NDArray[np.float32]:
        sex, education = states.sex.astype(np.int64), states.education_level.astype(np.int64)
        age = np.clip(states.age, FIRST, MAX_AGE) - FIRST
        era = np.searchsorted([era.start for era in ERAS[1:]], states.age, side="right")
        chance = np.zeros((len(origins), len(self.processes)))
        np.add.at(
            chance,
            (np.arange(len(origins))[:, None], self.groups[era, sex]),
            self.prospects[sex, age, education],
        )
        chance[chance < NEGLIGIBLE] = 0.0
        upper = np.cumsum(chance, axis=1) / chance.sum(axis=1, keepdims=True)
        ids = list(zip(origins.person_id.tolist(), origins.year.tolist(), strict=True))
        group = (
            uniform_rows(paths, ids, "gkos-group", seed)[:, :, None] > upper[:, None, :-1]
        ).sum(axis=-1)
        earnings = np.full((len(origins), to_horizon, paths), np.nan, dtype=np.float32)
        records = {age: _since(detrended, age) for age in set(self.records_from)}
        for number, forecaster in enumerate(self.forecasters):
            rows = np.flatnonzero((group == number).any(axis=1))
            if len(rows):
                record = records[self.records_from[number]]
                futures = forecaster.simulate(
                    record, origins.take(rows), to_horizon=to_horizon, n_paths=paths, seed=seed
                ).earnings
                earnings[rows] = np.where(
                    (group[rows] == number)[:, None, :], futures, earnings[rows]
                )
        return earnings


def _fit_stratum(
    records: Records, group: Array, minimum: float, era: Era, seed: int
) -> tuple[Fit, list[ProfiledProcess]]:
    """Shocks of one sex in one era, and the processes of its groups 0..E-1 (`group` (n,))."""
    count = min(CAREERS[Gkos.name], 2 * len(records.person_id))
    persons = np.resize(records.sample(count, seed), count)
    persons = persons[np.argsort(group[persons], kind="stable")]
    edges = np.searchsorted(group[persons], np.arange(group.max() + 2))
    slices = [slice(a, b) for a, b in pairwise(edges.tolist())]
    seen = np.isfinite(records.earnings[persons])
    profiles = Profiles.of(records.earnings, group, minimum)
    moments = RobustMoments(records.earnings, minimum, era.decades)
    draws = Draws(count, seed)

    def simulate(values: dict[str, float]) -> Floats:
        careers = [
            profiles.lift(e, y)[0]
            for e, (_, y) in enumerate(profiles.processes(values, draws, slices))
        ]
        return moments.of(np.where(seen, np.concatenate(careers), np.nan))

    weights = Weights.bootstrap(moments, records.earnings, count, seed, slack=SLACK)
    fit = search(
        SHOCKS | IDLENESS, simulate, weights,
        starts=[process_values(PUBLISHED), process_values(FEW_ZEROS)],
        ratio=len(records.person_id) / count, seed=seed,
    )  # fmt: skip
    # Profiles are computed again with other and more careers, all of them for every group.
    more = Draws(PROFILED, seed + 1)
    solutions = profiles.processes(fit.values, more, [slice(None)] * len(slices))
    return fit, [
        replace(p, levels=tuple(profiles.lift(e, y)[1].tolist()))
        for e, (p, y) in enumerate(solutions)
    ]


def _since(panel: Panel, age: int) -> Panel:
    """The panel with unknown earnings before that age."""
    early = pl.col("year") - pl.col("birth_year") < age
    return panel.with_frame(
        panel.frame.with_columns(pl.when(~early).then("earnings").alias("earnings"))
    )


@dataclass(frozen=True, eq=False)
class Profiles:
    """What each age of each group must match.

    Args:
        zeros: (E, A), share of zeros.
        level: (E, A), mean log of earnings of at least `minimum`.
        minimum: earnings that count as work.
    """

    zeros: Floats
    level: Floats
    minimum: float

    @classmethod
    def of(cls, earnings: Floats, group: Array, minimum: float) -> Profiles:
        """From records (n, A), averaged over three ages.

        Ages without persons of a group take the nearest ages' values.
        """
        zeros, level = [], []
        for e in range(group.max() + 1):
            y = earnings[group == e]
            works = y >= minimum
            zeros.append(_ratio((y == 0).sum(axis=0), np.isfinite(y).sum(axis=0)))
            level.append(
                _ratio(
                    np.where(works, np.log(np.maximum(y, minimum)), 0.0).sum(axis=0),
                    works.sum(axis=0),
                )
            )
        return cls(np.array(zeros), np.array(level), minimum)

    def processes(
        self, values: dict[str, float], draws: Draws, slices: list[slice]
    ) -> list[tuple[ProfiledProcess, Floats]]:
        """A process per group that matches the zeros, with means still zero, and careers (n, A)."""
        base = process_of(process_values(PUBLISHED) | values, 1.0)
        z = np.sort(draws.persistent(base), axis=1)
        points = z[:, ((np.arange(64) + 0.5) / 64 * z.shape[1]).astype(np.int64)]
        _, _, c, d = base.nonemployment
        slope = (c + d * base.time(AGES))[:, None] * points
        share = np.clip(self.zeros * np.exp(base.rate), 1e-9, 0.99)
        flat = np.zeros(len(AGES))
        processes = [
            ProfiledProcess.of(base, flat, intercepts)
            for intercepts in intercepts_for(share, slope)
        ]
        return [
            (process, draws.careers(process, of_stratum))
            for process, of_stratum in zip(processes, slices, strict=True)
        ]

    def lift(self, group: int, earnings: Floats) -> tuple[Floats, Floats]:
        """Records (n, A) with the group's mean log earnings, and the shifts (A,)."""
        logs = np.where(earnings > 0, np.log(np.where(earnings > 0, earnings, 1.0)), -np.inf)
        level, works = self.level[group], np.isfinite(logs)
        for _ in range(4):
            level = self.level[group] - _ratio(
                np.where(works, logs, 0.0).sum(axis=0), works.sum(axis=0)
            )
            works = logs + level >= np.log(self.minimum)
        return earnings * np.exp(level), level


def _ratio(top: Array, bottom: Array) -> Floats:
    """Ratio of sums over three neighbouring ages; without data, that of the nearest ages, or 0."""
    window = np.ones(3)
    top, bottom = np.convolve(top, window, "same"), np.convolve(bottom, window, "same")
    seen = bottom > 0
    if not seen.any():
        return np.zeros(len(AGES))
    return np.asarray(np.interp(AGES, AGES[seen], top[seen] / bottom[seen]), dtype=np.float64)


def _lift(earnings: Floats, level: float, minimum: float) -> float:
    """The shift of log `earnings` after which those above the minimum have mean `level`."""
    logs = np.log(earnings)
    works, lift = np.ones(len(logs), dtype=bool), 0.0
    for _ in range(8):
        lift = level - float(logs[works].mean()) if works.any() else lift
        works = logs + lift >= np.log(minimum)
    return lift


def pooled(codes: Array, size: int) -> Array:
    """Code -> number of its group.

    A group for every code with FEWEST persons; other codes are in the largest group.
    """
    count = np.bincount(codes, minlength=size)
    of_stratum = count >= FEWEST
    number = np.where(of_stratum, np.cumsum(of_stratum) - 1, -1)
    return np.where(of_stratum, number, max(int(number[np.argmax(count)]), 0))


def school_prospects(states: pl.DataFrame) -> Floats:
    """Share of each final education by sex, age 20..64 and education known then.

    Shape (sexes, A, schools, schools); rows sum to 1.
    """
    rows = states.with_columns(
        pl.col("education_level").last().over("person_id").alias("final")
    ).filter(pl.col("age").is_between(FIRST, MAX_AGE))
    count = np.zeros((SEXES, len(AGES), SCHOOLS, SCHOOLS))
    np.add.at(
        count,
        tuple(
            rows[name].to_numpy().astype(np.int64) - (FIRST if name == "age" else 0)
            for name in ("sex", "age", "education_level", "final")
        ),
        1.0,
    )
    count += 1e-3 * np.eye(SCHOOLS)  # without data education stays
    return np.asarray(count / count.sum(axis=-1, keepdims=True))


def death_hazard(panel: Panel, states: pl.DataFrame) -> Floats:
    """Probability of dying by sex code and age 20..64, (sexes, A), in five-year bands.

    0 if a panel has no deaths.
    """
    width = 5
    band = (AGES - FIRST) // width
    rows = states.filter(pl.col("age").is_between(FIRST, MAX_AGE))
    lived = np.zeros((SEXES, band[-1] + 1))
    np.add.at(
        lived,
        (rows["sex"].to_numpy().astype(np.int64), (rows["age"].to_numpy() - FIRST) // width),
        1.0,
    )
    numbers = {value: i + 1 for i, value in enumerate(CODES["sex"])}
    dead = (
        panel.frame.filter(pl.col("exit_reason") == "dead")
        .group_by("person_id")
        .agg(
            pl.col("sex")
            .drop_nulls()
            .last()
            .replace_strict(numbers, default=0, return_dtype=pl.Int8),
            pl.col("exit_year", "birth_year").last(),
        )
        .with_columns((pl.col("exit_year") - pl.col("birth_year")).alias("age"))
        .filter(
            pl.col("age").is_between(FIRST, MAX_AGE),
            pl.col("exit_year") <= (states["year"].max() or 0),
        )
    )
    died = np.zeros_like(lived)
    np.add.at(
        died,
        (
            dead["sex"].fill_null(0).to_numpy().astype(np.int64),
            (dead["age"].to_numpy() - FIRST) // width,
        ),
        1.0,
    )
    return np.asarray((died / np.maximum(lived, 1.0)).clip(0.0, 0.5)[:, band])
