"""Sequences of person-year tokens, made from a panel; gaps, missing values and padding.

A token is an observed year, a row of the panel. Missing values stay missing, a year without a row
has no token, and zero is a value. The target of a token is the person's next year with known
earnings, at most MAX_GAP years later, or death (`saga.training.masking`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saga.data.panel import Panel
from saga.features.calendar import Calendar
from saga.features.transforms import OF_SCHEMA, OTHER, ContinuedInputs, Transforms
from saga.features.units import IDENTITY, Units

N_OTHER = len(OTHER)
MAX_GAP = 5
# Numbers of the earnings state of a token.
UNKNOWN, ZERO, POSITIVE = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Sequences:
    """Tokens of n persons: person i has rows offsets[i]:offsets[i + 1], sorted by year.

    `z` is log real earnings less the log wage index, in `units`, 0 unless `state` is POSITIVE.
    `other` (n_row, K) is NaN and `codes` (n_row, C) is 0 where missing; K is 14 and C is 10, plus
    the panel's own columns. `dead_year` (n,) is 0 if no death is observed.
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
    continued: ContinuedInputs = OF_SCHEMA
    units: Units = IDENTITY

    def __len__(self) -> int:
        return len(self.person_id)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens per person, shape (n,)."""
        return np.diff(self.offsets)


def encode(panel: Panel, transforms: Transforms, calendar: Calendar) -> Sequences:
    """Sequences of a panel; persons keep the panel's order, sorted by id."""
    frame = panel.frame
    ids, starts = np.unique(frame["person_id"].to_numpy(), return_index=True)
    earnings = frame["earnings"].to_numpy().astype(np.float64)
    year = frame["year"].to_numpy().astype(np.int64)
    known_state = np.where(earnings > 0, POSITIVE, ZERO)
    state = np.where(np.isnan(earnings), UNKNOWN, known_state).astype(np.int8)
    age = year - frame["birth_year"].to_numpy().astype(np.int64)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(earnings) - calendar.wage_index(year)
    z = np.where(state == POSITIVE, transforms.units.relative(logs, age, year), 0.0)
    dead_year = np.zeros(len(frame), dtype=np.int64)
    if frame["exit_reason"].null_count() < len(frame):
        is_dead = frame["exit_reason"] == "dead"
        dead_year = frame["exit_year"].fill_null(0).to_numpy() * is_dead.fill_null(False).to_numpy()
    return Sequences(
        person_id=ids.astype(np.str_),
        birth_year=frame["birth_year"].to_numpy().astype(np.int64)[starts],
        dead_year=dead_year.astype(np.int64)[starts],
        offsets=np.append(starts, frame.height).astype(np.int64),
        year=year,
        state=state,
        z=z.astype(np.float32),
        other=transforms.continuous(frame),
        codes=transforms.categorical(frame),
        continued=transforms.continued,
        units=transforms.units,
    )


@dataclass(eq=False)
class Tokens:
    """A padded batch: arrays (n_person, n_token, ...); `valid` is false in the padding."""

    valid: NDArray[np.bool_]
    year: NDArray[np.int64]
    age: NDArray[np.int64]
    state: NDArray[np.int8]
    z: NDArray[np.float32]
    other: NDArray[np.float32]
    codes: NDArray[np.int64]
    continued: ContinuedInputs = OF_SCHEMA


def pad(
    sequences: Sequences, persons: NDArray[np.integer[Any]], width: int | None = None
) -> Tokens:
    """The tokens of `persons`, padded at the end to the longest record, or to `width`."""
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
        continued=sequences.continued,
    )


def filled_forward(x: NDArray[Any], known: NDArray[np.bool_]) -> NDArray[Any]:
    """Inputs (..., n_token, n_column) in which the last one that is `known` replaces others."""
    position = np.where(known, np.arange(x.shape[-2])[:, None], 0)
    return np.take_along_axis(x, np.maximum.accumulate(position, axis=-2), axis=-2)
