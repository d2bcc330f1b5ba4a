"""Batches for the state network: years of real persons, as they appear in a rollout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.training.data import Batch, as_tensors
from saga.training.masking import Masking, hide_inputs
from torch.utils.data import Dataset

from saga import schema
from saga.data.panel import Panel
from saga.features.sequences import UNKNOWN, ZERO, Sequences, Tokens, encode, pad
from saga.features.transforms import OTHER
from saga.forecaster import Forecaster
from saga.schema import MAX_AGE, MIN_AGE
from saga.states.codes import CATEGORIES, INDUSTRY, OCCUPATION, Spells, code_numbers
from saga.states.life_courses import ZeroRuns

# The state of a year follows from six sums of money (`saga.states.codes.SOURCES`). This column
# stands for them: if it is hidden, the state is hidden too.
_STATE_SOURCE = OTHER.index("unemployment_benefit")
_SHORTENED = 0.5  # share of the paths that end early
# If columns are hidden in the whole record: share of the target years for which their last known
# codes are hidden too.
_HIDDEN_BEFORE = 0.5


@dataclass(frozen=True, eq=False)
class StateRecords:
    """Records of n persons: tokens, and the states of their years.

    `codes` (n_row, 7) are the code numbers of the states, `emigration_year` (n,) is 0 if no
    emigration was observed, `end` is the panel's last year.
    """

    sequences: Sequences
    codes: NDArray[np.int16]
    emigration_year: NDArray[np.int64]
    end: int

    @classmethod
    def from_panel(cls, panel: Panel, forecaster: Forecaster) -> StateRecords:
        """The records of all persons of a panel."""
        sequences = encode(panel, forecaster.transforms, forecaster.calendar)
        emigrated = pl.col("exit_reason") == "emigrated"
        year = pl.when(emigrated).then("exit_year").otherwise(0).fill_null(0)
        years = panel.frame.select(year.alias("year"))["year"].to_numpy().astype(np.int64)
        return cls(
            sequences,
            code_numbers(panel.frame, forecaster.transforms),
            years[sequences.offsets[:-1]],
            int(sequences.year.max()),
        )


def make_state_batch(
    records: StateRecords,
    persons: NDArray[np.int64],
    until: int,
    rng: np.random.Generator,
    shortened: float = _SHORTENED,
) -> Batch:
    """All target years of the persons, each seen from a random origin before it.

    A target year directly follows an observed year; in it the person is observed again, dies or
    emigrates. Tensors: the decoder's inputs (n, t, ...); for N target years `person` and
    `origin` (positions), the fields of `StateInputs` and the outcomes `emigrates` (N,), `dies` (N,;
    -1 after emigration) and `next_codes` (N, 7; -1 if not observed). Of the fields, the decoder
    computes `origin`; the earnings `before`, `now` and `after` are given as state and z.

    Args:
        records: Records of all persons.
        persons: Rows of the persons in the batch.
        until: Last year of the data that the bundle was trained on.
        rng: Source of all random choices.
        shortened: Share of the paths that end early, at a random year. Otherwise a path with few
            remaining years would identify the panel's last years.
    """
    sequences, end = records.sequences, records.end
    tokens = pad(sequences, persons)
    visible, _ = hide_inputs(tokens, end, Masking(origin=0.0), rng)
    t = tokens.valid.shape[1]
    row = np.minimum(sequences.offsets[persons][:, None] + np.arange(t), len(sequences.year) - 1)
    codes = records.codes[row].astype(np.int64) * tokens.valid[..., None]
    last_codes, workplace, years = _spells_by_year(tokens, codes)

    born = tokens.year[:, 0] - tokens.age[:, 0]
    dead_year, emigration_year = sequences.dead_year[persons], records.emigration_year[persons]
    exits = np.maximum(dead_year, emigration_year)
    followed = _followed_by_record(tokens)
    ends = _ends_with_exit(tokens, exits, np.minimum(end, born + MAX_AGE))
    i, p = np.nonzero(followed | ends)  # person and position before the target year
    year, leaves = tokens.year[i, p] + 1, ends[i, p]
    dies, emigrates = leaves & (dead_year[i] > 0), leaves & (emigration_year[i] > 0)

    earnings_state, z, run, remaining = _earnings_paths(tokens, dead_year, born, end)
    column = year - int(tokens.year[:, 0].min())
    is_shortened = rng.random(len(i)) < shortened
    shorter = (rng.random(len(i)) * (remaining[i, column] + 1)).astype(np.int64)
    years_after = np.where(is_shortened, shorter, remaining[i, column])
    ahead = ZeroRuns.from_counts(np.minimum(run[i, column], years_after + 1), years_after)
    hidden = _hidden_columns(tokens, visible)[i] & (rng.random((len(i), 1)) < _HIDDEN_BEFORE)
    hidden_years = np.column_stack([hidden, hidden[:, INDUSTRY]])
    next_codes = _codes_of_next_record(codes, workplace, i, p)
    return as_tensors(
        {
            "token_state": visible.state.astype(np.int64),
            "token_z": visible.z,
            "token_other": visible.other,
            "token_codes": visible.codes,
            "token_age": visible.age,
            "person": i,
            "origin": (rng.random(len(i)) * (p + 1)).astype(np.int64),
            "before_state": earnings_state[i, column - 1].astype(np.int64),
            "before_z": z[i, column - 1],
            "now_state": earnings_state[i, column].astype(np.int64),
            "now_z": z[i, column],
            "after_state": np.where(years_after > 0, earnings_state[i, column + 1], UNKNOWN).astype(
                np.int64
            ),
            "after_z": np.where(years_after > 0, z[i, column + 1], 0.0).astype(np.float32),
            "zero_years": ahead.zero_years,
            "years_left": ahead.years_left,
            "zero_to_end": ahead.zero_to_end,
            "age": np.minimum(year - born[i], MAX_AGE) - MIN_AGE,
            "period": np.minimum(0.0, (year - until) / 10).astype(np.float32),
            "codes": np.where(hidden, 0, last_codes[i, p]),
            "workplace": workplace[i, p] & ~hidden[:, INDUSTRY],
            "durations": np.where(hidden_years, 0, years[i, p]),
            "emigrates": emigrates.astype(np.int64),
            "dies": np.where(emigrates, -1, dies),
            "next_codes": np.where(leaves[:, None], -1, next_codes),
        }
    )


def _spells_by_year(tokens: Tokens, codes: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
    """Last known codes (n, t, 7), workplace (n, t), and years in each code (n, t, 8).

    The eighth number of years is that with or without a workplace.
    """
    spells, columns = Spells.unknown(tokens.year[:, 0]), []
    for column in range(codes.shape[1]):
        year = tokens.year[:, column]
        spells = spells.after(year, codes[:, column])
        columns.append((spells.codes, spells.workplace, spells.durations(year)))
    return tuple(np.stack(part, 1) for part in zip(*columns, strict=True))


def _followed_by_record(tokens: Tokens) -> NDArray[np.bool_]:
    """Whether a record of the next year follows a token (n, t)."""
    followed = np.zeros(tokens.valid.shape, bool)
    followed[:, :-1] = tokens.valid[:, 1:] & (np.diff(tokens.year, axis=1) == 1)
    return followed


def _codes_of_next_record(
    codes: NDArray[np.int64],
    workplace: NDArray[np.bool_],
    i: NDArray[np.int64],
    p: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Codes (N, 7) of the records after positions `p` of persons `i`, -1 if not observed.

    Industry 0 is an outcome: no workplace.
    """
    next_codes = codes[i, np.minimum(p + 1, codes.shape[1] - 1)]
    next_codes = np.where(next_codes > 0, next_codes, -1)
    next_codes[:, INDUSTRY] = np.maximum(next_codes[:, INDUSTRY], 0)
    # If the record at `p` has a workplace but no occupation, the last known occupation is older. A
    # change since then is not a change of one year, so it is no target.
    next_codes[workplace[i, p] & (codes[i, p, OCCUPATION] == 0), OCCUPATION] = -1
    return next_codes


