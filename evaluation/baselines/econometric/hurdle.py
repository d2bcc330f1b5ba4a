"""The hurdle: probabilities of work, of small earnings only, of zero and of death next year.

The status of a year is WORK (earnings of at least the panel's floor), LOW (positive earnings below
it) or ZERO. The hurdle has two logistic models, each fitted separately for persons at work and not
at work this year, and one for death:

    P(work next year | at work), P(work next year | not at work),
    P(zero | no work next year, at work), P(zero | no work next year, not at work),
    P(death next year).

The features are age, sex, education, length of the present spell, shares of earlier years at work,
and past earnings, measured as residuals from the profile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.evaluation.baselines.econometric.histories import LOW, UNKNOWN, WORK, ZERO, Histories
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from saga.arrays import Array, Floats
from saga.data.panel import Panel
from saga.errors import InputError, Problem
from saga.keyed_random import uniforms

SAMPLE_SIZE = 400_000  # expected number of person-years that are sampled for the fit
MAX_YEARS = 20  # spells and careers are counted up to this many years
DECAY = 0.8  # weight of the past, each year, in the weighted share of years at work
AGE_KNOTS = (20, 25, 30, 40, 50, 55, 58, 60, 62)  # knots of the linear splines of age
AMOUNT_QUANTILES = 401  # number of quantiles of earnings below the floor


@dataclass(frozen=True, eq=False)
class Career:
    """What the hurdle uses of a career up to a year; arrays of one shape, (n,) or (n, M).

    Args:
        years_out: Years in a row not at work, 0 if at work, at most 20.
        tenure: Years in a row at work, at most 20.
        worked: Years of work so far.
        years: Number of known years so far.
        zero: 1 if the last known year had no earnings, otherwise 0.
        work_share: Exponentially weighted share of years at work, 1/2 before the first known year.
        mean_residual: Mean residual of years at work, exponentially weighted after the fifth.
        last_residual: Residual of the last year at work, 0 before the first.
    """

    years_out: Floats
    tenure: Floats
    worked: Floats
    years: Floats
    zero: Floats
    work_share: Floats
    mean_residual: Floats
    last_residual: Floats

    @classmethod
    def none(cls, shape: tuple[int, ...]) -> Career:
        """The career before the first known year."""
        zeros = np.zeros(shape)
        return cls(zeros, zeros, zeros, zeros, zeros, np.full(shape, 0.5), zeros, zeros)

    def after(self, status: Array, residual: Floats) -> Career:
        """The career after a year with this status; an UNKNOWN year does not change it.

        `residual` is used in WORK years only.
        """
        work, idle = status == WORK, (status == ZERO) | (status == LOW)
        is_known = work | idle
        worked = self.worked + work
        value = np.where(work, residual, 0.0)
        years_out = np.where(idle, np.minimum(self.years_out + 1, MAX_YEARS), 0.0)
        tenure = np.where(work, np.minimum(self.tenure + 1, MAX_YEARS), 0.0)
        work_share = DECAY * self.work_share + (1 - DECAY) * work
        mean = self.mean_residual + (value - self.mean_residual) / np.clip(worked, 1, 5)
        return Career(
            years_out=np.where(is_known, years_out, self.years_out),
            tenure=np.where(is_known, tenure, self.tenure),
            worked=worked,
            years=self.years + is_known,
            zero=np.where(is_known, status == ZERO, self.zero).astype(np.float64),
            work_share=np.where(is_known, work_share, self.work_share),
            mean_residual=np.where(work, mean, self.mean_residual),
            last_residual=np.where(work, value, self.last_residual),
        )

    def take(self, rows: Any) -> Career:
        """The careers in `rows`."""
        return Career(**{name: values[rows] for name, values in vars(self).items()})

    def on_paths(self, n_paths: int) -> Career:
        """The careers (n,) repeated on every path, (n, n_paths)."""
        return Career(**repeat_on_paths(self, n_paths))


def repeat_on_paths(fields: Any, n_paths: int) -> dict[str, Floats]:
    """The fields (n,) of a dataclass of arrays by name, repeated to (n, n_paths)."""
    return {name: np.repeat(a[:, None], n_paths, axis=1) for name, a in vars(fields).items()}


def careers(past: Histories) -> Iterator[Career]:
    """The T + 1 careers before each column of the histories and after the last, each (n,)."""
    career = Career.none((len(past.age),))
    yield career
    for column in range(past.years):
        career = career.after(past.status[:, column], past.residual[:, column])
        yield career


@dataclass(frozen=True, eq=False)
class Chance:
    """A logistic model of a probability; constant if all outcomes of the fit were the same."""

    intercept: float
    weights: Floats

    @classmethod
    def fit(cls, features: Floats, happened: Array) -> Chance:
        """Fit the model to features (n, K) and outcomes (n,)."""
        if len(happened) == 0 or happened.all() or not happened.any():
            share = (happened.sum() + 0.5) / (len(happened) + 1)
            return cls(float(np.log(share / (1 - share))), np.zeros(features.shape[1]))
        model = LogisticRegression(solver="newton-cholesky", C=1.0, max_iter=200, tol=1e-6).fit(
            features, happened
        )
        return cls(float(model.intercept_[0]), model.coef_[0])

    def __call__(self, features: Sequence[Array]) -> Floats:
        """Probabilities (n, M) from K features.

        Features are added one by one: the rounding of a matrix product depends on its size, and a
        person's number must not depend on the other persons.
        """
        score: Any = self.intercept
        for weight, feature in zip(self.weights, features, strict=True):
            score = score + weight * feature
        return np.asarray(expit(score))


def _ages(age: Array) -> list[Array]:
    years = np.asarray(age, dtype=np.float64)
    return [(years - 40) / 10, *(np.maximum(years - knot, 0.0) / 10 for knot in AGE_KNOTS)]


def _person_features(age: Array, sex: Array, education: Array) -> list[Array]:
    """Age, sex and education with their interactions; arrays that broadcast."""
    shape = np.broadcast_shapes(np.shape(age), np.shape(sex), np.shape(education))
    ages = [np.broadcast_to(a, shape) for a in _ages(age)]
    # Codes count from 1 (see `Histories`): sex 1 is female, education 3 and 4 are tertiary.
    woman = np.broadcast_to((sex == 1).astype(np.float64), shape)
    tertiary = np.broadcast_to((education >= 3).astype(np.float64), shape)
    levels = [
        np.broadcast_to((education == code).astype(np.float64), shape) for code in (1, 2, 3, 4)
    ]
    age_terms = (0, 1, 2, 3, 4, 6)
    return [
        *ages,
        woman,
        *(woman * ages[b] for b in age_terms),
        *levels,
        *(tertiary * ages[b] for b in age_terms),
        levels[0] * ages[0],
    ]


def _spline(value: Array, *knots: float) -> list[Array]:
    inside = np.clip(value, -3.0, 3.0)
    return [inside, *(np.maximum(inside - knot, 0.0) for knot in knots)]


def _spell_indicators(count: Floats, *bounds: int) -> list[Array]:
    """Indicators of spells of 1 .. bounds[0] - 1, bounds[0] .. bounds[1] - 1, ... years.

    Longer spells are the reference.
    """
    edges = (1, *bounds)
    return [((count >= low) & (count < high)) * 1.0 for low, high in pairwise(edges)]


def _work_shares(career: Career, old: Array, young: Array) -> list[Array]:
    ever = (career.worked + 1) / (career.years + 2)
    long = np.minimum(career.years, MAX_YEARS) / MAX_YEARS
    share = career.work_share
    recent = [share, share**2, share * old, share * young]
    return [*recent, ever, ever**2, ever * long, ever * old, long]


def _features_at_work(age: Array, career: Career) -> list[Array]:
    spell = _spell_indicators(career.tenure, 2, 3, 4, 6, 10)
    old, young = np.maximum(age - 55.0, 0.0) / 10, np.maximum(30.0 - age, 0.0) / 10
    standing = [
        *_spline(career.last_residual, -1.5, -1.0, -0.5, 0.0, 0.5),
        *_spline(career.mean_residual, -1.0, -0.5, 0.0, 0.5),
    ]
    interactions = [
        spell[0] * young,
        career.last_residual * old,
        career.last_residual * young,
        spell[0] * career.last_residual,
    ]
    return [*spell, *interactions, *standing, *_work_shares(career, old, young)]


def _features_idle(age: Array, career: Career) -> list[Array]:
    spell = _spell_indicators(career.years_out, 2, 3, 4, 6, 10, 15)
    old, young = np.maximum(age - 55.0, 0.0) / 10, np.maximum(30.0 - age, 0.0) / 10
    never = (career.worked == 0) * 1.0
    interactions = [
        spell[0] * old,
        spell[0] * young,
        spell[1] * old,
        career.zero * young,
        career.zero * old,
        career.zero * spell[0],
    ]
    standing = [
        *_spline(career.last_residual, -1.0, 0.0),
        *_spline(career.mean_residual, -0.5, 0.5),
    ]
    return [
        *spell,
        *interactions,
        career.zero,
        never,
        never * young,
        never * old,
        *standing,
        *_work_shares(career, old, young),
    ]


@dataclass(frozen=True, eq=False)
class Hurdle:
    """The fitted hurdle. Of a pair of models, the first is for persons at work this year.

    Args:
        always_works: Whether every known year of the training panel was one of work; `work` and
            `zero` are then not used.
        work: P(work next year).
        zero: P(zero | no work next year).
        death: P(death next year); None: nobody dies.
        amounts: (401,), quantiles of positive earnings below the floor, real money.
    """

    always_works: bool
    work: tuple[Chance, Chance]
    zero: tuple[Chance, Chance]
    death: Chance | None
    amounts: Floats

    @classmethod
    def fit(cls, past: Histories, amounts: Floats, deaths: Array | None, *, seed: int) -> Self:
        """Fit the hurdle to calendar-aligned histories.

        Raises InputError if years without work occur but no person is known in two consecutive
        years: the panel then does not show the chance of a change from one year to the next.

        Args:
            past: The histories.
            amounts: Positive amounts below the floor.
            deaths: (n, T), deaths in the year after each column; None: unknown.
            seed: Seed of the sample of person-years.
        """
        seen = past.status != UNKNOWN
        pairs = seen[:, :-1] & seen[:, 1:]
        rate = min(1.0, SAMPLE_SIZE / max(1, int(seen.sum())))
        sampled = uniforms(seen.size, "hurdle", seed).reshape(seen.shape) < rate
        amount_quantiles = np.quantile(
            amounts if len(amounts) else [0.0], np.linspace(0, 1, AMOUNT_QUANTILES)
        )
        death = None
        if deaths is not None and deaths.any():
            death = _fit_death(past, deaths, sampled, rate)
        if not (seen & (past.status != WORK)).any():
            unused = Chance(0.0, np.zeros(0))
            return cls(True, (unused, unused), (unused, unused), death, amount_quantiles)
        if not pairs.any():
            fix = (
                "Give a panel with records in consecutive years, or one whose years without work "
                "are unknown (null), not zero."
            )
            message = "years without work occur, but no person is known in two consecutive years"
            problem = Problem("no-consecutive-years", message, fix)
            raise InputError("The chance of losing or finding work cannot be learned", [problem])
        rows: dict[bool, list[Floats]] = {True: [], False: []}
        after: dict[bool, list[Array]] = {True: [], False: []}
        for t, career in _after_each(past):
            for working in (True, False):
                rows_of_year = np.flatnonzero(
                    pairs[:, t] & sampled[:, t] & ((past.status[:, t] == WORK) == working)
                )
                rows[working].append(
                    _rows(past, career, rows_of_year, past.age[rows_of_year, t + 1], working)
                )
                after[working].append(past.status[rows_of_year, t + 1])
        work, zero = [], []
        for working in (True, False):
            features, status = np.concatenate(rows[working]), np.concatenate(after[working])
            work.append(Chance.fit(features, status == WORK))
            idle = status != WORK
            zero.append(Chance.fit(features[idle], status[idle] == ZERO))
        return cls(False, (work[0], work[1]), (zero[0], zero[1]), death, amount_quantiles)

    def chance_of_work(self, age: Array, sex: Array, education: Array, career: Career) -> Floats:
        """P(WORK in the year at `age`) given the career before; (n, M)."""
        if self.always_works:
            return np.ones(career.years_out.shape)
        return self._by_last_status(self.work, age, sex, education, career)

    def chance_of_death(self, age: Array, sex: Array, career: Career) -> Floats:
        """P(death in the year at `age` | alive the year before), (n, M)."""
        if self.death is None:
            return np.zeros(career.years_out.shape)
        return self.death(_death_features(age, sex, career))

    def draw(
        self, age: Array, sex: Array, education: Array, career: Career, u: Sequence[Floats]
    ) -> tuple[Array, Floats]:
        """Status (n, M) of living persons in the year at `age`, and their earnings if it is LOW.

        `u` is two arrays of uniforms (n, M).
        """
        if self.always_works:
            shape = career.years_out.shape
            return np.full(shape, WORK, dtype=np.int8), np.zeros(shape)
        chance = self.chance_of_work(age, sex, education, career)
        # The second uniform decides between zero and small earnings, and then the amount.
        zeros = self._by_last_status(self.zero, age, sex, education, career)
        status = np.where(u[0] < chance, WORK, np.where(u[1] < zeros, ZERO, LOW)).astype(np.int8)
        rank = np.clip((u[1] - zeros) / np.maximum(1 - zeros, 1e-12), 0.0, 1.0)
        below, within = quantile_position(rank, AMOUNT_QUANTILES)
        low, high = self.amounts[below], self.amounts[below + 1]
        return status, low + within * (high - low)

    def _by_last_status(
        self,
        models: tuple[Chance, Chance],
        age: Array,
        sex: Array,
        education: Array,
        career: Career,
    ) -> Floats:
        person = _person_features(age, sex, education)
        at_work = models[0]([*person, *_features_at_work(age, career)])
        idle = models[1]([*person, *_features_idle(age, career)])
        return np.where(career.years_out > 0, idle, at_work)


def quantile_position(u: Floats, n_quantiles: int) -> tuple[Array, Floats]:
    """The quantile below each `u` in [0, 1] of equally spaced quantiles, and the part beyond it."""
    position = u * (n_quantiles - 1)
    below = np.minimum(position.astype(np.int64), n_quantiles - 2)
    return below, position - below


def _rows(
    past: Histories, career: Career, rows_of_year: Array, age: Array, working: bool
) -> Floats:
    person = _person_features(age, past.sex[rows_of_year], past.education[rows_of_year])
    features = _features_at_work if working else _features_idle
    return np.column_stack([*person, *features(age, career.take(rows_of_year))])


def _death_features(age: Array, sex: Array, career: Career) -> list[Array]:
    """Age, sex and years out of work, because bad health often ends work before death."""
    shape = career.years_out.shape
    years = np.broadcast_to(np.asarray(age, dtype=np.float64), shape)
    woman = np.broadcast_to((sex == 1).astype(np.float64), shape)
    idle, long = (career.years_out > 0) * 1.0, (career.years_out >= 3) * 1.0
    older = np.maximum(years - 40, 0.0) / 10
    return [(years - 40) / 10, older, woman, woman * older, idle, long, idle * older]


def _fit_death(past: Histories, deaths: Array, sampled_rows: Array, rate: float) -> Chance:
    """Fit P(death next year) to all deaths and a share `rate` of the other known person-years."""
    rows, died = [], []
    for t, career in _after_each(past):
        rows_of_year = np.flatnonzero(
            (past.status[:, t] != UNKNOWN) & (deaths[:, t] | sampled_rows[:, t])
        )
        age, sex = past.age[rows_of_year, t + 1], past.sex[rows_of_year]
        rows.append(np.column_stack(_death_features(age, sex, career.take(rows_of_year))))
        died.append(deaths[rows_of_year, t])
    sampled = Chance.fit(np.concatenate(rows), np.concatenate(died))
    # Sampling the living at `rate` multiplies the odds of death by 1 / rate (King and Zeng 2001):
    # only the intercept changes.
    return Chance(sampled.intercept + float(np.log(rate)), sampled.weights)


def _after_each(past: Histories) -> Iterator[tuple[int, Career]]:
    """Each column except the last, with the career after it."""
    for column, career in enumerate(careers(past)):
        if 0 < column < past.years:
            yield column - 1, career


def deaths_next_year(
    panel: Panel, person: NDArray[np.int64], year: NDArray[np.int64], shape: tuple[int, int]
) -> NDArray[np.bool_] | None:
    """Flags (n, T) of years with known earnings before a death; None if exits are not recorded.

    `person` is the row of each row of `known_states(panel)`, `year` its year; column 0 is the first
    of these years. `shape` is (n, T).
    """
    # Both are needed to distinguish death and emigration from missing years.
    if not {"exit_year", "exit_reason"} <= set(panel.meta.present):
        return None
    exits = (
        panel.frame.group_by("person_id", maintain_order=True)
        .agg(
            pl.col("exit_year", "exit_reason").first(),
            has_earnings=pl.col("earnings").is_not_null().any(),
        )
        .filter("has_earnings")
    )
    died = pl.when(pl.col("exit_reason") == "dead").then("exit_year").fill_null(0)
    year_of_death = exits.select(died=died)["died"].to_numpy()
    flags = np.zeros(shape, dtype=np.bool_)
    flags[person, year - int(year.min())] = year_of_death[person] == year + 1
    return flags
