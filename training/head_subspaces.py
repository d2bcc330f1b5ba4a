"""How different the attention heads of a layer are (docs/method/model.md)."""

from __future__ import annotations

import polars as pl
import torch
from torch import Tensor

from saga.model import Saga


def head_diversity(network: Saga) -> pl.DataFrame:
    """Distance between the attention heads of each layer (docs/method/model.md).

    Columns `layer`, `part` ("queries", "outputs") and `index`: 0 if all attention heads of a layer
    use one subspace, 1 if their subspaces are orthogonal, null for a layer with one.
    """
    rows = []
    for layer, block in enumerate(network.decoder.stack):
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
