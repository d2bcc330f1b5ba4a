"""Attention by lag and attention head, along the rollouts of a network.

Attention is computed by the decoder, on records continued by simulated years. It shows which years
have weight in an attention head, not the causes of a forecast; `explain.attribution`
attributes a forecast to its inputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from saga.data.panel import Panel
from saga.errors import UsageError
from saga.features.sequences import POSITIVE, ZERO, Sequences, encode, pad
from saga.forecaster import Forecaster
from saga.requests import Draws
from saga.schema import MAX_AGE, N_AGES
from saga.simulation.rollout import (
    RolloutOptions,
    draw_macro_futures,
    future_codes,
    future_values,
)


@torch.inference_mode()
def attention_by_lag(
    forecaster: Forecaster,
    panel: Panel,
    *,
    horizons: Sequence[int] = (1, 5, 10, 20),
    n_paths: int = 8,
    seed: int = 0,
) -> pl.DataFrame:
    """Mean attention of the exact rollout at each horizon, over persons and paths.

    Columns `horizon`, `layer`, `head` (attention head), `lag`, `weight`. `lag` counts years back
    from the last record (0); simulated years have negative lags. The mean includes persons without
    a token at a lag, with weight 0, so the weights of an attention head sum to 1. It leaves out
    persons who are above age 64 at the horizon.

    Raises:
        InputError: If a person cannot be forecast.
        UsageError: If the forecaster's rollout is not exact, its records are not yearly, or its
            bundle is an ensemble or has another network than the decoder.
    """
    if forecaster.transforms.rhythm != 1 or forecaster.rollout != "exact":
        raise UsageError(
            "Attention along rollouts needs a bundle that steps one year at a time, and its exact "
            'rollout. Load the bundle with `rollout="exact"`.'
        )
    network, horizons = forecaster.network, sorted(set(horizons))
    paths = forecaster.simulate(
        panel, Draws(n_paths, seed), to_horizon=max(horizons), recalibrate=False
    )
    sequences = encode(panel, forecaster.transforms, forecaster.calendar)
    first_lag = 1 - horizons[-1]
    shape = (len(horizons), len(network.stack), network.config.heads, N_AGES - first_lag)
    totals, has_token = np.zeros(shape), np.zeros(shape, dtype=np.bool_)
    counts = np.zeros(len(horizons))
    for i in range(len(sequences)):
        origin, birth_year = int(paths.origin_year[i]), int(paths.birth_year[i])
        reached = [h for h in horizons if origin + h - birth_year <= MAX_AGE]
        if not reached:
            continue
        simulated = paths.earnings[i, : max(reached) - 1].astype(np.float64)
        token, age, year = _continued_record(forecaster, sequences, i, simulated, seed)
        # Mean over paths: (layer, attention head, attending token, attended token).
        weights = torch.stack([layer.mean(0) for layer in network.decoder.attention(token, age)])
        last = int(np.flatnonzero(year == origin)[-1])
        for column, h in enumerate(reached):
            lags = origin - year[: last + h] - first_lag
            counts[column] += 1
            totals[column][..., lags] += weights[..., last + h - 1, : last + h].numpy()
            has_token[column][..., lags] = True
    row, layer, head, lag = np.nonzero(has_token)
    columns = {"horizon": np.array(horizons)[row], "layer": layer, "head": head}
    return (
        pl.DataFrame({**columns, "lag": lag + first_lag})
        .cast(pl.Int32)
        .with_columns(weight=totals[has_token] / counts[row])
    )


def _continued_record(
    forecaster: Forecaster,
    sequences: Sequences,
    person: int,
    earnings: NDArray[np.float64],
    seed: int,
) -> tuple[Tensor, Tensor, NDArray[np.int64]]:
    """A record followed by simulated earnings (steps, paths), as the tokens of the rollout.

    Returns tokens (paths, t, d), ages (paths, t) and years (t,).
    """
    steps, n_paths = earnings.shape
    record = pad(sequences, np.array([person]))
    origin = int(record.year[0, -1])
    _, wage = draw_macro_futures(
        forecaster.calendar, forecaster.process, RolloutOptions(n_paths, seed), origin, steps
    )
    y = earnings.T
    state = np.where(y > 0, POSITIVE, ZERO)
    # Relative log earnings: `wage` is the log wage index.
    z = np.where(y > 0, np.log(np.where(y > 0, y, 1.0)) - wage, 0.0)
    codes = future_codes(record.codes[0], record.continued)
    other = future_values(record.other[0], record.continued)
    simulated_ages = record.age[0, -1] + np.arange(1, steps + 1)

    def joined(
        observed: NDArray[np.generic], simulated: NDArray[np.generic], dtype: torch.dtype
    ) -> Tensor:
        repeated = np.repeat(observed, n_paths, axis=0)
        shape = (n_paths, steps, *repeated.shape[2:])
        later = np.broadcast_to(simulated, shape).astype(repeated.dtype)
        return torch.from_numpy(np.concatenate([repeated, later], axis=1)).to(dtype)

    age = joined(record.age, simulated_ages, torch.int64)
    token = forecaster.network.tokens(
        joined(record.state, state, torch.int64),
        joined(record.z, z, torch.float32),
        joined(record.other, other, torch.float32),
        joined(record.codes, codes, torch.int64),
        age,
    )
    return token, age, np.concatenate([record.year[0], origin + np.arange(1, steps + 1)])
