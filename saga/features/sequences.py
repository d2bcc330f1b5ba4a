"""Panel -> sequences of person-year tokens: the sole owner of gaps, padding, missing cells and the cut-off.

A token is an observed year (a row of the panel). What a row lacks stays missing; a year without a row has no token; a zero is a
value. The target of a token is the person's next year with known earnings, at most MAX_GAP years on, or death.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga import schema
from saga.data.panel import Panel
from saga.features.calendar import Calendar
from saga.features.transforms import OTHER, Transforms
from saga.schema import MAX_AGE

N_OTHER = len(OTHER)
MAX_GAP = 5
# Number of the earnings state in a token.
UNKNOWN, ZERO, POSITIVE = 0, 1, 2
STATIC_CATEGORIES = np.array([schema.BY_NAME[name].static for name in schema.CATEGORICAL])
LASTING_CATEGORIES = np.array([schema.BY_NAME[name].lasting for name in schema.CATEGORICAL])


@dataclass(frozen=True, eq=False)
class Sequences:
    """Ragged tokens of n persons: person i owns rows offsets[i]:offsets[i + 1], sorted by year.

    `z` is log real earnings less the log wage index (0 unless `state` is POSITIVE); `other` (n_row, 14) NaN where missing; `codes`
    (n_row, 10), 0 where missing; `dead_year` (n,) is 0 when death was not seen.
    """

    person_id: NDArray[np.str_]
    birth_year: NDArray[np.int64]
    dead_year: NDArray[np.int64]
    offsets: NDArray[np.int64]
    year: NDArray[np.int64]
    state: NDArray[np.int8]
    z: NDArray[np.float32]
    other: NDArray[np.float32]
    codes: NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.person_id)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens a person, shape (n,)."""
        return np.diff(self.offsets)


