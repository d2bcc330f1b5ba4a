"""Records by age, small earnings, deaths and education of a panel, for the GKOS process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.evaluation.baselines.gkos.gkos_moments import AGES, FIRST, quantiles_of
from saga.evaluation.baselines.person_states import CODES

from saga.arrays import Array, Floats
from saga.data.panel import Panel
from saga.keyed_random import sample_rows
from saga.schema import MAX_AGE
from saga.trees.earnings_ranks import no_outcomes_error

MIN_GROUP_SIZE = 400  # persons that a group with its own process or profile needs
SEXES, EDUCATIONS = len(CODES["sex"]) + 1, len(CODES["education_level"]) + 1
DEATH_BAND = 5  # years of age with one probability of death


@dataclass(frozen=True, eq=False)
class Records:
    """Detrended records of n persons.

    Args:
        person_id: (n,).
        earnings: (n, A) at ages 20..64, in money of the last training year, NaN if unknown.
        sex: (n,), index of the last known code plus one, 0 if unknown.
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
        rows = states.with_columns(pl.Series("detrended", detrended)).filter(
            pl.col("age").is_between(FIRST, MAX_AGE)
        )
        if rows.is_empty():
            fix = "Give a panel with persons of 20 to 64 years."
            raise no_outcomes_error("No person has earnings at 20 or later", fix)
        last = rows.group_by("person_id", maintain_order=True).agg(
            pl.col("sex", "education_level").last()
        )
        row = rows["person_id"].rle_id().to_numpy()
        earnings = np.full((last.height, len(AGES)), np.nan)
        earnings[row, rows["age"].to_numpy() - FIRST] = rows["detrended"].to_numpy()
        sex, education = (
            last[name].to_numpy().astype(np.int64) for name in ("sex", "education_level")
        )
        return cls(np.array(last["person_id"].to_list(), dtype=np.str_), earnings, sex, education)

    def take(self, rows: Any) -> Records:
        """The persons in `rows`."""
        return Records(**{name: values[rows] for name, values in vars(self).items()})

    def sample(self, count: int, seed: int) -> Array:
        """Indices of at most `count` persons, chosen reproducibly at random."""
        return sample_rows(self.person_id.tolist(), count, "gkos", seed)


@dataclass(frozen=True, eq=False)
class LowEarnings:
    """Earnings in years below the minimum (`GkosBaseline.minimum`), real money.

    Args:
        share: (A,), share of these years with positive earnings, by age 20..64.
        quantiles: (100,), of the positive earnings in these years, all ages together.
    """

    share: Floats
    quantiles: Floats

    @classmethod
    def of(cls, states: pl.DataFrame, minimum: float) -> LowEarnings:
        """From the rows of `known_states`."""
        low = states.filter(pl.col("earnings") < minimum, pl.col("age").is_between(FIRST, MAX_AGE))
        age, earned = low["age"].to_numpy() - FIRST, low["earnings"].to_numpy() > 0
        share = smoothed_ratio(
            np.bincount(age[earned], minlength=len(AGES)), np.bincount(age, minlength=len(AGES))
        )
        return cls(
            share, quantiles_of(low["earnings"].to_numpy()[earned], np.arange(0.5, 100) / 100)
        )

    def add_to(self, earnings: NDArray[np.float32], age: Array, u: Floats) -> None:
        """Replace zeros in `earnings` (n, H, M) by small earnings with probability `share`.

        Works in place. `age` (n, H) is the age less 20; `u` (n, H, M) are uniforms.
        """
        share = np.broadcast_to(self.share[age][:, :, None], u.shape)
        earns = (earnings == 0) & (u < share)
        earnings[earns] = self.quantiles[
            (u[earns] / share[earns] * len(self.quantiles)).astype(np.int64)
        ]


def smoothed_ratio(top: Array, bottom: Array) -> Floats:
    """Ratios (A,) of sums over three neighbouring ages.

    An age without data has a ratio interpolated from other ages; all are 0 if no age has data.
    """
    window = np.ones(3)
    top, bottom = np.convolve(top, window, "same"), np.convolve(bottom, window, "same")
    seen = bottom > 0
    if not seen.any():
        return np.zeros(len(AGES))
    return np.asarray(np.interp(AGES, AGES[seen], top[seen] / bottom[seen]), dtype=np.float64)


def pool_small_groups(codes: Array, size: int) -> Array:
    """The group number (size,) of each code, from the codes (n,) of persons.

    Every code with MIN_GROUP_SIZE persons is a group; the other codes join the largest of them.
    """
    count = np.bincount(codes, minlength=size)
    is_group = count >= MIN_GROUP_SIZE
    number = np.where(is_group, np.cumsum(is_group) - 1, -1)
    return np.where(is_group, number, max(int(number[np.argmax(count)]), 0))


def education_prospects(states: pl.DataFrame) -> Floats:
    """Share of each final education by sex, age 20..64 and education known then.

    Shape (sexes, A, educations, educations), from the rows of `known_states`; rows sum to 1.
    """
    rows = states.with_columns(
        pl.col("education_level").last().over("person_id").alias("final")
    ).filter(pl.col("age").is_between(FIRST, MAX_AGE))
    count = np.zeros((SEXES, len(AGES), EDUCATIONS, EDUCATIONS))
    np.add.at(
        count,
        tuple(
            rows[name].to_numpy().astype(np.int64) - (FIRST if name == "age" else 0)
            for name in ("sex", "age", "education_level", "final")
        ),
        1.0,
    )
    count += 1e-3 * np.eye(EDUCATIONS)  # without data education stays
    return np.asarray(count / count.sum(axis=-1, keepdims=True))


def death_hazard(panel: Panel, states: pl.DataFrame) -> Floats:
    """Probability of death in a year by sex code and age 20..64, (sexes, A), in five-year bands.

    `states` are the rows of `known_states`. 0 if a panel has no deaths.
    """
    band = (AGES - FIRST) // DEATH_BAND
    rows = states.filter(pl.col("age").is_between(FIRST, MAX_AGE))
    lived = np.zeros((SEXES, band[-1] + 1))
    np.add.at(
        lived,
        (rows["sex"].to_numpy().astype(np.int64), (rows["age"].to_numpy() - FIRST) // DEATH_BAND),
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
            (dead["age"].to_numpy() - FIRST) // DEATH_BAND,
        ),
        1.0,
    )
    return np.asarray((died / np.maximum(lived, 1.0)).clip(0.0, 0.5)[:, band])
