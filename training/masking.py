"""Random masking of records for training, and the targets of each token.

Masking makes the model robust against records that lack years, columns or values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass as options_dataclass

from saga import schema
from saga.features.calendar import Calendar
from saga.features.sequences import MAX_GAP, UNKNOWN, Tokens, filled_forward
from saga.features.transforms import ContinuedInputs
from saga.model.config import CheckedOptions
from saga.requests import MAX_HORIZON
from saga.schema import MAX_AGE

DIRECT_QUESTIONS = 2  # target years of the direct forecast per token and batch


@dataclass(eq=False)
class Targets:
    """What the model predicts from each token: arrays of shape (n_person, n_token).

    Those of the direct forecast have the shape (n_person, n_token, n_question).

    Attributes:
        gap: Years to the target year, at most MAX_GAP, of the direct forecast MAX_HORIZON; 0 if
            there is no target.
        state: State of earnings in the target year.
        z: Log earnings relative to wages in the target year.
        dead: Whether the person has died by the target year.
        macro: Macro covariates (..., 4) of the target year; of the direct forecast those (..., 7)
            of the years up to it.
    """

    gap: NDArray[np.int64]
    state: NDArray[np.int8]
    z: NDArray[np.float32]
    dead: NDArray[np.bool_]
    macro: NDArray[np.float32]


def make_targets(tokens: Tokens, dead_year: NDArray[np.int64], calendar: Calendar) -> Targets:
    """The next year with known earnings after each token, or death if none follows.

    `dead_year` (n,) is 0 if no death was observed. Make the targets before `hide_inputs` hides
    values of `tokens`.
    """
    n, t = tokens.valid.shape
    has_earnings_state = tokens.valid & (tokens.state != UNKNOWN)
    # Position of the next known token strictly after each position; t if there is none.
    position = np.where(has_earnings_state, np.arange(t), t)
    nearest = np.minimum.accumulate(position[:, ::-1], axis=1)[:, ::-1]
    following = np.concatenate([nearest[:, 1:], np.full((n, 1), t)], axis=1)
    exists = following < t
    index = np.where(exists, following, 0)
    gap = np.where(exists, np.take_along_axis(tokens.year, index, 1) - tokens.year, 0)
    to_death = dead_year[:, None] - tokens.year
    dead = ~exists & (to_death >= 1)
    gap = np.where(dead, to_death, gap)
    has_target = tokens.valid & (gap >= 1) & (gap <= MAX_GAP)
    has_earnings = has_target & exists
    gap = np.where(has_target, gap, 0)
    state = np.where(has_earnings, np.take_along_axis(tokens.state, index, 1), UNKNOWN)
    return Targets(
        gap=gap,
        state=state.astype(np.int8),
        z=(np.take_along_axis(tokens.z, index, 1) * has_earnings).astype(np.float32),
        dead=dead & has_target,
        macro=(calendar.covariates(tokens.year + gap) * has_target[..., None]).astype(np.float32),
    )


def make_direct_targets(
    tokens: Tokens,
    dead_year: NDArray[np.int64],
    calendar: Calendar,
    end: int,
    rng: np.random.Generator,
) -> Targets:
    """Random later years of each token, as targets if earnings are known or the person has died.

    Horizons are drawn from all that end by the panel's last year, `end`, and by age 64, whether or
    not the record has that year. Otherwise long horizons would be more frequent for persons with
    long records than for persons who died.
    """
    n = len(tokens.valid)
    reach = np.minimum(np.minimum(end - tokens.year, MAX_AGE - tokens.age), MAX_HORIZON)
    reach = np.where(tokens.valid, reach, 0)[..., None]
    horizon = _draw_horizons(np.repeat(reach, DIRECT_QUESTIONS, axis=2), rng)
    year = tokens.year[..., None] + horizon
    # Position of each person's token in each year; -1 if earnings are unknown.
    first = int(tokens.year.min())
    position = np.full((n, end - first + 1), -1)
    person, token = np.nonzero(tokens.valid & (tokens.state != UNKNOWN))
    position[person, tokens.year[person, token] - first] = token
    rows = np.arange(n)[:, None, None]
    index = position[rows, np.clip(year - first, 0, end - first)]
    dead = (horizon > 0) & (dead_year[:, None, None] > 0) & (year >= dead_year[:, None, None])
    has_earnings = (horizon > 0) & (index >= 0) & ~dead
    index = np.where(has_earnings, index, 0)
    has_target = has_earnings | dead
    macro = calendar.covariates_since(tokens.year[..., None], year)
    return Targets(
        gap=np.where(has_target, horizon, 0),
        state=np.where(has_earnings, tokens.state[rows, index], UNKNOWN).astype(np.int8),
        z=(tokens.z[rows, index] * has_earnings).astype(np.float32),
        dead=dead,
        macro=(macro * has_target[..., None]).astype(np.float32),
    )


def _draw_horizons(reach: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """A random horizon from 1 to each `reach`, 0 if it is 0.

    Half are uniform and half uniform in logs. So the first years, over which forecasts differ most,
    are more frequent.
    """
    u, reach = rng.random(reach.shape), np.maximum(reach, 0)
    in_logs = np.exp(u * np.log(reach + 1.0))
    horizon = np.where(rng.random(reach.shape) < 0.5, 1 + u * reach, in_logs)
    return np.minimum(horizon.astype(np.int64), reach)


Probability = Annotated[float, Field(strict=True, ge=0, le=1)]


@options_dataclass(frozen=True)
class Masking(CheckedOptions):
    """How often training hides years, columns and values, because a real panel may lack them.

    Probabilities apply to a person unless stated otherwise.
    """

    kind = "Masking"

    drop_years: Probability = 0.25  # a random share of the years is dropped
    late_start: Probability = 0.4  # the record begins in a random later year
    survey_only: Probability = 0.15  # all columns but earnings, age and sex are hidden
    drop_columns: Probability = 0.15  # each column is hidden with probability 1/2
    cells: Probability = 0.02  # probability per value that it is hidden
    # Columns are hidden after a random year, as in a rollout. `ContinuedInputs` says which are not.
    origin: Probability = 0.5


def thin_years(
    tokens: Tokens,
    dead_year: NDArray[np.int64],
    end: int,
    masking: Masking,
    rng: np.random.Generator,
) -> tuple[Tokens, NDArray[np.int64]]:
    """Drop random years and beginnings of records.

    Returns the remaining tokens, and `dead_year` (n,), 0 if the death was dropped. A person whose
    years are all dropped has no valid token.

    The choice must not depend on how the record ends, because the estimated hazard of death would
    then be too high. A death is therefore dropped like any other year, and a late start is drawn
    from all years that the record could have covered (up to `end`, the panel's last year, or age
    64).
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
    observed_death = np.where(rng.random(n) >= rate, dead_year, 0)
    # A stable sort moves the remaining tokens to the front without changing their order.
    order = np.argsort(~keep, axis=1, kind="stable")[:, : max(1, int(keep.sum(1).max()))]
    valid = np.take_along_axis(keep, order, 1)

    def move(x: NDArray[Any], fill: float) -> NDArray[Any]:
        index = order if x.ndim == 2 else order[..., None]
        moved = np.take_along_axis(x, index, 1)
        return np.where(valid if x.ndim == 2 else valid[..., None], moved, fill).astype(x.dtype)

    year = np.where(valid, np.take_along_axis(tokens.year, order, 1), first[:, None])
    thinned = Tokens(
        valid=valid,
        year=year,
        age=year - (first[:, None] - tokens.age[:, :1]),
        state=move(tokens.state, UNKNOWN),
        z=move(tokens.z, 0.0),
        other=move(tokens.other, np.nan),
        codes=move(tokens.codes, 0),
        continued=tokens.continued,
    )
    return thinned, observed_death


