"""Embedding of a person-year: the sum of projections of its parts to the model width.

The parts are earnings, continuous columns, categorical columns, missingness and age. The sum equals
one projection of all parts concatenated; because the projections are separate, a rollout computes
again only those of the parts that change.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from saga.features.sequences import N_OTHER, POSITIVE, UNKNOWN, ZERO
from saga.schema import CATEGORICAL, MIN_AGE, N_AGES

# Embedding widths of the paper, by column.
CODE_WIDTHS = {"occupation": 24, "industry": 16, "county": 8}
DEFAULT_CODE_WIDTH = 4
WIDE_CODE_WIDTH, MANY_CODES = 8, 30  # of a panel's own columns with many codes
_EARNINGS_KNOTS = 40  # the embedding of earnings has about as many; the head has more


class TokenEmbedding(nn.Module):
    """Embeds person-years as tokens.

    Earnings enter in three forms: their state, the standardised log amount, and a piecewise linear
    encoding on knots of the head (Gorishniy et al. 2022, eq. 1), from which a small network can
    reproduce an amount precisely. Without `missingness` flags, a missing value is encoded like an
    average one. Own columns of the panel have projections of their own.

    Args:
        width: Width of the model.
        vocabulary: Number of codes of each categorical column: of the schema, then own ones.
        knots: Knots of the head, in relative log earnings.
        centre: Centre of relative log earnings.
        scale: Their scale.
        n_own: Number of own continuous columns.
    """

    knots: Tensor
    missingness = True

    def __init__(
        self,
        width: int,
        vocabulary: tuple[int, ...],
        knots: Tensor,
        centre: float,
        scale: float,
        n_own: int = 0,
    ) -> None:
        super().__init__()
        self.centre, self.scale = centre, scale
        stride = max(1, (len(knots) - 1) // _EARNINGS_KNOTS)
        self.register_buffer("knots", knots[::stride].clone(), persistent=False)
        widths = [CODE_WIDTHS.get(name, DEFAULT_CODE_WIDTH) for name in CATEGORICAL]
        self.codes = nn.ModuleList(
            nn.Embedding(size, w) for size, w in zip(vocabulary, widths, strict=False)
        )
        self.earnings = nn.Linear(self.earnings_size, width, bias=False)
        self.other = nn.Linear(2 * N_OTHER, width, bias=False)
        self.category = nn.Linear(sum(widths), width, bias=False)
        self.age = nn.Embedding(N_AGES, width)
        own_codes = vocabulary[len(CATEGORICAL) :]
        self.own_other = nn.Linear(2 * n_own, width, bias=False) if n_own else None
        self.own_codes = self.own_category = None
        if own_codes:
            own_widths = [
                WIDE_CODE_WIDTH if n > MANY_CODES else DEFAULT_CODE_WIDTH for n in own_codes
            ]
            self.own_codes = nn.ModuleList(map(nn.Embedding, own_codes, own_widths))
            self.own_category = nn.Linear(sum(own_widths), width, bias=False)

    @property
    def earnings_size(self) -> int:
        """Width of `encode_earnings`."""
        return 3 + 1 + len(self.knots) - 1

    def encode_earnings(self, state: Tensor, z: Tensor) -> Tensor:
        """Encode earnings states and relative log earnings (...,) as (..., earnings_size).

        Three flags, the standardised log amount and the piecewise linear code.
        """
        positive = (state == POSITIVE).to(z.dtype)
        low, high = self.knots[:-1], self.knots[1:]
        piecewise = ((z[..., None] - low) / (high - low)).clamp(0, 1) * positive[..., None]
        standardised = ((z - self.centre) / self.scale).clamp(-6, 6) * positive
        unknown, zero = (state == UNKNOWN).to(z.dtype), (state == ZERO).to(z.dtype)
        return torch.cat([torch.stack([unknown, zero, positive, standardised], -1), piecewise], -1)

    def embed_earnings(self, state: Tensor, z: Tensor) -> Tensor:
        """Embed earnings states and relative log earnings (...,) as (..., width)."""
        embedding: Tensor = self.earnings(self.encode_earnings(state, z))
        return embedding

    def embed_other(self, other: Tensor) -> Tensor:
        """Embed the continuous columns but earnings, (..., 14 or more), as (..., width).

        They are standardised, and NaN if missing. Values and missingness are separate inputs.
        """
        embedding: Tensor = self.other(self._with_flags(other[..., :N_OTHER]))
        if self.own_other is not None:
            embedding = embedding + self.own_other(self._with_flags(other[..., N_OTHER:]))
        return embedding

    def _with_flags(self, other: Tensor) -> Tensor:
        missing = torch.isnan(other) & self.missingness
        return torch.cat([torch.nan_to_num(other), missing.to(other.dtype)], -1)

    def embed_codes(self, codes: Tensor) -> Tensor:
        """Embed code numbers (..., 10 or more) as (..., width)."""
        columns = [table(codes[..., j]) for j, table in enumerate(self.codes)]
        embedding: Tensor = self.category(torch.cat(columns, -1))
        if self.own_codes is not None and self.own_category is not None:
            numbered = enumerate(self.own_codes, len(CATEGORICAL))
            extra = [table(codes[..., j]) for j, table in numbered]
            embedding = embedding + self.own_category(torch.cat(extra, -1))
        return embedding

    def embed_age(self, age: Tensor) -> Tensor:
        """Embed ages (...,) as (..., width)."""
        embedding: Tensor = self.age((age - MIN_AGE).clamp(0, N_AGES - 1))
        return embedding

    def forward(
        self, state: Tensor, z: Tensor, other: Tensor, codes: Tensor, age: Tensor
    ) -> Tensor:
        """Sum of the embeddings of all parts, (n_person, n_token, width)."""
        return (
            self.embed_earnings(state, z)
            + self.embed_other(other)
            + self.embed_codes(codes)
            + self.embed_age(age)
        )
