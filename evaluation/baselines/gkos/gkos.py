"""The GKOS process as a forecaster: estimated on training persons, filtered by record.

Processes from robust moments, by sex, with mean earnings and non-employment by age and education,
deaths and small earnings. Method: docs/method/baselines.md. The process and its parameters (alpha,
beta, z; a, b, c, d and lambda of non-employment) are those of
`saga.evaluation.textbook.gkos_process`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np
import polars as pl
from saga.evaluation.baselines.gkos.gkos_moments import AGES, FIRST, RobustMoments
from saga.evaluation.baselines.gkos.gkos_profiles import Profiles
from saga.evaluation.baselines.gkos.gkos_records import (
    EDUCATIONS,
    SEXES,
    LowEarnings,
    Records,
    death_hazard,
    education_prospects,
    pool_small_groups,
)
from saga.evaluation.baselines.gkos.gkos_smm import (
    NONEMPLOYMENT,
    PUBLISHED,
    SHOCKS,
    CareerDraws,
    Fit,
    ProfiledProcess,
    Weights,
    process_values,
    search,
)
from saga.evaluation.baselines.origin_states import identities, states_at
from saga.evaluation.baselines.person_states import CODES, States, known_states
from saga.evaluation.textbook.exact_forecaster import ExactForecaster
from saga.evaluation.textbook.gkos_process import FEW_ZEROS
from saga.evaluation.textbook.particle_filter import GkosFilter

from saga.arrays import Array, Floats
from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.keyed_random import Identity, uniform_rows
from saga.paths import Paths
from saga.schema import MAX_AGE
from saga.trees.earnings_ranks import Reference

PARTICLES = 125
# Careers simulated at each evaluation of a process; two per person in a smaller group of persons.
CAREERS = 1_500
PROFILE_CAREERS = 12_000  # careers simulated for the profiles of the estimated process
MIN_PERSONS_FOR_ERAS = 2_000  # persons of a sex that has one process per era
SETTLED_AGE = 30  # from this age the last known education counts as final
SLACK = 0.02  # standard deviation of the error in shares that even the best process makes
NEGLIGIBLE = 0.02  # final educations that are less probable are left out of a forecast


@dataclass(frozen=True)
class Era:
    """Ages at which a process forecasts.

    Args:
        start: The first age.
        records_from: The first age of records that are used.
        decades: Decades of age whose changes the process is estimated on; 0 is 20-29.
    """

    start: int
    records_from: int
    decades: tuple[int, ...]


ERAS = (Era(FIRST, FIRST, (0,)), Era(30, 25, (1, 2, 3)))
ALL_AGES = Era(FIRST, FIRST, (0, 1, 2, 3))


class Gkos:
    """The process with shocks by sex, and means and non-employment by age, sex and education.

    The process has the same shocks at all ages, the data do not. So persons whose last known year
    is below age 30 are forecast with one process and others with another, each estimated on changes
    that start at these ages. On each path a final education is drawn, given sex, and age and
    education in the last known year. If more than half of the training persons have a final
    education (`SETTLED_AGE`), only these are used.

    Attributes:
        fits: Estimates by group of persons.
        sex_groups: Group (sex,) of each code of sex; small groups are pooled.
        process_index: Index of the process (era, sex, final education).
        processes: The estimated processes.
        forecasters: The exact forecaster of each of them.
        records_from: The first age of the records that each of them uses.
        prospects: Probability of each final education (sex, age, education, final education).
        minimum: Lowest earnings that count as work, real money.
        reference: Medians of earnings by year.
        low_earnings: Earnings below `minimum`, by age.
        deaths: Probability of death (sex, age from 20).
    """

    name = "gkos"
    version = 2

    def fit(self, panel: Panel, *, seed: int) -> Self:
        """Estimate the processes on the persons of `panel`; deterministic given `seed`.

        Earnings are first divided by the median of their year relative to that of the last year.
        Raises InputError if no person has earnings at 20 or later.
        """
        states = known_states(panel)
        self.reference = Reference(panel)
        positive = states["earnings"].filter(states["earnings"] > 0)
        self.minimum = panel.meta.floor or float(positive.min() or 1.0)  # type: ignore[arg-type]
        self.low_earnings = LowEarnings.of(states, self.minimum)
        self.deaths = death_hazard(panel, states)
        self._estimate(Records.of(states, self._detrend(states)), states, seed)
        return self

    def simulate(
        self, history: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Paths:
        """`n_paths` joint futures of each person, shape (n, to_horizon, n_paths).

        They follow the distribution of (alpha, beta, z) given the record from the age
        `records_from` of the process on. Real wages grow from the origin's year at the average rate
        of the training years. Raises InputError for an origin before 19.
        """
        detrended = history.with_frame(
            history.frame.with_columns(
                pl.Series("earnings", self._detrend(history.frame)).fill_nan(None)
            )
        )
        states, born = states_at(history, origins)
        ids = identities(origins)
        process_index = self._draw_processes(states, ids, n_paths, seed)
        earnings = np.full((len(origins), to_horizon, n_paths), np.nan, dtype=np.float32)
        records = {age: _hide_before(detrended, age) for age in set(self.records_from)}
        for index, (first_age, forecaster) in enumerate(
            zip(self.records_from, self.forecasters, strict=True)
        ):
            rows = np.flatnonzero((process_index == index).any(axis=1))
            if len(rows):
                futures = forecaster.simulate(
                    records[first_age], origins.take(rows),
                    to_horizon=to_horizon, n_paths=n_paths, seed=seed,
                ).earnings  # fmt: skip
                on_path = (process_index[rows] == index)[:, None, :]
                earnings[rows] = np.where(on_path, futures, earnings[rows])
        horizons = np.arange(1, to_horizon + 1)
        wages = self._wage_index(origins.year)[:, None] * np.exp(self.reference.growth * horizons)
        earnings *= wages[:, :, None].astype(np.float32)
        age_index = np.clip((origins.year - born)[:, None] + horizons, FIRST, MAX_AGE) - FIRST
        u = uniform_rows(to_horizon * n_paths, ids, "gkos-little", seed)
        self.low_earnings.add_to(earnings, age_index, u.reshape(earnings.shape))
        sex = states.sex.astype(np.int64)[:, None]
        alive = np.cumprod(1.0 - self.deaths[sex, age_index], axis=1)
        dead = uniform_rows(n_paths, ids, "gkos-death", seed)[:, None, :] > alive[:, :, None]
        earnings[dead & np.isfinite(earnings)] = 0.0
        return Paths(np.asarray(origins.person_id), born, np.asarray(origins.year), earnings)

    def estimates(self) -> pl.DataFrame:
        """After `fit`: `parameter` (with the group, if there are several), `value` and `se`."""
        rows = [
            (f"{name}, {group}", value, fit.errors[name])
            for group, fit in self.fits.items()
            for name, value in fit.values.items()
        ]
        schema = {"parameter": pl.String, "value": pl.Float64, "se": pl.Float64}
        return pl.DataFrame(rows, schema=schema, orient="row")

    def _detrend(self, rows: pl.DataFrame) -> Floats:
        """Earnings at the wages of the last training year; a year below the minimum is 0."""
        earnings = rows["earnings"].cast(pl.Float64).fill_null(np.nan).to_numpy()
        index = self._wage_index(rows["year"].to_numpy())
        return np.where(earnings < self.minimum, 0.0, earnings / index)

    def _wage_index(self, year: Array) -> Floats:
        """Median earnings of each year, as a multiple of those of the last training year."""
        level = self.reference.level
        return np.asarray(level(year) / level(np.array(self.reference.last)))

    def _estimate(self, records: Records, rows: pl.DataFrame, seed: int) -> None:
        """Estimate the processes from records; `rows` are those of `known_states`."""
        last_age = len(AGES) - 1 - np.argmax(np.isfinite(records.earnings[:, ::-1]), axis=1) + FIRST
        is_settled = last_age >= SETTLED_AGE
        settled = records.take(is_settled) if is_settled.mean() > 0.5 else records
        self.sex_groups = pool_small_groups(settled.sex, SEXES)
        self.process_index = np.zeros((len(ERAS), SEXES, EDUCATIONS), dtype=np.int64)
        self.processes: list[ProfiledProcess] = []
        self.records_from, self.fits = [], {}
        for sex_group in range(self.sex_groups.max() + 1):
            members = settled.take(self.sex_groups[settled.sex] == sex_group)
            groups = pool_small_groups(members.education, EDUCATIONS)
            has_eras = len(members.person_id) >= MIN_PERSONS_FOR_ERAS
            for era_index, era in enumerate(ERAS if has_eras else (ALL_AGES,)):
                first = len(self.processes)
                # With one era, its processes also serve the later one.
                self.process_index[era_index:, self.sex_groups == sex_group] = first + groups
                fit, processes = _fit_sex_group(
                    members, groups[members.education], self.minimum, era, seed
                )
                codes = enumerate(("unknown", *CODES["sex"]))
                sexes = "/".join(name for code, name in codes if self.sex_groups[code] == sex_group)
                self.fits[f"{sexes} from {era.start}"] = fit
                self.processes += processes
                self.records_from += [era.records_from] * len(processes)
        is_settled_row = pl.col("person_id").is_in(settled.person_id.tolist())
        self.prospects = education_prospects(rows.filter(is_settled_row))
        self.forecasters = [
            ExactForecaster(GkosFilter(process, PARTICLES), self.name) for process in self.processes
        ]

    def _draw_processes(
        self, states: States, ids: Sequence[Identity], n_paths: int, seed: int
    ) -> Array:
        """The index of the process of each person on each path, (n, n_paths)."""
        sex, education = states.sex.astype(np.int64), states.education_level.astype(np.int64)
        age_index = np.clip(states.age, FIRST, MAX_AGE) - FIRST
        era = np.searchsorted([era.start for era in ERAS[1:]], states.age, side="right")
        probability = np.zeros((len(ids), len(self.processes)))
        index = np.arange(len(ids))[:, None], self.process_index[era, sex]
        np.add.at(probability, index, self.prospects[sex, age_index, education])
        probability[probability < NEGLIGIBLE] = 0.0
        upper = np.cumsum(probability, axis=1) / probability.sum(axis=1, keepdims=True)
        u = uniform_rows(n_paths, ids, "gkos-group", seed)
        return np.asarray((u[:, :, None] > upper[:, None, :-1]).sum(axis=-1))


def _fit_sex_group(
    records: Records, group: Array, minimum: float, era: Era, seed: int
) -> tuple[Fit, list[ProfiledProcess]]:
    """Estimates for one group of sexes in one era, and the processes of its education groups.

    `group` (n,) is the education group of each person, 0..E-1.
    """
    count = min(CAREERS, 2 * len(records.person_id))
    persons = np.resize(records.sample(count, seed), count)
    persons = persons[np.argsort(group[persons], kind="stable")]
    edges = np.searchsorted(group[persons], np.arange(group.max() + 2))
    slices = [slice(a, b) for a, b in pairwise(edges.tolist())]
    is_known = np.isfinite(records.earnings[persons])
    profiles = Profiles.of(records.earnings, group, minimum)
    moments = RobustMoments(records.earnings, minimum, era.decades)
    draws = CareerDraws(count, seed)

    def simulate(values: dict[str, float]) -> Floats:
        simulated = profiles.processes(values, draws, slices)
        careers = [profiles.shift(e, earnings)[0] for e, (_, earnings) in enumerate(simulated)]
        return moments.of(np.where(is_known, np.concatenate(careers), np.nan))

    weights = Weights.bootstrap(moments, records.earnings, count, seed, slack=SLACK)
    fit = search(
        SHOCKS | NONEMPLOYMENT, simulate, weights,
        starts=[PUBLISHED, process_values(FEW_ZEROS)],
        ratio=len(records.person_id) / count, seed=seed,
    )  # fmt: skip
    # The profiles are computed again with new careers. Every group uses all of them.
    more = CareerDraws(PROFILE_CAREERS, seed + 1)
    solutions = profiles.processes(fit.values, more, [slice(None)] * len(slices))
    return fit, [
        replace(process, levels=tuple(profiles.shift(e, earnings)[1].tolist()))
        for e, (process, earnings) in enumerate(solutions)
    ]


def _hide_before(panel: Panel, age: int) -> Panel:
    """The panel with earnings before `age` set to null."""
    early = pl.col("year") - pl.col("birth_year") < age
    return panel.with_frame(
        panel.frame.with_columns(pl.when(~early).then("earnings").alias("earnings"))
    )