def hide_inputs(
    tokens: Tokens, end: int, masking: Masking, rng: np.random.Generator
) -> tuple[Tokens, NDArray[np.int64]]:
    """Hide columns, values and, for a share of the persons, the inputs after a random origin.

    Returns the visible tokens and the origins (n,), a position in each person's record. Columns
    that a rollout does not simulate are hidden after the origin; lasting columns keep their last
    known value. Targets are made before anything is hidden, so they stay complete.

    The origin is drawn from all years that the record could have covered (up to `end`, the panel's
    last year, or age 64). Origins drawn from the record itself would often lie shortly before a
    death, and the estimated hazard of death would be several times too high.
    """
    n, t = tokens.valid.shape
    other, codes = tokens.other.copy(), tokens.codes.copy()
    n_other, n_codes = other.shape[2], codes.shape[2]
    survey = rng.random((n, 1)) < masking.survey_only
    columns = rng.random((n, 1)) < masking.drop_columns
    hide_other = survey | (columns & (rng.random((n, n_other)) < 0.5))
    sex = np.arange(n_codes) == schema.CATEGORICAL.index("sex")
    hide_codes = (survey & ~sex) | (columns & (rng.random((n, n_codes)) < 0.5))
    last = tokens.year[:, 0] + (rng.random(n) * _possible_years(tokens, end)).astype(np.int64)
    origin = np.maximum((tokens.valid & (tokens.year <= last[:, None])).sum(1) - 1, 0)
    after = (np.arange(t) > origin[:, None]) & (rng.random((n, 1)) < masking.origin)
    other[hide_other[:, None, :] | (rng.random(other.shape) < masking.cells)] = np.nan
    codes[hide_codes[:, None, :] | (rng.random(codes.shape) < masking.cells)] = 0
    other, codes = continue_inputs(other, codes, after, tokens.continued)
    unknown = rng.random((n, t)) < masking.cells
    visible = Tokens(
        valid=tokens.valid,
        year=tokens.year,
        age=tokens.age,
        state=np.where(unknown, UNKNOWN, tokens.state).astype(np.int8),
        z=np.where(unknown, 0.0, tokens.z).astype(np.float32),
        other=other,
        codes=codes,
        continued=tokens.continued,
    )
    return visible, origin


def continue_inputs(
    other: NDArray[np.float32],
    codes: NDArray[np.int64],
    after: NDArray[np.bool_],
    continued: ContinuedInputs,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The inputs of records in which a rollout has simulated the years `after` (n, t).

    In these years static columns have their own codes, lasting columns their last known code or
    value, and all others are missing.

    Args:
        other: Standardised values (n, t, K), NaN if missing.
        codes: Code numbers (n, t, C), 0 if missing.
        after: Whether a year is simulated.
        continued: The columns that have values after the origin.
    """
    simulated = after[..., None]
    other = np.where(simulated, np.nan, other).astype(other.dtype)
    codes = np.where(simulated & ~continued.static_codes, 0, codes)
    lasting = simulated & continued.lasting_codes
    codes = np.where(lasting, filled_forward(codes, codes > 0), codes)
    if continued.lasting_other.any():
        lasting = simulated & continued.lasting_other
        other = np.where(lasting, filled_forward(other, ~np.isnan(other)), other)
    return other, codes


def _possible_years(tokens: Tokens, end: int) -> NDArray[np.int64]:
    """Years from the first record to the panel's last year or age 64, observed or not."""
    years: NDArray[np.int64] = np.minimum(end - tokens.year[:, 0], MAX_AGE - tokens.age[:, 0]) + 1
    return years
