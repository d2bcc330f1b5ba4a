"""Inspect a network: attention by lag, layer and head along its rollouts; diversity of its heads.

Attention is computed by the decoder, on records continued by simulated years. It shows which years
have weight in a head, not the causes of a forecast; `evaluation.explain.attribution` attributes a
forecast to its inputs.
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
from saga.model import Saga
from saga.requests import Draws
from saga.schema import MAX_AGE
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

    Columns `horizon`, `layer`, `head`, `lag`, `weight`. `lag` counts years back from the last
    record (0); simulated years have negative lags. The mean includes persons without a token at a
    lag, with weight 0, so the weights of a head sum to 1. It leaves out persons who are above age
    64 at the horizon. Raises InputError or UsageError if a person cannot be forecast.
    """
    if forecaster.transforms.rhythm != 1:
        raise UsageError(
            "Attention along rollouts is available only for bundles that step one year at a time."
        )
    paths = forecaster.simulate(
        panel, Draws(n_paths, seed), to_horizon=max(horizons), recalibrate=False
    )
    sequences = encode(panel, forecaster.transforms, forecaster.calendar)
    totals: dict[tuple[int, int, int, int], float] = {}
    counts = dict.fromkeys(horizons, 0)
    for i in range(len(sequences)):
        origin, birth_year = int(paths.origin_year[i]), int(paths.birth_year[i])
        reached = [h for h in horizons if origin + h - birth_year <= MAX_AGE]
        if not reached:
            continue
        simulated = paths.earnings[i, : max(reached) - 1].astype(np.float64)
        token, age, year = _continued_record(forecaster, sequences, i, simulated, seed)
        weights_by_layer = [
            weights.mean(0) for weights in forecaster.network.decoder.attention(token, age)
        ]
        last = int(np.flatnonzero(year == origin)[-1])
        for h in reached:
            counts[h] += 1
            lags = (origin - year[: last + h]).tolist()
            for layer, weights in enumerate(weights_by_layer):
                for head, row in enumerate(weights[:, last + h - 1, : last + h].tolist()):
                    for lag, weight in zip(lags, row, strict=True):
                        key = (h, layer, head, lag)
                        totals[key] = totals.get(key, 0.0) + weight
    rows = [(*key, weight / counts[key[0]]) for key, weight in sorted(totals.items())]
    schema = dict.fromkeys(("horizon", "layer", "head", "lag"), pl.Int32) | {"weight": pl.Float64}
    return pl.DataFrame(rows, schema, orient="row")


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
    z = np.where(y > 0, np.log(np.where(y > 0, y, 1.0)) - wage, 0.0)
    codes = future_codes(record.codes[0], record.persistence)
    other = future_values(record.other[0], record.persistence)
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


def head_diversity(network: Saga) -> pl.DataFrame:
    """Distance between the heads of each layer.

    Columns `layer`, `part` ("queries", "outputs") and `index`. The index is 1 - mean over pairs of
    heads (i, j) of (1/s) sum over k of cos² theta_k(i, j), with the s principal angles theta
    between the subspaces that the heads read their queries from (rows of the query maps) or write
    to (columns of the output maps; all heads share one value map). 0: all heads use one subspace.
    1: all subspaces are orthogonal. Independent random subspaces of R^d: 1 - s/d on average. The
    sum of squared cosines is the projection kernel of two subspaces; cosines are singular values
    (Björck and Golub 1973). The index is null for a layer with one head.
    """
    rows = []
    for layer, block in enumerate(network.stack):
        heads, size = block.heads, block.size
        query_map = block.qkv.weight[: heads * size].detach().double()
        queries = query_map.view(heads, size, -1).transpose(1, 2)
        outputs = block.out.weight.detach().double().view(-1, heads, size).transpose(0, 1)
        for part, bases in (("queries", queries), ("outputs", outputs)):
            rows.append((layer, part, subspace_diversity(bases)))
    schema = {"layer": pl.Int32, "part": pl.String, "index": pl.Float64}
    return pl.DataFrame(rows, schema, orient="row")


def subspace_diversity(bases: Tensor) -> float | None:
    """The index of `head_diversity` for the column spaces of (heads, d, s); None for one head."""
    if len(bases) < 2:
        return None
    orthonormal = torch.linalg.qr(bases.double()).Q
    cosines = torch.einsum("ids,jdr->ijsr", orthonormal, orthonormal)
    mean_squared_cosine = cosines.square().sum((-1, -2)) / bases.shape[-1]
    first, second = torch.triu_indices(len(bases), len(bases), offset=1)
    return float(1 - mean_squared_cosine[first, second].mean())
