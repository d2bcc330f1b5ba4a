"""What a network looks at: attention by lag, layer and head along its own rollouts; how different its heads are.

Attention is read off the decoder's own arithmetic, on records that go on with the years that the rollout drew. It says where a head looks,
not why the forecast is what it is: `evaluation.explain.attribution` attributes a forecast.
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
from saga.features.sequences import (
    LASTING_CATEGORIES,
    POSITIVE,
    STATIC_CATEGORIES,
    ZERO,
    Sequences,
    encode,
    last_known,
    pad,
)
from saga.forecaster import Forecaster
from saga.macro.history import log_wage_index
from saga.model import Saga
from saga.model.decoder import causal_mask, rotation
from saga.requests import Draws
from saga.schema import MAX_AGE

_HEADS = {"layer": pl.Int32, "head": pl.Int32}


def attention_weights(network: Saga, token: Tensor, age: Tensor) -> list[Tensor]:
    """Each layer's attention (n, heads, t, t) for tokens (n, t, d) at ages (n, t): row i is what token i looks at; rows sum to 1."""
    cos, sin = (r.to(token) for r in rotation(age, network.config.head_size))
    mask = causal_mask(age, network.decoder.span).to(token.dtype)
    x, found = token, []
    for block in network.stack:
        q, k, _ = block.project(x, cos, sin)
        scores = torch.einsum("nihs,njs->nhij", q, k) * block.size**-0.5
        found.append((scores + mask.unsqueeze(-3)).softmax(-1))
        x, _, _ = block(x, cos, sin, mask)
    return found


@torch.inference_mode()
def attention_by_lag(
    forecaster: Forecaster,
    panel: Panel,
    *,
    horizons: Sequence[int] = (1, 5, 10, 20),
    paths: int = 8,
    seed: int = 0,
) -> pl.DataFrame:
    """Mean attention of the exact rollout when it is asked for the year `horizon` years after the last record, over persons and paths.

    Columns `horizon`, `layer`, `head`, `lag`, `weight`: `lag` counts years back from the last record (0), negative in the years that the
    path has drawn since. Somebody without a token at a lag counts as 0 there, so the weights of a head sum to 1. Persons who cannot reach
    a horizon by 64 take no part in it. Raises InputError or UsageError for persons who cannot be forecast.
    """
    if forecaster.transforms.rhythm != 1:
        raise UsageError(
            "Attention along rollouts is read off for bundles that step a year at a time."
        )
    drawn = forecaster.simulate(
        panel, Draws(paths, seed), to_horizon=max(horizons), recalibrate=False
    )
    sequences = encode(panel, forecaster.transforms, forecaster.calendar)
    totals: dict[tuple[int, int, int, int], float] = {}
    counts = dict.fromkeys(horizons, 0)
    for i in range(len(sequences)):
        origin, born = int(drawn.origin_year[i]), int(drawn.birth_year[i])
        reached = [h for h in horizons if origin + h - born <= MAX_AGE]
        if not reached:
            continue
        token, age, year = _continued(
            forecaster, sequences, i, drawn.earnings[i, : max(reached) - 1].astype(np.float64), seed
        )
        layers = [
            weights.mean(0) for weights in attention_weights(forecaster.network, token, age)
        ]  # over paths
        last = int(np.flatnonzero(year == origin)[-1])
        for h in reached:
            counts[h] += 1
            for layer, weights in enumerate(layers):
                for head, row in enumerate(weights[:, last + h - 1, : last + h].tolist()):
                    for lag, weight in zip((origin - year[: last + h]).tolist(), row, strict=True):
                        key = (h, layer, head, lag)
                        totals[key] = totals.get(key, 0.0) + weight
    rows = [(*key, weight / counts[key[0]]) for key, weight in sorted(totals.items())]
    return pl.DataFrame(
        rows, {"horizon": pl.Int32, **_HEADS, "lag": pl.Int32, "weight": pl.Float64}, orient="row"
    )