def encode(panel: Panel, transforms: Transforms, calendar: Calendar) -> Sequences:
    """Turn a panel into sequences; persons keep the panel's order (sorted by id)."""
    frame = panel.frame
    ids, starts = np.unique(frame["person_id"].to_numpy(), return_index=True)
    earnings = frame["earnings"].to_numpy().astype(np.float64)
    year = frame["year"].to_numpy().astype(np.int64)
    state = np.where(np.isnan(earnings), UNKNOWN, np.where(earnings > 0, POSITIVE, ZERO)).astype(
        np.int8
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(state == POSITIVE, np.log(earnings) - calendar.wage_index(year), 0.0)
    dead = frame.select(
        pl.when(pl.col("exit_reason") == "dead").then("exit_year").otherwise(0).fill_null(0)
    )["exit_year"]
    return Sequences(
        person_id=ids.astype(np.str_),
        birth_year=frame["birth_year"].to_numpy().astype(np.int64)[starts],
        dead_year=dead.to_numpy().astype(np.int64)[starts],
        offsets=np.append(starts, frame.height).astype(np.int64),
        year=year,
        state=state,
        z=z.astype(np.float32),
        other=transforms.continuous(frame),
        codes=transforms.categorical(frame),
    )


@dataclass(eq=False)
class Tokens:
    """A padded batch: arrays of shape (n_person, n_token, ...), padding at the end, `valid` false there."""

    valid: NDArray[np.bool_]
    year: NDArray[np.int64]
    age: NDArray[np.int64]
    state: NDArray[np.int8]
    z: NDArray[np.float32]
    other: NDArray[np.float32]
    codes: NDArray[np.int64]


@dataclass(eq=False)
class Targets:
    """What each token is asked: arrays (n_person, n_token).

    `gap` years on (1..MAX_GAP; 0: no question), earnings `state` and `z` there, `dead` 1/0, and the macro covariates of that year
    (n_person, n_token, 4).
    """

    gap: NDArray[np.int64]
    state: NDArray[np.int8]
    z: NDArray[np.float32]
    dead: NDArray[np.bool_]
    macro: NDArray[np.float32]


def pad(
    sequences: Sequences, persons: NDArray[np.integer[Any]], width: int | None = None
) -> Tokens:
    """The tokens of some persons as a padded batch, as wide as the longest record, or `width`."""
    start, length = sequences.offsets[persons], sequences.lengths[persons]
    column = np.arange(int(length.max()) if width is None else width)
    valid = column < length[:, None]
    row = np.where(valid, start[:, None] + column, start[:, None])
    year = sequences.year[row]
    return Tokens(
        valid=valid,
        year=year,
        age=year - sequences.birth_year[persons][:, None],
        state=np.where(valid, sequences.state[row], UNKNOWN).astype(np.int8),
        z=sequences.z[row] * valid,
        other=np.where(valid[..., None], sequences.other[row], np.nan).astype(np.float32),
        codes=sequences.codes[row].astype(np.int64) * valid[..., None],
    )


def targets(tokens: Tokens, dead_year: NDArray[np.int64], calendar: Calendar) -> Targets:
    """The next year with known earnings after each token, or death, whichever the record shows; `tokens` before any input masking."""
    n, t = tokens.valid.shape
    known = tokens.valid & (tokens.state != UNKNOWN)
    # index of the next known token strictly after each position; t where there is none
    position = np.where(known, np.arange(t), t)
    nearest = np.minimum.accumulate(position[:, ::-1], axis=1)[:, ::-1]
    following = np.concatenate([nearest[:, 1:], np.full((n, 1), t)], axis=1)
    exists = following < t
    index = np.where(exists, following, 0)
    gap = np.where(exists, np.take_along_axis(tokens.year, index, 1) - tokens.year, 0)
    to_death = dead_year[:, None] - tokens.year
    dead = ~exists & (to_death >= 1)
    gap = np.where(dead, to_death, gap)
    asked = tokens.valid & (gap >= 1) & (gap <= MAX_GAP)
    gap = np.where(asked, gap, 0)
    return Targets(
        gap=gap,
        state=np.where(asked & exists, np.take_along_axis(tokens.state, index, 1), UNKNOWN).astype(
            np.int8
        ),
        z=(np.take_along_axis(tokens.z, index, 1) * (asked & exists)).astype(np.float32),
        dead=dead & asked,
        macro=(calendar.covariates(tokens.year + gap) * asked[..., None]).astype(np.float32),
    )


@dataclass(frozen=True)
class Masking:
    """How often training hides what a real register may lack; probabilities a person unless said otherwise.

    Years: a share of the years is dropped, or the record begins late. Columns: all but earnings, age and sex; or each column with
    probability 1/2. Cells: single cells. Origin: everything that a rollout does not simulate is hidden after a random year; lasting columns
    stay as they were known then.
    """

    drop_years: float = 0.25
    late_start: float = 0.4
    survey_only: float = 0.15
    drop_columns: float = 0.15
    cells: float = 0.02
    origin: float = 0.5


def thin_years(
    tokens: Tokens,
    dead_year: NDArray[np.int64],
    end: int,
    masking: Masking,
    rng: np.random.Generator,
) -> tuple[Tokens, NDArray[np.int64]]:
    """Drop whole years at random, and beginnings of records: the thinned tokens, and `dead_year` (n,), 0 where the death was dropped.

    What is dropped must not depend on how the record ends, or the hazard of death is learnt too high: a death is dropped like any
    other year, and a late start is drawn over the years in which the record could have gone on (to `end`, the last year of the panel, or
    age 64). Somebody of whom nothing is left has no valid token.
    """
    n, t = tokens.valid.shape
    first = tokens.year[:, 0]
    rate = np.where(rng.random(n) < masking.drop_years, rng.random(n) * 0.6, 0.0)
    start = first + np.where(
        rng.random(n) < masking.late_start,
        (rng.random(n) * _possible_years(tokens, end)).astype(np.int64),
        0,
    )
    keep = tokens.valid & (rng.random((n, t)) >= rate[:, None]) & (tokens.year >= start[:, None])
    seen_death = np.where(rng.random(n) >= rate, dead_year, 0)
    # stable sort moves the kept tokens to the front without changing their order
    order = np.argsort(~keep, axis=1, kind="stable")[:, : max(1, int(keep.sum(1).max()))]
    kept = np.take_along_axis(keep, order, 1)

    def move(x: NDArray[Any], fill: float) -> NDArray[Any]:
        index = order if x.ndim == 2 else order[..., None]
        moved = np.take_along_axis(x, index, 1)
        return np.where(kept if x.ndim == 2 else kept[..., None], moved, fill).astype(x.dtype)

    year = np.where(kept, np.take_along_axis(tokens.year, order, 1), first[:, None])
    thinned = Tokens(
        valid=kept,
        year=year,
        age=year - (first[:, None] - tokens.age[:, :1]),
        state=move(tokens.state, UNKNOWN),
        z=move(tokens.z, 0.0),
        other=move(tokens.other, np.nan),
        codes=move(tokens.codes, 0),
    )
    return thinned, seen_death


def _possible_years(tokens: Tokens, end: int) -> NDArray[np.int64]:
    """Years from each record's first to the panel's last or to age 64, whether or not the record went on so long."""
    years: NDArray[np.int64] = np.minimum(end - tokens.year[:, 0], MAX_AGE - tokens.age[:, 0]) + 1
    return years


def last_known(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Codes (..., n_token, n_column), each missing one (0) replaced by the last one known before it."""
    place = np.where(codes > 0, np.arange(codes.shape[-2])[:, None], 0)
    return np.take_along_axis(codes, np.maximum.accumulate(place, axis=-2), axis=-2)


def hide(
    tokens: Tokens, end: int, masking: Masking, rng: np.random.Generator
) -> tuple[Tokens, NDArray[np.int64]]:
    """Hide columns, cells and, for a share of the persons, everything that a rollout does not simulate after a random origin.

    Returns what is seen, and the origins (n,): a position in everybody's record. Inputs only: targets are made before. The origin is drawn
    over the years in which the record could have gone on (to `end`, the last year of the panel, or age 64): drawn over the record itself
    it would often lie shortly before a death, and the hazard of death after an origin would be learnt several times too high.
    """
    n, t = tokens.valid.shape
    other, codes = tokens.other.copy(), tokens.codes.copy()
    n_other, n_codes = other.shape[2], codes.shape[2]
    survey = rng.random((n, 1)) < masking.survey_only
    columns = rng.random((n, 1)) < masking.drop_columns
    hide_other = survey | (columns & (rng.random((n, n_other)) < 0.5))
    sex = np.array([name == "sex" for name in schema.CATEGORICAL])
    hide_codes = (survey & ~sex) | (columns & (rng.random((n, n_codes)) < 0.5))
    drawn = tokens.year[:, 0] + (rng.random(n) * _possible_years(tokens, end)).astype(np.int64)
    origin = np.maximum((tokens.valid & (tokens.year <= drawn[:, None])).sum(1) - 1, 0)
    after = (np.arange(t) > origin[:, None]) & (rng.random((n, 1)) < masking.origin)
    other[hide_other[:, None, :] | after[..., None] | (rng.random(other.shape) < masking.cells)] = (
        np.nan
    )
    codes[
        hide_codes[:, None, :]
        | (after[..., None] & ~STATIC_CATEGORIES)
        | (rng.random(codes.shape) < masking.cells)
    ] = 0
    codes = np.where(after[..., None] & LASTING_CATEGORIES, last_known(codes), codes)
    unknown = rng.random((n, t)) < masking.cells
    seen = Tokens(
        valid=tokens.valid,
        year=tokens.year,
        age=tokens.age,
        state=np.where(unknown, UNKNOWN, tokens.state).astype(np.int8),
        z=np.where(unknown, 0.0, tokens.z).astype(np.float32),
        other=other,
        codes=codes,
    )
    return seen, origin
