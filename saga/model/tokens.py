"""Person-year -> token: typed subvectors (earnings, continuous, categorical, missingness, age), each projected and summed.

The sum of projections equals one projection of the concatenated subvectors; kept apart, a rollout recomputes only what changes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from saga.features.sequences import N_OTHER, POSITIVE, UNKNOWN, ZERO
from saga.schema import CATEGORICAL, MAX_AGE, MIN_AGE

# Embedding widths of the paper, by column.
CODE_WIDTHS = {"occupation": 24, "industry": 16, "county": 8}
DEFAULT_CODE_WIDTH = 4
AGES = MAX_AGE - MIN_AGE + 1
_EARNINGS_KNOTS = 40


class Tokens(nn.Module):
    """Token embedding. Earnings enter three ways: the standardised level, its state, and a piecewise linear encoding on the
    head's own knots (Gorishniy et al. 2022, eq. 1), which lets a small network copy a level precisely."""

    knots: Tensor
    missingness = True  # whether flags say which values of the other columns are missing; without them, missing looks like average

    def __init__(
        self, width: int, vocabulary: tuple[int, ...], knots: Tensor, centre: float, scale: float
    ) -> None:
        super().__init__()
        self.centre, self.scale = centre, scale
        stride = max(1, (len(knots) - 1) // _EARNINGS_KNOTS)
        self.register_buffer("knots", knots[::stride].clone(), persistent=False)
        widths = [CODE_WIDTHS.get(name, DEFAULT_CODE_WIDTH) for name in CATEGORICAL]
        self.codes = nn.ModuleList(
            nn.Embedding(size, w) for size, w in zip(vocabulary, widths, strict=True)
        )
        self.earnings = nn.Linear(self.earnings_size, width, bias=False)
        self.other = nn.Linear(2 * N_OTHER, width, bias=False)
        self.category = nn.Linear(sum(widths), width, bias=False)
        self.age = nn.Embedding(AGES, width)

    @property
    def earnings_size(self) -> int:
        """Width of `encode_earnings`."""
        return 3 + 1 + len(self.knots) - 1

    def encode_earnings(self, state: Tensor, z: Tensor) -> Tensor:
        """(...,) state and relative log earnings -> (..., earnings_size): three flags, the standardised level, the piecewise code."""
        positive = (state == POSITIVE).to(z.dtype)
        low, high = self.knots[:-1], self.knots[1:]
        piecewise = ((z[..., None] - low) / (high - low)).clamp(0, 1) * positive[..., None]
        level = ((z - self.centre) / self.scale).clamp(-6, 6) * positive
        flags = [(state == UNKNOWN).to(z.dtype), (state == ZERO).to(z.dtype), positive, level]
        return torch.cat([torch.stack(flags, -1), piecewise], -1)

    def embed_earnings(self, state: Tensor, z: Tensor) -> Tensor:
        """(...,) state and relative log earnings -> (..., width)."""
        out: Tensor = self.earnings(self.encode_earnings(state, z))
        return out

    def embed_other(self, other: Tensor) -> Tensor:
        """(..., 14) standardised values, NaN where missing -> (..., width); values and missingness are separate inputs."""
        missing = torch.isnan(other) & self.missingness
        out: Tensor = self.other(torch.cat([torch.nan_to_num(other), missing.to(other.dtype)], -1))
        return out

    def embed_codes(self, codes: Tensor) -> Tensor:
        """(..., 10) code numbers -> (..., width)."""
        out: Tensor = self.category(
            torch.cat([table(codes[..., j]) for j, table in enumerate(self.codes)], -1)
        )
        return out

    def embed_age(self, age: Tensor) -> Tensor:
        """(...,) ages -> (..., width)."""
        out: Tensor = self.age((age - MIN_AGE).clamp(0, AGES - 1))
        return out

    def forward(
        self, state: Tensor, z: Tensor, other: Tensor, codes: Tensor, age: Tensor
    ) -> Tensor:
        """All of a token's subvectors -> (n_person, n_token, width)."""
        return (
            self.embed_earnings(state, z)
            + self.embed_other(other)
            + self.embed_codes(codes)
            + self.embed_age(age)
        )