def _continued(
    forecaster: Forecaster,
    sequences: Sequences,
    person: int,
    earnings: NDArray[np.float64],
    seed: int,
) -> tuple[Tensor, Tensor, NDArray[np.int64]]:
    """A record with drawn years (steps, paths) behind it, as the rollout's tokens: (paths, t, d), ages (paths, t), years (t,)."""
    steps, paths = earnings.shape
    record = pad(sequences, np.array([person]))
    origin = int(record.year[0, -1])
    wage = np.zeros((paths, steps))
    if forecaster.process is not None and steps:
        values = forecaster.process.draw(seed, paths, origin, origin + steps)
        wage = forecaster.calendar.wage_index(np.array([origin]))[0] + log_wage_index(
            values[..., 1]
        )
    y = earnings.T
    state = np.where(y > 0, POSITIVE, ZERO)
    z = np.where(y > 0, np.log(np.where(y > 0, y, 1.0)) - wage, 0.0)
    kept = np.where(
        LASTING_CATEGORIES,
        last_known(record.codes[0])[-1],
        np.where(STATIC_CATEGORIES, record.codes[0, -1], 0),
    )

    def joined(
        known: NDArray[np.generic], later: NDArray[np.generic], dtype: torch.dtype
    ) -> Tensor:
        repeated = np.repeat(known, paths, axis=0)
        return torch.from_numpy(
            np.concatenate([repeated, later.astype(repeated.dtype)], axis=1)
        ).to(dtype)

    ages = record.age[0, -1] + np.arange(1, steps + 1)
    age = joined(record.age, np.broadcast_to(ages, (paths, steps)), torch.int64)
    token = forecaster.network.tokens(
        joined(record.state, state, torch.int64),
        joined(record.z, z, torch.float32),
        joined(record.other, np.full((paths, steps, record.other.shape[2]), np.nan), torch.float32),
        joined(record.codes, np.broadcast_to(kept, (paths, steps, len(kept))), torch.int64),
        age,
    )
    return token, age, np.concatenate([record.year[0], origin + np.arange(1, steps + 1)])


def head_diversity(network: Saga) -> pl.DataFrame:
    """How far apart the heads of each layer are: columns `layer`, `part` ("queries", "outputs") and `index`.

    The index is 1 - mean over pairs of heads (i, j) of (1/s) sum over k of cos² theta_k(i, j), with the s principal angles theta between
    the subspaces that the heads read their queries from (rows of the query maps) or write to (columns of the output maps; all heads share
    one value map). 0: all heads use one subspace; 1: all are orthogonal; independent random subspaces of R^d: 1 - s/d on average. The sum
    of squared cosines is the projection kernel of two subspaces; cosines are singular values (Björck and Golub 1973). Without a second
    head there is nothing to compare: null.
    """
    rows = []
    for layer, block in enumerate(network.stack):
        d = block.heads * block.size
        queries = (
            block.qkv.weight[:d].detach().double().view(block.heads, block.size, -1).transpose(1, 2)
        )
        outputs = (
            block.out.weight.detach().double().view(-1, block.heads, block.size).transpose(0, 1)
        )
        rows += [
            (layer, "queries", subspace_diversity(queries)),
            (layer, "outputs", subspace_diversity(outputs)),
        ]
    return pl.DataFrame(
        rows, {"layer": pl.Int32, "part": pl.String, "index": pl.Float64}, orient="row"
    )


def subspace_diversity(bases: Tensor) -> float | None:
    """The index of `head_diversity` for the column spaces of (heads, d, s); None for one head."""
    if len(bases) < 2:
        return None
    orthonormal = torch.linalg.qr(bases.double()).Q
    cosines = torch.einsum("ids,jdr->ijsr", orthonormal, orthonormal)
    shared = (
        cosines.square().sum((-1, -2)) / bases.shape[-1]
    )  # mean squared cosine of the principal angles
    first, second = torch.triu_indices(len(bases), len(bases), offset=1)
    return float(1 - shared[first, second].mean())