def _ends_with_exit(
    tokens: Tokens, exits: NDArray[np.int64], last: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether a token (n, t) is the person's last and the next year is that of the exit.

    The exit year `exits` (n,) must not be after `last` (n,).
    """
    final = np.arange(tokens.valid.shape[1]) == tokens.valid.sum(1)[:, None] - 1
    follows = (exits[:, None] == tokens.year + 1) & (exits <= last)[:, None]
    ends: NDArray[np.bool_] = tokens.valid & final & follows
    return ends


def _earnings_paths(
    tokens: Tokens, dead_year: NDArray[np.int64], born: NDArray[np.int64], end: int
) -> tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """Earnings by calendar year in the form of a path, arrays (n, n_year).

    Returns states of earnings (UNKNOWN, ZERO or POSITIVE), z (log real earnings less the log wage
    index; 0 unless positive), the length of the run of zeros that begins in each year, and the
    years of the path that remain after each. Years count from the first record in the batch. After
    a death earnings are zero until the panel's end or age 64; other paths end with the record.
    """
    n, first = len(born), int(tokens.year[:, 0].min())
    span = end - first + 2
    earnings_state, z = np.full((n, span), UNKNOWN, np.int8), np.zeros((n, span), np.float32)
    person, position = np.nonzero(tokens.valid)
    column = tokens.year[person, position] - first
    earnings_state[person, column] = tokens.state[tokens.valid]
    z[person, column] = tokens.z[tokens.valid]
    last = np.where(dead_year > 0, np.minimum(end, born + MAX_AGE), tokens.year.max(1))
    years = first + np.arange(span)
    beyond = years > last[:, None]
    dead = (dead_year[:, None] > 0) & (years >= dead_year[:, None])
    earnings_state[dead & ~beyond] = ZERO
    remaining = np.where(beyond, 0, last[:, None] - years)
    run = np.zeros((n, span + 1), np.int64)
    for t in reversed(range(span)):
        run[:, t] = np.where(~beyond[:, t] & (earnings_state[:, t] == ZERO), run[:, t + 1] + 1, 0)
    return earnings_state, z, run[:, :-1], remaining


def _hidden_columns(tokens: Tokens, visible: Tokens) -> NDArray[np.bool_]:
    """(n, 7): whether a column is known in the record and hidden in all `visible` tokens."""
    source = tokens.other[..., _STATE_SOURCE], visible.other[..., _STATE_SOURCE]
    hidden = [(~np.isnan(source[0])).any(1) & np.isnan(source[1]).all(1)]
    for name in CATEGORIES:
        k = schema.CATEGORICAL.index(name)
        hidden.append((tokens.codes[..., k] > 0).any(1) & ~(visible.codes[..., k] > 0).any(1))
    return np.column_stack(hidden)


@dataclass
class StateBatches(Dataset[Batch]):
    """`count` batches of `persons` random persons; each depends on (seed, index) alone."""

    records: StateRecords
    until: int
    persons: int
    count: int
    seed: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Batch:
        rng = np.random.default_rng([self.seed, 3, index])
        total = len(self.records.sequences)
        persons = rng.choice(total, min(self.persons, total), replace=False)
        return make_state_batch(self.records, persons, self.until, rng)
